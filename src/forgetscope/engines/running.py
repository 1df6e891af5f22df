"""From a plan to a store that has all of it: what is there, how long the rest will take, and the run itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from forgetscope.benchmark.costs import Estimate, Rates, estimate, step_seconds, step_work
from forgetscope.benchmark.plans import descendants
from forgetscope.benchmark.records import Journal, record_plan
from forgetscope.benchmark.shards import Shard
from forgetscope.engines.dispatch import Dispatch, Outcome, Watcher
from forgetscope.engines.queue import JobQueue
from forgetscope.engines.work import Engine
from forgetscope.errors import StoreError
from forgetscope.experiment.stopping import Stop
from forgetscope.files import locked_if_free
from forgetscope.spec import RunSpec


@dataclass(frozen=True)
class Prospect:
    """What running a plan means, before it starts."""

    shard: Shard | None
    part: frozenset[str]  # all steps that concern us; without a shard the whole plan
    done: frozenset[str]
    bad: frozenset[str]  # failed or diverged earlier
    todo: frozenset[str]
    estimate: Estimate | None
    costs: Mapping[str, float]  # of each step: seconds, or work where nothing was measured


def prospect(
    engine: Engine, run: RunSpec, *, calibrating: bool, stop: Stop, note: Callable[[str], None], shard: Shard | None = None
) -> Prospect:
    """See what is done, and estimate the rest from rates that were measured here before or are measured now."""
    plan = engine.work.plan
    journal = record_plan(engine.work.store, plan, shard)
    done, part = plan.done(engine.work.store), plan.jobs.keys() if shard is None else shard.steps(plan)
    bad = journal.failures(done).keys() | journal.diverged()
    todo = part - done - descendants(plan.jobs, bad)
    rates = _recorded_rates(journal, _setting(engine)) if todo else None
    if rates is None and calibrating and todo:
        note("Measuring how fast this machine is (about 20 s; --no-estimate skips it)")
        rates = engine.calibrate(run, journal.folder, stop)
        journal.write("rates", setting=_setting(engine), rates=asdict(rates))
    expected = estimate(plan, todo, rates, engine.count) if rates else None
    costs = {id: step_seconds(job, plan, rates) if rates else step_work(job, plan) for id, job in plan.jobs.items()}
    return Prospect(shard, frozenset(part), frozenset(done), frozenset(bad), frozenset(todo), expected, costs)


def run_all(engine: Engine, ahead: Prospect, watcher: Watcher, stop: Stop) -> Outcome:
    """Run what is to do. One process at a time may do that for a plan, or for a part of it, in a store."""
    plan, expected = engine.work.plan, ahead.estimate
    journal = record_plan(engine.work.store, plan, ahead.shard)
    with _alone(journal):
        engine.prepare(expected.memory / expected.jobs if expected else 0.0, expected.disk if expected else 0.0)
        described = expected.described() if expected else None
        journal.write("started", steps=len(ahead.todo), setting=_setting(engine), estimate=described)
        jobs = {id: job for id, job in plan.jobs.items() if id in ahead.part}
        dispatch = Dispatch(JobQueue(jobs, ahead.done & ahead.part, ahead.bad & ahead.part, ahead.costs), journal, watcher)
        try:
            engine.run(dispatch, journal.folder, stop)
        finally:
            journal.running.unlink(missing_ok=True)
        outcome = dispatch.outcome()
        journal.write("ended", done=outcome.done, bad=len(outcome.bad), seconds=round(outcome.seconds, 1))
    return outcome


@contextmanager
def _alone(journal: Journal) -> Iterator[None]:
    with locked_if_free(journal.lock) as free:
        if not free:
            raise StoreError(
                f"Another process is running this plan ({journal.folder.name}). See `forgetscope bench status`, or wait for it."
            )
        yield


def _setting(engine: Engine) -> dict[str, Any]:
    """What rates depend on, besides the plan."""
    work = engine.work
    return {
        "engine": engine.name,
        "jobs": engine.count,
        "device": work.device,
        "threads": work.threads,
        "channels_last": work.channels_last,
    }


def _recorded_rates(journal: Journal, setting: Mapping[str, Any]) -> Rates | None:
    found = [event for event in journal.events() if event["event"] == "rates" and event["setting"] == setting]
    known = [event["rates"] for event in found if event["rates"].keys() == Rates.__dataclass_fields__.keys()]
    return Rates(**known[-1]) if known else None
