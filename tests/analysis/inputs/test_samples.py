from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import forgetscope as fs
from forgetscope.analysis.inputs.cache import Cache
from forgetscope.analysis.inputs.measured_steps import read_steps
from forgetscope.analysis.inputs.samples import Collected, GridCell, Subset, collect
from forgetscope.analysis.results import analyse
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.store import Store
from made import make_experiment
from strangers import FIRST, SECOND, forge, golden_copy

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
    assert [(cell.increment, cell.retention) for cell in sample.cells] == [("2", "8")] * 2
    assert [step.associations[0] != step.associations[0] for step in sample.steps] == [True, False]  # two classes rank nothing


def test_two_versions_of_an_own_policy_are_two_samples(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    for seed, source in enumerate(("a" * 64, "a" * 64, "b" * 64)):
        make_experiment(store, steps=2, classes=3, policy="mine:choose", source=source, seed=seed)
    make_experiment(store, steps=2, classes=3, policy="mine:other", source="c" * 64)
    found = {sample.policy: len(sample.steps) for sample in gather(tmp_path).samples}
    assert found == {"mine:choose@aaaaaaaa": 2, "mine:choose@bbbbbbbb": 1, "mine:other": 1}


def test_two_versions_of_an_own_network_are_two_benchmarks(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    for seed, source in enumerate(("a" * 64, "a" * 64, "b" * 64)):
        make_experiment(store, steps=2, classes=3, network_source=source, seed=seed)
    found = {sample.benchmark: len(sample.steps) for sample in gather(tmp_path).samples}
    assert found == {"toy network=resnet8@aaaaaaaa": 2, "toy network=resnet8@bbbbbbbb": 1}


def test_data_of_the_same_name_and_other_content_are_other_benchmarks(tmp_path: Path) -> None:
    first, second = (golden_copy(tmp_path / name) for name in ("first", "second"))
    id = forge(second, FIRST, lambda info: info["data"].update(digest="other")).id
    forge(second, SECOND, lambda info: (info["data"].update(digest="other"), info.update(parent=id)))
    shutil.copytree(second.path / "steps", first.path / "steps", dirs_exist_ok=True)
    assert len({sample.benchmark for sample in gather(first.path).samples}) == 2


def test_percentages_are_of_the_classes_that_a_record_or_a_plan_tells(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    make_experiment(store, steps=3, classes=2)
    old = gather(tmp_path)
    assert ([cell.increment for cell in old.samples[0].cells], old.uncounted) == (["2 classes"] * 2, ("toy",))
    make_experiment(store, steps=3, classes=2, seed=1, data_classes=10)
    both = gather(tmp_path)
    assert ([cell.increment for cell in both.samples[0].cells], both.uncounted) == (["20"] * 4, ())


def test_the_data_that_happen_to_be_here_make_no_difference(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, store = tmp_path / "here", Store(tmp_path / "store")
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(here))
    images = np.random.default_rng(0).integers(0, 256, (100, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(100) % 10
    fs.add_arrays("toy", images, labels, images, labels)
    store.prepare()
    make_experiment(store, steps=3, classes=2)
    with_data = analyse(store, resamples=100, tables=["FG-R_FG-HG_fine_grained", "missing"], cached=False)
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path / "empty"))
    without = analyse(store, resamples=100, tables=["FG-R_FG-HG_fine_grained", "missing"], cached=False)
    for label in ("FG-R_FG-HG_fine_grained", "missing"):
        assert with_data.table(label).to_csv() == without.table(label).to_csv()
    assert "toy: how many classes it has is recorded neither in steps nor in plans" in without.table("missing").to_csv()


def test_fresh_runs_are_re_runs_and_no_steps_of_the_benchmark(tmp_path: Path) -> None:
    shape = {"experiments": 2, "increments": [0.1], "retentions": [0.08], "epochs": 2, "controlled_runs": "fresh"}
    simulate(BenchmarkSpec.load("cifar100", shape), Store(tmp_path), seed=1, reruns=3)
    found = gather(tmp_path)
    assert [len(sample.steps) for sample in found.samples] == [4]  # second and third steps of two experiments
    assert not found.samples[0].paired
    assert [(len(runs.runs), runs.missing) for runs in found.reruns] == [(4, 0)] * 2
    own = {step.facts.id for step in found.samples[0].steps}
    assert not own & {run.facts.id for runs in found.reruns for run in runs.runs}
