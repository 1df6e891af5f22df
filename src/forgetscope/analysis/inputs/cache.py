"""Arrays that were computed before, by the content that they were computed from and the code that computed them.

A file each, led by its checksum: what is damaged, or was made by other code, is computed again. All of it can be deleted at any
time, and nothing is said where it cannot be written. It is kept apart from the stores: a checksum is no secret, so whoever
filled a store could forge what lies in it, and looking at a store writes nothing into it.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from forgetscope.data.cache import cache_folder
from forgetscope.files import read_regular, replace_soon, with_checksum, without_checksum

Arrays = dict[str, NDArray[np.generic]]
ABOVE = ("cli", "lemma", "progress.py", "report")  # of the package: what uses an analysis
KEPT = ".stores"  # in the cache folder; no name of a data set
ORIGIN_BYTES = 1 << 16
ORIGIN = "store"  # file that says which store a folder there is for


def kept_for(store: Path) -> Path:
    """Where what was learned by looking at a store is kept."""
    return cache_folder() / KEPT / hashlib.sha256(os.fsencode(os.path.realpath(store))).hexdigest()[:32]


def make_folder(folder: Path, store: Path) -> None:
    """Make the folder of a store, and remove those of stores that are gone. Raises OSError."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, mode=0o700)
    replace_soon(folder / ORIGIN, os.fsencode(os.path.realpath(store)))
    for origin in folder.parent.glob(f"*/{ORIGIN}"):
        kept_of = _origin(origin)
        if kept_of is not None and not kept_of.is_dir():
            shutil.rmtree(origin.parent, ignore_errors=True)


def _origin(path: Path) -> Path | None:
    """The store that a folder was made for; None if the folder is not one of ours, which its name would tell."""
    try:
        store = Path(os.fsdecode(read_regular(path, ORIGIN_BYTES)))
        return store if path.parent == kept_for(store) and not path.parent.is_symlink() else None
    except (OSError, ValueError):
        return None


class Cache:
    """`folder` None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.computed = self.found = 0

    def get(self, what: str, content: str, compute: Callable[[], Arrays]) -> Arrays:
        """What `compute` returns, or returned before for the same content. `what` names the kind of thing."""
        path = self._path(what, content)
        found = None if path is None else _read(path)
        if found is not None:
            self.found += 1
            return found
        self.computed += 1
        made = compute()
        if path is not None:
            _write(path, made)
        return made

    def has(self, what: str, content: str) -> bool:
        """Whether it is there and whole."""
        path = self._path(what, content)
        return path is not None and _read(path) is not None

    def _path(self, what: str, content: str) -> Path | None:
        key = hashlib.sha256(f"{code_version()} {what} {content}".encode()).hexdigest()
        return None if self.folder is None else self.folder / what / key[:2] / key[2:32]


def content_of(*parts: object) -> str:
    """A digest of numbers, texts and arrays."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype} {part.shape} ".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(f"{part!r} ".encode())
    return digest.hexdigest()


@cache
def code_version(package: Path = Path(__file__).parents[2]) -> str:
    """Changes with any line that what is kept can depend on: all of the package but what lies above the analysis, from where
    the import contract lets nothing be imported here. What is added to the package counts by itself."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] not in ABOVE:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> Arrays | None:
    try:
        body = without_checksum(path.read_bytes())
        return None if body is None else dict(safetensors.numpy.load(body))
    except (OSError, SafetensorError, ValueError, KeyError):
        return None


def _write(path: Path, arrays: Arrays) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        replace_soon(path, with_checksum(safetensors.numpy.save(contiguous)))
