"""A user's own policy or network, named `package.module:function` in a run.

It is imported by commands that run, never by those that look."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from forgetscope.errors import SpecError

_imported: dict[str, str] = {}  # the digest of each module's source when it was imported here


def load_named(name: str) -> Callable[..., Any]:
    """Import the function that `package.module:function` names; the current folder counts, as with `python -m`."""
    module = _module(name)
    attribute = name.partition(":")[2]
    function = getattr(module, attribute, None)
    if not callable(function):
        raise SpecError(f"{name}: {module.__name__} has no function {attribute!r}.")
    return function  # type: ignore[no-any-return]


def source_digest(name: str) -> str:
    """SHA-256 of the file that holds the function's module: another source is another step."""
    load_named(name)
    return _digest(name, _module(name))


def _module(name: str) -> ModuleType:
    module_name = name.partition(":")[0]
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
        digest = _digest(name, module)
        if _imported.get(module_name, digest) != digest:
            module = importlib.reload(module)  # its file has changed: what runs must be what is recorded
        _imported[module_name] = digest
    except (ImportError, SyntaxError) as error:
        raise SpecError(f"{name}: cannot import {module_name} ({error}). Run where Python finds it, or install it.") from None
    return module


def _digest(name: str, module: ModuleType) -> str:
    source = getattr(module, "__file__", None)
    if source is None or not source.endswith(".py"):
        raise SpecError(
            f"{name}: {module.__name__} has no source file, and so no version told from another. Define it in a .py file."
        )
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()
