"""Whatever people log to becomes a function log(values, step)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from forgetscope.errors import InputError
from forgetscope.monitor.trackers import tracker

VALUES = {"forgetscope/nic": 0.5, "forgetscope/sic": -0.25}


class Run:  # as Weights & Biases' and accelerate's
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        self.seen.append((values, step))


class Loggers:  # as Lightning's, and the module mlflow
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.seen.append((metrics, step))


class Writer:  # as TensorBoard's
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        self.seen.append((tag, scalar_value, global_step))


class AimRun:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def track(self, value: float, name: str, step: int) -> None:
        self.seen.append((name, value, step))


@pytest.mark.parametrize("kind", [Run, Loggers])
def test_what_takes_all_values_gets_them_at_once(kind: type[Run] | type[Loggers]) -> None:
    target = kind()
    tracker(target)(VALUES, 3)
    assert target.seen == [(VALUES, 3)]


@pytest.mark.parametrize("kind", [Writer, AimRun])
def test_what_takes_one_value_gets_one_after_another(kind: type[Writer] | type[AimRun]) -> None:
    target = kind()
    tracker(target)(VALUES, 3)
    assert target.seen == [("forgetscope/nic", 0.5, 3), ("forgetscope/sic", -0.25, 3)]


def test_several_at_once() -> None:
    one, other, seen = Run(), Writer(), []
    tracker([one, other, lambda values, step: seen.append(step)])(VALUES, 4)
    assert (len(one.seen), len(other.seen), seen) == (1, 2, [4])


def test_a_logger_of_python_gets_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        tracker(logging.getLogger("mine"))(VALUES, 7)
    assert caplog.messages == ["7: forgetscope/nic 0.5, forgetscope/sic -0.25"]


def test_what_cannot_be_logged_to_is_refused_by_its_kind() -> None:
    with pytest.raises(InputError, match=r"log= is int, which has none of log, log_metrics, add_scalar and track"):
        tracker(5)
