"""How far a plan is, for whoever looks from outside: counted from the store, the journal and a running engine's notes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from forgetscope.benchmark.costs import step_work
from forgetscope.benchmark.plans import Plan, descendants
from forgetscope.benchmark.records import Journal, folder_of
from forgetscope.benchmark.space import Partition
from forgetscope.files import read_regular
from forgetscope.foreign import Id, StrictRecord
from forgetscope.store import Store

RUNNING_BYTES = 2**20  # of what a running engine notes of itself


@dataclass(frozen=True)
class Tally:
    """The k-th steps of a partition, or what a plan has besides such steps."""

    step: int | None  # None: re-runs
    partition: Partition | None
    total: int
    done: int
    running: int
    failed: int
    diverged: int


@dataclass(frozen=True)
class Status:
    plan: str
    total: int
    done: int
    uncalibrated: int  # steps that are there, and are not done for want of a calibration
    running: list[dict[str, Any]]  # step, its epochs done and to do
    failures: Mapping[str, str]  # what failed steps said
    diverged: int
    blocked: int  # steps that cannot be run because of these
    active: bool  # an engine is at work
    steps_per_hour: float | None
    seconds_left: float | None
    cells: list[Tally]


def status_of(plan: Plan, store: Store) -> Status:
    journal = Journal(folder_of(store, plan))
    done, diverged = plan.done(store), journal.diverged()
    failures = journal.failures(done)
    at_work = {part: _running(part, plan) for part in journal.active()}
    running = [job for jobs in at_work.values() for job in jobs]
    blocked = descendants(plan.jobs, failures.keys() | diverged) - done - failures.keys()
    rate, left = _pace(plan, at_work, done, blocked | failures.keys()) if at_work else (None, None)
    sets = (done, {job["step"] for job in running}, set(failures), diverged)
    return Status(
        plan=plan.id,
        total=len(plan.jobs),
        done=len(done),
        uncalibrated=len(plan.uncalibrated(store)),
        running=running,
        failures={step: str(event["message"]) for step, event in failures.items()},
        diverged=len(diverged),
        blocked=len(blocked),
        active=bool(at_work),
        steps_per_hour=rate,
        seconds_left=left,
        cells=_cells(plan, *sets),
    )


def _cells(plan: Plan, done: set[str], running: set[str], failed: set[str], diverged: set[str]) -> list[Tally]:
    def cell(step: int | None, partition: Partition | None, ids: set[str]) -> Tally:
        return Tally(step, partition, len(ids), *(len(ids & part) for part in (done, running, failed, diverged)))

    found, counted = [], set[str]()
    for number, cells in sorted(plan.partitions().items()):
        for partition, ids in cells.items():
            found.append(cell(number, partition, set(ids)))
            counted |= set(ids)
    first = {job.id for job in plan.jobs.values() if job.parent is None}
    reruns = {id for rerun in plan.reruns for id in (rerun.original, *rerun.others)} - counted
    later: dict[int, set[str]] = {}  # steps of experiments that belong to no partition
    for id in plan.jobs.keys() - counted - first - reruns:
        later.setdefault(plan.jobs[id].spec.step, set()).add(id)
    found += [cell(number, None, ids) for number, ids in sorted(later.items())]
    return [cell(1, None, first), *found, *([cell(None, None, reruns)] if reruns else [])]


def _running(journal: Journal, plan: Plan) -> list[dict[str, Any]]:
    try:
        jobs = _Running.model_validate(json.loads(read_regular(journal.running, RUNNING_BYTES))).jobs
    except (OSError, ValueError, RecursionError):
        return []
    known = [job for job in jobs if job.step in plan.jobs]
    return [job.model_dump() | {"epochs": plan.jobs[job.step].spec.training.epochs} for job in known]


class _Job(StrictRecord):
    step: Id
    epoch: Annotated[int | float, Field(ge=0)]


class _Running(StrictRecord):
    """What a running engine notes of itself."""

    jobs: list[_Job]


def _pace(
    plan: Plan, at_work: Mapping[Journal, list[dict[str, Any]]], done: set[str], never: set[str]
) -> tuple[float | None, float | None]:
    """Steps per hour and seconds left, from what the parts that are being run have done since each was started."""
    work = {id: step_work(job, plan) for id, job in plan.jobs.items()}
    left = sum(work[id] for id in plan.jobs.keys() - done - never)
    per_second = steps_per_second = 0.0
    for part, running in at_work.items():
        events = part.own_events()
        began = max((i for i, event in enumerate(events) if event["event"] == "started"), default=None)
        if began is None:
            continue
        try:
            seconds = max(1.0, (datetime.now(UTC) - datetime.fromisoformat(events[began]["time"])).total_seconds())
        except (ValueError, TypeError):
            continue  # no time, or one without its zone
        finished = [event["step"] for event in events[began:] if event["event"] == "done" and event["step"] in plan.jobs]
        begun = sum(job["epoch"] / job["epochs"] * work[job["step"]] for job in running)
        left -= begun
        per_second += (sum(work[id] for id in finished) + begun) / seconds
        steps_per_second += len(finished) / seconds
    return 3600 * steps_per_second, left / per_second if per_second else None
