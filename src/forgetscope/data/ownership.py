"""What in the cache forgetscope made. Nothing else that lies there is ever moved, replaced or deleted."""

import json
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from forgetscope.data.images import FILES, MANIFEST
from forgetscope.errors import DataError
from forgetscope.files import is_locked, told

ARRAYS = tuple(f"{file}.npy" for file in FILES)
KEYS = {"name", "classes", "digest", "mean", "std", "augmentation"}  # of a manifest: every version wrote these
MAX_MANIFEST = 2**26  # bytes: other programs' manifests may be huge, and are not worth reading
COPY = re.compile(r"[^@]+@\d+px(-[0-9a-f]{8})?")  # another size, or glyphs: names that only forgetscope gives
UNFINISHED = re.compile(r"\.making-(?P<process>\d+)-[0-9a-f]{8}")  # likewise


def is_ours(folder: Path) -> bool:
    """Whether it is a data set that forgetscope made. Its manifest says so; where that is damaged, a name nobody else gives."""
    try:
        if COPY.fullmatch(folder.name) and any((folder / name).is_file() for name in ARRAYS):
            return True
        file = folder / MANIFEST
        manifest = json.loads(file.read_bytes()) if file.is_file() and file.stat().st_size <= MAX_MANIFEST else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.keys() >= KEYS


def demand_free(folder: Path) -> None:
    """Nothing, not even an empty folder or a link, is replaced by a new data set."""
    if os.path.lexists(folder):
        raise _refusal(folder, "is there already and is not a data set that forgetscope made")


def demand_ours(folder: Path) -> None:
    """A folder may be moved or deleted only if all of it is ours."""
    if folder.is_symlink():
        raise _refusal(folder, "is a symbolic link, which forgetscope did not make")
    if not is_ours(folder):
        raise not_ours(folder)
    if others := _others(folder):
        raise _refusal(folder, f"holds {others[0]!r}, which forgetscope did not make")


def demand_lock(lock: Path) -> None:
    """The locks that forgetscope makes are empty files."""
    try:
        found = lock.lstat()
    except OSError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_size:
        raise _refusal(lock, "is where a lock would be, and is not a lock that forgetscope made")


def not_ours(folder: Path) -> DataError:
    return _refusal(folder, f"is not a data set that forgetscope made, or its {MANIFEST} is damaged")


def _refusal(folder: Path, why: str) -> DataError:
    return DataError(
        f"{folder} {why}. It is left as it is: move it elsewhere, or use another name or another cache (FORGETSCOPE_CACHE)."
    )


def unfinished_name() -> str:
    """For what is not finished, or no longer whole. It says who is at work, where locks do not."""
    return f".making-{os.getpid()}-{secrets.token_hex(4)}"


def unfinished(cache: Path) -> list[Path]:
    """What killed conversions and removals left. Empty while anybody is at work: whoever makes something holds a lock."""
    left = [path for path in cache.glob(".making-*") if _is_abandoned(path)]  # before the locks: what comes later is not in it
    return [] if any(lock.is_file() and is_locked(lock) for lock in cache.glob(".*.lock")) else sorted(left)


def discard(folder: Path) -> None:
    """Delete a folder of ours, file by file. It loses its name first, so that no half of a data set is ever seen."""
    with told(folder), suppress(FileNotFoundError):  # another process deletes it, too
        if not UNFINISHED.fullmatch(folder.name):
            folder = folder.rename(folder.with_name(unfinished_name()))
        for name in (MANIFEST, *ARRAYS):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _others(folder: Path) -> list[str]:
    """Names of what is in a folder and not ours."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.name not in (MANIFEST, *ARRAYS) or not e.is_file(follow_symlinks=False))
    except OSError as error:  # what cannot be looked at is not touched
        return [error.strerror or str(error)]


def _is_abandoned(path: Path) -> bool:
    name = UNFINISHED.fullmatch(path.name)
    return name is not None and path.is_dir() and not path.is_symlink() and not _runs(name["process"]) and not _others(path)


def _runs(process: str) -> bool:
    """Whether another process of this number is there: a second witness, for file systems whose locks do nothing."""
    if int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
