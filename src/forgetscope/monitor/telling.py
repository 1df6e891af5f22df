"""What a monitor tells its user, in words that fit a training loop, and at the line of that loop."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from forgetscope.errors import ForgetscopeError

PACKAGE = str(Path(__file__).parents[1]) + os.sep
ELSEWHERE = {
    "measure(network, head=...)": "monitor.step(..., head=...)",
    ", or prepare=, which makes them so": "",
    "leave out how many to look at.": "fs.Monitor(..., probe_images=None).",
    "what prepare or the network makes": "what the network makes",
    "Choose another folder with --store.": "Choose another folder: fs.Monitor(folder, name).",
}


def warn(message: str) -> None:
    """At the line outside of this package that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=level)
    except Warning:  # where warnings are errors; that is not to end the training either
        print(message, file=sys.stderr)


def said_here(error: ForgetscopeError) -> str:
    """What to do next, as it is done with a monitor: what it is built on speaks to users of a probe and of the command line."""
    message = str(error)
    for there, here in ELSEWHERE.items():
        message = message.replace(there, here)
    return message


def told_as(error: Exception) -> str:
    return str(error) if isinstance(error, ForgetscopeError) else f"{type(error).__name__}: {error}"


def storable(text: str) -> str:
    """Messages are those of others, too: of a length that is read again, and without halves of characters."""
    return text[:5000].encode(errors="backslashreplace").decode()
