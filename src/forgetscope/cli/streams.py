"""The standard streams as a command may find them: closed, on a full disk, or without the characters that results have."""

import codecs
import io
import os
import sys

from forgetscope.errors import WriteError

OUTPUT, MESSAGES = 1, 2  # file descriptors
SUBSTITUTES = {"ρ": "r", "ₚ": "p", "–": "-", "−": "-", "…": "~", "\u202f": " ", "±": "+-"}  # of one width, if it can be


def mend_streams() -> None:
    """Make the standard streams fit for use. Before anything is opened: it would take the number of a closed one."""
    for descriptor in (0, OUTPUT, MESSAGES):
        try:
            os.fstat(descriptor)
        except OSError:  # the lowest free number is this one; as output it can only be read, so that what is lost is noticed
            os.open(os.devnull, os.O_WRONLY if descriptor == MESSAGES else os.O_RDONLY)
    codecs.register_error("substitute", _substitute)
    for name, descriptor in (("stdout", OUTPUT), ("stderr", MESSAGES)):
        found = getattr(sys, name)  # None, if it was closed
        setattr(sys, name, _Stream(descriptor, getattr(found, "encoding", None) or "utf-8"))


class _Stream(io.TextIOWrapper):
    """A command whose results are lost has failed; that nobody listens to messages is no reason to stop what is being said."""

    def __init__(self, descriptor: int, encoding: str) -> None:
        self._descriptor, buffer = descriptor, open(descriptor, "wb", closefd=False)  # noqa: SIM115
        super().__init__(buffer, encoding, "substitute", line_buffering=descriptor == MESSAGES or buffer.isatty())

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._refused(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._refused(error)

    def _refused(self, error: OSError) -> None:
        """What is left in buffers goes nowhere, without further complaints."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._descriptor)
        os.close(nowhere)
        if self._descriptor == MESSAGES:
            return
        if isinstance(error, BrokenPipeError):
            raise error  # the reader has seen enough, as in `| head`: the command ends without a word
        raise WriteError(
            f"Cannot write to standard output: {error.strerror}. What was to be printed is not complete."
        ) from None


def _substitute(error: UnicodeError) -> tuple[str, int]:
    """For terminals that know ASCII alone: a likeness, or an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return "".join(SUBSTITUTES.get(c) or c.encode("ascii", "backslashreplace").decode() for c in found), error.end
