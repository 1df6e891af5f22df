from __future__ import annotations

import io
import sys

import pytest

from conftest import TINY
from forgetscope import progress
from forgetscope.benchmark.pairs import Comparison, comparison_plan
from forgetscope.benchmark.plans import Plan, run_plan
from forgetscope.engines.dispatch import Prospect
from forgetscope.progress import counting, watch
from forgetscope.spec import RunSpec


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


def prospect(plan: Plan, done: int) -> Prospect:
    """With so many steps done, and every other of the same cost."""
    ids = list(plan.jobs)
    part, there, todo = (frozenset(some) for some in (ids, ids[:done], ids[done:]))
    return Prospect(None, part, there, frozenset(), todo, None, dict.fromkeys(ids, 1.0))


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_of_a_run_the_step_is_told_and_of_a_plan_how_many_are_done(
    seconds: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    single, plan = run_plan(RunSpec(**TINY)), comparison_plan(Comparison(RunSpec(**TINY), ["uniform", "herding"], pairs=1))
    for made in (single, plan):
        with watch() as watcher:
            watcher.planned(made, prospect(made, 1))
            for job in list(made.jobs.values())[1:3]:
                watcher.started(job)
                for epoch in (1, 2):
                    seconds[0] += 30
                    watcher.epoch_ended(job, epoch, 0.5, 0.9)
                watcher.ended(job)
    assert capsys.readouterr().err.splitlines() == [
        "1 of 3 steps is in the store already.",
        "step 2/3: 2 new classes",
        "step 2/3  epoch 1/2  loss 0.500  accuracy 90 %  1:30 left",
        "step 2/3  epoch 2/2  loss 0.500  accuracy 90 %  1:00 left",
        "step 3/3: 2 new classes",
        "step 3/3  epoch 1/2  loss 0.500  accuracy 90 %  0:30 left",
        "step 3/3  epoch 2/2  loss 0.500  accuracy 90 %  0:00 left",
        "1 of 5 steps is in the store already.",
        "0 of 4 steps done, 1 running",
        "0 of 4 steps done, 1 running  3:30 left",
        "0 of 4 steps done, 1 running  3:00 left",
        "1 of 4 steps done, 0 running  3:00 left",
        "1 of 4 steps done, 1 running  2:30 left",
        "1 of 4 steps done, 1 running  2:00 left",
        "2 of 4 steps done, 0 running  2:00 left",
    ]


def test_what_an_earlier_run_did_of_a_step_does_not_count_as_fast(
    seconds: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = run_plan(RunSpec(**{**TINY, "epochs": 10}))
    with watch() as watcher:
        watcher.planned(plan, prospect(plan, 2))
        (*_, job) = plan.jobs.values()
        watcher.started(job)
        seconds[0] += 10
        watcher.epoch_ended(job, 8, 0.5, 0.9)  # from a snapshot of the seventh
    assert capsys.readouterr().err.splitlines()[-1] == "step 3/3  epoch  8/10  loss 0.500  accuracy 90 %  0:20 left"
