"""A plan: the graph of the distinct steps that a set of experiments needs, and what of it the store lacks.

A run, a benchmark, a comparison and a controlled experiment are all plans. A plan needs neither the data nor torch: where the
data are not here, its steps are counted under provisional ids.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from forgetscope.benchmark.space import BenchmarkSpec, Partition, sample
from forgetscope.characters import counted
from forgetscope.choices import canonical_calibration, named_method
from forgetscope.data.augmentation import earlier_augmentation
from forgetscope.data.library import DataFacts, data_facts
from forgetscope.learning.budgets import Prices, demand_room, stores_logits
from forgetscope.learning.plugins import source_digests
from forgetscope.scenario import Increments, sequence_of
from forgetscope.spec import RehearsalSpec, RunSpec, StepSpec, step_id, step_specs
from forgetscope.store import Store, has_calibrations

Sources = Mapping[str, str] | None  # SHA-256 of a user's own code, by name
PROVISIONAL = "the data are not here"  # takes the place of the data's digest


@dataclass(frozen=True)
class Job:
    """One step to be run, once its parent is done."""

    id: str
    parent: str | None
    spec: StepSpec
    past_classes: int
    calibrations: tuple[str, ...] = ()  # that act on its predictions, in their canonical form


@dataclass(frozen=True, kw_only=True)
class Chain:
    """One experiment of a plan."""

    steps: tuple[str, ...]  # ids, first step first
    partition: Partition | None = None
    policy: str
    number: int = 0
    variant: str | None = None  # in a plan of variants or arms: which one
    calibration: str | None = None  # of its steps from the second on, which are the same without it
    lent: bool | None = None  # whether it has its keepsakes for an arm that shares its steps, and asks for none itself

    def described(self) -> dict[str, Any]:
        """As plan.json has it."""
        optional = ("variant", "calibration", "lent")
        return {name: value for name, value in asdict(self).items() if name not in optional or value is not None}


@dataclass(frozen=True)
class Reruns:
    """One step of a plan, run again from the same parent with other new classes and nothing else changed."""

    original: str  # the first of the runs, where none of them is an experiment's own step
    step: int
    partition: Partition
    others: tuple[str, ...]


@dataclass
class Plan:
    """`jobs` by id, parents before their children. `about` says what the plan is for, and gives it its id."""

    about: Mapping[str, Any]
    data: DataFacts
    template: RunSpec  # a run with the options that all of its runs share
    jobs: dict[str, Job] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)
    reruns: list[Reruns] = field(default_factory=list)
    steps_wanted: int = 0  # with those that several experiments share counted for each

    def __repr__(self) -> str:
        experiments = len(self.chains) + sum(len(picked.others) for picked in self.reruns)
        return f"<plan {self.id}: {counted(len(self.jobs), 'step')} of {counted(experiments, 'experiment')}>"

    @cached_property
    def id(self) -> str:
        content = {"about": self.about, "data": self.data.digest}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return f"{self.about['name']}-{digest[:8]}"

    @property
    def recorded(self) -> bool:
        """Whether stores remember it. A single run they know by its steps."""
        return self.about.get("kind") != "run"

    @property
    def sources(self) -> Mapping[str, str]:
        """SHA-256 of the code behind a user's own policies, methods and network, by name."""
        return cast(Mapping[str, str], self.about.get("sources", {}))

    @property
    def own_code(self) -> set[str]:
        """The names of all code that it would run besides ours."""
        specs = [job.spec for job in self.jobs.values()]
        rehearsals = {spec.rehearsal for spec in specs if spec.rehearsal}
        named = {str(spec.network) for spec in specs} | {rehearsal.policy for rehearsal in rehearsals}
        named |= {named_method(rehearsal.method)[0] for rehearsal in rehearsals if rehearsal.method is not None}
        return {name for name in named if ":" in name}

    @property
    def provisional(self) -> bool:
        """Whether the ids are not final, because the data are not here."""
        return self.data.digest is None

    def add(
        self, parent: str | None, past_classes: int, specs: Iterable[StepSpec], calibration: str | None = None
    ) -> list[str]:
        """Add a chain of steps that starts from a parent, or from nothing; the ids of its steps."""
        ids = []
        for spec in specs:
            id = step_id(parent, spec, self.data.digest or PROVISIONAL)
            job = self.jobs.setdefault(id, Job(id, parent, spec, past_classes))
            if calibration is not None and spec.rehearsal is not None and calibration not in job.calibrations:
                self.jobs[id] = replace(job, calibrations=(*job.calibrations, calibration))
            ids.append(id)
            self.steps_wanted += 1
            parent, past_classes = id, past_classes + len(spec.classes)
        if ids:
            self._demand_room(ids[-1])
        return ids

    def _demand_room(self, id: str) -> None:
        """Of a budget in bytes, as far as it can be told without the network, whose features keepsakes are of. What later steps
        fit in is enough for those before them."""
        spec = self.jobs[id].spec
        if spec.rehearsal is not None and spec.rehearsal.memory_bytes is not None:
            ending = "" if spec.rehearsal.keepsake is None else " Keepsakes come on top."
            demand_room(spec.rehearsal.memory_bytes, self.prices(id, spec.rehearsal), f" of step {spec.step}", ending)

    def prices(self, id: str, rehearsal: RehearsalSpec, features: int | None = None, stored: bool | None = None) -> Prices:
        """Of what a step keeps of past classes. stored: whether logits are; of a user's own method its class alone tells."""
        logits = stores_logits(rehearsal) if stored is None else stored
        *before, _ = (job.spec for job in chain_of(self.jobs, id))
        introduced = {label: spec.step for spec in before for label in spec.classes}
        return Prices.of(rehearsal, self.data.shape, introduced, features=features, stores_logits=logits)

    def specs_of(self, run: RunSpec, sequence: Increments | None = None) -> list[StepSpec]:
        """The steps of a run, over its own class sequence or over another."""
        sequence = sequence or sequence_of(run, self.data.classes)
        return step_specs(run, sequence, self.data.augmentation, self.sources)

    def add_chain(self, specs: Iterable[StepSpec], run: RunSpec, **about: Any) -> Chain:
        """Add an experiment of this run. about: what else a Chain says of it."""
        calibration = canonical_calibration(run.calibration)
        steps = tuple(self.add(None, 0, specs, calibration))
        self.chains.append(Chain(steps=steps, policy=run.policy, calibration=calibration, **about))
        return self.chains[-1]

    @property
    def steps_shared(self) -> int:
        """How many runs of a step are saved because experiments have steps in common."""
        return self.steps_wanted - len(self.jobs)

    def done(self, store: Store) -> set[str]:
        """Those of its steps that the store has, calibrations included. Their files are verified by whoever reads them."""
        there = set() if self.provisional else self.jobs.keys() & store.ids()
        return {id for id in there if has_calibrations(store, id, self.jobs[id].calibrations)}

    def uncalibrated(self, store: Store) -> set[str]:
        """Those that the store has without a calibration that acts on their predictions. They are not done."""
        return (set() if self.provisional else self.jobs.keys() & store.ids()) - self.done(store)

    def partitions(self) -> dict[int, dict[Partition, list[str]]]:
        """Step number -> partition -> the measured steps in it, each once."""
        found: dict[int, dict[Partition, dict[str, None]]] = {}
        for chain in self.chains:
            if chain.partition is not None:
                for number, id in enumerate(chain.steps[1:], start=2):
                    found.setdefault(number, {}).setdefault(chain.partition, {})[id] = None
        return {number: {partition: list(ids) for partition, ids in cells.items()} for number, cells in found.items()}


def run_plan(run: RunSpec, data: DataFacts | None = None, sources: Sources = None) -> Plan:
    about = {"kind": "run", "name": "run", "run": run.to_toml()}
    plan = empty_plan(about, run, run.code, data, sources)
    plan.add_chain(plan.specs_of(run), run)
    return plan


def benchmark_plan(spec: BenchmarkSpec, data: DataFacts | None = None, sources: Sources = None) -> Plan:
    """The plan of a benchmark's sample. data, sources: as recorded; by default those that are here."""
    about = {"kind": "benchmark", "name": spec.name, "benchmark": spec.to_toml()}
    plan = empty_plan(about, spec.template, (*spec.policies, *spec.template.code), data, sources)
    for drawn in sample(spec, plan.data.classes):
        specs = plan.specs_of(drawn.run, drawn.sequence)
        plan.add_chain(specs, drawn.run, partition=drawn.partition, number=drawn.number)
    return plan


def left_behind(spec: BenchmarkSpec, plan: Plan, store: Store) -> set[str]:
    """Steps of a benchmark that an earlier version made and that are none of it any more, because it augmented the images of
    this data set otherwise. They stay in the store under their ids."""
    earlier = earlier_augmentation(plan.data.name, plan.data.shape[0])
    if earlier is None or plan.provisional:
        return set()
    return benchmark_plan(spec, replace(plan.data, augmentation=earlier), plan.sources).done(store) - plan.jobs.keys()


def empty_plan(
    about: Mapping[str, Any], run: RunSpec, code: Iterable[str], data: DataFacts | None = None, sources: Sources = None
) -> Plan:
    """code: the names of all policies, methods and networks. Other code behind a user's own is another plan."""
    data, sources = data or data_facts(run.dataset, run.image_size), sources or source_digests(code)
    return Plan({**about, **({"sources": dict(sources)} if sources else {})}, data, run)


def descendants(jobs: Mapping[str, Job], ids: Iterable[str]) -> set[str]:
    """These steps and everything that builds on them; `jobs` has parents before their children."""
    found = set(ids)
    for job in jobs.values():
        if job.parent in found:
            found.add(job.id)
    return found


def chain_of(jobs: Mapping[str, Job], id: str) -> Sequence[Job]:
    """A step and its ancestors, first step first."""
    chain = [jobs[id]]
    while chain[0].parent is not None:
        chain.insert(0, jobs[chain[0].parent])
    return chain
