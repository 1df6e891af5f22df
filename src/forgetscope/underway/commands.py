"""A command for each alarm that goes off: run without a shell, told by its environment, never waited for.

Names of classes and steps are the text of others. So they are in variables of the environment and in no argument, and whoever
writes a script for it has them as values.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.underway.alarms import Raised

SECONDS = 60.0  # that one may take
AT_ONCE = 4
PREFIX = "FORGETSCOPE_"


class AlarmCommands:
    """Starts one for each alarm, a few at a time, and says which failed."""

    def __init__(self, command: str, store: Path, tell: Callable[[str], None], seconds: float = SECONDS) -> None:
        self._arguments, self._store, self._tell, self._seconds = _arguments(command), store, tell, seconds
        self._waiting: deque[Raised] = deque()
        self._running: list[tuple[subprocess.Popen[bytes], float, Raised]] = []

    def add(self, raised: list[Raised]) -> None:
        self._waiting.extend(raised)
        self.look()

    def look(self) -> None:
        """What has ended or takes too long, and what is next."""
        now, still = time.monotonic(), []
        for process, until, of in self._running:
            code = process.poll()
            if code is None and now < until:
                still.append((process, until, of))
            elif code is None:
                _end(process)
                self._tell(f"{_called(of)} had not ended after {self._seconds:g} seconds, and was killed.")
            elif code:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                self._tell(f"{_called(of)} ended with {how}.")
        self._running = still
        while self._waiting and len(self._running) < AT_ONCE:
            self._start(self._waiting.popleft())

    def wait(self) -> None:
        """Until all have ended, or were killed."""
        while self._running or self._waiting:
            time.sleep(0.02)
            self.look()

    def leave(self) -> None:
        """Those that run go on by themselves; what has not begun is told."""
        if self._waiting:
            self._tell(f"{counted(len(self._waiting), 'command', 'was/were')} not run.")

    def _start(self, of: Raised) -> None:
        nothing = subprocess.DEVNULL
        try:
            process = subprocess.Popen(  # what the user asked for, without a shell
                self._arguments, stdin=nothing, stdout=nothing, stderr=nothing,
                env=os.environ | environment_of(of, self._store), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._tell(f"{_called(of)} cannot be run: {error.strerror or error}.")
            return
        self._running.append((process, time.monotonic() + self._seconds, of))


def environment_of(raised: Raised, store: Path) -> dict[str, str]:
    """`FORGETSCOPE_CLASS_NAME` and so on; empty what is unknown."""
    facts = {one.name: getattr(raised, one.name) for one in fields(raised)} | {"store": store.resolve(), "text": raised}
    return {PREFIX + name.upper(): _plain(value) for name, value in facts.items()}


def _called(of: Raised) -> str:
    return f"The command for {of.class_name!r:.100} and {of.alarm!r:.100}"


def _plain(value: object) -> str:
    """Such as an environment can hold: without NUL and halves of characters."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value).replace("\0", "\ufffd").encode(errors="replace").decode()


def _arguments(command: str) -> list[str]:
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--exec {command!r:.100} cannot be split into words: {error}.") from None
    if not found or shutil.which(found[0]) is None:
        raise InputError(
            f"--exec {command!r:.100}: there is no program {(found or [''])[0]!r:.60}. It is run without a shell; for one "
            "write --exec 'sh -c \"...\"'."
        )
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
