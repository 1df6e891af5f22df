"""From what is wanted to a store that has all of it: what is there, how long the rest will take, and the run itself."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from forgetscope.benchmark.costs import Rates, estimate, step_seconds, step_work
from forgetscope.benchmark.plans import Plan, descendants
from forgetscope.benchmark.recipes import Wanted, plan_of, script_notes, templates_of
from forgetscope.benchmark.records import Journal, record_plan
from forgetscope.benchmark.shards import Shard
from forgetscope.characters import counted
from forgetscope.data.library import load_data
from forgetscope.engines.dispatch import Dispatch, Outcome, Prospect, Watcher, divergence
from forgetscope.engines.queue import JobQueue
from forgetscope.engines.work import Engine, Place, Work
from forgetscope.errors import DamagedStep, DataError, StoreError
from forgetscope.experiment.stopping import Stop, on_signals
from forgetscope.files import locked_if_free
from forgetscope.learning.plugins import load_all, source_digests
from forgetscope.outputs import Note
from forgetscope.spec import RunSpec
from forgetscope.store import Store, has_calibrations, stored_calibration

CALIBRATING = 0.03  # of the cost of a step, what its calibrations take where it is there already


def carry_out(
    wanted: Wanted,
    store: Store,
    place: Place,
    watcher: Watcher,
    *,
    estimating: bool = False,
    shard: Shard | None = None,
    again: Collection[str] | bool = (),
    raising: bool = False,
    stop: Stop | None = None,
) -> tuple[Plan, Outcome]:
    """Run what the store lacks of a plan, or of what a specification asks for. What is wrong with any of it is said first.

    again: steps that failed and are to be tried again; True: all that did; False: none, and their number is noted. raising: as
    of Dispatch. A stop, which signals ask for, is Interrupted, with everything saved."""
    stop = stop or Stop()
    with on_signals(stop):
        place.settings()  # what this machine cannot do is said before data are made
        plan = made_ready(wanted, watcher.note)
        with engaged(place, plan, store) as engine:
            if plan.recorded:
                watcher.note(f"Plan {plan.id}" + (f", part {shard.number} of {shard.count}" if shard else ""))
                journal, failed = record_plan(store, plan, shard), again
                for id in plan.done(store):
                    _expel_damaged(store, id, watcher.note, plan.jobs[id].calibrations)
                if isinstance(failed, bool):
                    part = plan.jobs.keys() if shard is None else shard.steps(plan)
                    failed = [id for id in journal.failures(plan.done(store)) if id in part]
                if again:
                    journal.retry(failed)
                elif failed:
                    steps = counted(len(failed), "step", "failed before and is/failed before and are")
                    watcher.note(f"{steps} not tried again: retry=True")
            ahead = prospect(engine, calibrating=estimating, stop=stop, note=watcher.note, shard=shard)
            watcher.planned(plan, ahead)
            for id in sorted(ahead.bad) if raising else ():
                raise divergence(plan.jobs[id], store.step(id).divergence or {})
            return plan, run_all(engine, ahead, watcher, stop, raising=raising)


def made_ready(wanted: Wanted, note: Note) -> Plan:
    """The plan, once its networks and data are here, and the data are those that it was made with."""
    if not isinstance(wanted, Plan):
        for text in script_notes(wanted):
            note(text)
        for run in templates_of(wanted):
            _get_ready(run, note)
        return plan_of(wanted)
    if wanted.provisional:
        raise DataError(f"Plan {wanted.id} was made before its data were here, so that its steps have no ids. Make it again.")
    if _get_ready(wanted.template, note) != wanted.data.digest:
        raise StoreError(
            f"Plan {wanted.id} was run on a data set {wanted.data.name!r} that is not here any more: it is gone or "
            "has changed. See `forgetscope data list`."
        )
    return wanted


def _get_ready(run: RunSpec, note: Note) -> str:
    """See that network and data are there, before anything starts; the digest of the data."""
    from forgetscope.learning.networks import build_network  # which needs torch

    build_network(run.network, 1, None, source_digests([run.network]).get(run.network))
    data = load_data(run.dataset, run.image_size, note)
    run.check_crop(data.shape[0])
    return data.digest


@contextmanager
def engaged(place: Place, plan: Plan, store: Store, *, looking: bool = False) -> Iterator[Engine]:
    """Workers for a plan. What is wrong with any step is said first.

    looking: nothing will be run, so nothing of the user's own is tried."""
    from forgetscope.experiment.checks import check_steps  # which needs torch

    settings = place.settings()
    if not looking:
        load_all(plan.sources)
        data = load_data(plan.data.name, plan.template.image_size, verify=False)
        check_steps(plan, data, None if settings is None else settings.device)
    store.prepare()
    device, threads = (settings.device.type, settings.threads) if settings else (place.device, place.threads or 1)
    with place.hired(Work(plan, store, device, threads, place.channels_last, place.compile)) as engine:
        yield engine


def prospect(engine: Engine, *, calibrating: bool, stop: Stop, note: Note, shard: Shard | None = None) -> Prospect:
    """See what is done, and estimate the rest from rates that were measured here before or are measured now."""
    plan, store = engine.work.plan, engine.work.store
    journal = record_plan(store, plan, shard) if plan.recorded else None
    if journal is None:  # nobody but the steps themselves can tell; they are few
        done = {id for id, job in plan.jobs.items() if _is_whole(store, id, note, job.calibrations)}
        bad = {id for id in done if store.step(id).divergence is not None}
    else:
        done = plan.done(store)
        bad = journal.failures(done).keys() | journal.diverged()
    part = plan.jobs.keys() if shard is None else shard.steps(plan)
    todo = part - done - descendants(plan.jobs, bad)
    rates = _recorded_rates(journal, _setting(engine)) if todo and journal else None
    if rates is None and calibrating and todo:
        note("Measuring how fast this machine is (about 20 s; --no-estimate skips it)")
        rates = engine.calibrate(stop)
        if journal is not None:
            journal.write("rates", setting=_setting(engine), rates=asdict(rates))
    expected = estimate(plan, todo - store.ids(), rates, engine.count) if rates else None
    costs = {id: step_seconds(job, plan, rates) if rates else step_work(job, plan) for id, job in plan.jobs.items()}
    costs |= {id: CALIBRATING * costs[id] for id in todo & store.ids()}
    return Prospect(journal, frozenset(part), frozenset(done), frozenset(bad), frozenset(todo), expected, costs)


def run_all(engine: Engine, ahead: Prospect, watcher: Watcher, stop: Stop, *, raising: bool = False) -> Outcome:
    """Run what is to do. Of a plan that the store remembers, or of a part of it, one process at a time may do that."""
    plan, expected, journal = engine.work.plan, ahead.estimate, ahead.journal
    jobs = {id: job for id, job in plan.jobs.items() if id in ahead.part}
    queue = JobQueue(jobs, ahead.done & ahead.part, ahead.bad & ahead.part, ahead.costs)
    with _noted(journal) as write:
        engine.prepare(expected.memory / expected.jobs if expected else 0.0, expected.disk if expected else 0.0)
        write("started", steps=len(ahead.todo), setting=_setting(engine), estimate=asdict(expected) if expected else None)
        dispatch = Dispatch(queue, journal, watcher, raising=raising)
        engine.run(dispatch, stop)
        outcome = dispatch.outcome()
        write("ended", done=outcome.done, bad=len(outcome.bad), seconds=round(outcome.seconds, 1))
    return outcome


def _is_whole(store: Store, id: str, note: Note, calibrations: Sequence[str]) -> bool:
    """Whether a step is there, with these calibrations; what is damaged is moved to quarantine, so that it is not."""
    if expelled := store.expel(id, note):
        note(f"{expelled}; computing it again.")
    if id not in store:
        return False
    _expel_damaged(store, id, note, calibrations)
    return has_calibrations(store, id, calibrations)


def _expel_damaged(store: Store, id: str, note: Note, calibrations: Sequence[str]) -> None:
    """Move calibrations of a step to quarantine that are damaged, so that they are made again."""
    for one in (stored_calibration(store, store.step(id), name) for name in calibrations):
        try:
            if one.there:
                one.verify()
        except DamagedStep as damage:
            if str(damage).startswith(one.title):  # and not the step
                note(f"{one.title} is damaged: {damage.reason}. Moved to {store.quarantine(one.folder)}; making it again.")


@contextmanager
def _noted(journal: Journal | None) -> Iterator[Callable[..., None]]:
    """Alone with a plan, and with its journal; a plan without one may be run by several."""
    if journal is None:
        yield lambda event, **facts: None
        return
    with locked_if_free(journal.lock) as free:
        if not free:
            raise StoreError(
                f"Another process is running this plan ({journal.folder.name}). See `forgetscope bench status`, or wait for it."
            )
        try:
            yield journal.write
        finally:
            journal.running.unlink(missing_ok=True)


def _setting(engine: Engine) -> dict[str, Any]:
    """What rates depend on, besides the plan. Journals of before there was `compile` do not have it."""
    chosen = {name: value for name, value in engine.work.settings.items() if name != "compile" or value}
    return {"engine": engine.name, "jobs": engine.count, **chosen}


def _recorded_rates(journal: Journal, setting: Mapping[str, Any]) -> Rates | None:
    found = [event for event in journal.events() if event["event"] == "rates" and event["setting"] == setting]
    known = [event["rates"] for event in found if event["rates"].keys() == Rates.__dataclass_fields__.keys()]
    return Rates(**known[-1]) if known else None
