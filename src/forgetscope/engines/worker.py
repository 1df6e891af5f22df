"""A worker process: takes one request after another from its standard input and answers on its standard output, in JSON lines.

When its input ends, whoever gave it work is gone: it saves what it has and ends as well.
"""

import json
import os
import queue
import sys
import threading
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from forgetscope.engines.executor import Executor
from forgetscope.errors import ForgetscopeError, Interrupted
from forgetscope.experiment.stopping import Stop, on_signals
from forgetscope.threads import keep_memory


@dataclass(frozen=True)
class _Channel:
    file: TextIO
    stop: Stop

    def say(self, event: str, **facts: object) -> None:
        try:
            print(json.dumps({"event": event, **facts}), file=self.file, flush=True)
        except BrokenPipeError:
            self.stop.requested = True  # nobody listens any more

    def answer(self, executor: Executor, do: str, **asked: Any) -> None:
        def epoch_ended(epoch: int, loss: float, accuracy: float) -> None:
            self.say("epoch", step=asked["id"], epoch=epoch, loss=loss, accuracy=accuracy)

        if do == "calibrate":
            self.say("rates", rates=asdict(executor.calibrate(**asked)))
        else:
            self.say(step=asked["id"], **executor.run(asked, epoch_ended, lambda text: self.say("note", text=text), self.stop))


def main() -> None:
    stop = Stop()
    channel = _Channel(os.fdopen(os.dup(1), "w"), stop)
    os.dup2(2, 1)  # what a user's own code prints is no answer of ours
    keep_memory()
    requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

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
                executor = Executor.ready(setup)
            except ForgetscopeError as error:
                channel.say("refused", message=str(error))
                raise
            channel.say("ready")
            while (request := requests.get()) is not None and not stop.requested:
                channel.answer(executor, **request)
        except (Interrupted, KeyboardInterrupt):
            sys.exit(Interrupted.exit_code)
        except ForgetscopeError as error:
            print(error, file=sys.stderr, flush=True)
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
