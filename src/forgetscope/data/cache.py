"""The cache: folders of converted data sets, each made once, whole or not at all, by whichever process comes first."""

import errno
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

from platformdirs import user_cache_path

from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.images import MANIFEST, DataSet, open_data
from forgetscope.data.ownership import demand_free, demand_lock, demand_ours, discard, is_ours, unfinished
from forgetscope.data.sources import Source
from forgetscope.errors import CACHE, DamagedData, DataError, WriteError
from forgetscope.files import locked, put_aside
from forgetscope.outputs import Note, Progress, unheard

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # of a data set; other names in the cache begin with a dot or have an @
DOWNLOADS, QUARANTINE = "downloads", "quarantine"  # names in the cache that no data set can have
Read = Callable[[], Source]


def cache_folder() -> Path:
    """Where converted data sets live, as an absolute path; FORGETSCOPE_CACHE moves it."""
    override = os.environ.get(CACHE)
    try:
        folder = Path(override).expanduser().absolute() if override else user_cache_path("forgetscope", appauthor=False)
        if not folder.is_absolute():
            raise RuntimeError(f"HOME leads to {folder}")  # which would be a folder here, perhaps one called "~"
    except (RuntimeError, OSError) as error:  # no home, or the working folder is gone
        where = f" {override}" if override else ""
        raise DataError(
            f"Cannot tell where the cache{where} is ({error}). Set FORGETSCOPE_CACHE to the whole path of a folder."
        ) from None
    return folder


def prepare_cache() -> None:
    """Make sure that the cache can be written, before anything is read or fetched for it."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise DataError(
            f"Cannot write to the cache {folder}: {error.strerror or error}. Set FORGETSCOPE_CACHE to another folder."
        ) from None


def folder_of(name: str) -> Path:
    """Where a data set is or would be."""
    if not re.fullmatch(NAME, name):
        raise DataError(f"{name!r} cannot be a data set's name. Use letters, digits, '.', '_' and '-'.")
    return cache_folder() / name


def download_folder(address: str) -> Path:
    """Each address has its own: what one mirror sent is never taken for what another would send."""
    return cache_folder() / DOWNLOADS / hashlib.sha256(address.encode()).hexdigest()[:16]


def downloads() -> list[Path]:
    """The folders of downloads that are not finished, or not converted yet."""
    return sorted(path for path in (cache_folder() / DOWNLOADS).glob("*") if re.fullmatch("[0-9a-f]{16}", path.name))


def is_here(folder: Path) -> bool:
    """A data set of ours: the manifest is what is written last."""
    return is_ours(folder) and (folder / MANIFEST).is_file()


def make(
    folder: Path, read: Read, conversion: Conversion, note: Note, workers: int = 1, progress: Progress | None = None
) -> None:
    """Read and convert unless another process has done it meanwhile. What killed ones left is deleted on the way."""
    prepare_cache()
    for left in unfinished(folder.parent):
        with suppress(WriteError):  # it would be in nobody's way but the disk's
            discard(left)
    with _lock(folder, note, partial(is_here, folder)):
        if not is_here(folder):
            demand_free(folder)
            convert(read(), folder, conversion, workers=workers, progress=partial(progress or unheard, "images"), note=note)


def made(folder: Path, image_size: int | None, note: Note, why: str, read: Read, how: Conversion) -> DataSet:
    """Open what was made before, or make it and note why. What is damaged is put aside and made again."""
    if not is_here(folder):
        note(why)
        make(folder, read, how, note)
    try:
        return open_data(folder, image_size)
    except DamagedData as damage:
        with _lock(folder, note, lambda: False):
            try:
                return open_data(folder, image_size)  # another process may have made it again meanwhile
            except DamagedData:
                if os.path.lexists(folder):
                    demand_ours(folder)
                    aside = put_aside(folder, folder.parent / QUARANTINE, folder.name)
                    note(f"{str(damage).removesuffix(' Delete that folder and make it again.')} Moved to {aside}.")
    note(why)
    make(folder, read, how, note)
    return open_data(folder, image_size)


def _lock(folder: Path, note: Note, done: Callable[[], bool]) -> AbstractContextManager[None]:
    waiting = f"Another process is making {folder.name}; waiting for it."
    lock = folder.with_name(f".{folder.name}.lock")
    demand_lock(lock)  # it will be deleted
    return locked(lock, note, waiting, done)
