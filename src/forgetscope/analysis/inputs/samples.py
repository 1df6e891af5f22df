"""What a store holds, as the samples that are analysed: the measured steps of one benchmark and policy, and controlled re-runs.

Steps that differ in more than classes, seed, increment, retention and policy are of different benchmarks, and so are trained
and simulated ones: nothing is ever averaged over both.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.inputs.associations import ASSOCIATIONS, VARIABLES, over_reruns
from forgetscope.analysis.inputs.measured_steps import MeasuredStep, ReadSteps, StepFacts
from forgetscope.benchmark.records import recorded_plans
from forgetscope.data.library import data_facts
from forgetscope.errors import ForgetscopeError, StoreError
from forgetscope.store import Store

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
Name = tuple[str, str]  # quantity and statistic

PAPER_NAMES = {"cifar100": "C100", "tiny-imagenet": "TIN"}
POOLED = "pooled"
SIC, NIC = VARIABLES.index("SIC"), VARIABLES.index("NIC")


@dataclass(frozen=True)
class Subset:
    """Steps with one number; `increments` restricts them to those which later steps have too."""

    step: int
    increments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "_".join((str(self.step), *self.increments))


@dataclass(frozen=True)
class Cell:
    """A partition, or a margin of the grid of partitions where one of the two is pooled."""

    step: int
    retention: str
    increment: str


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
    increment: list[str]  # [S], percentages
    retention: list[str]  # [S], percentages, or a number of images
    root: list[str]  # [S]: the first step; the same for all that share a sequence and a seed
    diverged: list[tuple[int, str, str]] = field(default_factory=list)  # step number, retention, increment
    values: dict[Name, Values] = field(default_factory=dict)  # [S] each: one number per step

    def __post_init__(self) -> None:
        severity = np.array([step.severity for step in self.steps]).reshape(-1, 2)
        table = np.array([step.associations for step in self.steps]).reshape(-1, len(ASSOCIATIONS))
        self.values |= {("FG-R", "value"): severity[:, 0], ("FG-HG", "value"): severity[:, 1]}
        self.values |= {(a.quantity, a.statistic): table[:, i] for i, a in enumerate(ASSOCIATIONS)}

    @property
    def title(self) -> str:
        """The benchmark, and the policy where it is not the paper's."""
        return self.benchmark if self.policy == "uniform" else f"{self.benchmark}, {self.policy}"

    @cached_property
    def number(self) -> NDArray[np.int64]:
        return np.array([step.facts.step for step in self.steps], np.int64)

    @cached_property
    def ranked(self) -> NDArray[np.int64]:
        """[S]: how many classes each step's correlations rank."""
        return np.array([step.complete.sum() for step in self.steps], np.int64)

    @cached_property
    def subsets(self) -> list[Subset]:
        """All steps with a number; and where later steps lack some increments, also those with the increments that remain."""
        found = []
        numbers = self.numbers
        for i, number in enumerate(numbers):
            found.append(Subset(number))
            if i + 1 < len(numbers):
                later = self.increments(numbers[i + 1])
                both = tuple(level for level in self.increments(number) if level in later)
                if both and both != self.increments(number):
                    found.append(Subset(number, both))
        return found

    @property
    def numbers(self) -> list[int]:
        return sorted({int(n) for n in self.number} | {step for step, _, _ in self.diverged})

    def increments(self, step: int) -> tuple[str, ...]:
        return _levels([i for i, n in zip(self.increment, self.number, strict=True) if n == step], self.diverged, step, 2)

    def retentions(self, step: int) -> tuple[str, ...]:
        return _levels([r for r, n in zip(self.retention, self.number, strict=True) if n == step], self.diverged, step, 1)

    def partitions(self, step: int) -> list[Cell]:
        """Without margins."""
        return [Cell(step, r, i) for r in self.retentions(step) for i in self.increments(step)]

    def mask(self, part: Subset | Cell) -> Mask:
        if isinstance(part, Subset):
            chosen = [not part.increments or i in part.increments for i in self.increment]
        else:
            chosen = [
                part.retention in (r, POOLED) and part.increment in (i, POOLED)
                for r, i in zip(self.retention, self.increment, strict=True)
            ]
        mask: Mask = (self.number == part.step) & np.array(chosen, bool)
        return mask

    def probes(self, step: int) -> int:
        """Of the measured steps with this number: how many there are along training."""
        return max((len(own.course) for own in self.steps if own.facts.step == step), default=0)

    def omitted(self, part: Subset | Cell, used: int) -> Omitted:
        """`used`: how many of its steps have a value."""
        mask = self.mask(part)
        undefined, unmeasured = self._lost_classes[:, mask].sum(axis=1).tolist()
        diverged = sum(_within(part, *where) for where in self.diverged)
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

    benchmark: str
    dataset: str
    policy: str
    simulated: bool
    cell: Cell
    runs: tuple[MeasuredStep, ...]  # the original first
    missing: int  # runs that are planned and not there, or diverged

    def correlations(self) -> tuple[Values, NDArray[np.int64]]:
        """[P] each: the rank correlation of NIC and SIC of a past class over the runs, and in how many of them it has both."""
        if not self.runs:
            return np.empty(0), np.empty(0, np.int64)
        nic, sic = (np.stack([run.measures[i] for run in self.runs]) for i in (NIC, SIC))  # one parent: the same past classes
        return over_reruns(nic, sic)


@dataclass(frozen=True)
class Collection:
    """Everything in a store that can be analysed."""

    samples: list[Sample]
    reruns: list[RerunSet]
    damaged: tuple[str, ...]
    damaged_plans: tuple[str, ...] = ()  # what is wrong with each

    @property
    def simulated(self) -> bool:
        return any(sample.simulated for sample in self.samples)


def collect(store: Store, read: ReadSteps) -> Collection:
    unread: list[StoreError] = []
    plans = recorded_plans(store, unread.append)
    originals = _reruns(read, plans)
    again = {id for others in originals.values() for id in others}
    totals = _class_counts(read.facts.values(), plans)
    groups: dict[str, list[StepFacts]] = {}
    for facts in read.facts.values():
        if facts.step > 1:
            groups.setdefault(_setting(facts), []).append(facts)
    labels = _labels({key: found[0] for key, found in groups.items()})
    samples, reruns = [], []
    for key in sorted(groups, key=lambda key: (labels[key], groups[key][0].policy != "uniform", groups[key][0].policy)):
        own = sorted(
            (facts for facts in groups[key] if facts.id not in again),
            key=lambda facts: (facts.step, _retention_key(facts), _increment(facts, totals), facts.seed, facts.id),
        )
        kept = [facts for facts in own if facts.id in read.measured]
        first = groups[key][0]
        samples.append(
            Sample(
                benchmark=labels[key],
                dataset=first.dataset,
                policy=first.policy,
                simulated=first.simulated,
                steps=[read.measured[facts.id] for facts in kept],
                increment=[percent(_increment(facts, totals)) for facts in kept],
                retention=[_retention(facts) for facts in kept],
                root=[_root(facts, read.facts) for facts in kept],
                diverged=[(f.step, _retention(f), percent(_increment(f, totals))) for f in own if f.diverged],
            )
        )
        for facts in own:
            if facts.id in originals:
                cell = Cell(facts.step, _retention(facts), percent(_increment(facts, totals)))
                ids = (facts.id, *originals[facts.id])
                runs = tuple(read.measured[id] for id in ids if id in read.measured)
                found = RerunSet(
                    labels[key], facts.dataset, facts.policy, facts.simulated is not None, cell, runs, len(ids) - len(runs)
                )
                reruns.append(found)
    return Collection(samples, reruns, read.damaged, tuple(map(str, unread)))


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
                taken.update(others)
    parents = {facts.parent for facts in read.facts.values()}
    siblings: dict[tuple[object, ...], list[str]] = {}
    for facts in read.facts.values():
        if facts.step > 1 and facts.id not in taken:
            key = (facts.parent, facts.seed, len(facts.new_classes), facts.retention, facts.memory, _setting(facts))
            siblings.setdefault(key, []).append(facts.id)
    for ids in siblings.values():
        if len(ids) > 1:
            first, *others = sorted(ids, key=lambda id: (id not in members, id not in parents, id))
            others = [id for id in others if id not in members]
            if others:
                found.setdefault(first, []).extend(others)
    return found


def _class_counts(facts: Iterable[StepFacts], plans: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Name and digest -> how many classes the data set has: as planned, as known here, or as many as the steps show."""
    counts = {(str(plan["data"]["name"]), str(plan["data"]["digest"])): int(plan["data"]["classes"]) for plan in plans}
    seen: dict[tuple[str, str], set[int]] = {}
    for step in facts:
        if (step.dataset, step.digest) not in counts:
            seen.setdefault((step.dataset, step.digest), set()).update(step.new_classes)
    for (name, digest), classes in seen.items():
        try:
            counts[name, digest] = data_facts(name).classes
        except ForgetscopeError:
            counts[name, digest] = len(classes)
    return counts


def _setting(facts: StepFacts) -> str:
    """What the steps of one sample have in common."""
    parts = (facts.dataset, facts.digest, facts.network, facts.policy, facts.options)
    return json.dumps(parts, sort_keys=True)


def _labels(groups: Mapping[str, StepFacts]) -> dict[str, str]:
    """Setting -> name of its benchmark: that of the data set, with whatever tells apart those of the same data set."""
    labels = {}
    for key, facts in groups.items():
        rivals = [_described(other) for other in groups.values() if other.dataset == facts.dataset]
        own = _described(facts)
        differing = [name for name in own if any(rival.get(name) != own[name] for rival in rivals)]
        name = PAPER_NAMES.get(facts.dataset, facts.dataset)
        labels[key] = " ".join([name, *(f"{option}={json.dumps(own[option])}".replace('"', "") for option in differing)])
    return labels


def _described(facts: StepFacts) -> dict[str, Any]:
    made = "trained" if facts.simulated is None else f"simulated-{facts.digest.removeprefix('simulated-')[:6]}"
    return {"network": facts.network, **facts.options, "data": made}


def _retention(facts: StepFacts) -> str:
    return percent(facts.retention) if facts.retention is not None else f"{facts.memory} images"


def _retention_key(facts: StepFacts) -> tuple[bool, float]:
    return facts.retention is None, float(facts.retention if facts.retention is not None else facts.memory or 0)


def _increment(facts: StepFacts, totals: Mapping[tuple[str, str], int]) -> float:
    return len(facts.new_classes) / totals[facts.dataset, facts.digest]


def _root(facts: StepFacts, known: Mapping[str, StepFacts]) -> str:
    id = facts.id
    while id in known and known[id].parent is not None:
        id = str(known[id].parent)
    return id


def _levels(own: Iterable[str], diverged: Iterable[tuple[int, str, str]], step: int, position: int) -> tuple[str, ...]:
    lost = [str(where[position]) for where in diverged if where[0] == step]
    return tuple(sorted({*own, *lost}, key=lambda level: (level.endswith("images"), float(level.split()[0]))))


def _within(part: Subset | Cell, step: int, retention: str, increment: str) -> bool:
    if isinstance(part, Subset):
        return part.step == step and (not part.increments or increment in part.increments)
    return part.step == step and part.retention in (retention, POOLED) and part.increment in (increment, POOLED)
