from __future__ import annotations

import io
import sys

import pytest

from forgetscope import progress
from forgetscope.progress import counting


def as_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What would be drawn. Not a fixture: pytest puts its own streams in place between set-up and test."""
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "120")
    return stream


def test_what_is_over_soon_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = as_terminal(monkeypatch)
    with counting(patience=60) as count:
        count("bytes", 5, 10)
        count("bytes", 10, 10)
    assert terminal.getvalue() == ""


def test_what_takes_longer_draws_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = as_terminal(monkeypatch)
    now = iter(range(0, 10_000, 3))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    with counting(patience=2) as count:
        count("bytes", 5_000_000, 10_000_000)
        count("bytes", 10_000_000, 10_000_000)
    assert "of 10 MB" in terminal.getvalue()
