"""Plans of variants: what differs, what is shared, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from forgetscope.benchmark.pairs import BASELINE, Variants, parse_variant, variants_plan
from forgetscope.benchmark.plans import Plan
from forgetscope.benchmark.recipes import recorded_plan
from forgetscope.benchmark.records import record_plan, recorded_plans
from forgetscope.data.library import load_data
from forgetscope.errors import SpecError
from forgetscope.spec import RunSpec, as_released
from forgetscope.store import Store

RUN = RunSpec(image_size=8, steps=3)
SETTINGS = ("sampling=reshuffled-short", "validation=0.1", "network=resnet8-projected")


@pytest.fixture(scope="module")
def plan() -> Plan:
    load_data("glyphs", 8)
    return variants_plan(Variants(RUN, SETTINGS, pairs=2))


def steps_of(plan: Plan, variant: str) -> list[tuple[str, ...]]:
    return [chain.steps for chain in plan.chains if chain.variant == variant]


def test_what_can_change_later_starts_from_common_parents(plan: Plan) -> None:
    first = {name: [steps[0] for steps in steps_of(plan, name)] for name in (BASELINE.name, *SETTINGS)}
    assert first["sampling=reshuffled-short"] == first[BASELINE.name]
    assert len({tuple(ids) for ids in first.values()}) == 3  # the run's own, with less data, with another network
    assert len(plan.jobs) == 2 * (3 + 4 * 2)
    for own, other in zip(steps_of(plan, BASELINE.name), steps_of(plan, "sampling=reshuffled-short"), strict=True):
        mine, theirs = plan.jobs[own[1]].spec, plan.jobs[other[1]].spec
        assert theirs.training.sampling == "reshuffled-short"
        assert theirs.model_copy(update={"training": mine.training}) == mine


def test_pairs_have_the_same_classes_and_seeds(plan: Plan) -> None:
    by_pair = {}
    for chain in plan.chains:
        specs = [plan.jobs[id].spec for id in chain.steps]
        by_pair.setdefault(chain.number, set()).add(tuple((spec.seed, spec.classes) for spec in specs))
    assert [len(found) for found in by_pair.values()] == [1, 1]


def test_the_plan_is_made_again_from_its_record(plan: Plan, tmp_path: Path) -> None:
    record_plan(Store(tmp_path), plan)
    (record,) = recorded_plans(Store(tmp_path))
    again = recorded_plan(record)
    assert (again.id, again.jobs) == (plan.id, plan.jobs)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sampling", "--vary 'sampling' is not of the form key=value, for example --vary sampling=reshuffled-short"),
        ("samplin=iid", "samplin is no option of a run. Did you mean 'sampling'?"),
        ("seed=3", "seed is what a pair has in common"),
        ("sampling=iid", "that is what the run has already"),
        ("sampling=shuffled", "sampling = 'shuffled' is not known"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(setting: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_variant(setting, RUN)
    assert message in str(error.value)


def test_the_scripts_behaviour_is_varied_with_all_that_follows_from_it() -> None:
    released = RunSpec(script_behaviour="released", validation=0.2)
    _, text, other = Variants(released, ["script_behaviour=text", "epochs=3"]).runs
    assert text == RunSpec(script_behaviour="text", validation=0.2)  # what was given beside it stays
    assert other == RunSpec(script_behaviour="released", validation=0.2, epochs=3)
    assert other.sampling == released.sampling == "reshuffled-short"
    _, back = Variants(RunSpec(), ["script_behaviour=released"]).runs
    assert back.sampling == "reshuffled-short"


@pytest.mark.parametrize(
    "run",
    [
        RunSpec(),
        RunSpec(dataset="tiny-imagenet", network="resnet18"),
        RunSpec(validation=0.1, brightness=0.0),
        RunSpec(network="my_networks:small"),
        RunSpec(**tomllib.loads(RunSpec().to_toml())),  # every option given, which wins over script_behaviour
    ],
)
def test_by_default_every_behaviour_of_the_scripts_is_tried_that_changes_a_number(run: RunSpec) -> None:
    released = as_released({**run.given, "script_behaviour": "released"})
    asked = Variants(run).variants
    varied = {str(variant.option) for variant in asked}
    without_effect = {"released_nic"} | ({"brightness_rounded"} if run.brightness == 0 else {"retained_of"})
    projected = set() if ":" in run.network else {"network"}
    alone = {name for name, value in released.items() if getattr(run, name) != value} - without_effect | projected
    assert varied - {"script_behaviour"} == alone
    runs = Variants(run).runs
    assert len({member.model_dump_json(exclude={"script_behaviour"}) for member in runs}) == len(runs)  # none is another's twin


def test_of_a_run_that_does_as_the_scripts_do_nothing_is_left_to_vary() -> None:
    with pytest.raises(SpecError, match=r"The run does all that the released scripts do. Name what to change"):
        Variants(RunSpec(script_behaviour="released", network="resnet18-projected"))
