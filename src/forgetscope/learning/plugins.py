"""A user's own policy or network, named `package.module:function` in a run.

It is imported by commands that run, never by those that look."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forgetscope.errors import SpecError


def load_named(name: str) -> Callable[..., Any]:
    """Import the function that `package.module:function` names; the current folder counts, as with `python -m`."""
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SpecError(f"{name}: cannot import {module_name} ({error}). Run where Python finds it, or install it.") from None
    function = getattr(module, attribute, None)
    if not callable(function):
        raise SpecError(f"{name}: {module_name} has no function {attribute!r}.")
    return function  # type: ignore[no-any-return]


def source_digest(name: str) -> str:
    """SHA-256 of the file that holds the function: another source is another step."""
    source = inspect.getsourcefile(inspect.unwrap(load_named(name)))
    if source is None:
        raise SpecError(f"{name}: its source cannot be found, and so no version told from another. Define it in a file.")
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()
