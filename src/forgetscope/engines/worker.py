"""A worker process: takes one request after another from its standard input and answers on its standard output, in JSON lines.

When its input ends, whoever gave it work is gone: it saves what it has and ends as well.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from dataclasses import asdict
from typing import Any, TextIO

from forgetscope.engines.allocation import keep_memory
from forgetscope.engines.executor import Executor
from forgetscope.errors import ForgetscopeError, Interrupted
from forgetscope.experiment.stopping import Stop, on_signals


class _Worker:
    def __init__(self, channel: TextIO, executor: Executor, stop: Stop) -> None:
        self._channel, self._executor, self._stop = channel, executor, stop

    def say(self, event: str, **facts: object) -> None:
        try:
            self._channel.write(json.dumps({"event": event, **facts}) + "\n")
            self._channel.flush()
        except BrokenPipeError:
            self._stop.requested = True  # nobody listens any more

    def calibrate(self, run: dict[str, Any]) -> None:
        self.say("rates", rates=asdict(self._executor.calibrate(run)))

    def run(self, **job: Any) -> None:
        def epoch_ended(epoch: int, loss: float, accuracy: float) -> None:
            self.say("epoch", step=job["id"], epoch=epoch, loss=loss, accuracy=accuracy)

        self.say(step=job["id"], **self._executor.run(job, epoch_ended, lambda text: self.say("note", text=text), self._stop))


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
    with on_signals(stop):
        try:
            try:
                worker = _Worker(channel, Executor.ready(setup), stop)
            except ForgetscopeError as error:
                print(json.dumps({"event": "refused", "message": str(error)}), file=channel, flush=True)
                raise
            worker.say("ready")
            while (request := requests.get()) is not None and not stop.requested:
                getattr(worker, request.pop("do"))(**request)
        except (Interrupted, KeyboardInterrupt):
            sys.exit(Interrupted.exit_code)
        except ForgetscopeError as error:
            print(error, file=sys.stderr, flush=True)
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
