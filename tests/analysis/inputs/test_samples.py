from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from forgetscope.analysis.inputs.cache import Cache
from forgetscope.analysis.inputs.measured_steps import read_steps
from forgetscope.analysis.inputs.samples import GridCell, Collected, Subset, collect
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.store import Store

SMALL = {"experiments": 2, "epochs": 2, "increments": [0.2], "retentions": [0.08, 0.2]}


def gather(path: Path) -> Collected:
    store = Store(path)
    return collect(store, read_steps(store, Cache(None), lambda what, done, total: None))


def test_the_paper_s_benchmarks_have_its_subsets_and_partitions(paper_store: Path) -> None:
    found = gather(paper_store)
    assert [(sample.benchmark, sample.policy) for sample in found.samples] == [("C100", "uniform"), ("TIN", "uniform")]
    for sample in found.samples:
        assert [str(subset) for subset in sample.subsets] == ["2", "2_10_20", "3"]
        assert [len(sample.partitions(step)) for step in (2, 3)] == [9, 6]
        assert [int(sample.mask(cell).sum()) for cell in sample.partitions(2)] == [3] * 9
        assert int(sample.mask(GridCell(3, "pooled", "10")).sum()) == 9
        assert int(sample.mask(Subset(2, ("10", "20"))).sum()) == 18
        assert sample.simulated is not None
        assert not sample.paired


@pytest.mark.parametrize("plans", [True, False], ids=["with plans", "without plans"])
def test_re_runs_are_not_steps_of_the_benchmark(paper_store: Path, tmp_path: Path, plans: bool) -> None:
    (tmp_path / "steps").symlink_to(paper_store / "steps")
    found = gather(paper_store if plans else tmp_path)
    assert [len(sample.steps) for sample in found.samples] == [45, 45]
    assert [(len(runs.runs), runs.missing) for runs in found.reruns] == [(4, 0)] * 24
    for runs in found.reruns:
        assert len({run.facts.parent for run in runs.runs}) == 1
        assert len({run.facts.new_classes for run in runs.runs}) == 4


def test_trained_and_simulated_steps_and_different_settings_are_kept_apart(tiny_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(tiny_store, tmp_path / "store"))
    spec = BenchmarkSpec.load("glyphs", SMALL)
    simulate(spec, Store(store), seed=1, reruns=0)
    simulate(spec, Store(store), seed=2, reruns=0)
    found = gather(store)
    assert len(found.samples) == len({sample.benchmark for sample in found.samples}) == 3
    assert [sample.simulated is None for sample in found.samples].count(True) == 1
    assert all(sample.benchmark.startswith("glyphs ") for sample in found.samples)
    assert sorted(len(sample.steps) for sample in found.samples) == [2, 8, 8]


def test_policies_are_samples_of_one_benchmark_and_a_paired_design_is_noticed(tmp_path: Path) -> None:
    spec = BenchmarkSpec.load("glyphs", {**SMALL, "policies": ["uniform", "herding"], "design": "paired"})
    simulate(spec, Store(tmp_path), reruns=0)
    found = gather(tmp_path)
    assert [(sample.benchmark, sample.policy) for sample in found.samples] == [("glyphs", "uniform"), ("glyphs", "herding")]
    for sample in found.samples:
        assert sample.paired
        assert len(set(sample.root)) == 2
    assert set(found.samples[0].root) == set(found.samples[1].root)


def test_a_real_experiment_is_a_sample_of_its_own_increment(tiny_store: Path) -> None:
    (sample,) = gather(tiny_store).samples
    assert (sample.benchmark, sample.simulated) == ("glyphs", None)
    assert [str(subset) for subset in sample.subsets] == ["2", "3"]
    assert sample.increment == ["2", "2"]
    assert sample.retention == ["8", "8"]
    assert [step.associations[0] != step.associations[0] for step in sample.steps] == [True, False]  # two classes rank nothing
