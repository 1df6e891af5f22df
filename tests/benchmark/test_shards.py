"""Parts of a plan: together they are the whole, chains stay together, costs are balanced, and nobody coordinates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from forgetscope.benchmark.costs import step_work
from forgetscope.benchmark.plans import benchmark_plan
from forgetscope.benchmark.shards import Shard
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.errors import SpecError
from forgetscope.store import Store

PLANS = {design: benchmark_plan(BenchmarkSpec.load("glyphs", {"design": design})) for design in ("independent", "paired")}


@given(st.sampled_from(sorted(PLANS)), st.integers(1, 40))
def test_parts_are_disjoint_whole_and_balanced(design: str, count: int) -> None:
    plan = PLANS[design]
    parts = [Shard(number, count).steps(plan) for number in range(1, count + 1)]
    assert sum(map(len, parts)) == len(plan.jobs)
    assert set().union(*parts) == plan.jobs.keys()
    for part in parts:
        assert {plan.jobs[id].parent for id in part} <= part | {None}
    trees = _tree_costs(plan)
    loads = [sum(step_work(plan.jobs[id], plan) for id in part) for part in parts]
    assert max(loads) - min(loads) <= max(trees) + 1e-6


def _tree_costs(plan: object) -> list[float]:
    jobs = plan.jobs  # type: ignore[attr-defined]
    root: dict[str, str] = {}
    costs: dict[str, float] = {}
    for job in jobs.values():
        root[job.id] = root.get(job.parent, job.id)
        costs[root[job.id]] = costs.get(root[job.id], 0.0) + step_work(job, plan)  # type: ignore[arg-type]
    return list(costs.values())


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "a/b", "1/0", "1/2/3", "-1/2"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"is not of the form i/n"):
        Shard.parse(text)


def test_parts_are_written_as_they_are_read() -> None:
    assert Shard.parse("2/8") == Shard(2, 8)
    assert str(Shard(2, 8)) == "2-of-8"


@pytest.mark.slow
def test_a_job_array_leaves_what_one_run_leaves(small_file: Path, tmp_path: Path) -> None:
    def start(store: str, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "forgetscope", "bench", "run", str(small_file), "--store", str(tmp_path / store)]
        command += ["--jobs", "1", "--no-estimate", *more]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    whole = start("whole")
    array = [start("parts", "--shard", f"{number}/3") for number in (1, 2, 3)]
    for process in (whole, *array):
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    one, other = (
        {step.id: {n: e["sha256"] for n, e in step.manifest.items() if n != "step.json"} for step in Store(path).steps()}
        for path in (tmp_path / "whole", tmp_path / "parts")
    )
    assert one == other
    (folder,) = (tmp_path / "parts" / "plans").iterdir()
    assert sorted(file.name for file in folder.glob("journal*")) == [f"journal-{i}-of-3.jsonl" for i in (1, 2, 3)]
