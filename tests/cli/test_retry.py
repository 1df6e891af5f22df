"""`bench retry` where there is nothing to retry: it says so and starts nothing."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from forgetscope.benchmark.plans import benchmark_plan
from forgetscope.benchmark.records import record_plan
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.cli.app import app
from forgetscope.store import Store


def retry(file: Path, store: Path) -> Result:
    return CliRunner().invoke(app, ["bench", "retry", str(file), "--failed", "--store", str(store), "--json"])


def test_where_nothing_failed_nothing_is_started(small: BenchmarkSpec, small_file: Path, tmp_path: Path) -> None:
    store, plan = Store(tmp_path / "store"), benchmark_plan(small)
    store.prepare()
    first = retry(small_file, store.path)  # the plan was never run
    record_plan(store, plan).write("died", step=min(plan.jobs), message="killed")
    for result in (first, retry(small_file, store.path)):
        assert result.exit_code == 0, result.output
        assert f"No step of {plan.id} has failed. Nothing was started" in result.stderr
        assert json.loads(result.stdout)["done"] == 0
    assert store.steps() == []
    assert [path.name for path in (store.path / "plans" / plan.id).glob("journal*")] == ["journal.jsonl"]


def test_a_store_that_is_not_there_is_not_made(small_file: Path, tmp_path: Path) -> None:
    result = retry(small_file, tmp_path / "stroe")
    assert result.exit_code == 2
    assert "There is no store at" in result.stderr
    assert not (tmp_path / "stroe").exists()
