"""What `bench status` says about pace, by hand."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forgetscope.benchmark.costs import step_work
from forgetscope.benchmark.plans import benchmark_plan
from forgetscope.benchmark.records import record_plan
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.status import status_of
from forgetscope.files import locked_if_free
from forgetscope.store import Store


def test_parts_that_began_at_other_times_add_up(small: BenchmarkSpec, tmp_path: Path) -> None:
    """One part has been at work for an hour and finished two steps, another for ten minutes and finished one."""
    plan, store = benchmark_plan(small), Store(tmp_path)
    store.prepare()
    folder = record_plan(store, plan).folder
    work = {id: step_work(job, plan) for id, job in plan.jobs.items()}
    one, two, three, four, *rest = sorted(plan.jobs)
    for part, minutes, finished in ((".1of2", 60, [one, two]), (".2of2", 10, [three])):
        began = datetime.now(UTC) - timedelta(minutes=minutes)
        events = [{"event": "done", "step": four}, {"event": "started"}, *({"event": "done", "step": s} for s in finished)]
        lines = [json.dumps({"time": began.isoformat(), **event}) for event in events]  # `four` belongs to an earlier run
        (folder / f"journal{part}.jsonl").write_text("\n".join(lines))
        (folder / f"running{part}.json").write_text(json.dumps({"jobs": []}))
    half_done = {"step": rest[0], "epoch": plan.jobs[rest[0]].spec.training.epochs / 2}
    (folder / "running.2of2.json").write_text(json.dumps({"jobs": [half_done]}))
    with locked_if_free(folder / "run.1of2.lock"), locked_if_free(folder / "run.2of2.lock"):
        found = status_of(plan, store)

    half = work[rest[0]] / 2
    per_second = (work[one] + work[two]) / 3600 + (work[three] + half) / 600
    assert found.active
    assert found.steps_per_hour == pytest.approx(2 + 6, rel=0.01)
    assert found.seconds_left == pytest.approx((sum(work.values()) - half) / per_second, rel=0.01)  # the store is empty


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01"])
@pytest.mark.parametrize("running", ["[]", '{"jobs": 5}', '{"jobs": [{"step": []}]}', "[" * 100_000, "pipe"])
def test_what_a_stranger_noted_of_a_run_is_passed_over(time: str, running: str, small: BenchmarkSpec, tmp_path: Path) -> None:
    plan, store = benchmark_plan(small), Store(tmp_path)
    store.prepare()
    journal = record_plan(store, plan)
    (journal.folder / "journal.jsonl").write_text(json.dumps({"event": "started", "time": time}))
    if running == "pipe":
        os.mkfifo(journal.running)
    else:
        journal.running.write_text(running)
    with locked_if_free(journal.lock):
        found = status_of(plan, store)
    assert found.active
    assert (found.running, found.seconds_left) == ([], None)
