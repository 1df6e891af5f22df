"""What a store remembers of the plans that were run into it: which steps belong to which experiment, and what happened.

    STORE/plans/<plan id>/plan.json       what the plan is for, and its experiments as lists of step ids
    STORE/plans/<plan id>/journal.jsonl   a line per event: estimates, runs, steps that ended, failed or are to be retried

Steps are what counts; all of this can be lost without losing a result.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from forgetscope.benchmark.arms import changed, parse_arm, resolved
from forgetscope.benchmark.plans import Plan
from forgetscope.benchmark.shards import Shard
from forgetscope.errors import DamagedPlan, SpecError, StoreError
from forgetscope.files import append_regular, is_locked, read_regular, replace_durably, told
from forgetscope.foreign import Count, Id, StrictRecord, Text, first_problem, strict_json
from forgetscope.options import nearest
from forgetscope.spec import RunSpec
from forgetscope.store import Store, TellLeftOut
from forgetscope.store.stepfiles import PLAN_BYTES, PLAN_ID, STEPS, SimulationMark

SCHEMA = 1
NEEDED = {
    "benchmark": ("benchmark",),
    "controlled": ("benchmark", "runs"),
    "compare": ("run", "policies", "pairs"),
    "arms": ("run", "arms", "pairs"),
    "variants": ("run", "vary", "pairs"),
}

JOURNAL_BYTES = 64 * 2**20  # of one part; a step adds less than 200
EVENT_BYTES = 2**20
LATER = "~"  # behind every time
LAST = 2**53  # number of an event that is believed, or there would be none above a stranger's; equal ones follow their file
FACTS = {  # what readers of such events rely on
    "started": ("time",),
    "rates": ("setting", "rates"),
    "failed": ("step", "message"),
    **dict.fromkeys(("done", "diverged", "retry"), ("step",)),
}


def record_plan(store: Store, plan: Plan, shard: Shard | None = None) -> Journal:
    """Remember a plan, if it is not remembered yet; the journal of it, or of a part."""
    folder = folder_of(store, plan)
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        store.refuse_links("plans", *(str(path.relative_to(store.path)) for path in (folder, *folder.iterdir())))
    if not (folder / "plan.json").exists():
        content = {
            "schema": SCHEMA,
            "id": plan.id,
            **plan.about,
            "data": asdict(plan.data) | {"augmentation": plan.data.augmentation.model_dump(exclude_none=True)},
            "image_size": plan.template.image_size,
            "network": plan.template.network,
            "chains": [chain.described() for chain in plan.chains],
            "reruns": [asdict(reruns) for reruns in plan.reruns],
        }
        replace_durably(folder / "plan.json", json.dumps(content, ensure_ascii=False).encode())
    return Journal(folder, "" if shard is None else f"-{shard}")


def folder_of(store: Store, plan: Plan) -> Path:
    return store.path / "plans" / plan.id


def recorded_plans(store: Store, left_out: TellLeftOut | None = None) -> list[dict[str, Any]]:
    """The plan.json of every plan that was run into this store, ordered by id.

    left_out: is told of each that cannot be read; without it, the first is an error."""
    plans = []
    for path in sorted((store.path / "plans").glob("*/plan.json")):
        try:
            plans.append(_checked_plan(path))
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())[:300]
            problem = DamagedPlan(f"{path} cannot be read ({reason}). Delete it: running the plan again writes it anew.")
            if left_out is None:
                raise problem from None
            left_out(problem)
    return plans


def first_pairs(store: Store, plan: Plan) -> dict[str, int]:
    """Of each arm of a comparison but the baseline, with how many pairs its first step was planned: those of the plan that was
    begun first, of all that the store remembers in which the same run has these two arms, whatever they are called and
    whichever others there are."""
    base, *arms = _resolved_arms(plan.template, plan.about["arms"]).items()
    begun = {name: [(LATER, plan.about["pairs"])] for name, _ in arms}
    for record in recorded_plans(store, left_out=lambda problem: None):
        alike = all(record.get(name) == plan.about.get(name) for name in ("kind", "run", "sources"))
        if not alike or record["data"]["digest"] != plan.data.digest:
            continue
        with suppress(SpecError):  # arms that this version does not know
            there = _resolved_arms(plan.template, record["arms"]).values()
            events = Journal(store.path / "plans" / record["id"]).events()
            time = min((event["time"] for event in events if event["event"] == "started"), default=LATER)
            for name, arm in arms if base[1] in there else ():
                if arm in there:
                    begun[name].append((time, record["pairs"]))
    return {name: int(min(of)[1]) for name, of in begun.items()}


def _resolved_arms(run: RunSpec, arms: Sequence[str]) -> dict[str, Hashable]:
    """By name, what they come to."""
    return {name: resolved(changed(run, options)) for name, options in map(parse_arm, arms)}


def steps_of_plan(store: Store, id: str) -> list[str]:
    """Ids of the steps of a recorded plan, further runs included, that are done."""
    problems: list[StoreError] = []
    plans = {plan["id"]: plan for plan in recorded_plans(store, left_out=problems.append)}
    if id not in plans:
        for problem in problems:
            if str(problem).startswith(f"{store.path / 'plans' / id / 'plan.json'} "):
                raise problem
        raise SpecError(f"There is no plan {id!r} in {store.path}.{nearest(id, list(plans))}")
    parts = [*(chain["steps"] for chain in plans[id]["chains"]), *(picked["others"] for picked in plans[id]["reruns"])]
    if not (found := [step for part in parts for step in part if step in store]):
        raise SpecError(
            f"No step of {id} is done yet. Run it: forgetscope bench run {id} --store {shlex.quote(str(store.path))}"
        )
    return list(dict.fromkeys(found))


def _checked_plan(path: Path) -> dict[str, Any]:
    """A plan of the form that readers rely on, and the one that its folder is named for."""
    if path.parent.is_symlink():
        raise ValueError("its folder is a link")
    plan: dict[str, Any] = strict_json(read_regular(path, PLAN_BYTES))
    try:
        found = _Recorded.model_validate(plan)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    if found.id != path.parent.name or not PLAN_ID.fullmatch(found.id):
        raise ValueError(f"its id is {found.id[:100]!r}")
    lacking = [key for key in NEEDED[found.kind] if getattr(found, key) is None]
    if lacking:
        raise ValueError(f"{lacking[0]} is missing")
    return plan


def rerun_only(plans: Iterable[Mapping[str, Any]]) -> set[str]:
    """Steps that are in controlled experiments of these plans and in no experiment of their own."""
    plans = list(plans)
    runs = {id for plan in plans for picked in plan["reruns"] for id in (picked["original"], *picked["others"])}
    return runs.difference(*(chain["steps"] for plan in plans for chain in plan["chains"]))


@dataclass(frozen=True)
class Askings:
    """What plans of arms say of their chains, by step and calibration: which asked for what they keep beside images, and which
    were lent it for another arm."""

    asked: Set[tuple[str, str | None]]
    lent: Set[tuple[str, str | None]]

    @classmethod
    def of(cls, plans: Iterable[Mapping[str, Any]]) -> Self:
        chains = [chain for plan in plans if plan["kind"] in ("arms", "variants") for chain in plan["chains"]]
        asked, lent = (
            {(step, chain.get("calibration")) for chain in chains if bool(chain.get("lent")) is lent for step in chain["steps"]}
            for lent in (False, True)
        )
        return cls(asked, lent)


class _PlanData(StrictRecord):
    name: Text
    classes: Annotated[int, Field(ge=1, lt=2**31)]
    digest: Text | None


class _Partition(StrictRecord, extra="forbid"):
    increment: float
    retention: float


class _Chain(StrictRecord):
    steps: list[Id]
    calibration: Text | None = None
    lent: bool | None = None


class _Reruns(StrictRecord):
    original: Id
    step: Annotated[int, Field(ge=1, le=STEPS)]
    partition: _Partition
    others: list[Id]


class _Recorded(StrictRecord):
    """Every key of a plan.json that anybody uses."""

    id: Text
    kind: Literal["benchmark", "compare", "arms", "variants", "controlled"]
    name: Text
    data: _PlanData
    chains: list[_Chain]
    reruns: list[_Reruns]
    benchmark: str | None = None
    run: str | None = None
    policies: list[Text] | None = None
    arms: list[Text] | None = None
    vary: list[Text] | None = None
    pairs: Count | None = None
    runs: Count | None = None
    simulated: SimulationMark | None = None


@dataclass(frozen=True)
class Journal:
    """What happened to a plan, in order. A line that is no event is passed over.

    Parts that are run by themselves have a file each, so that nobody else writes to it; whoever reads, reads all. Each event
    has a number, higher than any that its writer can have known: what follows from what does not depend on clocks."""

    folder: Path
    part: str = ""

    @property
    def running(self) -> Path:
        """Where an engine notes every few moments what it is doing."""
        return self.folder / f"running{self.part}.json"

    @property
    def lock(self) -> Path:
        """Held by the process that runs the plan or this part of it."""
        return self.folder / f"run{self.part}.lock"

    def active(self) -> list[Journal]:
        """The journals of the parts that are being run now."""
        parts = [path.stem.removeprefix("run") for path in sorted(self.folder.glob("run*.lock"))]
        return [journal for part in parts if is_locked((journal := Journal(self.folder, part)).lock)]

    def write(self, event: str, **facts: object) -> None:
        time = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"time": time, "number": next(self._numbers), "event": event, **facts})
        path = self.folder / f"journal{self.part}.jsonl"
        with told(path), append_regular(path) as file:
            file.write(f"\n{line}".encode())  # led by a line break: what a crash left behind spoils itself only

    @cached_property
    def _numbers(self) -> Iterator[int]:
        return (min(number, LAST) for number in count(1 + max(map(_number, self.events()), default=0)))

    def events(self) -> list[dict[str, Any]]:
        """Of all parts, in order of their numbers. An event of an older version has none: it counts as the highest before it
        in its file, and among such in order of time, but never in another order than that of their file."""
        found = []
        for path in sorted(self.folder.glob("journal*.jsonl")):
            latest, highest = "", 0
            for event in _events(path):
                latest, highest = max(latest, str(event.get("time"))), max(highest, _number(event))
                found.append((_number(event) or highest, "" if _number(event) else latest, event))
        return [event for _, _, event in sorted(found, key=itemgetter(0, 1))]

    def own_events(self) -> list[dict[str, Any]]:
        """Of this part only."""
        return _events(self.folder / f"journal{self.part}.jsonl")

    def failures(self, done: Set[str]) -> dict[str, Mapping[str, Any]]:
        """Steps whose last event is a failure, by id; none of those that are done all the same."""
        return {step: event for step, event in self._whose_last_is("failed").items() if step not in done}

    def diverged(self) -> set[str]:
        """Steps that are in the store, but nothing can build on them."""
        return set(self._whose_last_is("diverged"))

    def retry(self, steps: Iterable[str]) -> None:
        """Forget the failures of these steps, so that they are tried again."""
        for step in steps:
            self.write("retry", step=step)

    def _whose_last_is(self, event: str) -> dict[str, Mapping[str, Any]]:
        last = {found["step"]: found for found in self.events() if "step" in found}
        return {step: found for step, found in last.items() if found["event"] == event}


class _Event(StrictRecord):
    """Every key of an event that anybody uses."""

    event: Text
    time: Text = ""
    number: Count = 0
    step: Text = ""
    message: str = ""
    setting: dict[str, Any] = Field(default_factory=dict)
    rates: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)


def _events(path: Path) -> list[dict[str, Any]]:
    """Without the lines that are no events: a crash cut them short, or a stranger wrote them."""
    try:
        lines = read_regular(path, JOURNAL_BYTES).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DamagedPlan(
            f"{path} cannot be read ({error.strerror or error}). Delete it: what it says of failed steps is lost, no result is."
        ) from None
    return [event for event in map(_event, lines) if event is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    if len(line) > EVENT_BYTES:
        return None
    try:
        event: dict[str, Any] = json.loads(line)
        found = _Event.model_validate(event)
    except (ValueError, RecursionError):
        return None
    return event if found.model_fields_set.issuperset(FACTS.get(found.event, ())) else None


def _number(event: Mapping[str, Any]) -> int:
    number: int = event.get("number", 0)
    return number if number <= LAST else 0
