"""What every command that runs a plan does: get its data ready, hire workers, tell the time, work it off, name the failures."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forgetscope.cli.console import echo
from forgetscope.cli.options import overrides
from forgetscope.errors import DataError, ForgetscopeError, SpecError

if TYPE_CHECKING:
    from forgetscope.benchmark.plans import Plan
    from forgetscope.benchmark.recipes import Recipe
    from forgetscope.benchmark.shards import Shard
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.engines.dispatch import Outcome
    from forgetscope.engines.ray import Cluster
    from forgetscope.engines.running import Prospect
    from forgetscope.engines.work import Engine
    from forgetscope.spec import RunSpec
    from forgetscope.store import Store

BenchmarkArgument = Annotated[
    str, typer.Argument(metavar="PRESET-or-FILE", help="A preset's name (see `bench preset`), or a TOML file.")
]
PlanArgument = Annotated[
    str, typer.Argument(metavar="PRESET, FILE or PLAN", help="A benchmark, or the id of any plan that was run into the store.")
]
JobsOption = Annotated[int | None, typer.Option(min=1, help="Steps to run at a time. Default: one per core; 1 on a GPU.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="CPU threads of each job.")]
EstimateOption = Annotated[bool, typer.Option("--estimate/--no-estimate", help="Measure the machine first, to tell the time.")]


def fetch_data(run: RunSpec) -> str | None:
    """Make or open the data set, for an estimate; why that is not possible, or None."""
    from forgetscope.data.library import load_data

    if importlib.util.find_spec("torch") is None:
        return "torch is not installed. Counts are complete; time, memory and disk need it."
    try:
        load_data(run.dataset, run.image_size, lambda text: echo(text, err=True))
    except DataError as error:
        return str(error)
    return None


def load_with_data(benchmark: str, settings: list[str] | None) -> BenchmarkSpec:
    """For commands that run: what is wrong with the benchmark or its data is said before anything starts."""
    from forgetscope.benchmark.space import BenchmarkSpec

    spec = BenchmarkSpec.load(benchmark, overrides(settings))
    get_ready(spec.template)
    return spec


def get_ready(run: RunSpec) -> None:
    """See that network and data are there, before anything starts."""
    from forgetscope.data.library import load_data
    from forgetscope.learning.networks import build_network

    build_network(run.network, 1, None)
    load_data(run.dataset, run.image_size, lambda text: echo(text, err=True))


def find_recipe(name: str, settings: list[str] | None, store: Store) -> Recipe:
    """Of a benchmark, or of any plan that the store remembers."""
    from forgetscope.benchmark.recipes import benchmark_recipe, recorded_recipe
    from forgetscope.benchmark.records import recorded_plans
    from forgetscope.benchmark.space import BenchmarkSpec, presets
    from forgetscope.spec import nearest

    records = {record["id"]: record for record in recorded_plans(store)}
    if name in records:
        if settings:
            raise SpecError(f"--set {settings[0]}: {name} is a plan as it was run. Leave --set out, or name the benchmark.")
        return recorded_recipe(records[name])
    if name not in presets() and not Path(name).exists():
        raise SpecError(f"There is no preset, file or plan {name!r}.{nearest(name, [*presets(), *records])}")
    return benchmark_recipe(BenchmarkSpec.load(name, overrides(settings)))


@contextmanager
def hired(
    plan: Plan, store: Store, jobs: int | None, device: str, threads: int, cluster: Cluster | None = None
) -> Iterator[Engine]:
    """Workers for a plan: processes of this machine, or a cluster's."""
    from forgetscope.engines.local import LocalEngine
    from forgetscope.engines.work import Work
    from forgetscope.experiment.settings import choose_device
    from forgetscope.threads import available_cores

    store.prepare()
    if cluster is not None:
        from forgetscope.engines.ray import connected

        with connected(Work(plan, store, device, threads), cluster, jobs) as engine:
            yield engine
        return
    kind = choose_device(device).type
    count = jobs or (max(1, available_cores() // threads) if kind == "cpu" else 1)
    yield LocalEngine(Work(plan, store, kind, threads), count)


def look_ahead(engine: Engine, run: RunSpec, *, calibrating: bool, shard: Shard | None = None) -> Prospect:
    from forgetscope.engines.running import prospect
    from forgetscope.experiment.stopping import Stop, on_signals

    stop = Stop()
    with on_signals(stop):
        return prospect(engine, run, calibrating=calibrating, stop=stop, note=lambda text: echo(text, err=True), shard=shard)


def work_off(engine: Engine, run: RunSpec, *, estimating: bool, shard: Shard | None = None) -> Outcome:
    """Run what a plan still needs, with a display."""
    from forgetscope.cli.progress import watch_plan
    from forgetscope.engines.running import run_all
    from forgetscope.experiment.stopping import Stop, on_signals
    from forgetscope.report.quantities import duration

    plan = engine.work.plan
    echo(f"Plan {plan.id}" + (f", part {shard.number} of {shard.count}" if shard else ""), err=True)
    ahead, stop = look_ahead(engine, run, calibrating=estimating, shard=shard), Stop()
    if ahead.done & ahead.part:
        echo(f"{len(ahead.done & ahead.part)} of {len(ahead.part)} steps are in the store already.", err=True)
    seconds = ahead.estimate.seconds if ahead.estimate else None
    if seconds is not None:
        echo(f"{len(ahead.todo)} steps, about {duration(seconds)} with {engine.count} at a time.", err=True)
    with watch_plan(plan.jobs, ahead.costs, ahead.todo, seconds) as watcher, on_signals(stop):
        return run_all(engine, ahead, watcher, stop)


def name_failures(plan: Plan, store: Path) -> None:
    """A failed step makes the command fail, after everything else is done."""
    from forgetscope.benchmark.records import Journal

    failed = Journal(store / "plans" / plan.id).failures()
    if failed:
        raise ForgetscopeError(
            f"{len(failed)} steps failed; everything else is done. When the cause is gone: "
            f"`forgetscope bench retry {plan.id} --failed --store {store}`."
        )
