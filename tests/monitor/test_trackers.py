"""Whatever people log to becomes a function log(values, step)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from forgetscope.errors import InputError
from forgetscope.monitor.trackers import tracker

VALUES = {"forgetscope/nic": 0.5, "forgetscope/sic": -0.25}


class Run:  # as accelerate's
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        self.seen.append((values, step))


class RowsRun:
    """As a run of Weights & Biases: one count of rows, and what is logged below it is dropped."""

    def __init__(self) -> None:
        self.step, self.rows, self.defined, self.dropped = 0, dict[int, dict[str, float]](), [], 0  # type: ignore[var-annotated]

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.defined.append((name, step_metric))

    def log(self, data: dict[str, float], step: int | None = None, commit: bool | None = None) -> None:
        if step is not None and step < self.step:
            self.dropped += 1
            return
        self.step = self.step if step is None else step
        self.rows.setdefault(self.step, {}).update(data)
        self.step += commit if commit is not None else step is None

    def series(self, name: str, by: str = "forgetscope/epoch") -> list[tuple[float, float]]:
        return [(row[by], row[name]) for row in self.rows.values() if name in row]


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


@pytest.mark.parametrize("batches", [0, 1, 10])
@pytest.mark.parametrize("module", [False, True])
def test_a_run_of_weights_and_biases_keeps_every_epoch_and_every_batch(batches: int, module: bool) -> None:
    """Whose loop logs each batch, without steps."""
    run = RowsRun()
    log = tracker(SimpleNamespace(run=run, define_metric=run.define_metric, log=run.log) if module else run)
    for epoch in range(4):
        log({"forgetscope/mean_sic": epoch / 2}, epoch)
        for _ in range(batches):
            run.log({"loss": 1.0})
    log({"forgetscope/accuracy": 0.5}, 3)
    assert run.defined == [("forgetscope/*", "forgetscope/epoch")]
    assert run.series("forgetscope/mean_sic") == [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5)]
    assert run.series("forgetscope/accuracy") == [(3, 0.5)]
    assert (len(run.series("loss", by="loss")), run.dropped) == (4 * batches, 0)


@pytest.mark.parametrize("batches", [1, 10])
def test_steps_that_a_loop_gives_to_weights_and_biases_itself_are_kept(batches: int) -> None:
    run = RowsRun()
    log = tracker(run)
    log({"forgetscope/mean_sic": 0.0}, 0)
    for epoch in range(1, 4):
        for batch in range(batches):
            run.log({"loss": 1.0}, step=batches * (epoch - 1) + batch)
        log({"forgetscope/mean_sic": epoch / 2}, epoch)
    assert run.series("forgetscope/mean_sic") == [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5)]
    assert (len(run.series("loss", by="loss")), run.dropped) == (3 * batches, 0)
