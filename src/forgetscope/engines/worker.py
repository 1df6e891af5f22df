"""A worker process: takes one request after another from its standard input and answers on its standard output, in JSON lines.

When its input ends, whoever gave it work is gone: it saves what it has and ends as well.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from forgetscope.allocation import keep_memory
from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.errors import DamagedStep, ForgetscopeError, Interrupted, StateFreed
from forgetscope.experiment.calibration import measure_rates
from forgetscope.experiment.chain import run_locked
from forgetscope.experiment.settings import Settings, choose_settings
from forgetscope.experiment.stopping import Stop, on_signals
from forgetscope.learning.rsgd import EpochEnd
from forgetscope.spec import RunSpec, StepSpec
from forgetscope.store import Store, StoredStep


class _Worker:
    def __init__(self, channel: TextIO, data: DataSet, store: Store, settings: Settings, stop: Stop) -> None:
        self._channel, self._data, self._store, self._settings, self._stop = channel, data, store, settings, stop

    def say(self, event: str, **facts: object) -> None:
        try:
            self._channel.write(json.dumps({"event": event, **facts}) + "\n")
            self._channel.flush()
        except BrokenPipeError:
            self._stop.requested = True  # nobody listens any more

    def calibrate(self, run: Mapping[str, Any]) -> None:
        rates = measure_rates(RunSpec(**run), self._data, self._store, self._settings)
        self.say("rates", rates=asdict(rates))

    def run(self, id: str, parent: str | None, spec: Mapping[str, Any]) -> None:
        def epoch_ended(end: EpochEnd) -> None:
            self.say("epoch", step=id, epoch=end.epoch)

        try:
            step = run_locked(
                id,
                StepSpec.model_validate(spec),
                None if parent is None else self._usable(parent),
                self._data,
                self._store,
                self._settings,
                epoch_ended,
                lambda text: self.say("note", text=text),
                self._stop,
            )
            facts = step.divergence
            self.say("done", step=id, seconds=step.info["timings"]["seconds"], diverged=facts)
        except _ParentUnusable as reason:
            self.say("parent", step=id, text=str(reason))
        except ForgetscopeError as error:
            if isinstance(error, Interrupted):
                raise
            self.say("failed", step=id, message=str(error))
        except Exception as error:
            traceback.print_exc()
            self.say("failed", step=id, message=f"{type(error).__name__}: {error}")

    def _usable(self, id: str) -> StoredStep:
        step = self._store.step(id)
        try:
            step.verify()
            if step.state_freed:
                raise _ParentUnusable(f"The state of step {id[:8]} was freed and is needed again; recomputing it.")
            return step
        except StateFreed as freed:
            raise _ParentUnusable(str(freed)) from None
        except DamagedStep as damage:
            with self._store.lock(id, lambda: None):
                aside = self._store.quarantine(step.folder) if id in self._store else "quarantine"
            raise _ParentUnusable(f"{str(damage).split('. ')[0]}. Moved to {aside}; computing it again.") from None


class _ParentUnusable(Exception):
    """The step to start from must be done again first."""


def main() -> None:
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a user's own code prints is no answer of ours
    keep_memory()
    requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    stop = Stop()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(json.loads(line))
        stop.requested = True
        requests.put(None)

    setup = json.loads(sys.stdin.readline())
    threading.Thread(target=listen, daemon=True).start()
    worker: _Worker | None = None
    with on_signals(stop):
        try:
            settings = choose_settings(setup["device"], setup["threads"], channels_last=setup["channels_last"])
            data = load_data(setup["dataset"], setup["image_size"])
            worker = _Worker(channel, data, Store(Path(setup["store"])), settings, stop)
            worker.say("ready", device=settings.device.type)
            while (request := requests.get()) is not None and not stop.requested:
                getattr(worker, request.pop("do"))(**request)
        except (Interrupted, KeyboardInterrupt):
            sys.exit(Interrupted.exit_code)
        except ForgetscopeError as error:
            print(error, file=sys.stderr, flush=True)
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
