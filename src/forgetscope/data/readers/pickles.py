"""Pickles that hold arrays and plain containers, and cannot run code."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from forgetscope.errors import DataError


def load_plain(name: str, data: bytes) -> Any:
    """Unpickle numbers, strings, containers and numpy arrays; anything else is refused. Python 2 wrote keys as bytes."""
    try:
        return _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to ask for
        raise DataError(f"{name} is damaged ({type(error).__name__}: {error}). Get it again.") from None


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        allowed = _ALLOWED.get((module, name))
        if allowed is None:
            raise DataError(
                f"asks for {module}.{name}, but a data set needs only numpy arrays and plain containers. "
                "Do not trust this file."
            )
        return allowed


def _encode_latin1(text: str, encoding: str) -> bytes:
    """How Python 3 pickles bytes for old protocols."""
    if encoding not in ("latin1", "latin-1"):
        raise DataError(f"asks for the encoding {encoding!r}. Do not trust this file.")
    return text.encode("latin1")


_reconstruct: Any = np.zeros(0).__reduce__()[0]  # numpy's own, wherever this version keeps it
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode_latin1,
}
