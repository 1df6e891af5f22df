"""Files that survive crashes and other processes: durable writes, atomic replacement, advisory locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import BinaryIO

from forgetscope.errors import WriteError

NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}  # what flock says where there are none
NO_FILE = {errno.ELOOP, errno.ENXIO, errno.EISDIR}  # what opening says of links, of pipes and sockets, and of folders
_without_locks: set[Path] = set()  # folders of which this process has said so


def write_new(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write, and wait until the disk has it unless it can be made again. A link that has this name is not followed."""
    with told(path, len(data)), open(path, "wb", opener=lambda at, flags: os.open(at, flags | os.O_NOFOLLOW, 0o666)) as file:
        file.write(data)
        if durable:
            _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes, *, missing_ok: bool = False) -> None:
    """Write a file so that a reader, or a crash at any instant, finds the old content or the new.

    missing_ok: where its folder is gone, nothing is written."""
    with told(path, len(data)), suppress(*[FileNotFoundError] if missing_ok else []), _beside(path, durable=True) as file:
        file.write(data)


def replace_soon(path: Path, data: bytes) -> None:
    """The same, leaving it to the system when the disk gets it. Raises OSError."""
    with _beside(path, durable=False) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write piece by piece. It takes its name, durably, when the block ends well; otherwise nothing is left of it."""
    with told(path), _beside(path, durable=True) as file:
        yield file


@contextmanager
def _beside(path: Path, durable: bool) -> Iterator[BinaryIO]:
    """A new file that takes the name when the block ends well. Until then its own name is one that nobody can foresee: in a
    folder that others can write to, a link could wait there."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            if durable:
                _sync(file)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # a part of a file is of no use and takes room
        raise
    if durable:
        sync_folder(path.parent)


def read_regular(path: Path, limit: int) -> bytes:
    """The content of a plain file that is no larger than `limit`; OSError for anything else, links and devices too."""
    with open_regular(path, limit) as file:
        # Python takes at once all the memory that is asked for, so no more is asked for than there is.
        return file.read(min(os.fstat(file.fileno()).st_size, limit))


def open_regular(path: Path, limit: int) -> io.BufferedReader:
    """A plain file, to be read. Opening never waits, as that of a pipe would."""
    file = os.fdopen(_open_plain(path, os.O_RDONLY), "rb")
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        file.close()
        raise too_large(size, limit)
    return file


def append_regular(path: Path) -> BinaryIO:
    """A plain file, to be added to, made if it is not there. Opening never waits; WriteError for anything else."""
    try:
        return os.fdopen(_open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    except _NoFile as reason:
        raise WriteError(f"{path} is {reason.strerror}. Remove it, then run the same command again.") from None


def _open_plain(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _NoFile() if error.errno in NO_FILE else error from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _NoFile()
    return descriptor


class _NoFile(OSError):
    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "a link, or something else that is no plain file")


def too_large(size: int, limit: int) -> OSError:
    return OSError(errno.EFBIG, f"{size:,} bytes, more than the {limit:,} that such a file may have")


def with_checksum(body: bytes) -> bytes:
    """Content that tells by itself whether it is whole: led by its SHA-256."""
    return hashlib.sha256(body).digest() + body


def without_checksum(content: bytes) -> bytes | None:
    """What `with_checksum` was given, or None if a bit of it is not as it was."""
    checksum, body = content[:32], content[32:]
    return body if hashlib.sha256(body).digest() == checksum else None


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def matches_checksum(file: io.BufferedReader) -> bool:
    """The same of a file, without keeping it."""
    checksum = file.read(32)
    return hashlib.file_digest(file, "sha256").digest() == checksum


def size_of(path: Path) -> int:
    """Bytes in a file, or in all files below a folder; what vanishes meanwhile counts nothing."""
    is_folder, total = path.is_dir() and not path.is_symlink(), 0
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names] if is_folder else [path]
    for file in files:
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total


def put_aside(path: Path, quarantine: Path, name: str) -> Path:
    """Move something that is damaged or outdated into a folder for such, under its name and the next free number.

    Nothing is deleted. Where it is now; if another process was faster, only the folder is known."""
    with told(quarantine):
        quarantine.mkdir(exist_ok=True)
        is_folder = path.is_dir() and not path.is_symlink()
        reserve, release = (Path.mkdir, Path.rmdir) if is_folder else (partial(Path.touch, exist_ok=False), Path.unlink)
        for number in count(1):
            target = quarantine / f"{name}-{number}"
            with suppress(FileExistsError):
                reserve(target)  # a rename alone would replace what another process has put there since we looked
                break
        try:
            os.rename(path, target)
        except FileNotFoundError:
            release(target)
            return quarantine
        sync_folder(quarantine)
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
def locked(path: Path, note: Callable[[str], None], waiting: str, done: Callable[[], bool]) -> Iterator[None]:
    """Hold an advisory lock on a file; the kernel releases it when its holder dies.

    Notes `waiting` before waiting. A lock only avoids double work, so its file is removed as soon as the work is `done`:
    whoever comes later finds the result. Where there are no locks, that is noted once and the work is done without.
    """
    file = _lock(path, note, waiting)
    with file:
        yield
        if done():
            _remove_lock(path, file)


def _lock(path: Path, note: Callable[[str], None], waiting: str) -> BinaryIO:
    """The file, opened and locked, that has this name now. The one that was waited for may have been removed meanwhile."""
    told_once = False
    while True:
        with told(path), ExitStack() as stack:
            file = stack.enter_context(_open_lock(path))
            try:
                if not _flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                    if not told_once:
                        note(waiting)
                        told_once = True
                    _flock(file.fileno(), fcntl.LOCK_EX)
                is_it = os.path.samestat(os.fstat(file.fileno()), path.lstat())
            except _NoLocks as reason:
                _say_once(path.parent, reason, note)
                is_it = True
            except FileNotFoundError:
                is_it = False
            if is_it:
                stack.pop_all()  # it stays open
                return file


def _open_lock(path: Path) -> BinaryIO:
    """Asked of the open file, whose name may be another's by then: what is not empty is somebody's, not a lock of ours."""
    file = append_regular(path)
    if os.fstat(file.fileno()).st_size:
        file.close()
        raise WriteError(
            f"{path} is where a lock would be, and is not empty. Move it elsewhere, then run the same command again."
        )
    return file


def _remove_lock(path: Path, file: BinaryIO) -> None:
    with suppress(OSError):  # a file that stays harms nobody: nobody holds it
        if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
            path.unlink()


def _say_once(folder: Path, reason: _NoLocks, note: Callable[[str], None]) -> None:
    if folder not in _without_locks:
        _without_locks.add(folder)
        note(
            f"{folder}: the file system has no locks ({reason}). Going on without: results are the same, but processes that "
            "work at the same thing at the same time may do it twice."
        )


@contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold an advisory lock for the block if nobody has it, and say whether. Never waits; what was free leaves no file.

    Where there are no locks it is free: what is done under it must be right without."""
    with _open_lock(path) as file:
        try:
            free = _flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except _NoLocks:
            free = True
        try:
            yield free
        finally:
            if free:
                _remove_lock(path, file)


def is_locked(path: Path) -> bool:
    """Whether a process holds this advisory lock now, or may hold it for all that can be seen; makes no file."""
    try:
        with open_regular(path, sys.maxsize) as file:
            return not _flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)  # NFS: a lock to write needs a file to write
    except (FileNotFoundError, _NoFile):  # what is no plain file can be nobody's lock
        return False
    except (PermissionError, _NoLocks):
        return True


class _NoLocks(Exception):
    """The file system cannot lock."""


def _flock(descriptor: int, operation: int) -> bool:
    """False if another has it."""
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise _NoLocks(error.strerror) from None
    return True
