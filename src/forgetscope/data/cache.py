"""The cache: folders of converted data sets, each made once, whole or not at all, by whichever process comes first."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from platformdirs import user_cache_path

from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.images import MANIFEST, DataSet, open_data
from forgetscope.data.sources import Source
from forgetscope.errors import DamagedData, DataError
from forgetscope.files import locked, put_aside

Note = Callable[[str], None]
Progress = Callable[[str, int, int], None]  # "bytes" or "images", how many are done, how many there are (0: unknown)


def cache_folder() -> Path:
    """Where converted data sets live; FORGETSCOPE_CACHE moves it."""
    override = os.environ.get("FORGETSCOPE_CACHE")
    return Path(override) if override else user_cache_path("forgetscope", appauthor=False)


def folder_of(name: str) -> Path:
    """Where a data set is or would be."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise DataError(f"{name!r} cannot be a data set's name. Use letters, digits, '.', '_' and '-'.")
    return cache_folder() / name


def is_here(folder: Path) -> bool:
    """The manifest is what is written last."""
    return (folder / MANIFEST).is_file()


def make(
    folder: Path, source: Source, conversion: Conversion, note: Note, workers: int = 1, progress: Progress | None = None
) -> None:
    """Convert unless another process has done it meanwhile."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"Cannot write to the cache {folder.parent}: {error}. Set FORGETSCOPE_CACHE to another folder."
        ) from None

    with _lock(folder, note, partial(is_here, folder)):
        if not is_here(folder):
            convert(source, folder, conversion, workers=workers, progress=partial(progress or _silence, "images"))


def made(folder: Path, image_size: int | None, note: Note, make: Callable[[], None]) -> DataSet:
    """Open what was made before, or make it. What is damaged is put aside and made again."""
    if not is_here(folder):
        make()
    try:
        return open_data(folder, image_size)
    except DamagedData as damage:
        with _lock(folder, note, lambda: False):
            try:
                return open_data(folder, image_size)  # another process may have made it again meanwhile
            except DamagedData:
                if folder.exists():
                    aside = put_aside(folder, folder.parent / "quarantine", folder.name)
                    note(f"{str(damage).removesuffix(' Delete that folder and make it again.')} Moved to {aside}.")
    make()
    return open_data(folder, image_size)


def _lock(folder: Path, note: Note, done: Callable[[], bool]) -> AbstractContextManager[None]:
    waiting = f"Another process is making {folder.name}; waiting for it."
    return locked(folder.parent / f".{folder.name}.lock", lambda: note(waiting), done)


def _silence(what: str, done: int, total: int) -> None: ...
