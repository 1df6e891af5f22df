"""Files that survive crashes and other processes: durable writes, atomic replacement, advisory locks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from forgetscope.errors import WriteError


def write_durably(path: Path, data: bytes) -> None:
    """Write and wait until the disk has it."""
    with told(path, len(data)):
        _write(path, data)


def write_soon(path: Path, data: bytes) -> None:
    """Write and leave it to the system when the disk gets it: for what can be made again."""
    with told(path, len(data)):
        path.write_bytes(data)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash at any instant, finds the old content or the new."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with told(path, len(data)):
            _write(temporary, data)
            os.replace(temporary, path)
            sync_folder(path.parent)
    except WriteError:
        temporary.unlink(missing_ok=True)  # a part of a file is of no use and takes room
        raise


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write piece by piece. It takes its name, durably, when the block ends well; otherwise nothing is left of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with told(path):
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def with_checksum(body: bytes) -> bytes:
    """Content that tells by itself whether it is whole: led by its SHA-256."""
    return hashlib.sha256(body).digest() + body


def without_checksum(content: bytes) -> bytes | None:
    """What `with_checksum` was given, or None if a bit of it is not as it was."""
    checksum, body = content[:32], content[32:]
    return body if hashlib.sha256(body).digest() == checksum else None


def size_of(path: Path) -> int:
    """Bytes in a file, or in all files below a folder; what vanishes meanwhile counts nothing."""
    files = [path] if not path.is_dir() else [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(_size(file) for file in files)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def put_aside(path: Path, quarantine: Path, name: str) -> Path:
    """Move something damaged into a folder for such things, under its name and the next free number; nothing is deleted."""
    with told(quarantine):
        quarantine.mkdir(exist_ok=True)
        number = 1
        while (target := quarantine / f"{name}-{number}").exists():
            number += 1
        os.rename(path, target)
        sync_folder(path.parent)
    return target


def sync_folder(folder: Path) -> None:
    """A rename is durable only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def told(path: Path, size: int | None = None) -> Iterator[None]:
    """What the disk refuses in the block, as an error that a person can act on."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error, size) from None


def cannot_write(path: Path, error: OSError, size: int | None = None) -> WriteError:
    """size: the bytes that were to be written."""
    needed = "" if size is None else f" It needs {_megabytes(size)}{_free(path)}."
    return WriteError(
        f"Cannot write {path}: {error.strerror or error}.{needed} Nothing that was finished is lost: "
        "make room or choose another folder, then run the same command again to continue."
    )


def _free(path: Path) -> str:
    try:
        return f"; {_megabytes(shutil.disk_usage(path.parent).free)} are free there"
    except OSError:
        return ""


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 50_000 else f"{size:,} bytes"


@contextmanager
def locked(path: Path, blocked: Callable[[], None], done: Callable[[], bool]) -> Iterator[None]:
    """Hold an advisory lock on a file; the kernel releases it when its holder dies.

    Calls `blocked` before waiting. A lock only avoids double work, so its file is removed as soon as the work is `done`:
    whoever comes later finds the result.
    """
    file = _lock(path, blocked)
    with file:
        yield
        if done():
            path.unlink(missing_ok=True)


def _lock(path: Path, blocked: Callable[[], None]) -> TextIO:
    """The file, opened and locked, that has this name now. The one that was waited for may have been removed meanwhile."""
    told_once = False
    while True:
        with told(path):
            file = path.open("a")
        if not _try_lock(file.fileno()):
            if not told_once:
                blocked()
                told_once = True
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        file.close()


@contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold an advisory lock for the block if nobody has it, and say whether. Never waits; what was free leaves no file."""
    with path.open("a") as file:
        free = _try_lock(file.fileno())
        try:
            yield free
        finally:
            if free:
                path.unlink(missing_ok=True)


def is_locked(path: Path) -> bool:
    """Whether a process holds this advisory lock now, or may hold it for all that we are allowed to see; makes no file."""
    try:
        with path.open("rb") as file:
            return not _try_lock(file.fileno())
    except FileNotFoundError:
        return False
    except PermissionError:
        return True


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
