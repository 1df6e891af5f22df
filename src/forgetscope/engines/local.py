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
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forgetscope.benchmark.costs import Rates
from forgetscope.benchmark.plans import Job
from forgetscope.benchmark.records import folder_of
from forgetscope.engines.dispatch import ATTEMPTS, FAREWELL, STOPPED, Dispatch
from forgetscope.engines.work import OnThisMachine, Place, Work
from forgetscope.errors import ForgetscopeError, InputError, Interrupted
from forgetscope.experiment.stopping import Stop
from forgetscope.threads import available_cores


@dataclass(frozen=True, kw_only=True)
class Local(Place):
    """In worker processes of this machine: `jobs` steps at a time, by default one per core, or one on a GPU.

    >>> import forgetscope as fs
    >>> fs.Local(jobs=2, threads=1).jobs
    2
    """

    jobs: int | None = None

    @contextmanager
    def hired(self, work: Work) -> Iterator[LocalEngine]:
        count = self.jobs or (max(1, available_cores() // work.threads) if work.device == "cpu" else 1)
        if work.plan.recorded:
            yield LocalEngine(work, count, folder_of(work.store, work.plan))
        else:
            with tempfile.TemporaryDirectory(prefix="forgetscope-") as logs:
                yield LocalEngine(work, count, Path(logs))


@dataclass(frozen=True)
class LocalEngine(OnThisMachine):
    work: Work
    count: int
    logs: Path  # the folder for what workers write to standard error
    name: str = "local"

    def run(self, dispatch: Dispatch, stop: Stop) -> None:
        with stop.deferred(), selectors.DefaultSelector() as selector:
            supervisor = _Supervisor(self, dispatch, selector)
            try:
                while not dispatch.queue.over:
                    if stop.requested:
                        raise Interrupted(STOPPED)
                    supervisor.turn()
            finally:
                _dismiss(supervisor.processes)

    def calibrate(self, stop: Stop) -> Rates:
        processes = [_Process(self.work.setup(), self.logs / f"worker-{i}.log") for i in range(self.count)]
        found: list[Rates] = []
        try:
            with stop.deferred(), selectors.DefaultSelector() as selector:
                for process in processes:
                    process.tell(do="calibrate", run=self.work.plan.template.model_dump(exclude_unset=True))
                    selector.register(process.output, selectors.EVENT_READ, process)
                while len(found) < len(processes):
                    if stop.requested:
                        raise Interrupted("Stopped. Run the same command again.")
                    for process, event in _heard(selector):
                        if event is None:
                            raise ForgetscopeError(process.cause_of_death())
                        found += [Rates(**event["rates"])] if event["event"] == "rates" else []
        finally:
            for process in processes:
                process.process.terminate()  # it has nothing to save
            _dismiss(processes)
        return Rates.mean(found)


class _Process:
    """One worker. Its standard error goes to a file, whose last line explains a sudden death."""

    def __init__(self, setup: Mapping[str, Any], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._start = errors.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "forgetscope.engines.worker"],  # -P: no module of the current folder by itself
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # a Ctrl-C on the terminal reaches the supervisor alone, which asks politely
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self.output = self.process.stdin, self.process.stdout
        self.job: Job | None = None
        self._rest = b""
        self.tell(**setup)

    def tell(self, **request: object) -> None:
        with suppress(BrokenPipeError):  # it died; its output ends, which is noticed there
            self._input.write(json.dumps(request).encode() + b"\n")
            self._input.flush()

    def heard(self) -> list[dict[str, Any] | None]:
        """What it has said since it was last listened to; None when it has nothing more to say, ever."""
        content = os.read(self.output.fileno(), 1 << 16)
        *lines, self._rest = (self._rest + content).split(b"\n")
        return [json.loads(line) for line in lines] if content else [None]

    def ask_to_stop(self) -> None:
        """No more requests: it saves what it is doing and ends."""
        with suppress(BrokenPipeError):
            self._input.close()

    def close(self) -> None:
        self.ask_to_stop()
        self.output.close()

    def cause_of_death(self) -> str:
        code = self.process.wait()
        with self._log.open("rb") as file:
            file.seek(self._start)
            lines = file.read().decode(errors="replace").strip().splitlines()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            how += " (out of memory?)"
        return f"The worker {how}." if not lines else f"The worker {how}: {lines[-1]}"


def _heard(selector: selectors.BaseSelector) -> Iterator[tuple[_Process, dict[str, Any] | None]]:
    """What workers say within a moment."""
    for key, _ in selector.select(timeout=0.2):
        for event in key.data.heard():
            if event is not None and event["event"] == "refused":  # data or code are not what the plan was made with
                raise InputError(event["message"])
            yield key.data, event


class _Supervisor:
    def __init__(self, engine: LocalEngine, dispatch: Dispatch, selector: selectors.BaseSelector) -> None:
        self._engine, self._dispatch, self._selector = engine, dispatch, selector
        self.processes: list[_Process] = []
        self._born_dead = 0  # workers that died in a row before they were ready

    def turn(self) -> None:
        """Give work to whoever is free, then listen for a moment."""
        self._employ()
        for process, event in _heard(self._selector):
            if event is None:
                self._bury(process)
            else:
                self._hear(process, event)
        self._dispatch.beat([process.job for process in self.processes if process.job is not None])

    def _employ(self) -> None:
        wanted = min(self._engine.count, len(self._dispatch.queue.left()))
        idle = [process for process in self.processes if process.job is None]
        while (idle or len(self.processes) < wanted) and (job := self._dispatch.take()) is not None:
            process = idle.pop() if idle else self._hire()
            process.job = job
            process.tell(do="run", **self._engine.work.request(job))

    def _hire(self) -> _Process:
        process = _Process(self._engine.work.setup(), self._engine.logs / f"worker-{len(self.processes)}.log")
        self.processes.append(process)
        self._selector.register(process.output, selectors.EVENT_READ, process)
        return process

    def _hear(self, process: _Process, event: Mapping[str, Any]) -> None:
        kind, job = event["event"], process.job
        if kind == "ready":
            self._born_dead = 0
        elif kind == "note":
            self._dispatch.note(event["text"])
        elif job is not None and event.get("step") == job.id:
            if kind == "epoch":
                self._dispatch.epoch_ended(job, event["epoch"], event["loss"], event["accuracy"])
            else:
                process.job = None
                self._dispatch.ended(job, event)

    def _bury(self, process: _Process) -> None:
        self._selector.unregister(process.output)
        self.processes.remove(process)
        cause = process.cause_of_death()
        process.close()
        self._born_dead += 1
        if self._born_dead > ATTEMPTS * self._engine.count:
            raise ForgetscopeError(f"Workers die as soon as they start. {cause}")
        if process.job is not None:
            self._dispatch.died(process.job, cause)


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
