"""Plans: distinct steps, what is shared, what is done, how long it takes; without data and without torch."""

from __future__ import annotations

import json
import site
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner

import forgetscope
from conftest import TINY
from forgetscope.benchmark.costs import Rates, estimate, longest_ahead, makespan, step_bytes, step_seconds
from forgetscope.benchmark.plans import Job, benchmark_plan, chain_of, descendants, empty_plan, run_plan
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.cli.app import app
from forgetscope.data.library import data_facts, load_data
from forgetscope.spec import RunSpec, step_id, step_specs
from forgetscope.store import Store

RATES = Rates(1.0, 2.0, 0.5, 0.25, 3.0, 10.0, 1e6, 1e3)


def graph(parents: list[int | None]) -> dict[str, Job]:
    spec = step_specs(RunSpec(), ((0,),), data_facts("glyphs").augmentation)[0]
    return {str(i): Job(str(i), None if p is None else str(p), spec, 0) for i, p in enumerate(parents)}


forests = st.lists(st.integers(0, 1000), max_size=12).map(
    lambda draws: graph([None if i == 0 or d % 3 == 0 else d % i for i, d in enumerate(draws)])
)


@pytest.mark.parametrize("preset", ["cifar100", "tiny-imagenet"])
def test_the_papers_plans(preset: str) -> None:
    plan = benchmark_plan(BenchmarkSpec.load(preset))
    assert len(plan.chains) == 360
    assert {step: [len(ids) for ids in cells.values()] for step, cells in plan.partitions().items()} == {
        2: [40] * 9,
        3: [40] * 6,
    }
    assert len(plan.jobs) == 360 + 360 + 240
    assert plan.steps_shared == 0


def test_a_paired_plan_shares_first_steps() -> None:
    plan = benchmark_plan(BenchmarkSpec.load("glyphs", {"design": "paired", "policies": ["uniform", "herding"]}))
    first = [job for job in plan.jobs.values() if job.parent is None]
    assert len(first) == 3 * 10  # increments x experiments
    assert len(plan.chains) == 3 * 10 * 3 * 2
    assert plan.steps_shared == len(plan.chains) - len(first)


def test_ids_are_those_of_single_runs(tmp_path: Path, tiny_store: Path) -> None:
    """A step that was run on its own is done for a benchmark that contains it."""
    data = load_data("glyphs", TINY["image_size"])
    run = RunSpec(**TINY)
    plan = empty_plan({"name": "x"}, run, ())
    ids = plan.add(None, 0, step_specs(run, run.sequence, data.augmentation))
    assert plan.done(Store(tiny_store)) == set(ids)
    assert plan.done(Store(tmp_path / "empty")) == set()
    assert [job.past_classes for job in plan.jobs.values()] == [0, 2, 4]
    assert [job.id for job in chain_of(plan.jobs, ids[2])] == ids


def test_parents_come_before_their_children() -> None:
    plan = benchmark_plan(BenchmarkSpec.load("glyphs", {"experiments": 2}))
    seen: set[str | None] = {None}
    for job in plan.jobs.values():
        assert job.parent in seen
        seen.add(job.id)
        assert job.id == step_id(job.parent, job.spec, plan.data.digest or "the data are not here")


@given(forests, st.sets(st.integers(0, 11)))
def test_descendants(jobs: dict[str, Job], start: set[int]) -> None:
    roots = {str(i) for i in start} & jobs.keys()
    expected = {id for id in jobs if roots & {job.id for job in chain_of(jobs, id)}}
    assert descendants(jobs, roots) == expected


@given(forests, st.lists(st.integers(1, 9), min_size=12, max_size=12), st.integers(1, 4))
def test_makespan_lies_between_what_it_cannot_beat_and_one_worker(jobs: dict[str, Job], draws: list[int], workers: int) -> None:
    costs = {id: float(draw) for id, draw in zip(jobs, draws, strict=False)}
    ahead = longest_ahead(jobs, costs)
    assert ahead == {id: max(sum(costs[j.id] for j in _between(jobs, id, other)) for other in _below(jobs, id)) for id in jobs}
    total = sum(costs.values())
    critical = max(ahead.values(), default=0.0)
    span = makespan(jobs, costs, workers)
    assert max(critical, total / workers) - 1e-9 <= span <= total / workers + critical * (workers - 1) / workers + 1e-9
    assert makespan(jobs, costs, 1) == pytest.approx(total)


def _below(jobs: dict[str, Job], id: str) -> list[str]:
    return [other for other in jobs if id in [job.id for job in chain_of(jobs, other)]]


def _between(jobs: dict[str, Job], id: str, other: str) -> list[Job]:
    chain = list(chain_of(jobs, other))
    return chain[[job.id for job in chain].index(id) :]


def test_costs_by_hand() -> None:
    """Glyphs: 200 training and 100 test images per class; ten classes a step, 20 epochs, a probe after each and one before."""
    plan = benchmark_plan(BenchmarkSpec.load("glyphs", {"experiments": 1, "increments": [0.1], "retentions": [0.08]}))
    first, second, third = plan.jobs.values()
    assert step_seconds(first, plan, RATES) == 10 + 20 * 3 + 1000 * 0.25 + 20 * 2000 * 1.0
    assert step_seconds(second, plan, RATES) == 10 + 20 * 3 + 2000 * 0.25 + 20 * 4000 * 2.0 + 21 * 4000 * 0.5
    assert step_seconds(third, plan, RATES) == 10 + 20 * 3 + 3000 * 0.25 + 20 * 4000 * 2.0 + 21 * 6000 * 0.5
    expected = estimate(plan, plan.jobs.keys(), RATES, jobs=2)
    assert expected.seconds == sum(step_seconds(job, plan, RATES) for job in plan.jobs.values())  # a chain
    assert expected.memory == 2 * 1e6 + (6000 + 4000) * 3 * 16 * 16
    assert estimate(plan, [third.id], RATES, jobs=2).seconds == step_seconds(third, plan, RATES)


def test_costs_of_a_forecast_by_hand() -> None:
    """50 images of each of 20 classes, before training, at 21 probes and in the end, three times what a pass takes."""
    options = {"experiments": 1, "increments": [0.1], "retentions": [0.08], "steps": 2}
    kept, more = (
        benchmark_plan(BenchmarkSpec.load("glyphs", options | given))
        for given in ({"keepsake": "variance"}, {"forecast": True})
    )
    jobs = [(list(plan.jobs.values())[1], plan) for plan in (kept, more)]
    before, after = (step_seconds(job, plan, RATES) for job, plan in jobs)
    assert after - before == 23 * 20 * 50 * 3 * 0.5
    before, after = (step_bytes(job, plan, RATES) for job, plan in jobs)
    assert after - before == 10 * 2 * 64 * 4 + 21 * 10 * 50


@pytest.mark.parametrize(("method", "images"), [("distillation(weight=2)", 2000 + 160), ("dark-logits", 160), ("joint", 0)])
def test_costs_of_methods_by_hand(method: str, images: int) -> None:
    """Before training, the parent sees what the method needs its logits of: new images, and 16 of each past class."""
    options = {"experiments": 1, "increments": [0.1], "retentions": [0.08], "steps": 2}
    without, with_it = (benchmark_plan(BenchmarkSpec.load("glyphs", {**options, **more})) for more in ({}, {"method": method}))
    plain, more = (list(plan.jobs.values())[1] for plan in (without, with_it))
    assert step_seconds(more, with_it, RATES) - step_seconds(plain, without, RATES) == images * 0.25
    logits = 160 * 10 * 4 if method == "dark-logits" else 0
    disk = [estimate(plan, [job.id], RATES, jobs=1).disk for plan, job in ((with_it, more), (without, plain))]
    assert disk[0] - disk[1] == logits


def test_costs_of_quotas_by_hand() -> None:
    """Features and predictions of what the parent learned."""
    options = {"experiments": 1, "increments": [0.1], "retentions": [0.08], "steps": 2}
    plans = [benchmark_plan(BenchmarkSpec.load("glyphs", {**options, "quota": quota})) for quota in ("balanced", "neyman")]
    balanced, neyman = (step_seconds(list(plan.jobs.values())[1], plan, RATES) for plan in plans)
    assert neyman - balanced == 2 * 2000 * 0.25


@pytest.mark.parametrize(
    ("memory_bytes", "given", "images"),
    [
        (150_000, {}, 0),  # replay looks at none
        (150_000, {"method": "dark-logits"}, 150_000 / (192 + 4 * 10)),
        (150_000, {"method": "dark-logits", "keepsake": "variance"}, (150_000 - 10 * 512) / (192 + 4 * 10)),
        (150_000, {"method": "distillation", "forecast": True}, 2000 + (150_000 - 10 * 1024) / 192),
        (10**9, {"method": "dark-logits"}, 2000),
    ],
)
def test_costs_of_a_budget_in_bytes_by_hand(memory_bytes: int, given: dict[str, object], images: float) -> None:
    """As many images as there is room for, each with its logits of ten classes, beside two numbers for each of 64 features."""
    sequence = [list(range(10)), list(range(10, 20))]
    with_it, without = (
        run_plan(RunSpec(image_size=8, sequence=sequence, memory_bytes=memory_bytes, **options))
        for options in (given, {**given, "method": "replay"})
    )
    (_, more), (_, plain) = (list(plan.jobs.values()) for plan in (with_it, without))
    looked_at = (step_seconds(more, with_it, RATES) - step_seconds(plain, without, RATES)) / 0.25
    assert looked_at == pytest.approx(images)


def test_costs_of_what_is_measured_beside_the_probes_by_hand() -> None:
    options = {"experiments": 1, "increments": [0.1], "retentions": [0.08], "steps": 2}
    beside = {"all_layers_every": 8, "every_iteration": True}  # before training and after epochs 8, 16 and 20; 32 an epoch
    without, with_it = (benchmark_plan(BenchmarkSpec.load("glyphs", {**options, **more})) for more in ({}, beside))
    plain, more = (list(plan.jobs.values())[1] for plan in (without, with_it))
    seconds = step_seconds(more, with_it, RATES) - step_seconds(plain, without, RATES)
    assert seconds == 4 * 4000 * 2.0 + 20 * 32 * 4000 * 0.5
    memory = [estimate(plan, [job.id], RATES, jobs=1).memory for plan, job in ((with_it, more), (without, plain))]
    assert memory[0] - memory[1] == 10 * 1e3  # a gradient of each past class


@pytest.fixture
def without_torch(tmp_path: Path) -> list[str]:
    """A Python that finds everything that this one finds, except torch."""
    found = tmp_path / "packages"
    found.mkdir()
    for entry in Path(site.getsitepackages()[0]).iterdir():
        if not entry.name.startswith(("torch", "functorch")):
            (found / entry.name).symlink_to(entry)
    source = Path(forgetscope.__file__).parents[1]
    start = f"import sys; sys.path[:0] = [{str(source)!r}, {str(found)!r}]; from forgetscope.cli import main; main()"
    return [sys.executable, "-S", "-c", start]


def test_plans_need_neither_torch_nor_data(without_torch: list[str], tmp_path: Path) -> None:
    command = [*without_torch, "bench", "plan", "tiny-imagenet", "--json", "--store", str(tmp_path / "store")]
    environment = {"FORGETSCOPE_CACHE": str(tmp_path / "cache"), "PATH": ""}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["experiments"] == 360
    assert plan["measured_steps"] == {"2": 360, "3": 240}
    assert {step: len(cells) for step, cells in plan["partitions"].items()} == {"2": 9, "3": 6}
    assert plan["steps_to_run"] == 960
    assert plan["steps_shared"] == 0
    assert "torch is not installed" in plan["estimate"]["missing"]
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "cache").exists()


def test_a_plan_without_the_data_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path / "cache"))
    result = CliRunner().invoke(app, ["bench", "plan", "cifar100", "--json", "--store", str(tmp_path / "store")])
    plan = json.loads(result.stdout)
    assert plan["steps_to_run"] == 960
    assert plan["estimate"] == {"missing": "There is no data set 'cifar100'. Get it with `forgetscope data get cifar100`."}
    assert not (tmp_path / "store").exists()
