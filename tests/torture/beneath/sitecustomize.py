"""Locks as some file systems have them. Python imports this by itself wherever this folder is on PYTHONPATH, in workers too.

FLOCK says what becomes of `flock`: `nothing` lets everybody have every lock, ENOLCK, ENOTSUP, ENOSYS or EINVAL refuse it.
With FLOCK_CROWD="FOLDER:4" each process waits at its first lock until four have come there, so that they are at it together.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Any


def break_flock(how: str, crowd: str = "") -> None:
    """In this process, from here on."""
    folder, _, count = crowd.rpartition(":")

    def flock(file: Any, operation: int) -> None:
        if folder:
            _gather(Path(folder), int(count))
        if how != "nothing":
            number = getattr(errno, how)
            raise OSError(number, os.strerror(number))

    fcntl.flock = flock


def _gather(folder: Path, count: int) -> None:
    (folder / str(os.getpid())).touch()
    end = time.monotonic() + 60
    while len(list(folder.iterdir())) < count and time.monotonic() < end:
        time.sleep(0.005)


if "FLOCK" in os.environ:
    break_flock(os.environ["FLOCK"], os.environ.get("FLOCK_CROWD", ""))
