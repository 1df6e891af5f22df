"""A step as every engine runs it: once, by one process at a time, and under no other id than its own."""

from collections.abc import Callable, Sequence

from forgetscope.data.images import DataSet
from forgetscope.errors import DataError
from forgetscope.experiment.settings import Settings
from forgetscope.experiment.step import run_step
from forgetscope.experiment.stopping import Stop
from forgetscope.learning.plugins import blaming_own_code
from forgetscope.learning.rsgd import EpochEnd
from forgetscope.spec import StepSpec, step_id
from forgetscope.store import Store, StoredStep


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
        if parent is not None:
            _say_if_environments_differ(parent, settings, note)
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


def _say_if_environments_differ(parent: StoredStep, settings: Settings, note: Callable[[str], None]) -> None:
    now, then = settings.environment(), parent.info["environment"]
    different = [f"{name} {then[name]} then, {now[name]} now" for name in now if name in then and then[name] != now[name]]
    if different:
        note(
            f"Building on step {parent.id[:8]}, made under another environment ({'; '.join(different)}): last bits may differ."
        )
