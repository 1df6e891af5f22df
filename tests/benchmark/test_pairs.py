"""Plans of comparisons: the same pairs for every policy, and the steps that single runs have."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from conftest import TINY
from forgetscope.benchmark.controlled import controlled_plan
from forgetscope.benchmark.pairs import Comparison, comparison_plan
from forgetscope.benchmark.plans import Plan, benchmark_plan, run_plan
from forgetscope.benchmark.recipes import recorded_plan
from forgetscope.benchmark.records import record_plan, recorded_plans
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.data.library import data_facts, load_data
from forgetscope.errors import SpecError, StoreError
from forgetscope.spec import RunSpec
from forgetscope.store import Store

POLICIES = ("uniform", "herding", "entropy")


def steps_of(plan: Plan, policy: str) -> list[tuple[str, ...]]:
    return [chain.steps for chain in plan.chains if chain.policy == policy]


def test_policies_share_first_steps_and_second_steps_have_common_parents() -> None:
    plan = comparison_plan(Comparison(RunSpec(), POLICIES, pairs=4))
    assert len(plan.chains) == 3 * 4
    assert len(plan.jobs) == 4 + 2 * 3 * 4
    for siblings in zip(*(steps_of(plan, policy) for policy in POLICIES), strict=True):
        assert len({steps[0] for steps in siblings}) == 1
        assert {plan.jobs[steps[1]].parent for steps in siblings} == {siblings[0][0]}
        specs = [plan.jobs[steps[1]].spec for steps in siblings]
        assert len({spec.rehearsal.policy for spec in specs if spec.rehearsal}) == 3
        assert len({(spec.seed, spec.classes) for spec in specs}) == 1


def test_a_pair_is_what_a_single_run_with_its_seed_does() -> None:
    load_data("glyphs", TINY["image_size"])
    for options in ({"seed": 3}, {"seed": 3, "sequence_seed": 8}, {"seed": 3, "sequence": ((5, 1), (0, 2))}):
        plan = comparison_plan(Comparison(RunSpec(image_size=8, policy="boundary", **options), POLICIES, pairs=3))
        for number in range(3):
            later = {name: value + number if isinstance(value, int) else value for name, value in options.items()}
            run = RunSpec(image_size=8, policy="herding", **later)
            assert run_plan(run).chains[0].steps == steps_of(plan, "herding")[number]


def test_more_pairs_and_policies_contain_the_fewer() -> None:
    few, many = (comparison_plan(Comparison(RunSpec(), POLICIES[:n], pairs=m)) for n, m in ((2, 2), (len(POLICIES), 5)))
    assert few.jobs.keys() < many.jobs.keys()
    assert few.id != many.id


@pytest.mark.parametrize(
    ("options", "policies", "baseline", "message"),
    [
        ({}, ["uniform", "hering"], "uniform", "policy = 'hering' is not known. Did you mean 'herding'?"),
        ({}, ["uniform", "herding"], "entropy", "--baseline entropy is not among the policies. Known: uniform, herding."),
        ({}, ["uniform", "herding"], "unifrom", "--baseline unifrom is not among the policies. Did you mean 'uniform'?"),
        ({}, ["uniform"], "uniform", "--policies uniform: name at least two policies, and none twice"),
        ({}, ["uniform", "uniform"], "uniform", "--policies uniform,uniform: name at least two policies, and none twice"),
        ({"steps": 1}, ["uniform", "herding"], "uniform", "Use at least two steps"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    options: dict[str, int], policies: list[str], baseline: str, message: str
) -> None:
    with pytest.raises(SpecError) as error:
        Comparison(RunSpec(**options), policies, baseline)
    assert message in str(error.value)


def test_every_kind_of_plan_is_made_again_from_its_record(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), BenchmarkSpec.load("glyphs", {"experiments": 2, "epochs": 3, "image_size": 8})
    load_data("glyphs", 8)
    run = RunSpec(image_size=8, memory=100, sequence_seed=4)
    plans = [
        benchmark_plan(spec),
        controlled_plan(spec, runs=4),
        comparison_plan(Comparison(run, POLICIES, pairs=3, name="mine")),
    ]
    for plan in plans:
        record_plan(store, plan)
    again = {record["id"]: recorded_plan(record) for record in recorded_plans(store)}
    assert {id: plan.jobs for id, plan in again.items()} == {plan.id: plan.jobs for plan in plans}
    assert all(id == plan.id for id, plan in again.items())
    (controlled,) = [record for record in recorded_plans(store) if record["kind"] == "controlled"]
    assert controlled["reruns"] == json.loads(json.dumps([asdict(reruns) for reruns in plans[1].reruns]))


def test_a_plan_whose_data_are_gone_can_still_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_data("glyphs", 8)
    plan = comparison_plan(Comparison(RunSpec(image_size=8), POLICIES, pairs=2))
    record_plan(Store(tmp_path), plan)
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path / "empty"))
    assert data_facts("glyphs", 8).digest is None
    (record,) = recorded_plans(Store(tmp_path))
    again = recorded_plan(record)
    assert (again.id, again.jobs) == (plan.id, plan.jobs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": 10**9}, "experiments on 100 classes are not believable"),
        ({"pairs": "many"}, "cannot be read"),
        ({"data": {}}, "cannot be read (KeyError: 'augmentation')"),
        ({"run": "seed = ["}, "cannot be read (TOMLDecodeError"),
        ({"pairs": 3}, "cannot be made again"),
        ({"kind": "benchmark"}, "cannot be read (KeyError: 'benchmark')"),
    ],
)
def test_a_record_that_does_not_say_what_was_run_is_told(change: dict[str, object], message: str, tmp_path: Path) -> None:
    record_plan(Store(tmp_path), comparison_plan(Comparison(RunSpec(image_size=8), POLICIES, pairs=2)))
    (record,) = recorded_plans(Store(tmp_path))
    with pytest.raises(StoreError) as error:
        recorded_plan(record | change)
    assert message in str(error.value)
