"""`forgetscope bench`: factorial benchmarks, from the sample to a store full of results."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Annotated

import typer

from forgetscope.cli.console import echo, guarded, print_json, print_view
from forgetscope.cli.options import DEFAULT_STORE, DeviceOption, JsonOption, SetOption, StoreOption, overrides
from forgetscope.errors import DataError, ForgetscopeError, SpecError

if TYPE_CHECKING:
    from forgetscope.benchmark.plans import Plan
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.engines.dispatch import Outcome
    from forgetscope.engines.local import Workers
    from forgetscope.engines.running import Prospect
    from forgetscope.spec import RunSpec
    from forgetscope.store import Store

app = typer.Typer(help="Run whole benchmarks: sample, plan, run, watch.", no_args_is_help=True, rich_markup_mode=None)

BenchmarkArgument = Annotated[
    str, typer.Argument(metavar="PRESET-or-FILE", help="A preset's name (see `bench preset`), or a TOML file.")
]
JobsOption = Annotated[int | None, typer.Option(min=1, help="Steps to run at a time. Default: one per core; 1 on a GPU.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="CPU threads of each job.")]
EstimateOption = Annotated[bool, typer.Option("--estimate/--no-estimate", help="Measure the machine first, to tell the time.")]


@app.command(epilog="Example: forgetscope bench preset glyphs > my.toml")
@guarded
def preset(name: Annotated[str | None, typer.Argument(help="The preset to print. Default: list them.")] = None) -> None:
    """List the presets, or print one as a file to start from."""
    from forgetscope.benchmark.space import preset_text, presets

    if name is not None:
        typer.echo(preset_text(name), nl=False)
        return
    for known in presets():
        echo(f"{known:16} {preset_text(known).splitlines()[0].removeprefix('# ')}")


@app.command(epilog="Example: forgetscope bench sample cifar100 --json > sample.json")
@guarded
def sample(benchmark: BenchmarkArgument, settings: SetOption = None, as_json: JsonOption = False) -> None:
    """Draw a benchmark's experiments: the same ones each time, equally many per partition."""
    from forgetscope.benchmark import space
    from forgetscope.data.library import data_facts
    from forgetscope.report.plans import sample_document, sample_view

    spec = space.BenchmarkSpec.load(benchmark, overrides(settings))
    drawn = space.sample(spec, data_facts(spec.template.dataset, spec.template.image_size).classes)
    if as_json:
        print_json(sample_document(drawn))
    else:
        print_view(sample_view(drawn))


@app.command(epilog="Example: forgetscope bench plan cifar100-small --store results")
@guarded
def plan(
    benchmark: BenchmarkArgument,
    store: StoreOption = DEFAULT_STORE,
    settings: SetOption = None,
    jobs: JobsOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    estimate: EstimateOption = True,
    as_json: JsonOption = False,
) -> None:
    """Say what a benchmark takes: steps to run, steps done, steps shared; time, memory and disk."""
    from forgetscope.benchmark.plans import benchmark_plan
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.report.plans import plan_document, plan_view
    from forgetscope.store import Store

    spec = BenchmarkSpec.load(benchmark, overrides(settings))
    missing = fetch_data(spec.template) if estimate else "--no-estimate was given."
    planned, opened = benchmark_plan(spec), Store(store)
    done, expected = len(planned.done(opened)), None
    if missing is None:
        ahead = look_ahead(hire(planned, opened, jobs, device, threads), spec.template, calibrating=True)
        done, expected = len(ahead.done), ahead.estimate
        missing = "everything is done." if expected is None else None
    if as_json:
        print_json(plan_document(planned, done, expected, missing))
        return
    print_view(plan_view(planned, done, expected, missing))
    echo(f"Run it: forgetscope bench run {benchmark} --store {store}")


@app.command(epilog="Example: forgetscope bench run glyphs --store results --jobs 2")
@guarded
def run(
    benchmark: BenchmarkArgument,
    store: StoreOption = DEFAULT_STORE,
    settings: SetOption = None,
    jobs: JobsOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    estimate: EstimateOption = True,
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark. Run again, it continues; what is done is not done again."""
    from forgetscope.benchmark.plans import benchmark_plan
    from forgetscope.store import Store

    spec = load_with_data(benchmark, settings)
    workers = hire(benchmark_plan(spec), Store(store), jobs, device, threads)
    outcome = work_off(workers, spec.template, estimating=estimate)
    report_outcome(workers, outcome, as_json=as_json, retry=f"forgetscope bench retry {benchmark} --failed --store {store}")


@app.command(epilog="Example: forgetscope bench status glyphs --store results")
@guarded
def status(
    benchmark: BenchmarkArgument, store: StoreOption = DEFAULT_STORE, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Look at a benchmark from another terminal: progress per partition, rate, time left, failures."""
    from forgetscope.benchmark.plans import benchmark_plan
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.benchmark.status import status_of
    from forgetscope.report.plans import status_view
    from forgetscope.store import Store

    spec = BenchmarkSpec.load(benchmark, overrides(settings))
    found = status_of(benchmark_plan(spec), Store.existing(store))
    if as_json:
        print_json(found.described())
    else:
        print_view(status_view(found))


@app.command(epilog="Example: forgetscope bench retry glyphs --failed --store results")
@guarded
def retry(
    benchmark: BenchmarkArgument,
    failed: Annotated[bool, typer.Option("--failed", help="The steps that failed, and what builds on them.")] = False,
    store: StoreOption = DEFAULT_STORE,
    settings: SetOption = None,
    jobs: JobsOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Run the steps that failed once more, and everything that is still to do."""
    from forgetscope.benchmark.plans import benchmark_plan
    from forgetscope.benchmark.records import record_plan
    from forgetscope.store import Store

    if not failed:
        raise SpecError("bench retry: say which steps to retry: --failed.")
    spec, opened = load_with_data(benchmark, settings), Store(store)
    opened.prepare()
    planned = benchmark_plan(spec)
    again = record_plan(opened, planned).retry()
    echo(f"{len(again)} failed steps will be run again.", err=True)
    workers = hire(planned, opened, jobs, device, threads)
    outcome = work_off(workers, spec.template, estimating=False)
    report_outcome(workers, outcome, as_json=as_json, retry=f"forgetscope bench retry {benchmark} --failed --store {store}")


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
    from forgetscope.data.library import load_data
    from forgetscope.learning.networks import build_network

    spec = BenchmarkSpec.load(benchmark, overrides(settings))
    build_network(spec.template.network, 1, None)
    load_data(spec.template.dataset, spec.template.image_size, lambda text: echo(text, err=True))
    return spec


def hire(plan: Plan, store: Store, jobs: int | None, device: str, threads: int) -> Workers:
    from forgetscope.engines.local import Workers
    from forgetscope.experiment.settings import choose_device
    from forgetscope.threads import available_cores

    kind = choose_device(device).type
    store.prepare()
    count = jobs or (max(1, available_cores() // threads) if kind == "cpu" else 1)
    return Workers(count, store, plan, kind, threads)


def look_ahead(workers: Workers, run: RunSpec, *, calibrating: bool) -> Prospect:
    from forgetscope.engines.running import prospect
    from forgetscope.experiment.stopping import Stop, on_signals

    stop = Stop()
    with on_signals(stop):
        return prospect(workers, run, calibrating=calibrating, stop=stop, note=lambda text: echo(text, err=True))


def work_off(workers: Workers, run: RunSpec, *, estimating: bool) -> Outcome:
    """Run what a plan still needs, with a display."""
    from forgetscope.cli.progress import watch_plan
    from forgetscope.engines.running import run_all
    from forgetscope.experiment.stopping import Stop, on_signals
    from forgetscope.report.quantities import duration

    ahead, stop = look_ahead(workers, run, calibrating=estimating), Stop()
    if ahead.done:
        echo(f"{len(ahead.done)} of {len(workers.plan.jobs)} steps are in the store already.", err=True)
    seconds = ahead.estimate.seconds if ahead.estimate else None
    if seconds is not None:
        echo(f"{len(ahead.todo)} steps, about {duration(seconds)} with {workers.count} at a time.", err=True)
    with watch_plan(workers.plan.jobs, ahead.costs, ahead.todo, seconds) as watcher, on_signals(stop):
        return run_all(workers, ahead, watcher, stop)


def report_outcome(workers: Workers, outcome: Outcome, *, as_json: bool, retry: str) -> None:
    """What a run came to; a failed step makes the command fail, after everything else is done."""
    from forgetscope.benchmark.status import status_of
    from forgetscope.report.plans import status_view

    found = status_of(workers.plan, workers.store)
    if as_json:
        print_json(found.described())
    else:
        print_view(status_view(found))
    if found.failures:
        raise ForgetscopeError(
            f"{len(found.failures)} steps failed; everything else is done. When the cause is gone: `{retry}`."
        )
