"""Stopping politely: a signal asks, and the run stops where nothing is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # the last one is what schedulers send before they pre-empt


class Stop:
    """A request to stop. While training, it is acted on between two iterations; elsewhere, and when repeated, at once."""

    def __init__(self) -> None:
        self.requested = False
        self._deferred = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """In this block somebody looks at `requested` every few moments."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def ask(self) -> None:
        repeated, self.requested = self.requested, True
        if repeated or not self._deferred:
            raise KeyboardInterrupt


@contextmanager
def on_signals(stop: Stop) -> Iterator[None]:
    """Let signals ask for a stop in this block, where nobody else has taken or ignored them."""

    def handle(number: int, frame: FrameType | None) -> None:
        stop.ask()

    untouched = (signal.SIG_DFL, signal.default_int_handler)
    mine = [s for s in SIGNALS if threading.current_thread() is threading.main_thread() and signal.getsignal(s) in untouched]
    before = {number: signal.signal(number, handle) for number in mine}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
