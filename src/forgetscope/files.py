"""Files that survive crashes and other processes: durable writes, atomic replacement, advisory locks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from forgetscope.errors import WriteError


def write_durably(path: Path, data: bytes) -> None:
    """Write and wait until the disk has it."""
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise cannot_write(path, error) from None


def replace_durably(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash at any instant, finds the old content or the new."""
    temporary = path.with_name(f".{path.name}.tmp")
    write_durably(temporary, data)
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A rename is durable only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> WriteError:
    return WriteError(
        f"Cannot write {path}: {error.strerror or error}. Nothing that was finished is lost: "
        "make room or choose another folder, then run the same command again to continue."
    )


@contextmanager
def locked(path: Path, blocked: Callable[[], None], done: Callable[[], bool]) -> Iterator[None]:
    """Hold an advisory lock on a file; the kernel releases it when its holder dies.

    Calls `blocked` before waiting. A lock only avoids double work, so its file is removed as soon as the work is `done`:
    whoever comes later finds the result.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            blocked()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
        if done():
            path.unlink(missing_ok=True)
