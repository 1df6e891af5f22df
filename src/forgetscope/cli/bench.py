"""`forgetscope bench`: factorial benchmarks, from the sample to a store full of results."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import forgetscope as fs
from forgetscope.characters import counted
from forgetscope.cli import options as option
from forgetscope.cli.console import Unreadable, command_group, echo, note, onward, print_either, print_view
from forgetscope.cli.plans import PlaceOptions, PlanOptions, RunOptions, allow, name_failures, with_plan_options, work_off
from forgetscope.errors import DataError, SpecError

if TYPE_CHECKING:
    from forgetscope.benchmark.plans import Plan

PlanArgument = Annotated[
    str, typer.Argument(metavar="PRESET, FILE or PLAN", help="A benchmark, or the id of any plan that was run into the store.")
]

app = command_group("Run whole benchmarks: sample, plan, run, watch.")


@app.command(epilog="Example: forgetscope bench preset glyphs > my.toml")
def preset(name: Annotated[str | None, typer.Argument(help="The preset to print. Default: list them.")] = None) -> None:
    """List the presets, or print one as a file to start from."""
    from forgetscope.benchmark.space import preset_text, presets
    from forgetscope.report.terminal.columns import make_table

    if name is not None:
        typer.echo(preset_text(name), nl=False)
        typer.echo(f"\n# Next: forgetscope bench preset {name} > my.toml && forgetscope bench plan my.toml --store results")
        return
    table = make_table(("preset", "what it is"), ())
    for known in presets():
        table.add_row(known, preset_text(known).splitlines()[0].removeprefix("# "))
    print_view(table, legend=False)
    onward(("bench", "plan", "glyphs", "--store", "results"), ("bench", "preset", "glyphs"))


@app.command(epilog="Example: forgetscope bench sample cifar100 --json > sample.json")
def sample(benchmark: option.Benchmark, settings: option.Set = None, as_json: option.Json = False) -> None:
    """Draw a benchmark's experiments: the same ones each time, equally many per partition."""
    from forgetscope.benchmark import space
    from forgetscope.data.library import data_facts
    from forgetscope.report.terminal.plans import sample_document, sample_view

    spec = space.BenchmarkSpec.load(benchmark, option.overrides(settings))
    drawn = space.sample(spec, data_facts(spec.template.dataset, spec.template.image_size).classes)
    print_either(partial(sample_document, drawn), partial(sample_view, drawn), as_json)
    if not as_json:
        onward(("bench", "plan", benchmark), found=f"\n{counted(len(drawn), 'experiment')}, the same ones each time.")


@app.command(epilog="Example: forgetscope bench plan cifar100-small --store results")
@with_plan_options
def plan(benchmark: option.Benchmark, options: PlanOptions = PlanOptions(), as_json: option.Json = False) -> None:
    """Say what a benchmark takes: steps to run, steps done, steps shared; time, memory and disk."""
    from forgetscope.benchmark.plans import benchmark_plan, left_behind
    from forgetscope.benchmark.recipes import script_notes
    from forgetscope.report.terminal.plans import plan_document, plan_view

    spec = fs.BenchmarkSpec.load(benchmark, option.overrides(options.settings))
    for text in script_notes(spec):
        note(text)
    reached = max(map(spec.steps_of, spec.increments))
    if reached < spec.steps:
        echo(f"No increment reaches more than {counted(reached, 'step')}; {spec.steps} were asked for.", err=True)
    missing = _fetch_data(spec.template) if options.estimate else "--no-estimate was given."
    planned, opened = benchmark_plan(spec), fs.Store(options.store)
    done, expected = len(planned.done(opened)), None
    if missing is None:
        from forgetscope.engines.running import engaged, prospect
        from forgetscope.experiment.stopping import Stop, on_signals

        stop = Stop()
        with on_signals(stop), engaged(options.place(), planned, opened, looking=True) as engine:
            # Looking runs no code of a user's own; what a run has measured is used all the same.
            ahead = prospect(engine, calibrating=not planned.own_code, stop=stop, note=note)
        done, expected = len(ahead.done), ahead.estimate
        if expected is None:
            own = "the benchmark names code of its own, which a plan does not run; `bench run` measures before it starts."
            missing = own if ahead.todo else "everything is done."
    facts = (planned, done, expected, missing, len(left_behind(spec, planned, opened)), len(planned.uncalibrated(opened)))
    print_either(partial(plan_document, *facts), partial(plan_view, *facts), as_json)
    chosen = [word for setting in options.settings or [] for word in ("--set", setting)]
    if not as_json:
        onward(("bench", "run", benchmark, "--store", options.store, *chosen))


@app.command(epilog="Example: forgetscope bench run glyphs --store results --jobs 2")
@with_plan_options
def run(
    benchmark: option.Benchmark,
    options: RunOptions = RunOptions(),
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Only part I of N of the plan, for job arrays without a coordinator.")
    ] = None,
    as_json: option.Json = False,
) -> None:
    """Run a benchmark. Run again, it continues; what is done is not done again."""
    from forgetscope.benchmark.shards import Shard

    place = options.place()
    part, opened = Shard.parse(shard) if shard else None, fs.Store(options.store)
    spec = fs.BenchmarkSpec.load(benchmark, option.overrides(options.settings))
    planned, outcome = work_off(spec, opened, place, estimating=options.estimate, shard=part)
    _tell_status(planned, opened, as_json=as_json)
    name_failures(planned, opened, outcome)


@app.command(epilog="Example: forgetscope bench status glyphs --store results")
def status(
    name: PlanArgument, store: option.Store = option.DEFAULT_STORE, settings: option.Set = None, as_json: option.Json = False
) -> None:
    """Look at a benchmark from another terminal: progress per partition, rate, time left, failures."""
    from forgetscope.benchmark.plans import Plan, benchmark_plan

    opened = fs.Store.existing(store)
    found = _found(name, settings, opened)
    _tell_status(found if isinstance(found, Plan) else benchmark_plan(found), opened, as_json=as_json)


@app.command(epilog="Example: forgetscope bench retry glyphs --failed --store results")
@with_plan_options
def retry(
    name: PlanArgument,
    failed: Annotated[bool, typer.Option("--failed", help="The steps that failed, and what builds on them.")] = False,
    options: PlaceOptions = PlaceOptions(),
    code: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Code, package.module:function, that a PLAN names and may run; may be repeated."),
    ] = None,
    as_json: option.Json = False,
) -> None:
    """Run the steps that failed once more, and everything that is still to do."""
    from forgetscope.benchmark.plans import Plan
    from forgetscope.benchmark.records import Journal, folder_of
    from forgetscope.engines.running import made_ready

    if not failed:
        raise SpecError("bench retry: say which steps to retry: --failed.")
    opened = fs.Store.existing(options.store)
    found = _found(name, options.settings, opened)
    if isinstance(found, Plan):
        allow(found, code or [])
    planned = made_ready(found, note)
    again = Journal(folder_of(opened, planned)).failures(planned.done(opened))
    if not again:
        note(f"No step of {planned.id} has failed. Nothing was started; what is to do, the command that ran it does.")
        _tell_status(planned, opened, as_json=as_json)
        return
    note(f"{counted(len(again), 'failed step')} will be run again.")
    planned, outcome = work_off(planned, opened, options.place(), estimating=False, again=again)
    _tell_status(planned, opened, as_json=as_json)
    name_failures(planned, opened, outcome)


def _found(name: str, settings: list[str] | None, store: fs.Store) -> fs.BenchmarkSpec | Plan:
    """A benchmark, or a plan that the store remembers."""
    from forgetscope.benchmark.recipes import find, recorded_plan

    left_out = Unreadable()
    found = find(name, option.overrides(settings), store, left_out)
    left_out.tell(True)
    return recorded_plan(found) if isinstance(found, dict) else found


def _fetch_data(run: fs.RunSpec) -> str | None:
    """Make or open the data set, for an estimate; why that is not possible, or None."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed. Counts are complete; time, memory and disk need it."
    try:
        fs.load_data(run.dataset, run.image_size, note)
    except DataError as error:
        return str(error)
    return None


def _tell_status(plan: Plan, store: fs.Store, *, as_json: bool) -> None:
    from forgetscope.benchmark.status import status_of
    from forgetscope.report.terminal.plans import status_view

    found = status_of(plan, store)
    print_either(partial(asdict, found), partial(status_view, found), as_json)
    if not as_json:
        onward(("report", store.path) if found.done else ("bench", "status", plan.id, "--store", store.path))
