"""Arrays that were computed before, by the content that they were computed from and the code that computed them.

A file each, led by its checksum: what is damaged, or was made by other code, is computed again. All of it can be deleted at any
time, and nothing is said where it cannot be written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from forgetscope.files import with_checksum, without_checksum

Arrays = dict[str, NDArray[np.generic]]


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
def code_version() -> str:
    """Changes with any line of the analysis."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> Arrays | None:
    try:
        body = without_checksum(path.read_bytes())
        return None if body is None else dict(safetensors.numpy.load(body))
    except (OSError, SafetensorError, ValueError, KeyError):
        return None


def _write(path: Path, arrays: Arrays) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        temporary.write_bytes(with_checksum(safetensors.numpy.save(contiguous)))
        os.replace(temporary, path)
