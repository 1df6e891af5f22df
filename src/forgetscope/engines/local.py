"""The local engine: worker processes that take job after job, under a supervisor that outlives their deaths.

A job whose worker dies is retried from its snapshot in a fresh worker, a bounded number of times. A job that fails is told at
once and stops nothing but what builds on it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from forgetscope.benchmark.costs import Rates
from forgetscope.benchmark.plans import Job, Plan
from forgetscope.benchmark.records import Journal
from forgetscope.engines.queue import JobQueue
from forgetscope.errors import ForgetscopeError, Interrupted
from forgetscope.experiment.stopping import Stop
from forgetscope.spec import RunSpec
from forgetscope.store import Store

ATTEMPTS = 3  # of a job whose workers die
FAREWELL = 60.0  # seconds that a worker has to save what it is doing
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
    blocked: int  # steps that build on one that failed or diverged, now or earlier
    seconds: float


@dataclass(frozen=True)
class Workers:
    """How many processes, and what each of them is told when it starts."""

    count: int
    store: Store
    plan: Plan
    device: str = "auto"
    threads: int = 1
    channels_last: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, log: Path) -> _Process:
        setup = {
            "store": str(self.store.path.resolve()),
            "dataset": self.plan.data.name,
            "image_size": self.plan.image_size,
            "device": self.device,
            "threads": self.threads,
            "channels_last": self.channels_last,
        }
        return _Process(setup, log, self.environment)


class _Process:
    """One worker. Its standard error goes to a file, whose last line explains a sudden death."""

    def __init__(self, setup: Mapping[str, Any], log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._start = errors.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forgetscope.engines.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,  # a Ctrl-C on the terminal reaches the supervisor alone, which asks politely
            )
        self.job: Job | None = None
        self._rest = b""
        self.tell(**setup)

    def tell(self, **request: object) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died; its output ends, which is noticed there

    def heard(self) -> list[dict[str, Any]] | None:
        """What it has said since it was last listened to; None when it has nothing more to say, ever."""
        assert self.process.stdout is not None
        content = os.read(self.process.stdout.fileno(), 1 << 16)
        if not content:
            return None
        *lines, self._rest = (self._rest + content).split(b"\n")
        return [json.loads(line) for line in lines]

    def ask_to_stop(self) -> None:
        """No more requests: it saves what it is doing and ends."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self) -> None:
        """When it has ended."""
        self.ask_to_stop()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def cause_of_death(self) -> str:
        code = self.process.wait()
        with self._log.open("rb") as file:
            file.seek(self._start)
            lines = file.read().decode(errors="replace").strip().splitlines()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            how += " (out of memory?)"
        return f"The worker was {how}." if not lines else f"The worker was {how}: {lines[-1]}"


def run_plan(
    workers: Workers,
    done: Collection[str],
    bad: Collection[str],
    costs: Mapping[str, float],
    journal: Journal,
    watcher: Watcher,
    stop: Stop,
) -> Outcome:
    """Run every job of the plan that is not done, does not fail and builds on none that did. `bad`: those that did before."""
    supervisor = _Supervisor(workers, JobQueue(workers.plan.jobs, done, bad, costs), journal, watcher)
    started = time.monotonic()
    with stop.deferred(), supervisor.staffed():
        while not supervisor.queue.over:
            if stop.requested:
                raise Interrupted("Stopped and saved. Run the same command again to continue.")
            supervisor.turn()
    return Outcome(
        supervisor.done, supervisor.bad, len(supervisor.queue.blocked) - len(supervisor.bad), time.monotonic() - started
    )


def calibrate(workers: Workers, run: RunSpec, log_folder: Path, stop: Stop) -> Rates:
    """Rates with all workers at work at the same time, as they will be."""
    processes = [workers.start(log_folder / f"worker-{i}.log") for i in range(workers.count)]
    found = []
    try:
        for process in processes:
            process.tell(do="calibrate", run=run.model_dump(exclude_unset=True))
        with stop.deferred():
            waiting = set(processes)
            for process, event in _events(processes, lambda: stop.requested):
                if event is None:
                    raise ForgetscopeError(process.cause_of_death())
                if event["event"] == "rates":
                    found.append(Rates(**event["rates"]))
                    waiting.discard(process)
                if not waiting:
                    break
            if stop.requested:
                raise Interrupted("Stopped. Run the same command again.")
    finally:
        for process in processes:
            process.process.terminate()  # it has nothing to save
        _dismiss(processes)
    return Rates.mean(found)


class _Supervisor:
    def __init__(self, workers: Workers, queue: JobQueue, journal: Journal, watcher: Watcher) -> None:
        self._workers, self.queue, self._journal, self._watcher = workers, queue, journal, watcher
        self._processes: list[_Process] = []
        self._selector = selectors.DefaultSelector()
        self._deaths: Counter[str] = Counter()
        self._born_dead = 0
        self._beat = 0.0
        self._epochs: dict[str, int] = {}
        self.done, self.bad = 0, dict[str, str]()

    @contextmanager
    def staffed(self) -> Iterator[None]:
        try:
            yield
        finally:
            _dismiss(self._processes)
            self._selector.close()
            (self._journal.folder / "running.json").unlink(missing_ok=True)

    def turn(self) -> None:
        """Give work to whoever is free, then listen for a moment."""
        self._employ()
        for key, _ in self._selector.select(timeout=0.2):
            process: _Process = key.data
            events = process.heard()
            if events is None:
                self._bury(process)
            else:
                for event in events:
                    self._hear(process, event)
        if time.monotonic() - self._beat > BEAT:
            self._note_what_runs()

    def _employ(self) -> None:
        wanted = min(self._workers.count, len(self.queue.left()))
        idle = [process for process in self._processes if process.job is None]
        while job := self.queue.take():
            if idle:
                process = idle.pop()
            elif len(self._processes) < wanted:
                process = self._hire()
            else:
                self.queue.again(job.id)
                break
            process.job = job
            process.tell(do="run", id=job.id, parent=job.parent, spec=job.spec.model_dump(mode="json"))
            self._watcher.started(job)

    def _hire(self) -> _Process:
        process = self._workers.start(self._journal.folder / f"worker-{len(self._processes)}.log")
        self._processes.append(process)
        assert process.process.stdout is not None
        self._selector.register(process.process.stdout, selectors.EVENT_READ, process)
        return process

    def _hear(self, process: _Process, event: Mapping[str, Any]) -> None:
        kind, job = event["event"], process.job
        if kind == "ready":
            self._born_dead = 0
        elif kind == "note":
            self._watcher.note(event["text"])
        elif job is None or event.get("step") != job.id:
            pass
        elif kind == "epoch":
            self._epochs[job.id] = event["epoch"]
            self._watcher.epoch_ended(job, event["epoch"])
        else:
            process.job = None
            if kind == "parent":
                self._watcher.note(event["text"])
                self.queue.without_parent(job.id)
            elif kind == "failed":
                self._failed(job, event["message"])
            elif event["diverged"] is not None:
                self._journal.write("diverged", step=job.id, **event["diverged"])
                self._ended_badly(job, f"diverged at iteration {event['diverged']['iteration']}")
            else:
                self._journal.write("done", step=job.id, seconds=event["seconds"])
                self.done += 1
                self.queue.finished(job.id)
                self._watcher.ended(job)

    def _bury(self, process: _Process) -> None:
        """A worker died. Its job is tried again in a fresh one, unless that has been tried often enough."""
        assert process.process.stdout is not None
        self._selector.unregister(process.process.stdout)
        self._processes.remove(process)
        cause, job = process.cause_of_death(), process.job
        process.close()
        self._born_dead += 1
        if self._born_dead > ATTEMPTS * self._workers.count:
            raise ForgetscopeError(f"Workers die as soon as they start. {cause}")
        if job is None:
            return
        self._deaths[job.id] += 1
        if self._deaths[job.id] >= ATTEMPTS:
            self._failed(job, f"{cause} It was tried {ATTEMPTS} times.")
        else:
            self._journal.write("died", step=job.id, message=cause)
            self._watcher.note(f"Step {job.id[:8]}: {cause} Going on from its snapshot in a new one.")
            self.queue.again(job.id)

    def _failed(self, job: Job, message: str) -> None:
        self._journal.write("failed", step=job.id, message=message)
        self._ended_badly(job, message)

    def _ended_badly(self, job: Job, message: str) -> None:
        self.bad[job.id] = message
        self._watcher.ended_badly(job, message, len(self.queue.ended_badly(job.id)))

    def _note_what_runs(self) -> None:
        self._beat = time.monotonic()
        jobs = [{"step": p.job.id, "epoch": self._epochs.get(p.job.id, 0)} for p in self._processes if p.job is not None]
        path = self._journal.folder / "running.json"
        try:
            path.with_suffix(".tmp").write_text(json.dumps({"process": os.getpid(), "jobs": jobs}))
            path.with_suffix(".tmp").replace(path)
        except OSError:
            pass  # it is a courtesy; what matters will say so when the disk is full


def _events(processes: Collection[_Process], stopped: Callable[[], bool]) -> Iterator[tuple[_Process, dict[str, Any] | None]]:
    with selectors.DefaultSelector() as selector:
        for process in processes:
            assert process.process.stdout is not None
            selector.register(process.process.stdout, selectors.EVENT_READ, process)
        while not stopped():
            for key, _ in selector.select(timeout=0.2):
                for event in key.data.heard() or [None]:
                    yield key.data, event


def _dismiss(processes: Collection[_Process]) -> None:
    """Ask all to stop, wait until they have saved what they are doing."""
    for process in processes:
        process.ask_to_stop()
    until = time.monotonic() + FAREWELL
    for process in processes:
        try:
            process.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.process.kill()
            process.process.wait()
        process.close()
