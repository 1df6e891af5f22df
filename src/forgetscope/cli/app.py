"""The commands. Heavy libraries are imported inside them, so that `--help` answers at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

import forgetscope as fs
from forgetscope.characters import counted
from forgetscope.cli import bench, comparisons, data, observed as monitored, options as option, store as housekeeping
from forgetscope.cli.console import Commands, Unreadable, echo, onward, patiently, print_json, print_view
from forgetscope.cli.ground_truth import lemma, simulate
from forgetscope.cli.plans import training
from forgetscope.cli.results import FormatOption, WidthOption, analyse, approximations, write_for_paper
from forgetscope.cli.watch import watch
from forgetscope.cli.words import explain
from forgetscope.errors import TRACEBACK, SpecError

DEMO_STORE = Path("forgetscope-demo")

app = typer.Typer(
    help="Train with rehearsal on a stream of new classes, see which past classes are forgotten, and what saw it coming.",
    epilog="First steps: forgetscope demo",
    no_args_is_help=True,
    cls=Commands,
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # a bug keeps its plain traceback
)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
app.add_typer(housekeeping.app, name="store")

IdOption = Annotated[str | None, typer.Option("--id", help="The experiment whose id begins so. Default: the latest.")]


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"forgetscope {version('forgetscope')}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show all that led to an error.")] = False,
) -> None:
    if traceback:
        os.environ[TRACEBACK] = "1"


@app.command(epilog="Example: forgetscope demo")
def demo(
    store: option.Store = DEMO_STORE,
    seed: Annotated[int, typer.Option(min=0, help="Another seed learns other classes.")] = 0,
    device: option.Device = "auto",
    threads: option.Threads = None,
) -> None:
    """Watch a small network learn three groups of ten characters, and get a page that shows what it forgot."""
    from forgetscope.outputs import PAGE, refuse_foreign_file

    refuse_foreign_file(store / "report.html", PAGE, "page")  # before what takes minutes
    with training():
        spec = fs.RunSpec(probes="auto", forecast=True, seed=seed)  # cheap probes, and what they are good for
        experiment = fs.run(spec, store, on=fs.Here(device=device, threads=threads))
    _print_experiment(experiment)
    page = fs.write_report(experiment, store / "report.html")
    onward(("show", store), ("explain", "SIC"), found=f"\nThe page, to be opened in a browser: {page.resolve()}")


@app.command(epilog="Example: forgetscope replication && forgetscope report replication")
def replication(
    store: Annotated[Path, typer.Argument(help="The store to add to; made if missing.")] = Path("replication"),
) -> None:
    """Unpack real results to look at: the paper's design on CIFAR-100 at a smaller scale."""
    with patiently() as progress:
        result = fs.unpack_replication(store, progress)
    housekeeping.tell_imported(result, "The replication in this package", store)
    onward(("report", store), ("show", store), ("analyse", store))


@app.command(epilog="Example: forgetscope run my.toml --store results --set seed=1")
def run(
    config: Annotated[Path, typer.Argument(help="TOML file; `forgetscope config` prints one to start from.")],
    store: option.Store = option.DEFAULT_STORE,
    settings: option.Set = None,
    device: option.Device = "auto",
    threads: option.Threads = None,
    channels_last: option.ChannelsLast = True,
    compile: option.Compile = False,
    as_json: option.Json = False,
) -> None:
    """Run one experiment. Run again, it continues where it stopped, or says that it is done."""
    spec = option.run_spec(config, settings)
    here = fs.Here(device=device, threads=threads, channels_last=channels_last, compile=compile)
    with training():
        experiment = fs.run(spec, store, on=here)
    if as_json:
        from forgetscope.report.document import experiment_document

        print_json(experiment_document(experiment))
        return
    _print_experiment(experiment)
    onward(("report", store, "--experiment", experiment.id[:8], "-o", "report.html"), ("explain", "SIC"), found="")


@app.command(epilog="Example: forgetscope show results --id 3f2a --step 2")
def show(
    store: option.StoreArgument = option.DEFAULT_STORE,
    id: IdOption = None,
    step: Annotated[int | None, typer.Option(min=1, help="The step whose past classes to show. Default: the last.")] = None,
    observed: monitored.NameOption = None,
    as_json: option.Json = False,
) -> None:
    """Show what a store holds, and the classes of one experiment, or of what one monitor saw."""
    if observed is not None:
        monitored.refuse_both("--id", id)
        monitored.show_observed(store, observed, step, as_json)
        return
    from forgetscope.analysis.experiments import overview, pick, recorded_again
    from forgetscope.analysis.index import glance
    from forgetscope.analysis.observed import monitors
    from forgetscope.analysis.questions.policies import compare_policies
    from forgetscope.benchmark.records import recorded_plans, rerun_only
    from forgetscope.report import document
    from forgetscope.report.terminal import experiments as terminal
    from forgetscope.report.terminal.columns import apart
    from forgetscope.report.terminal.observed import monitors_view

    opened, left_out = fs.Store.existing(store), Unreadable()
    with patiently() as progress:
        everything = [] if id else glance(opened, progress, left_out)
    seen = [] if id else monitors(opened, left_out)
    plans = recorded_plans(opened, left_out)
    left_out.tell(id is not None or bool(everything or seen))
    if seen and not everything:
        monitored.show_monitors_alone(opened, seen, step, as_json)
        return
    again = rerun_only(plans)
    found = [experiment for experiment in everything if experiment.id not in again]
    listed = found or everything
    chosen = pick(opened, id or (listed[-1].id if listed else None), damaged := Unreadable())
    _ = chosen.calibrations
    damaged.tell(True)
    if step is not None and not 2 <= step <= len(chosen.steps):
        has = f"experiment {chosen.id[:8]} has {counted(len(chosen.steps), 'step')}"
        raise SpecError(f"--step {step}: {has}, and past classes from step 2 on.")
    means, policies, repeated = overview(found), compare_policies(found), recorded_again(found)
    if as_json:
        whole = document.store_document(found, means, policies, seen, repeated)
        print_json({**whole, "experiment": document.experiment_document(chosen)})
        return
    parts = [terminal.store_view(found, len(everything) - len(found), repeated)] if found else []
    parts += [terminal.overview_view(means)] if means else []
    parts += [terminal.comparison_view(policies)] if policies else []
    parts += [monitors_view(seen)] if seen else []
    print_view(apart(*parts, terminal.experiment_view(chosen, step)))  # last: the terminal ends with what was found
    _end_of_show(store, chosen, found)


def _end_of_show(store: Path, chosen: fs.Experiment, found: Sequence[fs.Experiment]) -> None:
    """Which experiment it was, and how to see another one. found: all, where none was asked for."""
    others = [experiment.id[:8] for experiment in found if experiment.id != chosen.id]
    which = f", the latest of {len(found)}" if others else ""
    another: list[tuple[str | Path, ...]] = [("show", store, "--id", others[-1])] if others else []
    said = f"\nThe classes above are of experiment {chosen.id[:8]}{which}, in {store}."
    onward(("report", store), *another, ("explain", "SIC"), found=said)


@app.command(epilog="Example: forgetscope report results -o report.html")
def report(
    store: option.StoreArgument = option.DEFAULT_STORE,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="What to write. Default: report.html or .pdf, report-latex, report-png.", show_default=False
        ),
    ] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", "--id", metavar="ID", help="Only the experiment whose id begins so.")
    ] = None,
    observed: monitored.NameOption = None,
    format: FormatOption = "html",
    width: WidthOption = None,
) -> None:
    """Write a page that shows what was found, one HTML file that needs no network; or all results of the store, for a paper.

    A store with several experiments gets the page of a benchmark: headline, all tables and figures, an explorer, methods.
    A store with one experiment, or --experiment, gets that experiment's own page; --observed that of what a monitor saw, and so
    does a store that holds nothing else."""
    if observed is not None:
        monitored.refuse_both("--experiment", experiment)
    if format != "html":
        monitored.refuse_both(f"--format {format}", observed)
        write_for_paper(store, output, format, width, experiment)
        return
    if width is not None:
        raise SpecError("A page has the width of its window: --width is for latex and png.")
    from forgetscope.outputs import PAGE, refuse_foreign_file

    path = output or Path("report.html")
    refuse_foreign_file(path, PAGE, "page")  # before what may take minutes
    with patiently() as progress:
        shown = _reported(store, experiment, observed, progress)
        page = fs.write_report(shown, path, progress=progress)
    if found := _found(shown):
        echo(found)
    echo(f"The page, to be opened in a browser: {page.resolve()}")
    if not isinstance(shown, fs.Observed):
        monitored.mention_observed(store)
        onward(("analyse", store), ("show", store))
        return
    if observed is None:
        monitored.mention_others(shown)
    onward(("show", store, "--observed", shown.name))


def _found(shown: fs.Experiment | fs.Observed | fs.Analysis) -> str:
    """What a page begins with, in a sentence."""
    from forgetscope.report.words.findings import finding
    from forgetscope.report.words.headlines import headlines

    if not isinstance(shown, fs.Analysis):
        return finding(shown, shown.summaries[-1] if shown.summaries else None)
    first = next(iter(headlines(shown)), None)
    return "" if first is None else f"{first.title}. {' '.join(filter(None, (first.caution, first.lead)))}"


def _reported(
    store: Path, experiment: str | None, observed: str | None, progress: Callable[[str, int, int], None]
) -> fs.Experiment | fs.Observed | fs.Analysis:
    if observed is not None or (experiment is None and monitored.only_observed(store)):
        return monitored.pick(store, observed)
    left_out = Unreadable()
    whole = [] if experiment is not None else fs.Store.existing(store).experiments(left_out)
    left_out.tell(experiment is not None or bool(whole))
    if len(whole) < 2:
        return fs.open_experiment(store, experiment or (whole[0][-1].id if whole else None))
    return fs.analyse(store, progress=progress)


@app.command(epilog="Example: forgetscope config > my.toml")
def config(
    file: Annotated[Path | None, typer.Argument(help="A run's file, to see it with every default filled in.")] = None,
    settings: option.Set = None,
) -> None:
    """Print every option with its value and meaning, as a file to start from."""
    typer.echo(option.run_spec(file, settings).to_toml(comments=True), nl=False)
    typer.echo("\n# Next: forgetscope config > my.toml && forgetscope run my.toml --store results")


app.command(epilog="Example: forgetscope watch results")(watch)
app.command(epilog="Example: forgetscope explain FG-R")(explain)
app.command(epilog="Example: forgetscope analyse results --out analysis")(analyse)
app.command(epilog="Example: forgetscope lemma --data cifar100 --seed 1 -o lemma")(lemma)
app.command(epilog="Example: forgetscope simulate cifar100 --store simulated --seed 1 --truth nic_effect=0")(simulate)
app.command(epilog="Example: forgetscope compare my.toml --policies uniform,herding --store results")(comparisons.compare)
app.command(epilog="Example: forgetscope methods results")(comparisons.methods)
app.command(epilog="Example: forgetscope approximations results")(approximations)
app.command(epilog="Example: forgetscope variants my.toml --vary sampling=reshuffled-short --pairs 5 --store results")(
    comparisons.variants
)
app.command(epilog="Example: forgetscope controlled glyphs --store results --jobs 2")(comparisons.controlled)


def _print_experiment(experiment: fs.Experiment) -> None:
    from forgetscope.report.terminal.experiments import experiment_view

    print_view(experiment_view(experiment))
