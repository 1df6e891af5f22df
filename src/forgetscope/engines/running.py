"""From a plan to a store that has all of it: what is there, how long the rest will take, and the run itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from forgetscope.benchmark.costs import Estimate, Rates, estimate, step_seconds, step_work
from forgetscope.benchmark.records import Journal, record_plan
from forgetscope.engines.dispatch import Dispatch, Outcome, Watcher
from forgetscope.engines.local import Workers, calibrate, run_locally
from forgetscope.engines.queue import JobQueue
from forgetscope.errors import StoreError
from forgetscope.experiment.stopping import Stop
from forgetscope.files import locked_if_free
from forgetscope.spec import RunSpec


@dataclass(frozen=True)
class Prospect:
    """What running a plan means, before it starts."""

    done: frozenset[str]
    bad: frozenset[str]  # failed or diverged earlier
    todo: frozenset[str]
    estimate: Estimate | None
    costs: Mapping[str, float]  # of each step: seconds, or work where nothing was measured


def prospect(workers: Workers, run: RunSpec, *, calibrating: bool, stop: Stop, note: Callable[[str], None]) -> Prospect:
    """See what is done, and estimate the rest from rates that were measured here before or are measured now."""
    plan = workers.plan
    journal = record_plan(workers.store, plan)
    done, bad = plan.done(workers.store), journal.bad()
    todo = plan.jobs.keys() - done
    rates = _recorded_rates(journal, _setting(workers)) if todo else None
    if rates is None and calibrating and todo:
        note("Measuring how fast this machine is (about 20 s; --no-estimate skips it)")
        rates = calibrate(workers, run, journal.folder, stop)
        journal.write("rates", setting=_setting(workers), rates=asdict(rates))
    expected = estimate(plan, todo, rates, workers.count) if rates else None
    costs = {id: step_seconds(job, plan, rates) if rates else step_work(job, plan) for id, job in plan.jobs.items()}
    return Prospect(frozenset(done), frozenset(bad), frozenset(todo), expected, costs)


def run_all(workers: Workers, ahead: Prospect, watcher: Watcher, stop: Stop) -> Outcome:
    """Run what is to do. One process at a time may do that for a plan in a store."""
    journal = record_plan(workers.store, workers.plan)
    with _alone(journal):
        journal.write(
            "started",
            steps=len(ahead.todo),
            setting=_setting(workers),
            estimate=ahead.estimate.described() if ahead.estimate else None,
        )
        dispatch = Dispatch(JobQueue(workers.plan.jobs, ahead.done, ahead.bad, ahead.costs), journal, watcher)
        try:
            run_locally(workers, dispatch, journal.folder, stop)
        finally:
            journal.running.unlink(missing_ok=True)
        outcome = dispatch.outcome()
        journal.write("ended", done=outcome.done, bad=len(outcome.bad), seconds=round(outcome.seconds, 1))
    return outcome


@contextmanager
def _alone(journal: Journal) -> Iterator[None]:
    with locked_if_free(journal.folder / "run.lock") as free:
        if not free:
            raise StoreError(
                f"Another process is running this plan ({journal.folder.name}). See `forgetscope bench status`, or wait for it."
            )
        yield


def _setting(workers: Workers) -> dict[str, Any]:
    """What rates depend on, besides the plan."""
    return {
        "jobs": workers.count,
        "device": workers.device,
        "threads": workers.threads,
        "channels_last": workers.channels_last,
    }


def _recorded_rates(journal: Journal, setting: Mapping[str, Any]) -> Rates | None:
    found = [event for event in journal.events() if event["event"] == "rates" and event["setting"] == setting]
    return Rates(**found[-1]["rates"]) if found else None
