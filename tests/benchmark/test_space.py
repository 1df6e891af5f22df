"""The space and its sample: counts as in the paper, uniform sequences, nothing that depends on order."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from scipy import stats

from forgetscope.benchmark.space import BenchmarkSpec, Partition, preset_text, presets, sample
from forgetscope.errors import SpecError

PAPER = [Partition(increment, retention) for increment in (0.1, 0.2, 0.5) for retention in (0.08, 0.2, 0.4)]


def spec(**options: object) -> BenchmarkSpec:
    return BenchmarkSpec(**{"name": "test", **options})


@pytest.mark.parametrize(("preset", "classes"), [("cifar100", 100), ("tiny-imagenet", 200)])
def test_the_papers_benchmarks_have_the_papers_numbers(preset: str, classes: int) -> None:
    paper = BenchmarkSpec.load(preset)
    drawn = sample(paper, classes)
    assert paper.partitions(2) == PAPER
    assert paper.partitions(3) == PAPER[:6]
    assert len(drawn) == 360
    assert Counter(d.partition for d in drawn) == dict.fromkeys(PAPER, 40)
    assert {d.partition.increment: len(d.sequence) for d in drawn} == {0.1: 3, 0.2: 3, 0.5: 2}
    for d in drawn:
        sizes = {len(group) for group in d.sequence}
        assert sizes == {round(d.partition.increment * classes)}
        assert len(set().union(*d.sequence)) == sum(len(group) for group in d.sequence)


@pytest.mark.parametrize("preset", presets())
def test_presets_are_files_that_load_and_write_themselves(preset: str, tmp_path: Path) -> None:
    loaded = BenchmarkSpec.load(preset)
    assert loaded.name == preset
    file = tmp_path / "copy.toml"
    file.write_text(loaded.to_toml())
    assert BenchmarkSpec.load(file) == loaded
    assert preset_text(preset).startswith("# ")


def test_no_sequence_and_seed_occur_together_twice() -> None:
    drawn = sample(spec(increments=(0.5,), retentions=(0.1, 0.2), experiments=200), 4)  # six sequences only
    assert len({(d.sequence, d.run.seed) for d in drawn}) == len(drawn) == 400


def test_sequences_are_uniform() -> None:
    """Every distinct sequence of two steps of two classes out of six is equally likely: a chi-square test over 90."""
    every = [(a, b) for a in combinations(range(6), 2) for b in combinations(sorted(set(range(6)) - set(a)), 2)]
    drawn = sample(spec(increments=(1 / 3,), retentions=(0.1,), steps=2, experiments=9000), 6)
    counts = Counter(d.sequence for d in drawn)
    assert set(counts) == set(every)
    assert stats.chisquare([counts[s] for s in every]).pvalue > 0.001


def test_sequences_and_seeds_of_different_partitions_are_unrelated() -> None:
    drawn = sample(spec(experiments=500, increments=(0.1,), retentions=(0.08, 0.2)), 100)
    by_cell = [[d for d in drawn if d.partition.retention == retention] for retention in (0.08, 0.2)]
    shared = [len(set(a.sequence[0]) & set(b.sequence[0])) for a, b in zip(*by_cell, strict=True)]
    expected = [stats.hypergeom.pmf(k, 100, 10, 10) for k in range(4)]
    counts = [shared.count(k) for k in range(4)]
    counts.append(len(shared) - sum(counts))
    assert stats.chisquare(counts, [500 * p for p in (*expected, 1 - sum(expected))]).pvalue > 0.001
    assert not {d.run.seed for d in by_cell[0]} & {d.run.seed for d in by_cell[1]}


@given(st.integers(1, 6), st.integers(0, 3), st.sampled_from(["independent", "paired"]))
def test_a_larger_sample_contains_the_smaller(experiments: int, seed: int, design: str) -> None:
    small, large = (spec(experiments=n, seed=seed, design=design) for n in (experiments, experiments + 2))
    assert set(map(repr, sample(small, 20))) < set(map(repr, sample(large, 20)))


@given(st.permutations([0.1, 0.2, 0.5]), st.permutations([0.08, 0.2, 0.4]), st.sampled_from(["independent", "paired"]))
def test_the_sample_does_not_depend_on_the_order_of_the_cells(
    increments: list[float], retentions: list[float], design: str
) -> None:
    usual, other = (
        spec(experiments=2, design=design),
        spec(experiments=2, design=design, increments=increments, retentions=retentions),
    )
    assert sorted(map(repr, sample(usual, 20))) == sorted(map(repr, sample(other, 20)))


@pytest.mark.parametrize("design", ["independent", "paired"])
def test_each_increment_may_have_its_own_number_of_experiments(design: str) -> None:
    few = sample(spec(experiments=[3, 1, 2], design=design), 20)
    assert Counter(d.partition.increment for d in few) == {0.1: 9, 0.2: 3, 0.5: 6}
    assert set(map(repr, few)) < set(map(repr, sample(spec(experiments=3, design=design), 20)))


def test_another_retention_leaves_the_other_partitions_as_they_were() -> None:
    few, more = (sample(spec(experiments=3, retentions=r), 100) for r in ((0.08,), (0.08, 0.3)))
    assert [d for d in more if d.partition.retention == 0.08] == few


def test_a_paired_design_has_the_same_sequences_and_seeds_everywhere() -> None:
    drawn = sample(spec(design="paired", policies=("uniform", "herding"), experiments=4, increments=(0.1,)), 100)
    assert len(drawn) == 3 * 2 * 4
    assert len({(d.sequence, d.run.seed) for d in drawn}) == 4
    assert {(d.number, d.run.seed) for d in drawn} == {(d.number, d.run.seed) for d in drawn if d.policy == "herding"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"increments": [0.6]}, r"increments: 0.6 leaves no classes for a second step.* Use at most 0.5\."),
        ({"increments": []}, "increments = .* must name at least one value"),
        ({"retentions": [0.1, 0.1]}, "retentions = .* none twice"),
        ({"policies": ["herdin"]}, r"policy = 'herdin' is not known. Did you mean 'herding'\?$"),
        ({"polices": ["herding"]}, r"There is no option 'polices'. Did you mean 'policies'\?$"),
        ({"increment": 0.1}, "increment is not an option of a benchmark. Use increments"),
        ({"memory": 100}, "memory is not an option of a benchmark. Use retentions"),
        ({"memory_bytes": 100}, "memory_bytes is not an option of a benchmark. Use retentions"),
        ({"design": "pared"}, "design = 'pared' is not known. Did you mean 'paired'"),
        ({"epochs": 0}, "epochs = 0 is not valid"),
        ({"experiments": 0}, "experiments = 0 is not valid"),
        ({"experiments": [3, 0, 3]}, "experiments"),
        ({"experiments": [3, 4]}, r"experiments = \[3, 4\] for 3 increments: give one number, or one for each of them"),
        ({"name": "a/b"}, "name = 'a/b' is not valid"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec(**options)


def test_an_increment_must_be_a_whole_number_of_classes() -> None:
    with pytest.raises(SpecError, match=r"increment = 0.15 of 10 classes is 1.5 .* Nearest valid values: 0.1 and 0.2"):
        sample(spec(increments=[0.15]), 10)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"There is no preset and no file 'cifar10'. Did you mean 'cifar100'\?"):
        BenchmarkSpec.load("cifar10")
    broken = tmp_path / "broken.toml"
    broken.write_text("epochs = ")
    with pytest.raises(SpecError, match=r"Cannot read .*broken.toml"):
        BenchmarkSpec.load(broken)
    broken.write_text("epoch = 3")
    with pytest.raises(SpecError, match=r"broken.toml: There is no option 'epoch'"):
        BenchmarkSpec.load(broken)
