"""What every command that runs a plan does: get its data ready, hire workers, tell the time, work it off, name the failures."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forgetscope.cli.console import echo
from forgetscope.cli.options import overrides
from forgetscope.errors import DataError, ForgetscopeError, SpecError, StoreError

if TYPE_CHECKING:
    from forgetscope.benchmark.plans import Plan
    from forgetscope.benchmark.recipes import Recipe
    from forgetscope.benchmark.shards import Shard
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.data.images import DataSet
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
JobsOption = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Steps to run at a time. Default: one per core; 1 on a GPU.")
]
ThreadsOption = Annotated[int, typer.Option(min=1, max=1024, help="CPU threads of each job.")]
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


def get_ready(run: RunSpec) -> DataSet:
    """See that network and data are there, before anything starts."""
    from forgetscope.data.library import load_data
    from forgetscope.learning.networks import build_network
    from forgetscope.learning.plugins import source_digests

    build_network(run.network, 1, None, source_digests([run.network]).get(run.network))
    data = load_data(run.dataset, run.image_size, lambda text: echo(text, err=True))
    run.check_crop(data.shape[0])
    return data


def allow(plan: Plan, code: list[str]) -> None:
    """A recorded plan, which may be somebody else's, runs no code that the user does not name as well."""
    if names := sorted(plan.own_code - {*code}):
        add = " ".join(f"--code {shlex.quote(name)}" for name in names)
        raise SpecError(
            f"Plan {plan.id} names code to run, {', '.join(names)}, and a store does not decide what runs here. Name your own "
            f"file instead of the plan; or, if you know that code, add `{add}`."
        )


def check_recorded_data(plan: Plan, data: DataSet) -> None:
    if plan.data.digest != data.digest:
        raise StoreError(
            f"Plan {plan.id} was run on a data set {plan.data.name!r} that is not here any more: it is gone or "
            "has changed. See `forgetscope data list`."
        )


def find_recipe(name: str, settings: list[str] | None, store: Store) -> Recipe:
    """Of a benchmark, or of any plan that the store remembers. What a store calls its plans hides no preset and no file."""
    from forgetscope.benchmark.recipes import benchmark_recipe, recorded_recipe
    from forgetscope.benchmark.records import recorded_plans
    from forgetscope.benchmark.space import BenchmarkSpec, presets
    from forgetscope.spec import nearest

    if name in presets():
        return benchmark_recipe(BenchmarkSpec.load(name, overrides(settings)))
    records = {record["id"]: record for record in recorded_plans(store, lambda problem: echo(f"Left out: {problem}", err=True))}
    if name in records and Path(name).exists():
        raise SpecError(f"{name} is a plan in {store.path}, and a file. Write ./{name} for the file, or go to another folder.")
    if name in records:
        if settings:
            raise SpecError(f"--set {settings[0]}: {name} is a plan as it was run. Leave --set out, or name the benchmark.")
        return recorded_recipe(records[name])
    if not Path(name).exists():
        raise SpecError(f"There is no preset, file or plan {name!r}.{nearest(name, [*presets(), *records])}")
    return benchmark_recipe(BenchmarkSpec.load(name, overrides(settings)))


@contextmanager
def hired(
    plan: Plan,
    store: Store,
    jobs: int | None,
    device: str,
    threads: int,
    cluster: Cluster | None = None,
    *,
    looking: bool = False,
) -> Iterator[Engine]:
    """Workers for a plan: processes of this machine, or a cluster's. What is wrong with any step is said first.

    looking: nothing will be run, so nothing of the user's own is tried."""
    from forgetscope.data.library import load_data
    from forgetscope.engines.local import LocalEngine
    from forgetscope.engines.work import Work
    from forgetscope.experiment.checks import check_steps
    from forgetscope.experiment.settings import choose_device
    from forgetscope.learning.plugins import load_all
    from forgetscope.threads import available_cores

    if not looking:
        load_all(plan.sources)
        data = load_data(plan.data.name, plan.image_size, verify=False)
        steps = ((job.spec, job.past_classes) for job in plan.jobs.values())
        check_steps(steps, data, None if cluster else choose_device(device))
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
    from forgetscope.engines.running import run_all
    from forgetscope.experiment.stopping import Stop, on_signals
    from forgetscope.progress import watch_plan
    from forgetscope.report.words.quantities import duration

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


def name_failures(plan: Plan, store: Store, outcome: Outcome) -> None:
    """A step that is not done makes the command fail, after everything else is done."""
    from forgetscope.benchmark.records import Journal
    from forgetscope.report.words.quantities import counted

    done, sentences = plan.done(store), []
    if failed := Journal(store.path / "plans" / plan.id).failures(done):
        named = "".join(f" --code {shlex.quote(name)}" for name in sorted(plan.own_code))
        edited = " Where you edit your own code, run the same command instead: its steps are others then." if named else ""
        sentences.append(
            f"{counted(len(failed), 'step')} failed; everything else is done. "
            f"{str(next(iter(failed.values()))['message']).removesuffix('.')}. When the cause is gone: "
            f"`forgetscope bench retry {shlex.quote(plan.id)} --failed --store {shlex.quote(str(store.path))}{named}`.{edited}"
        )
    if died := outcome.died - done:
        sentences.append(
            f"{len(died)} steps are not done because their workers died again and again. "
            "Run the same command again: they go on from their snapshots."
        )
    if sentences:
        raise ForgetscopeError(" ".join(sentences))
