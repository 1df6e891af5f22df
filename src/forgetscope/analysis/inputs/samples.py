"""What a store holds, as the samples that are analysed: the measured steps of one benchmark and policy, and controlled re-runs.

Steps that differ in more than classes, seed, increment, retention and policy are of different benchmarks, and so are trained
and simulated ones: nothing is ever averaged over both.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.inputs.associations import ASSOCIATIONS, VARIABLES, over_reruns
from forgetscope.analysis.inputs.measured_steps import MeasuredStep, ReadSteps, StepFacts
from forgetscope.benchmark.records import recorded_plans, rerun_only
from forgetscope.data.glyphs import CLASS_NAMES
from forgetscope.data.known import KNOWN
from forgetscope.errors import StoreError
from forgetscope.spec import HOW_MUCH_IS_KEPT
from forgetscope.store import METHOD, POLICY, Setting, Store, counting, first_step, told_apart

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
Name = tuple[str, str]  # quantity and statistic

PAPER_NAMES = {"cifar100": "C100", "tiny-imagenet": "TIN"}
PUBLIC = {"glyphs": len(CLASS_NAMES), **{name: known.classes for name, known in KNOWN.items()}}  # classes of data sets
POOLED = "pooled"
SIC, NIC = VARIABLES.index("SIC"), VARIABLES.index("NIC")


@dataclass(frozen=True)
class Subset:
    """Steps with one number; `increments` restricts them to those which later steps have too."""

    step: int
    increments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "_".join((str(self.step), *self.increments))

    @property
    def keys(self) -> dict[str, str]:
        """What says in a frame that a row is about it."""
        return {"subset": str(self)}

    def holds(self, cell: GridCell) -> bool:
        """Whether the steps of a partition belong to it."""
        return self.step == cell.step and (not self.increments or cell.increment in self.increments)


@dataclass(frozen=True)
class GridCell:
    """A partition, or a margin of the grid of partitions where one of the two is pooled."""

    step: int
    retention: str
    increment: str

    @property
    def keys(self) -> dict[str, str]:
        return {"subset": str(self.step), "rehearsal_pct": self.retention, "class_pct": self.increment}

    def holds(self, cell: GridCell) -> bool:
        alike = self.retention in (cell.retention, POOLED) and self.increment in (cell.increment, POOLED)
        return self.step == cell.step and alike


@dataclass(frozen=True)
class Omitted:
    """What an estimate does not rest on, and why."""

    diverged: int = 0  # steps whose training diverged
    no_value: int = 0  # steps with too few classes, or no ranking
    undefined: int = 0  # past classes that were never learned, so that forgetting is undefined
    unmeasured: int = 0  # past classes with a missing coefficient


@dataclass
class Sample:
    """The measured steps of one benchmark and policy, in a fixed order; S counts them."""

    benchmark: str
    dataset: str
    policy: str
    simulated: dict[str, Any] | None
    steps: list[MeasuredStep]
    cells: list[GridCell]  # [S]
    root: list[str]  # [S]: the first step; the same for all that share a sequence and a seed, which is what is independent
    diverged: list[GridCell] = field(default_factory=list)  # of steps besides these
    built_on: list[StepFacts | None] = field(default_factory=list)  # before these, one of each kind; None: it is not here
    recorded_again: Counter[int] = field(default_factory=Counter)  # by number: further recordings of the training of a step
    values: dict[Name, Values] = field(default_factory=dict)  # [S] each: one number per step

    def __post_init__(self) -> None:
        severity = np.array([step.severity for step in self.steps]).reshape(-1, 2)
        table = np.array([step.associations for step in self.steps]).reshape(-1, len(ASSOCIATIONS))
        noise = np.array([step.noise for step in self.steps]).reshape(-1, 4).T
        noises = (("FG-R", "floor"), ("FG-HG", "floor"), ("FG", "variance"), ("FG", "observed"))
        self.values |= {
            ("FG-R", "value"): severity[:, 0],
            ("FG-HG", "value"): severity[:, 1],
            **dict(zip(noises, noise, strict=True)),
        }
        self.values |= {(a.quantity, a.statistic): table[:, i] for i, a in enumerate(ASSOCIATIONS)}

    @property
    def title(self) -> str:
        """The benchmark, and the policy where it is not the paper's."""
        return self.benchmark if self.policy == "uniform" else f"{self.benchmark}, {self.policy}"

    def where(self, part: Subset | GridCell) -> dict[str, Any]:
        """The keys of a row about a part of it, and whether it is simulated."""
        return {"benchmark": self.benchmark, "policy": self.policy, **part.keys, "simulated": self.simulated is not None}

    @cached_property
    def number(self) -> NDArray[np.int64]:
        return np.array([cell.step for cell in self.cells], np.int64)

    @cached_property
    def ranked(self) -> NDArray[np.int64]:
        """[S]: how many classes each step's correlations rank."""
        return np.array([step.complete.sum() for step in self.steps], np.int64)

    @cached_property
    def subsets(self) -> list[Subset]:
        """All steps with a number; and where later steps lack some increments, also those with the increments that remain."""
        found = [Subset(number) for number in self.numbers]
        found += [part for pair in pairwise(self.numbers) if (part := self.in_common(*pair)).increments]
        return sorted(found, key=lambda part: (part.step, part.increments))

    def in_common(self, number: int, other: int) -> Subset:
        """Steps with a number, of the increments that steps with another number have too."""
        both = tuple(level for level in self.increments(number) if level in self.increments(other))
        return Subset(number) if both == self.increments(number) else Subset(number, both)

    @property
    def numbers(self) -> list[int]:
        return sorted({int(n) for n in self.number} | {cell.step for cell in self.diverged})

    def increments(self, step: int) -> tuple[str, ...]:
        return self._levels("increment", step)

    def retentions(self, step: int) -> tuple[str, ...]:
        return self._levels("retention", step)

    def _levels(self, factor: str, step: int) -> tuple[str, ...]:
        levels = {getattr(cell, factor) for cell in (*self.cells, *self.diverged) if cell.step == step}
        return tuple(sorted(levels, key=size_of_level))

    def partitions(self, step: int) -> list[GridCell]:
        """Without margins."""
        return [GridCell(step, r, i) for r in self.retentions(step) for i in self.increments(step)]

    def mask(self, part: Subset | GridCell) -> Mask:
        partitions, places = self._places
        return np.array([part.holds(cell) for cell in partitions], bool)[places]

    @cached_property
    def _places(self) -> tuple[list[GridCell], NDArray[np.int64]]:
        """The partitions that have steps, and [S]: which of them each step belongs to."""
        partitions = list(dict.fromkeys(self.cells))
        return partitions, np.array([partitions.index(cell) for cell in self.cells], np.int64)

    def roots(self, mask: Mask) -> list[str]:
        """The experiments of the steps of a mask."""
        return [self.root[i] for i in np.flatnonzero(mask)]

    def probes(self, step: int) -> int:
        """Of the measured steps with this number: how many there are along training."""
        return max((len(own.course) for own in self.steps if own.facts.step == step), default=0)

    def omitted(self, part: Subset | GridCell, used: int) -> Omitted:
        """`used`: how many of its steps have a value."""
        mask = self.mask(part)
        undefined, unmeasured = self._lost_classes[:, mask].sum(axis=1).tolist()
        diverged = sum(map(part.holds, self.diverged))
        return Omitted(diverged, int(mask.sum()) - used, undefined, unmeasured)

    @cached_property
    def _lost_classes(self) -> NDArray[np.int64]:
        """[2, S]: past classes whose forgetting is undefined, and others with a missing coefficient."""
        undefined = [int(np.isnan(step.forgetting).sum()) for step in self.steps]
        incomplete = [int((~step.complete).sum()) for step in self.steps]
        return np.array([undefined, np.subtract(incomplete, undefined)], np.int64).reshape(2, -1)

    @cached_property
    def paired(self) -> bool:
        """Whether steps with the same number share sequence and seed, as those of a paired design do."""
        return any(count > 1 for count in Counter(zip(self.root, self.number.tolist(), strict=True)).values())


@dataclass(frozen=True)
class RerunSet:
    """One step and its runs with other new classes, from the same parent and with nothing else changed."""

    sample: Sample  # that the step belongs to
    cell: GridCell
    runs: tuple[MeasuredStep, ...]  # the original first
    missing: int  # runs that are planned and not there, or diverged

    def correlations(self) -> tuple[Values, NDArray[np.int64]]:
        """[P] each: the rank correlation of NIC and SIC of a past class over the runs, and in how many of them it has both."""
        if not self.runs:
            return np.empty(0), np.empty(0, np.int64)
        nic, sic = (np.stack([run.measures[i] for run in self.runs]) for i in (NIC, SIC))  # one parent: the same past classes
        return over_reruns(nic, sic)


@dataclass(frozen=True)
class Collected:
    """Everything in a store that can be analysed."""

    samples: list[Sample]
    reruns: list[RerunSet]
    damaged: tuple[str, ...]
    damaged_plans: tuple[str, ...] = ()  # what is wrong with each
    uncounted: tuple[str, ...] = ()  # data sets of which it is unknown how many classes they have

    @property
    def simulated(self) -> bool:
        return any(sample.simulated for sample in self.samples)


def collect(store: Store, read: ReadSteps) -> Collected:
    unread: list[StoreError] = []
    counts = counting(facts.recording for facts in read.facts.values())
    plans = [_once_in(plan, counts) for plan in recorded_plans(store, unread.append)]
    recorded_again = Counter(counted for id, counted in counts.items() if id != counted)
    read = _once(read, counts)
    parents = {id: facts.parent for id, facts in read.facts.items()}
    roots = {id: first_step(id, parents) for id in parents}
    levels = Levels(list(read.facts.values()), plans)
    groups: dict[Setting, list[StepFacts]] = {}
    for facts in read.facts.values():
        if facts.step > 1:
            groups.setdefault(_in_common(facts, read.facts.get(roots[facts.id])), []).append(facts)
    originals = _reruns(read, plans)
    again = {id for others in originals.values() for id in others} | rerun_only(plans)
    benchmarks, policies = _benchmarks(groups), told_apart(setting.policy for setting in groups)
    samples, reruns = [], []
    for setting in sorted(groups, key=lambda own: (benchmarks[own], own.policy[0] != "uniform", policies[own.policy])):
        own = sorted((facts for facts in groups[setting] if facts.id not in again), key=levels.order)
        kept = [facts for facts in own if facts.id in read.measured]
        sample = Sample(
            benchmark=benchmarks[setting],
            dataset=setting.dataset,
            policy=policies[setting.policy],
            simulated=groups[setting][0].simulated,
            steps=[read.measured[facts.id] for facts in kept],
            cells=[levels.cell(facts) for facts in kept],
            root=[roots[facts.id] for facts in kept],
            diverged=[levels.cell(facts) for facts in own if facts.diverged],
            built_on=_built_on(kept, read.facts),
            recorded_again=Counter(facts.step for facts in own for _ in range(recorded_again[facts.id])),
        )
        samples.append(sample)
        for facts in sorted((facts for facts in groups[setting] if facts.id in originals), key=levels.order):
            ids = (facts.id, *originals[facts.id])
            runs = tuple(read.measured[id] for id in ids if id in read.measured)
            reruns.append(RerunSet(sample, levels.cell(facts), runs, len(ids) - len(runs)))
    return Collected(samples, reruns, read.damaged, tuple(map(str, unread)), levels.uncounted)


def _once(read: ReadSteps, counts: Mapping[str, str]) -> ReadSteps:
    """Each training by the recording that counts, built on recordings that count."""
    facts = {
        id: one
        if one.parent in (None, counts.get(str(one.parent), one.parent))
        else replace(one, parent=counts[str(one.parent)])
        for id, one in read.facts.items()
        if counts[id] == id
    }
    measured = {id: replace(step, facts=facts[id]) for id, step in read.measured.items() if id in facts}
    return replace(read, facts=facts, measured=measured)


def _once_in(plan: Mapping[str, Any], counts: Mapping[str, str]) -> dict[str, Any]:
    """A plan that names recordings that count."""
    chains = [{**chain, "steps": [counts.get(id, id) for id in chain["steps"]]} for chain in plan["chains"]]
    reruns = [
        {
            **one,
            "original": counts.get(one["original"], one["original"]),
            "others": [counts.get(id, id) for id in one["others"]],
        }
        for one in plan["reruns"]
    ]
    return {**plan, "chains": chains, "reruns": reruns}


class Levels:
    """Increment and retention of steps, as their partitions are called."""

    def __init__(self, steps: Sequence[StepFacts], plans: Sequence[Mapping[str, Any]]) -> None:
        """How many classes a data set has is what its steps and plans record, or what is known of a public one."""
        found = {(facts.setting.dataset, facts.setting.digest) for facts in steps}
        recorded = [(plan["data"]["name"], plan["data"]["digest"], plan["data"]["classes"]) for plan in plans]
        recorded += [(facts.setting.dataset, facts.setting.digest, facts.data_classes) for facts in steps if facts.data_classes]
        self._counts: dict[tuple[str, str], int] = {(name, digest): classes for name, digest, classes in recorded}
        self.uncounted = tuple(sorted({name for name, digest in found if not self._classes(name, digest)}))

    def _classes(self, name: str, digest: str) -> int | None:
        return self._counts.get((name, digest), PUBLIC.get(name))

    def increment(self, facts: StepFacts) -> str:
        """A percentage, or a number of classes where it is unknown of how many."""
        new, classes = len(facts.new_classes), self._classes(facts.setting.dataset, facts.setting.digest)
        return f"{new} classes" if classes is None else percent(new / classes)

    def retention(self, facts: StepFacts) -> str:
        """A percentage, or a number of images or bytes."""
        options = facts.setting.options
        return kept_of(options) if options["retention"] is None else percent(options["retention"])

    def cell(self, facts: StepFacts) -> GridCell:
        return GridCell(facts.step, self.retention(facts), self.increment(facts))

    def order(self, facts: StepFacts) -> tuple[object, ...]:
        return facts.step, size_of_level(self.retention(facts)), len(facts.new_classes), facts.seed, facts.id


def kept_of(options: Mapping[str, Any]) -> str:
    """The size of a memory, of a setting without retention."""
    return f"{options['memory']} images" if options["memory_bytes"] is None else f"{options['memory_bytes']} bytes"


def percent(share: float) -> str:
    return f"{100 * share:.6g}"


def _reruns(read: ReadSteps, plans: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Original -> its other runs. Plans say which is which; without them, runs of a step are known by having the same parent
    and specification, and the one that others build on, or else the first by id, is the original."""
    members = {id for plan in plans for chain in plan["chains"] for id in chain["steps"]}
    found: dict[str, list[str]] = {}
    taken: set[str] = set()
    for plan in plans:
        for rerun in plan["reruns"]:
            others = [id for id in rerun["others"] if id not in members]
            if rerun["original"] in read.facts and any(id in read.facts for id in others):
                found.setdefault(rerun["original"], []).extend(id for id in others if id not in taken)
                taken.update(others, {rerun["original"]} - members)
    parents = {facts.parent for facts in read.facts.values()}
    siblings: dict[tuple[object, ...], list[str]] = {}
    for facts in read.facts.values():
        if facts.step > 1 and facts.id not in taken:
            siblings.setdefault((facts.parent, facts.seed, facts.setting), []).append(facts.id)
    for ids in siblings.values():
        if len(ids) > 1:
            first, *others = sorted(ids, key=lambda id: (id not in members, id not in parents, id))
            others = [id for id in others if id not in members]
            if others:
                found.setdefault(first, []).extend(others)
    return found


def _built_on(steps: Sequence[StepFacts], facts: Mapping[str, StepFacts]) -> list[StepFacts | None]:
    """One of each kind of step that is before these: of each number, those that are not alike."""
    found: dict[tuple[int, Setting] | None, StepFacts | None] = {}
    pending, seen = [step.parent for step in steps], set[str | None]()
    while pending:
        id = pending.pop()
        if id is None or id in seen:
            continue
        seen.add(id)
        step = facts.get(id)
        if step is None:
            found[None] = None
        else:
            found.setdefault((step.step, step.setting.but_for(*HOW_MUCH_IS_KEPT, "classes")), step)
            pending.append(step.parent)
    return list(found.values())


def _in_common(facts: StepFacts, first: StepFacts | None) -> Setting:
    """What the steps of one sample have in common. The first step tells which of a user's own networks it is."""
    network = first.setting.network_source if first else None
    return replace(facts.setting.but_for(*HOW_MUCH_IS_KEPT, "classes"), network_source=network)


def _benchmarks(settings: Iterable[Setting]) -> dict[Setting, str]:
    """What the benchmark of each is called: as its data set, with whatever tells apart those of the same data set."""
    found = list(settings)
    networks = told_apart((own.network, own.network_source) for own in found)
    data = told_apart((own.data, own.digest) for own in found)
    methods = told_apart(own.method for own in found)

    def described(own: Setting) -> dict[str, Any]:
        made = f"simulated-{own.digest.removeprefix('simulated-')[:6]}" if own.digest.startswith("simulated-") else "trained"
        version = data[own.data, own.digest].removeprefix(own.data) if made == "trained" else ""
        network = networks[own.network, own.network_source]
        named = {"network": network, "method": methods[own.method], "quota": own.options["quota"] or "balanced"}
        return {**named, **own.but_for(*POLICY, *METHOD, "quota").options, "image_size": own.image_size, "data": made + version}

    labels = {}
    for own in found:
        mine, rivals = described(own), [described(other) for other in found if other.dataset == own.dataset]
        differing = {name: value for name, value in mine.items() if any(rival.get(name) != value for rival in rivals)}
        told = ((name, value) for name, value in differing.items() if value is not None)  # the usual goes without saying
        parts = (f"{name}={json.dumps(value)}".replace('"', "") for name, value in told)
        labels[own] = " ".join([PAPER_NAMES.get(own.dataset, own.dataset), *parts])
    return labels


def size_of_level(level: str) -> tuple[bool, float]:
    """To order levels by: percentages first, then numbers of images, bytes or classes."""
    return " " in level, float(level.split()[0])


def level_text(level: str) -> str:
    return level if " " in level else f"{level} %"
