from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from scipy import stats

from conftest import TINY, run_experiment
from forgetscope.analysis.experiments import Experiment, overview
from forgetscope.analysis.index import glance
from forgetscope.analysis.questions.policies import compare_policies, planned_experiments
from forgetscope.benchmark.plans import Chain
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.report.terminal.experiments import comparison_view, experiment_view, overview_view, store_view
from forgetscope.spec import RunSpec
from forgetscope.store import Store
from made import make_experiment


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
    return glance(store)


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
    simulated = glance(Store(tmp_path))
    assert compare_policies([*simulated, *found]) == compare_policies(found)
    assert [row.means["accuracy"].n for row in compare_policies(simulated)] == [2, 2]


def test_without_a_baseline_there_is_nothing_to_compare(found: list[Experiment]) -> None:
    assert compare_policies([e for e in found if e.steps[-1].spec.rehearsal.policy == "herding"]) == []  # type: ignore[union-attr]


def test_a_step_that_diverged_is_in_no_pair_and_counted(found: list[Experiment], tmp_path: Path) -> None:
    store = Store(shutil.copytree(found[0].chain[0].folder.parents[1], tmp_path / "store"))
    (harmed,) = [e.chain[1] for e in found if _key(e) == (2, "herding", 0.08)]
    _make_diverged(store.step(harmed.id).folder)
    uniform, herding = compare_policies(glance(store))
    assert (uniform.pairs, uniform.diverged, herding.pairs, herding.diverged) == (2, 0, 2, 1)


def test_where_classes_were_barely_learned_the_table_says_so_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    learned = {"uniform": {0: 0.02}, "herding": {}}
    made = [make_experiment(store, steps=2, classes=4, learned=learned[policy], policy=policy) for policy in learned]
    rows = compare_policies(made)
    console = Console(width=200, file=io.StringIO())
    console.print(comparison_view(rows))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.startswith("Step 2, herding and uniform: 1 of 4 past classes was barely learned, in 1 of 1 pair")
    assert "Nothing is concluded of herding." in text


def test_only_the_chains_of_a_plan_and_of_them_what_is_there(found: list[Experiment]) -> None:
    store = Store(found[0].chain[0].folder.parents[1])
    chains = [[step.id for step in e.chain] for e in found if _key(e)[0] == 1]
    ids = [*chains, [chains[0][0], "0" * 32], ["1" * 32, "2" * 32]]
    planned = planned_experiments(store, [Chain(steps=tuple(one), policy="uniform") for one in ids])
    assert [len(e.chain) for e in planned] == [2, 2, 1]
    assert [row.pairs for row in compare_policies(planned)] == [1, 1]
    assert [row.policy for row in compare_policies(planned, baseline="herding")] == ["herding", "uniform"]


def test_two_versions_of_an_own_policy_are_two_policies(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    for seed in range(2):
        make_experiment(store, steps=2, classes=3, seed=seed)
        for source in ("a" * 64, "b" * 64):
            make_experiment(store, steps=2, classes=3, seed=seed, policy="mine:choose", source=source)
    rows = [(row.policy, row.pairs) for row in compare_policies(glance(store))]
    assert rows == [("uniform", 2), ("mine:choose@aaaaaaaa", 2), ("mine:choose@bbbbbbbb", 2)]
    means = overview(glance(store))
    assert [row.experiments for row in means] == [2, 2, 2]
    named = ["mine:choose@aaaaaaaa", "mine:choose@bbbbbbbb", "uniform"]
    heads = [part for row in means for part in row.setting if part.startswith("policy")]
    assert sorted(heads) == [f'policy="{name}"' for name in named]
    listed = Console(width=200, file=io.StringIO())
    listed.print(store_view(glance(store)))
    shown = listed.file.getvalue()  # type: ignore[attr-defined]
    assert [shown.count(f" {name} ") for name in named] == [2, 2, 2]


def test_views_of_a_store_say_reliability_and_how_to_see_all(found: list[Experiment]) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(store_view(found * 3), experiment_view(found[0]), overview_view(overview(found)))
    text = console.export_text()
    assert "21 experiments, the latest 20 (all of them: --json)" in text
    assert re.search(r" spread +reliability +ρ SIC ", text)
    assert re.search(r"^reliability( +−?\d\.\d\d( \(−?\d+\.\d\d, −?\d+\.\d\d\))?)+ *$", text, re.MULTILINE)
    assert re.search(r"^  at most( +\d\.\d\d( \(\d\.\d\d, \d\.\d\d\))?)+ *$", text, re.MULTILINE)


def _key(experiment: Experiment) -> tuple[int, str, float | None]:
    spec = experiment.chain[1].spec
    assert spec.rehearsal is not None
    return spec.seed, spec.rehearsal.policy, spec.rehearsal.retention


def _make_diverged(folder: Path) -> None:
    info = json.loads((folder / "step.json").read_bytes())
    info |= {"status": "diverged", "divergence": {"epoch": 1, "iteration": 3, "loss": "nan"}}
    content = json.dumps(info).encode()
    (folder / "step.json").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["step.json"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
