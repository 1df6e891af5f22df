"""An experiment as a chain of steps: plan it, run what the store lacks, continue what was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Protocol

from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.errors import DataError, Diverged
from forgetscope.experiment.checks import check_steps
from forgetscope.experiment.settings import Settings, choose_settings
from forgetscope.experiment.step import run_step
from forgetscope.experiment.stopping import Stop
from forgetscope.learning.networks import build_network
from forgetscope.learning.plugins import blaming_own_code, load_all, source_digests
from forgetscope.learning.rsgd import EpochEnd
from forgetscope.scenario import sequence_of
from forgetscope.spec import RunSpec, StepSpec, step_id, step_specs
from forgetscope.store import Store, StoredStep


@dataclass(frozen=True)
class PlannedStep:
    id: str
    spec: StepSpec
    done: bool  # already in the store
    work: float  # relative cost of one epoch, for telling the time left


@dataclass(frozen=True)
class Plan:
    """The steps of one experiment, first step first."""

    steps: tuple[PlannedStep, ...]
    data: DataSet

    @property
    def id(self) -> str:
        """The experiment is known by its last step."""
        return self.steps[-1].id


class Progress(Protocol):
    """What a running experiment tells whoever watches."""

    def planned(self, plan: Plan) -> None: ...
    def step_started(self, step: PlannedStep) -> None: ...
    def epoch_ended(self, step: PlannedStep, end: EpochEnd) -> None: ...
    def step_ended(self, step: PlannedStep, record: StoredStep) -> None: ...
    def note(self, text: str) -> None: ...


class Silence:
    """Watches and says nothing."""

    def planned(self, plan: Plan) -> None: ...
    def step_started(self, step: PlannedStep) -> None: ...
    def epoch_ended(self, step: PlannedStep, end: EpochEnd) -> None: ...
    def step_ended(self, step: PlannedStep, record: StoredStep) -> None: ...
    def note(self, text: str) -> None: ...


def run_experiment(
    spec: RunSpec,
    store: Store,
    *,
    device: str = "auto",
    threads: int | None = None,
    channels_last: bool = True,
    compile: bool = False,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Plan:
    """Run every step that the store lacks. A damaged step is moved to quarantine and recomputed.

    A step that diverges is kept as such and ends the experiment: Diverged, each time that this is run. A `stop` that is asked
    for is Interrupted, with everything saved."""
    progress = progress or Silence()
    settings = choose_settings(device, threads, channels_last=channels_last, compile=compile)
    sources = source_digests((spec.policy, spec.network))
    load_all(sources)
    build_network(spec.network, 1, None, sources.get(spec.network))  # an unknown network must not wait for the data
    data = load_data(spec.dataset, spec.image_size, progress.note)
    spec.check_crop(data.shape[0])
    specs = step_specs(spec, sequence_of(spec, len(data.classes)), data.augmentation, sources)
    past = accumulate((len(step.classes) for step in specs[:-1]), initial=0)
    check_steps(zip(specs, past, strict=True), data, settings.device)
    store.prepare()
    plan = make_plan(specs, data, store, progress.note)
    progress.planned(plan)
    parent: StoredStep | None = None
    for step in plan.steps:
        if step.done:
            parent = store.step(step.id)
        else:
            progress.step_started(step)
            _say_if_environments_differ(parent, settings, progress)
            parent = run_locked(
                step.id,
                step.spec,
                parent,
                plan.data,
                store,
                settings,
                on_epoch=partial(progress.epoch_ended, step),
                note=progress.note,
                stop=stop,
                first=specs[0],
            )
            progress.step_ended(step, parent)
        if parent.divergence is not None:
            raise Diverged(_how_it_diverged(parent))
    return plan


def make_plan(specs: Sequence[StepSpec], data: DataSet, store: Store, note: Callable[[str], None]) -> Plan:
    """Identify the steps and see which are there. Damaged ones are quarantined, so they are not.

    A step whose state was freed is done again if the next one has to start from it."""
    steps, parent, past = [], None, 0
    for step in specs:
        id = step_id(parent, step, data.digest)
        work = _work(step, past, len(data.train.labels) / len(data.classes))
        steps.append(PlannedStep(id, step, _is_done(store, id, note), work))
        parent, past = id, past + len(step.classes)
    for i in reversed(range(len(steps) - 1)):
        if steps[i].done and not steps[i + 1].done and store.step(steps[i].id).state_freed:
            note(f"The state of step {steps[i].spec.step} was freed and is needed again; recomputing it.")
            steps[i] = replace(steps[i], done=False)
    return Plan(tuple(steps), data)


def _is_done(store: Store, id: str, note: Callable[[str], None]) -> bool:
    expelled = store.expel(id, note)
    if expelled:
        note(f"{expelled}; computing it again.")
    return id in store


def _work(step: StepSpec, past_classes: int, images_per_class: float) -> float:
    """Images through the network in one epoch; a measured image costs about 0.4 of a trained one."""
    new = len(step.classes) * images_per_class
    if step.rehearsal is None:
        return new
    probed = (past_classes * images_per_class + new) / step.rehearsal.probe_every if step.rehearsal.probe_every else 0.0
    return new / (1 - step.rehearsal.alpha) + 0.4 * probed


@blaming_own_code()
def run_locked(
    id: str,
    spec: StepSpec,
    parent: StoredStep | None,
    data: DataSet,
    store: Store,
    settings: Settings,
    on_epoch: Callable[[EpochEnd], None] = lambda end: None,
    note: Callable[[str], None] = lambda text: None,
    stop: Stop | None = None,
    first: StepSpec | None = None,
) -> StoredStep:
    """Run one step, unless it is there; one process at a time. first: of its chain, which names the network."""
    if id != step_id(parent.id if parent else None, spec, data.digest):
        raise DataError(
            f"Step {id[:8]} is not one of the data set {data.name!r} that is here ({data.digest[:8]}): it was replaced while "
            "the run worked. Nothing more was run. Run the same command again: it plans with what is here."
        )
    with store.lock(id, note):
        there = store.step(id) if id in store else None
        if there is not None and not there.state_freed:  # it finished while we waited
            return there
        made = run_step(id, parent, spec, data, store, settings, on_epoch, note, stop, first)
        if there is not None and made.manifest != there.manifest:
            note(f"Step {spec.step} has other last bits than before; what it was is in {store.path / 'quarantine'}.")
        return made


def run_chain(specs: Sequence[StepSpec], data: DataSet, store: Store, settings: Settings) -> list[StoredStep]:
    """Run these steps one after the other, silently."""
    steps: list[StoredStep] = []
    for spec in specs:
        parent = steps[-1] if steps else None
        id = step_id(parent.id if parent else None, spec, data.digest)
        steps.append(run_locked(id, spec, parent, data, store, settings, first=specs[0]))
    return steps


def _how_it_diverged(step: StoredStep) -> str:
    facts, rate = step.divergence or {}, step.spec.training.learning_rate
    return (
        f"Step {step.spec.step} diverged: the loss became {facts['loss']} at iteration {facts['iteration']} (epoch "
        f"{facts['epoch']}). It is kept as {step.id[:8]} and excluded from statistics. Lower learning_rate (now {rate:g}), "
        "for example --set learning_rate={:g}, and run again.".format(rate / 3)
    )


def _say_if_environments_differ(parent: StoredStep | None, settings: Settings, progress: Progress) -> None:
    if parent is None:
        return
    now, then = settings.environment(), parent.info["environment"]
    different = [f"{name} {then[name]} then, {now[name]} now" for name in now if name in then and then[name] != now[name]]
    if different:
        progress.note(
            f"Building on step {parent.id[:8]}, made under another environment ({'; '.join(different)}): last bits may differ."
        )
