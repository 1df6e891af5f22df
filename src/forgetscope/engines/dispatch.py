"""What every engine does with what its workers say: keep the queue, write the journal, tell whoever watches."""

import json
import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from forgetscope import errors
from forgetscope.benchmark.costs import PlanCosts
from forgetscope.benchmark.plans import Job, Plan
from forgetscope.benchmark.records import Journal
from forgetscope.engines.queue import JobQueue
from forgetscope.errors import Diverged, ForgetscopeError, InputError
from forgetscope.files import replace_soon

ATTEMPTS = 3  # of a job whose workers die
FAREWELL = 60.0  # seconds that workers have to save what they are doing
STOPPED = "Stopped and saved. Run the same command again to continue."
BEAT = 2.0  # seconds between two notes of what is running


@dataclass(frozen=True)
class Prospect:
    """What running a plan means, before it starts."""

    journal: Journal | None  # of the plan, or of a part of it
    part: frozenset[str]  # all steps that concern us; without a shard the whole plan
    done: frozenset[str]
    bad: frozenset[str]  # failed or diverged earlier
    todo: frozenset[str]
    estimate: PlanCosts | None
    costs: Mapping[str, float]  # of each step: seconds, or work where nothing was measured


class Watcher:
    """Is told what happens while a plan is being run, notes also before it is planned. This one says nothing: override what
    you want to hear.

    >>> import forgetscope as fs
    >>> class Epochs(fs.Watcher):
    ...     def epoch_ended(self, job, epoch, loss, accuracy):
    ...         print(f"step {job.spec.step}, epoch {epoch}")
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "watched", watch=Epochs())
    step 1, epoch 1
    step 2, epoch 1
    """

    def planned(self, plan: Plan, ahead: Prospect) -> None: ...
    def started(self, job: Job) -> None: ...
    def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None: ...
    def ended(self, job: Job) -> None: ...
    def ended_badly(self, job: Job, message: str, blocked: int) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """What became of a plan's jobs."""

    done: int  # in this run
    bad: Mapping[str, str]  # failed or diverged in this run, with what they said
    died: Set[str]  # not done, because their workers died again and again: another run may have more luck
    seconds: float


class Dispatch:
    """The jobs of one run of a plan, from the first that starts to the last that ends.

    journal: None for a plan that no store remembers. raising: the first job that fails or diverges ends the run."""

    def __init__(self, queue: JobQueue, journal: Journal | None, watcher: Watcher, *, raising: bool = False) -> None:
        self.queue, self.raising, self._journal, self._watcher = queue, raising, journal, watcher
        self._deaths: Counter[str] = Counter()
        self._epochs: dict[str, int] = {}
        self._beat = 0.0
        self._began = time.monotonic()
        self._done, self._bad, self._died = 0, dict[str, str](), set[str]()
        self._noted = set[str]()

    def take(self) -> Job | None:
        """The next job that can start, and does."""
        if (job := self.queue.take()) is not None:
            self._watcher.started(job)
        return job

    def note(self, text: str) -> None:
        """Of one or of several workers that say the same."""
        if text not in self._noted:
            self._noted.add(text)
            self._watcher.note(text)

    def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
        self._epochs[job.id] = epoch
        self._watcher.epoch_ended(job, epoch, loss, accuracy)

    def ended(self, job: Job, event: Mapping[str, Any]) -> None:
        """A worker has come to an end with a job and says how."""
        kind = event["event"]
        if kind == "refused":  # data or code are not what the plan was made with: no other job would do better
            raise InputError(event["message"])
        if kind == "parent":
            self._watcher.note(event["text"])
            self.queue.without_parent(job.id)
        elif kind == "failed":
            self._write("failed", step=job.id, message=event["message"])
            error: type[ForgetscopeError] = getattr(errors, event.get("kind", ""), ForgetscopeError)  # which a bug becomes
            self._ended_badly(job, event["message"], error(event["message"]))
        elif event["diverged"] is not None:
            self._write("diverged", step=job.id, **event["diverged"])
            message = f"diverged at iteration {event['diverged']['iteration']}"
            self._ended_badly(job, message, divergence(job, event["diverged"]))
        else:
            self._write("done", step=job.id, seconds=event["seconds"])
            self._done += 1
            self.queue.finished(job.id)
            self._watcher.ended(job)

    def died(self, job: Job, cause: str) -> None:
        """A worker died with the job, which is tried again: in this run unless that was often enough, then in the next."""
        self._deaths[job.id] += 1
        self._write("died", step=job.id, message=cause)
        if self._deaths[job.id] >= ATTEMPTS:
            self._died.add(job.id)
            message = f"{cause} It was tried {ATTEMPTS} times."
            self._ended_badly(job, message, ForgetscopeError(message))
        else:
            self._watcher.note(f"Step {job.id[:8]}: {cause} Going on from its snapshot in a new one.")
            self.queue.again(job.id)

    def beat(self, running: Collection[Job]) -> None:
        """Every few moments note what is running, for whoever looks from outside."""
        if self._journal is None or time.monotonic() - self._beat < BEAT:
            return
        self._beat = time.monotonic()
        jobs = [{"step": job.id, "epoch": self._epochs.get(job.id, 0)} for job in running]
        with suppress(OSError):  # a courtesy to `bench status`; a disk that is full stops the steps themselves
            replace_soon(self._journal.running, json.dumps({"process": os.getpid(), "jobs": jobs}).encode())

    def outcome(self) -> Outcome:
        return Outcome(self._done, self._bad, self._died, time.monotonic() - self._began)

    def _write(self, event: str, **facts: object) -> None:
        if self._journal is not None:
            self._journal.write(event, **facts)

    def _ended_badly(self, job: Job, message: str, error: ForgetscopeError) -> None:
        if self.raising:
            raise error
        self._bad[job.id] = message
        self._watcher.ended_badly(job, message, len(self.queue.ended_badly(job.id)))


def divergence(job: Job, facts: Mapping[str, Any]) -> Diverged:
    """The error of a step that is kept as diverged, with what to do. facts: as its record has them."""
    rate = job.spec.training.learning_rate
    return Diverged(
        f"Step {job.spec.step} diverged: the loss became {facts['loss']} at iteration {facts['iteration']} (epoch "
        f"{facts['epoch']}). It is kept as {job.id[:8]} and excluded from statistics. Lower learning_rate (now {rate:g}), "
        f"for example --set learning_rate={rate / 3:g}, and run again."
    )
