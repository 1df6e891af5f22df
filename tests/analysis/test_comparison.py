from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats

from conftest import TINY
from forgetscope.analysis.comparison import compare_policies
from forgetscope.analysis.experiments import Experiment, experiments
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.experiment import run_experiment
from forgetscope.spec import RunSpec
from forgetscope.store import Store


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    """Three seeds with two policies each, and herding once more with another retention, which is nobody's sibling."""
    store = Store(tmp_path_factory.mktemp("policies"))
    runs = [(seed, policy, 0.08) for seed in range(3) for policy in ("uniform", "herding")] + [(0, "herding", 0.2)]
    for seed, policy, retention in runs:
        options = {
            **TINY,
            "sequence": ((0, 1, 2), (3, 4)),
            "seed": seed,
            "policy": policy,
            "retention": retention,
            "probe_every": 0,
        }
        run_experiment(RunSpec(**options), store, device="cpu", threads=1)
    return experiments(store)


def test_differences_are_paired_within_common_parents(found: list[Experiment]) -> None:
    uniform, herding = compare_policies(found)
    assert (uniform.policy, herding.policy) == ("uniform", "herding")
    assert uniform.means["accuracy"].n == herding.means["accuracy"].n == 3
    by: dict[tuple[int, str], float] = {}
    for experiment in found:
        spec = experiment.steps[-1].spec
        if spec.rehearsal and spec.rehearsal.retention == 0.08:
            by[spec.seed, spec.rehearsal.policy] = experiment.summaries[-1].accuracy
    pairs = [by[seed, "herding"] - by[seed, "uniform"] for seed in range(3)]
    low, high = stats.t.interval(0.95, 2, loc=sum(pairs) / 3, scale=stats.sem(pairs))
    difference = herding.differences["accuracy"]
    assert (difference.value, difference.low, difference.high) == (
        pytest.approx(sum(pairs) / 3),
        pytest.approx(low),
        pytest.approx(high),
    )
    assert uniform.differences["accuracy"].value == 0


def test_simulated_pairs_are_in_no_mean_with_real_ones(found: list[Experiment], tmp_path: Path) -> None:
    options = {"image_size": 8, "epochs": 1, "increments": (0.02,), "retentions": (0.08,), "steps": 2, "experiments": 2}
    policies = {"policies": ("uniform", "herding"), "design": "paired"}
    simulate(BenchmarkSpec(name="pairs", **options, **policies), Store(tmp_path), reruns=0)
    simulated = experiments(Store(tmp_path))
    assert compare_policies([*simulated, *found]) == compare_policies(found)
    assert [row.means["accuracy"].n for row in compare_policies(simulated)] == [2, 2]


def test_without_a_baseline_there_is_nothing_to_compare(found: list[Experiment]) -> None:
    assert compare_policies([e for e in found if e.steps[-1].spec.rehearsal.policy == "herding"]) == []  # type: ignore[union-attr]
