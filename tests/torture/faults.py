"""What a command is made to suffer. Every change that it makes to the file system below some folders passes through here.

Python's own functions are replaced (`os.rename`, `open`, ...), the program itself is not: it knows nothing of being tried.
Files opened for writing get a raw layer of ours, so that what is counted are the calls to write that the kernel would see.
"""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import signal
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
PAGE = struct.Struct("<4q")  # what Page holds


@dataclass(frozen=True)
class Faults:
    """What happens to one command. Changes are counted from 1; a crash comes before the change that it is named for."""

    below: tuple[str, ...] = ()  # folders whose changes count
    crash_at: int = 0  # SIGKILL at this change; a write is torn: part of its bytes are written first
    torn: float = 0.5  # which part
    power: bool = False  # the crash also takes what was not synced: see `_Unsynced`
    fail_at: int = 0  # this change fails instead ...
    fail_with: str = "EIO"
    for_good: bool = False  # ... and so does every one after it
    room: int = -1  # bytes that can still be written, then the disk is full; -1: no limit
    slow: float = 0.0  # seconds that each piece of a write, and each fsync, takes longer


class Page:
    """Shared with the process that watches, and still there after a SIGKILL."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), PAGE.size)

    def __getattr__(self, name: str) -> int:
        return PAGE.unpack(self._map[:])[FIELDS.index(name)]

    def put(self, name: str, value: int) -> None:
        struct.pack_into("<q", self._map, 8 * FIELDS.index(name), value)


FIELDS = ("changes", "bytes", "saving", "iterations")


class _Disk:
    """Counts, delays, refuses or ends."""

    def __init__(self, faults: Faults, page: Page, log: Path) -> None:
        self.faults, self.page = faults, page
        self.below = tuple(os.path.realpath(folder) + os.sep for folder in faults.below)
        self.log = _os["open"](log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.changes = self.written = 0
        self.unsynced = _Unsynced()

    def watches(self, path: str) -> bool:
        return (path + os.sep).startswith(self.below)

    def change(self, kind: str, path: str) -> None:
        """One change is about to happen."""
        self.changes += 1
        self.page.put("changes", self.changes)
        _os["write"](self.log, f"{kind} {path}\n".encode())
        self._note_saving(kind, path)
        if self.changes == self.faults.crash_at and kind != "write":
            self.crash()
        if self.changes == self.faults.fail_at or (self.faults.for_good and 0 < self.faults.fail_at < self.changes):
            raise _error(self.faults.fail_with, path)
        if kind == "fsync" and self.faults.slow:
            time.sleep(self.faults.slow)

    def write(self, path: str, data: memoryview, write: Callable[[memoryview], int]) -> int:
        """One call to write: whole, or short if the disk is full or the power fails meanwhile."""
        self.change("write", path)
        if self.changes == self.faults.crash_at:
            write(data[: int(len(data) * self.faults.torn)])
            self.crash()
        if self.faults.room >= 0:
            data = data[: self.faults.room - self.written] if self.written < self.faults.room else data[:0]
            if not len(data):
                raise _error("ENOSPC", path)
        done = 0
        for piece in _pieces(data) if self.faults.slow else [data]:
            done += write(piece)
            if self.faults.slow:
                time.sleep(self.faults.slow)
        self.written += done
        self.page.put("bytes", self.written)
        return done

    def crash(self) -> None:
        if self.faults.power:
            self.unsynced.lose()
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the signal is on its way

    def _note_saving(self, kind: str, path: str) -> None:
        """A save begins with a file that is opened, or a name that changes, and ends when the folder is synced."""
        if kind in ("open", "rename", "replace") and not path.endswith(".lock") and not os.path.isdir(path):
            self.page.put("saving", 1)

    def folder_synced(self) -> None:
        self.page.put("saving", 0)


class _Unsynced:
    """What a power cut would take: bytes of files that were not synced, and new names in folders that were not.

    A folder's changes are taken back newest first; to be able to, a file that loses its name keeps a second one meanwhile.
    """

    def __init__(self) -> None:
        self.lengths: dict[tuple[int, int], int] = {}  # of each file that was written: how much of it is safe
        self.names: list[tuple[str, str, Callable[[], object]]] = []  # what changed, the folder it waits for, how to undo it
        self.kept, self.attic, self.roots = 0, "", ()

    def wrote(self, path: str, length_before: int) -> None:
        key = _key(path)
        if key is not None:
            self.lengths.setdefault(key, length_before)

    def synced(self, path: str) -> None:
        key = _key(path)
        self.lengths.pop(key or (0, 0), None)
        # Whatever is synced keeps the folders that it is in: no file system that matters saves a file that has no place.
        self.names = [
            (changed, folder, undo)
            for changed, folder, undo in self.names
            if folder != path and not (path + os.sep).startswith(changed + os.sep)
        ]

    def named(self, changed: str, undo: Callable[[], object]) -> None:
        self.names.append((changed, os.path.dirname(changed), undo))

    def keep(self, path: str) -> str | None:
        """A second name, elsewhere, for a file that is about to lose the one it has."""
        if not os.path.isfile(path):
            return None
        self.kept += 1
        second = os.path.join(self.attic, f"kept-{self.kept}")
        os.link(path, second)
        return second

    def lose(self) -> None:
        files = [os.path.join(folder, name) for root in self.roots for folder, _, names in os.walk(root) for name in names]
        for path in files:
            if (key := _key(path)) in self.lengths:
                _os["truncate"](path, self.lengths[key])
        for _, _, undo in reversed(self.names):
            with suppress(FileNotFoundError):  # what moved on since, and is safe there
                undo()


_os: dict[str, Callable[..., Any]] = {}  # the real functions
_open = io.open


def install(faults: Faults, page: Page, log: Path, attic: Path) -> None:
    """From here on this process suffers."""
    names = (
        "open write pwrite writev pwritev truncate ftruncate fsync fdatasync mkdir rmdir unlink remove rename replace link "
        "symlink chmod fchmod utime sendfile copy_file_range posix_fallocate"
    )
    _os.update({name: getattr(os, name) for name in names.split() if hasattr(os, name)})
    disk = _Disk(faults, page, log)
    disk.unsynced.attic, disk.unsynced.roots = str(attic), disk.below
    for name in ("rmdir", "unlink", "remove", "chmod", "truncate", "utime", "mkdir"):
        setattr(os, name, _on_path(disk, name))
    for name in ("rename", "replace", "link", "symlink"):
        setattr(os, name, _on_two_paths(disk, name))
    for name in ("fsync", "fdatasync", "ftruncate", "fchmod", "posix_fallocate"):
        setattr(os, name, _on_descriptor(disk, name))
    for name in ("write", "pwrite", "writev", "pwritev", "sendfile", "copy_file_range"):
        setattr(os, name, _writing(disk, name))
    os.open = _opening(disk)
    io.open = builtins.open = _opening_file(disk)


def _on_path(disk: _Disk, name: str) -> Callable[..., Any]:
    real = _os[name]

    def call(path: Any, *args: Any, dir_fd: int | None = None, **more: Any) -> Any:
        full = _full(path, dir_fd)
        if dir_fd is not None:
            more["dir_fd"] = dir_fd
        if not disk.watches(full):
            return real(path, *args, **more)
        disk.change("unlink" if name == "remove" else name, full)
        if not disk.faults.power:
            return real(path, *args, **more)
        kept = disk.unsynced.keep(full) if name in ("unlink", "remove") else None
        result = real(path, *args, **more)
        undo = {
            "unlink": lambda: kept and _os["rename"](kept, full),
            "remove": lambda: kept and _os["rename"](kept, full),
            "mkdir": lambda: _os["rename"](full, f"{disk.unsynced.attic}/lost-{time.monotonic_ns()}"),
            "rmdir": lambda: _os["mkdir"](full),
        }.get(name)
        if undo:
            disk.unsynced.named(full, undo)
        return result

    return call


def _on_two_paths(disk: _Disk, name: str) -> Callable[..., Any]:
    real = _os[name]

    def call(source: Any, target: Any, **more: Any) -> Any:
        old, new = _full(source, more.get("src_dir_fd")), _full(target, more.get("dst_dir_fd"))
        if not (disk.watches(new) or (name in ("rename", "replace") and disk.watches(old))):
            return real(source, target, **more)
        disk.change(name, new)
        if not disk.faults.power or name not in ("rename", "replace"):
            return real(source, target, **more)
        kept = disk.unsynced.keep(new)
        result = real(source, target, **more)

        def undo() -> None:
            _os["rename"](new, old)
            if kept:
                _os["rename"](kept, new)

        disk.unsynced.named(new, undo)
        return result

    return call


def _on_descriptor(disk: _Disk, name: str) -> Callable[..., Any]:
    real = _os[name]

    def call(descriptor: Any, *args: Any) -> Any:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        path = _path_of(number)
        if not disk.watches(path):
            return real(descriptor, *args)
        disk.change("fsync" if name == "fdatasync" else name, path)
        result = real(descriptor, *args)
        if name in ("fsync", "fdatasync"):
            if disk.faults.power:
                disk.unsynced.synced(path)
            if stat.S_ISDIR(os.fstat(number).st_mode):
                disk.folder_synced()
        return result

    return call


def _writing(disk: _Disk, name: str) -> Callable[..., Any]:
    real = _os[name]

    def call(descriptor: int, data: Any, *args: Any) -> Any:
        path = _path_of(descriptor)
        if not disk.watches(path):
            return real(descriptor, data, *args)
        if name not in ("write", "pwrite"):
            raise NotImplementedError(f"os.{name} below the store: teach faults.py to tear it")
        disk.unsynced.wrote(path, os.fstat(descriptor).st_size)
        if name == "write":
            return disk.write(path, memoryview(data).cast("B"), lambda piece: real(descriptor, piece))
        start = args[0]

        def at(piece: memoryview) -> int:
            nonlocal start
            done = real(descriptor, piece, start)
            start += done
            return done

        return disk.write(path, memoryview(data).cast("B"), at)

    return call


def _opening(disk: _Disk) -> Callable[..., int]:
    def call(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        more = {} if dir_fd is None else {"dir_fd": dir_fd}
        full = _full(path, dir_fd)
        if flags & WRITING and disk.watches(full):
            disk.change("open", full)
            _note_opened(disk, full, truncates=bool(flags & os.O_TRUNC))
        return _os["open"](path, flags, mode, **more)

    return call


def _note_opened(disk: _Disk, path: str, *, truncates: bool) -> None:
    """A file whose old content goes when it is opened has nothing left that is safe."""
    if disk.faults.power and truncates and os.path.isfile(path):
        disk.unsynced.wrote(path, 0)


class _Raw(io.FileIO):
    """The layer below Python's buffers: what is written here goes to the kernel."""

    disk: _Disk
    watched: str

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self.disk.faults.power:
            self.disk.unsynced.wrote(_path_of(self.fileno()), os.fstat(self.fileno()).st_size)
        return self.disk.write(self.watched, view, lambda piece: io.FileIO.write(self, piece))

    def truncate(self, size: int | None = None) -> int:
        self.disk.change("ftruncate", self.watched)
        return super().truncate(size)


def _opening_file(disk: _Disk) -> Callable[..., Any]:
    def call(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        writes = any(letter in mode for letter in "wax+")
        path = "" if not writes else _path_of(file) if isinstance(file, int) else _full(file, None)
        if not writes or not disk.watches(path):
            return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if opener is None and not isinstance(file, int):
            disk.change("open", path)
            _note_opened(disk, path, truncates="w" in mode)
        raw = _Raw(file, "".join(letter for letter in mode if letter in "rwax+"), closefd, opener)
        raw.disk, raw.watched = disk, path
        if buffering == 0:
            return raw
        size = io.DEFAULT_BUFFER_SIZE if buffering in (-1, 1) else buffering
        buffered = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)

    return call


def count_iterations(page: Page) -> None:
    """Let the page know of every step of an optimiser."""
    import torch

    real = torch.optim.SGD.step

    def step(self: Any, closure: Any = None) -> Any:
        if sum(len(group["params"]) for group in self.param_groups) > 1:  # not the one that asks what the device can do
            page.put("iterations", page.iterations + 1)
        return real(self, closure)

    torch.optim.SGD.step = step


def _full(path: Any, folder: int | None) -> str:
    if isinstance(path, int):
        return _path_of(path)
    text = os.fsdecode(path)
    if folder is not None:
        text = os.path.join(_path_of(folder), text)
    head, tail = os.path.split(os.path.abspath(text))  # the last part may be a link, which is then what changes
    return os.path.join(os.path.realpath(head), tail)


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")
    except OSError:
        return ""


def _key(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _pieces(data: memoryview, count: int = 16) -> list[memoryview]:
    size = max(1, -(-len(data) // count))
    return [data[start : start + size] for start in range(0, len(data), size)] or [data]


def _error(name: str, path: str) -> OSError:
    number = getattr(errno, name)
    return OSError(number, os.strerror(number), path)
