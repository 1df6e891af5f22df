"""Controlled plans: which steps are picked, and which other classes they are given."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from forgetscope.benchmark.controlled import controlled_plan, other_classes
from forgetscope.benchmark.plans import benchmark_plan, chain_of
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.data.library import data_facts
from forgetscope.errors import SpecError
from forgetscope.spec import StepSpec

GLYPHS = data_facts("glyphs")


def without_classes(spec: StepSpec) -> StepSpec:
    return spec.model_copy(update={"classes": ()})


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), runs=st.integers(2, 25))
def test_reruns_change_the_new_classes_alone(seed: int, runs: int) -> None:
    plan = controlled_plan(BenchmarkSpec.load("glyphs", {"seed": seed, "experiments": 2}), GLYPHS, runs)
    assert len(plan.reruns) == 6 + 6  # second and third steps with 10 % and 20 % increments; with 50 % there is no choice
    for picked in plan.reruns:
        original, others = plan.jobs[picked.original], [plan.jobs[id] for id in picked.others]
        learned = {label for job in chain_of(plan.jobs, picked.original)[:-1] for label in job.spec.classes}
        assert original.spec.step == picked.step
        assert len(original.spec.classes) == round(100 * picked.partition.increment)
        assert original.spec.rehearsal is not None
        assert original.spec.rehearsal.retention == picked.partition.retention
        assert len({job.spec.classes for job in others} | {original.spec.classes}) == runs + 1  # none twice
        for job in others:
            assert (job.parent, job.past_classes) == (original.parent, original.past_classes)
            assert without_classes(job.spec) == without_classes(original.spec)
            assert len(set(job.spec.classes)) == len(original.spec.classes)
            assert list(job.spec.classes) == sorted(job.spec.classes)
            assert not learned & set(job.spec.classes)
            assert set(job.spec.classes) <= set(range(100))


def test_the_picked_steps_are_the_benchmarks_and_nothing_is_run_after_them() -> None:
    spec = BenchmarkSpec.load("glyphs", {"experiments": 3})
    plan, whole = controlled_plan(spec, GLYPHS), benchmark_plan(spec, GLYPHS)
    reruns = {id for picked in plan.reruns for id in picked.others}
    assert plan.jobs.keys() - reruns <= whole.jobs.keys()
    assert not reruns & whole.jobs.keys()
    wanted = {job.id for picked in plan.reruns for job in chain_of(plan.jobs, picked.original)}
    assert plan.jobs.keys() == reruns | wanted


def test_the_same_plan_each_time_and_another_for_another_seed() -> None:
    def reruns(seed: int) -> list[object]:
        return list(controlled_plan(BenchmarkSpec.load("glyphs", {"seed": seed}), GLYPHS).reruns)

    assert reruns(0) == reruns(0)
    assert reruns(0) != reruns(1)


def test_a_partition_does_not_depend_on_the_others() -> None:
    all_of_them = controlled_plan(BenchmarkSpec.load("glyphs"), GLYPHS)
    one = controlled_plan(BenchmarkSpec.load("glyphs", {"increments": [0.2], "retentions": [0.4], "steps": 2}), GLYPHS)
    assert one.reruns[0] in all_of_them.reruns


@pytest.mark.parametrize("position", [0, 4])
def test_every_set_of_classes_is_equally_likely(position: int) -> None:
    """Classes 2 to 7 are free: 15 pairs, 14 without the original. The first and the last one drawn, 4,200 times each."""
    rng = np.random.default_rng(1)
    counts = Counter(other_classes([0, 1], (3, 6), 8, 5, rng)[position] for _ in range(4200))
    assert set(counts) == set(itertools.combinations(range(2, 8), 2)) - {(3, 6)}
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


def test_all_sets_can_be_asked_for() -> None:
    found = other_classes([0], (1, 2), 5, 5, np.random.default_rng(0))
    assert sorted(found) == [(1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]


def test_where_the_classes_leave_no_choice() -> None:
    with pytest.raises(SpecError, match=r"in no partition can the new classes be chosen in 20 ways\. Use smaller increments"):
        controlled_plan(BenchmarkSpec.load("glyphs", {"increments": [0.5]}), GLYPHS)


def test_without_probes_there_is_nothing_to_correlate() -> None:
    with pytest.raises(SpecError, match="probe_every = 0 measures neither NIC nor SIC"):
        controlled_plan(BenchmarkSpec.load("glyphs", {"probe_every": 0}), GLYPHS)


def test_fresh_runs_are_of_experiment_0_and_the_original_is_not_among_them() -> None:
    shape = {"experiments": 3, "increments": [0.1, 0.2], "retentions": [0.08]}
    spec = BenchmarkSpec.load("glyphs", {**shape, "controlled_runs": "fresh"})
    plan, whole = controlled_plan(spec, GLYPHS), benchmark_plan(spec, GLYPHS)
    assert whole.jobs.keys() == benchmark_plan(BenchmarkSpec.load("glyphs", shape), GLYPHS).jobs.keys()
    assert len(plan.reruns) == 4
    for picked in plan.reruns:
        runs = [plan.jobs[id] for id in (picked.original, *picked.others)]
        (own,) = (chain for chain in whole.chains if chain.partition == picked.partition and chain.number == 0)
        assert {job.parent for job in runs} == {own.steps[picked.step - 2]}
        original = whole.jobs[own.steps[picked.step - 1]].spec
        sets = {job.spec.classes for job in runs}
        assert len(sets) == 20
        assert original.classes not in sets
        assert (own.steps[picked.step - 1] in plan.jobs) == (picked.step == 2)  # what third steps build on
        assert {without_classes(job.spec) for job in runs} == {without_classes(original)}


def test_fresh_runs_need_one_more_way_to_choose() -> None:
    shape = {"increments": [0.5], "retentions": [0.08], "steps": 2, "experiments": 1}
    four = replace(GLYPHS, classes=4)  # of the two that are left, two: one way, the original
    for kind in ("original", "fresh"):
        with pytest.raises(SpecError, match="in no partition can the new classes be chosen"):
            controlled_plan(BenchmarkSpec(name="four", controlled_runs=kind, **shape), four, 1)
    six = replace(GLYPHS, classes=6)
    few = BenchmarkSpec(name="six", controlled_runs="fresh", **{**shape, "increments": [1 / 3]})
    assert len(controlled_plan(few, six, 4).reruns) == 1  # 6 ways without the original are 5 runs
    with pytest.raises(SpecError, match="in no partition"):
        controlled_plan(few, six, 5)
