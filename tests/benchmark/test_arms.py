"""Plans of arms: what they share, what they do not, and how they are told and remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forgetscope.benchmark.arms import arm_text, chains_by_arm, changed, parse_arm
from forgetscope.benchmark.pairs import Comparison, comparison_plan
from forgetscope.benchmark.plans import run_plan
from forgetscope.benchmark.recipes import recorded_plan
from forgetscope.benchmark.records import Journal, first_pairs, folder_of, record_plan, recorded_plans
from forgetscope.data.library import load_data
from forgetscope.errors import SpecError
from forgetscope.spec import RunSpec
from forgetscope.store import Store

RUN = RunSpec(image_size=8, steps=3, retention=0.1, sequence_seed=5)
ARMS: dict[str, dict[str, object]] = {
    "plain": {},
    "herding": {"policy": "herding", "epochs": 5},
    "fixed": {"memory": 200},
    "held": {"validation": 0.1, "alpha": [0.5, 0.25]},
}


def test_arms_share_first_steps_where_these_can_be_common() -> None:
    load_data("glyphs", 8)
    chains = chains_by_arm(comparison_plan(Comparison(RUN, arms=ARMS, pairs=2)))
    assert list(chains) == ["plain", "again", "herding", "fixed", "held"]
    for number in range(2):
        first = {name: of[number].steps[0] for name, of in chains.items()}
        assert first["again"] == first["herding"] == first["fixed"] == first["plain"] != first["held"]
        assert len({of[number].steps[1] for of in chains.values()}) == 5


def test_the_baseline_is_what_a_single_run_does_and_again_is_it_with_other_draws() -> None:
    load_data("glyphs", 8)
    plan = comparison_plan(Comparison(RUN, arms=ARMS, pairs=2, baseline="fixed"))
    chains = chains_by_arm(plan)
    assert list(chains)[:2] == ["fixed", "again"]
    for number in range(2):
        options = {"image_size": 8, "memory": 200, "sequence_seed": 5 + number, "seed": number}
        assert run_plan(RunSpec(**options)).chains[0].steps == chains["fixed"][number].steps
        assert run_plan(RunSpec(**options, draws=1)).chains[0].steps == chains["again"][number].steps


@pytest.mark.parametrize("given", [{"memory": 200}, {"memory_bytes": 60_000}, {"retention": 0.2}])
def test_what_says_how_much_is_kept_replaces_whatever_the_run_says(given: dict[str, object]) -> None:
    for run in (RUN, RunSpec(memory=100), RunSpec(memory_bytes=10**6)):
        arm = changed(run, given)
        assert {name: getattr(arm, name) for name in given} == given
        assert sum(getattr(arm, name) is not None for name in ("memory", "memory_bytes")) == ("retention" not in given)


def test_without_again_there_are_the_arms_alone() -> None:
    assert [*Comparison(RUN, arms=ARMS, again=False).all_arms] == [*ARMS]
    assert [*Comparison(RUN, ["uniform", "herding"], again=True).all_arms] == ["uniform", "again", "herding"]
    assert not Comparison(RUN, ["uniform", "herding"]).in_arms


def test_a_plan_of_arms_is_made_again_from_its_record(tmp_path: Path) -> None:
    load_data("glyphs", 8)
    spec = Comparison(RUN, arms={**ARMS, "released": {"script_behaviour": "released"}}, baseline="held", pairs=2, name="mine")
    plan = comparison_plan(spec)
    record_plan(Store(tmp_path), plan)
    (record,) = recorded_plans(Store(tmp_path))
    again = recorded_plan(record)
    assert (again.id, again.jobs, again.chains) == (plan.id, plan.jobs, plan.chains)


LATER = {  # one was renamed and spelled otherwise, one dropped, one added
    **{"plain": {}, "renamed": {"epochs": 5, "policy": "herding", "method": "replay"}},
    **{"held": ARMS["held"], "few": {"retention": 0.02}},
}


def test_pairs_that_are_added_later_are_known_as_such(tmp_path: Path) -> None:
    load_data("glyphs", 8)
    store = Store(tmp_path)
    small, large, other = (
        comparison_plan(Comparison(RUN, arms=arms, pairs=pairs))
        for arms, pairs in ((ARMS, 3), (LATER, 5), ({"plain": {"memory": 90}, "few": {"retention": 0.02}}, 2))
    )
    for plan, time in ((other, "2026-01-01"), (small, "2026-01-02"), (large, "2026-01-03")):
        record_plan(store, plan)
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr("forgetscope.benchmark.records.datetime", _Clock(time))
            Journal(folder_of(store, plan)).write("started", steps=1)
    assert first_pairs(store, small) == dict.fromkeys(("again", "herding", "fixed", "held"), 3)
    assert first_pairs(store, large) == {"again": 3, "renamed": 3, "held": 3, "few": 5}
    assert first_pairs(store, other) == {"again": 2, "few": 2}  # of another baseline
    assert [record["pairs"] for record in recorded_plans(store) if record["id"] == small.id] == [3]


class _Clock:
    def __init__(self, time: str) -> None:
        self.time = time

    def now(self, zone: object) -> _Clock:
        return self

    def isoformat(self, timespec: str) -> str:
        return self.time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", ("plain", {})),
        ("plain:", ("plain", {})),
        ('own: policy="mine:choose", retention=0.1', ("own", {"policy": "mine:choose", "retention": 0.1})),
        ("own: policy=mine:choose, alpha=[0.5, 0.25]", ("own", {"policy": "mine:choose", "alpha": [0.5, 0.25]})),
        ("two words: flip = true", ("two words", {"flip": True})),
    ],
)
def test_arms_are_given_in_words(text: str, expected: tuple[str, dict[str, object]]) -> None:
    assert parse_arm(text) == expected
    assert parse_arm(arm_text(*expected)) == expected


@pytest.mark.parametrize("text", ["policy=herding", ": policy=herding", "few: retention", "few: a=1, a=2 x"])
def test_what_is_no_arm_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--arm"):
        parse_arm(text)


def _both(option: str, *values: str) -> dict[str, dict[str, object]]:
    return {name: {option: value} for name, value in zip("bc", values, strict=True)}


@pytest.mark.parametrize(
    ("arms", "options", "message"),
    [
        ({"a": {}}, {"again": False}, "--arm a: name a second arm to compare it with"),
        ({"a": {}, "b": {}}, {}, "--arm b: that is a once more"),
        ({"a": {}, "b": {"draws": 1}}, {}, "--arm b: that is again once more"),
        ({"a": {}, "b": {"method": "replay()"}}, {}, "--arm b: that is a once more"),
        ({"a": {}, **_both("method", "distillation", "distillation(weight=1)")}, {}, "--arm c: that is b once more"),
        ({"a": {}, **_both("calibration", "offset", "offset(logits=0.5)")}, {}, "--arm c: that is b once more"),
        ({"a": {}, **_both("calibration", "evening", "evening(level=forgetting)")}, {}, "--arm c: that is b once more"),
        ({"a": {}, "b": {"retention": 0.1, "epochs": RunSpec().epochs, "draws": 0}}, {}, "--arm b: that is a once more"),
        ({"a": {}, "again": {"retention": 0.2}}, {}, "--arm again: that is the baseline with other draws"),
        ({"a": {}, "b": {"seed": 1}}, {}, "--arm b: seed is what a pair has in common"),
        ({"a": {}, "b": {"retenton": 1}}, {}, "--arm b: retenton is no option of a run. Did you mean 'retention'?"),
        ({"a": {}, "b": {"retention": 8}}, {}, "--arm b: retention = 8 is not valid"),
        ({"a": {}, "b": {"retention": 0.2}}, {"baseline": "c"}, "--baseline c is not among the arms. Known: a, b."),
        ({"a": {}, "x=y": {"retention": 0.2}}, {}, "An arm cannot be called 'x=y'"),
        ({"a": {}, "b": 3}, {}, "arms = 3 is not valid"),
        ({"a": {}, "b": {"retention": 0.2}}, {"policies": ["uniform"]}, "--policies uniform beside --arm"),
    ],
)
def test_what_is_wrong_with_arms_is_said_before_anything_starts(arms: Any, options: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        Comparison(RUN, arms=arms, **options)
    assert message in str(error.value)


def test_one_step_is_nothing_to_compare() -> None:
    with pytest.raises(SpecError, match="Use at least two steps"):
        Comparison(RunSpec(steps=1), arms={"a": {}, "b": {"retention": 0.2}})
