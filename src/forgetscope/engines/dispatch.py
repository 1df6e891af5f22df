"""What every engine does with what its workers say: keep the queue, write the journal, tell whoever watches."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from forgetscope.benchmark.plans import Job
from forgetscope.benchmark.records import Journal
from forgetscope.engines.queue import JobQueue
from forgetscope.files import replace_soon

ATTEMPTS = 3  # of a job whose workers die
BEAT = 2.0  # seconds between two notes of what is running


class Watcher(Protocol):
    """What an engine tells whoever watches."""

    def started(self, job: Job) -> None: ...
    def epoch_ended(self, job: Job, epoch: int) -> None: ...
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
    """The jobs of one run of a plan, from the first that starts to the last that ends."""

    def __init__(self, queue: JobQueue, journal: Journal, watcher: Watcher) -> None:
        self.queue, self._journal, self._watcher = queue, journal, watcher
        self._deaths: Counter[str] = Counter()
        self._epochs: dict[str, int] = {}
        self._beat = 0.0
        self._began = time.monotonic()
        self._done, self._bad, self._died = 0, dict[str, str](), set[str]()
        self._noted = set[str]()

    def take(self) -> Job | None:
        """The next job that can start."""
        return self.queue.take()

    def started(self, job: Job) -> None:
        self._watcher.started(job)

    def note(self, text: str) -> None:
        """Of one or of several workers that say the same."""
        if text not in self._noted:
            self._noted.add(text)
            self._watcher.note(text)

    def epoch_ended(self, job: Job, epoch: int) -> None:
        self._epochs[job.id] = epoch
        self._watcher.epoch_ended(job, epoch)

    def ended(self, job: Job, event: Mapping[str, Any]) -> None:
        """A worker has come to an end with a job and says how."""
        kind = event["event"]
        if kind == "parent":
            self._watcher.note(event["text"])
            self.queue.without_parent(job.id)
        elif kind == "failed":
            self._journal.write("failed", step=job.id, message=event["message"])
            self._ended_badly(job, event["message"])
        elif event["diverged"] is not None:
            self._journal.write("diverged", step=job.id, **event["diverged"])
            self._ended_badly(job, f"diverged at iteration {event['diverged']['iteration']}")
        else:
            self._journal.write("done", step=job.id, seconds=event["seconds"])
            self._done += 1
            self.queue.finished(job.id)
            self._watcher.ended(job)

    def died(self, job: Job, cause: str) -> None:
        """A worker died with the job, which is tried again: in this run unless that was often enough, then in the next."""
        self._deaths[job.id] += 1
        self._journal.write("died", step=job.id, message=cause)
        if self._deaths[job.id] >= ATTEMPTS:
            self._died.add(job.id)
            self._ended_badly(job, f"{cause} It was tried {ATTEMPTS} times.")
        else:
            self._watcher.note(f"Step {job.id[:8]}: {cause} Going on from its snapshot in a new one.")
            self.queue.again(job.id)

    def beat(self, running: Collection[Job]) -> None:
        """Every few moments note what is running, for whoever looks from outside."""
        if time.monotonic() - self._beat < BEAT:
            return
        self._beat = time.monotonic()
        jobs = [{"step": job.id, "epoch": self._epochs.get(job.id, 0)} for job in running]
        path = self._journal.running
        with suppress(OSError):  # a courtesy to `bench status`; a disk that is full stops the steps themselves
            replace_soon(path, json.dumps({"process": os.getpid(), "jobs": jobs}).encode())

    def outcome(self) -> Outcome:
        return Outcome(self._done, self._bad, self._died, time.monotonic() - self._began)

    def _ended_badly(self, job: Job, message: str) -> None:
        self._bad[job.id] = message
        self._watcher.ended_badly(job, message, len(self.queue.ended_badly(job.id)))
