"""`forgetscope compare`, `variants` and `controlled`: plans in which one thing differs and everything else is held fixed."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import forgetscope as fs
from forgetscope.cli import options as option
from forgetscope.cli.console import Unreadable, echo, onward, print_either, print_json, print_view
from forgetscope.cli.plans import RunOptions, name_failures, with_plan_options, work_off
from forgetscope.errors import ForgetscopeError, SpecError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from forgetscope.benchmark.plans import Plan
    from forgetscope.benchmark.recipes import Contrast
    from forgetscope.engines.dispatch import Outcome

ConfigArgument = Annotated[
    Path | None, typer.Argument(help="A run's TOML file; its seed is that of the first pair. Default: a run with all defaults.")
]
PairsOption = Annotated[int, typer.Option(min=1, max=10_000, help="Pairs of class sequence and seed; an interval needs two.")]


@with_plan_options
def compare(
    config: ConfigArgument = None,
    policies: Annotated[str | None, typer.Option(help="Their names, with commas between.  [default: uniform,herding]")] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME: KEY=VALUE, ...", help="Instead of policies: options of the run in this arm; repeatable."),
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="The policy or arm to compare with. Default: the first.")] = None,
    again: Annotated[
        bool | None,
        typer.Option(
            help="The baseline once more, with other draws: an arm. With policies, these are arms then. [default: with arms]"
        ),
    ] = None,
    pairs: PairsOption = 5,
    power: Annotated[
        bool, typer.Option("--power", help="Run nothing: how many pairs a difference of arms would take.")
    ] = False,
    options: RunOptions = RunOptions(),
    as_json: option.Json = False,
) -> None:
    """Compare rehearsal policies, or arms of any options: the same class sequences and seeds under each, from common first
    steps where these can be common.

    Per step and policy: means over the pairs with 95 % Student t intervals, and below them the mean difference to the baseline
    within pairs. Of arms also the difference at matched mean forgetting, and a sentence: whether the arm forgets less, more
    evenly, both or neither, and at what price. Where nothing differs, one such interval in twenty excludes zero by chance.
    Run again, it continues; with more pairs, policies or arms, only what is new is run."""
    from forgetscope.benchmark.arms import parse_arm
    from forgetscope.benchmark.pairs import plan_name
    from forgetscope.report.terminal.experiments import comparison_view

    if "policy" in option.overrides(options.settings) and not arm:
        raise SpecError("--set policy: name the policies that are compared with --policies, for example uniform,entropy.")
    run, arms = option.run_spec(config, options.settings), [parse_arm(text) for text in arm or ()]
    names = [] if arm and policies is None else [name.strip() for name in (policies or "uniform,herding").split(",")]
    if twice := [name for number, (name, _) in enumerate(arms) if name in dict(arms[:number])]:
        raise SpecError(f"--arm {twice[0]} is given twice. Choose another name.")
    title = plan_name(config.stem if config else run.dataset, "compare")
    wanted = fs.Comparison(run, names, baseline, pairs, title, dict(arms) if arm else None, again)
    if wanted.in_arms:
        _tell_arms(wanted, options, as_json, power)
    elif power:
        raise SpecError("--power is for arms: add --again, which makes arms of policies.")
    else:
        _tell(wanted, options, "policies" if as_json else None, comparison_view)


@with_plan_options
def variants(
    config: ConfigArgument = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="An option of the run and its other value; may be repeated. [default: all the scripts']"
        ),
    ] = None,
    pairs: PairsOption = 5,
    options: RunOptions = RunOptions(),
    as_json: option.Json = False,
) -> None:
    """What another protocol changes: one option at a time, on the same class sequences and seeds.

    By default all that the paper's released scripts do otherwise than the run (short batches, a tenth of the images set aside,
    a projection before the head, ...), one by one and together; but not NIC as released, which `forgetscope approximations`
    compares, nor retained_of without a hold-out: alone they change nothing. What can change from the second step on starts
    from the run's own first steps. Per step: means over pairs and paired differences to the run as it is, of forgetting and of
    each measure's rank correlation with it (in Fisher's z), with 95 % intervals. Run again, it continues."""
    from forgetscope.benchmark.pairs import plan_name
    from forgetscope.report.terminal.studies import variants_view

    run = option.run_spec(config, options.settings)
    wanted = fs.Variants(run, vary or (), pairs, plan_name(config.stem if config else run.dataset, "variants"))
    _tell(wanted, options, "variants" if as_json else None, variants_view)


@with_plan_options
def controlled(
    benchmark: option.Benchmark,
    runs: Annotated[int, typer.Option(min=2, max=10_000, help="Further runs of each picked step.")] = 19,
    options: RunOptions = RunOptions(),
    as_json: option.Json = False,
) -> None:
    """Run one step of each partition again and again with other new classes, and nothing else changed.

    Result: per past class the rank correlation of NIC and SIC over the runs. If it is positive, runs whose new classes push the
    class down more (NIC) are runs in which its own rehearsal images mislead it more (SIC). Only the new classes can make the
    difference: that parent, seed, rehearsal set and initial weights are equal is checked by digest. The table has a line per
    picked step, over its past classes; --json has every class. What the benchmark has run already is not run again."""
    from forgetscope.report.terminal.studies import controlled_view

    wanted = fs.Controlled(fs.BenchmarkSpec.load(benchmark, option.overrides(options.settings)), runs)
    _tell(wanted, options, "steps" if as_json else None, controlled_view)


def methods(store: option.StoreArgument = option.DEFAULT_STORE, as_json: option.Json = False) -> None:
    """Methods, policies and calibrations side by side: which forget less, which more evenly, and at what price.

    Whatever a store holds of the same classes and seed from the same first step is in pairs with plain replay. Per step and
    method: accuracy, mean forgetting, its true spread over classes, the worst class, bytes kept of past classes and time; and
    how much more evenly it forgets at the same mean forgetting, with a 95 % interval. The most even comes first."""
    from forgetscope.report.document import study_document
    from forgetscope.report.terminal.leaderboard import leaderboard_view, nothing_to_rank

    opened, left_out = fs.Store.existing(store), Unreadable()
    boards = fs.leaderboards(opened, left_out)
    left_out.tell(True)
    if as_json:
        print_json(study_document(boards=boards))
    elif boards:
        print_view(leaderboard_view(boards))
        onward(("report", store), ("explain", "matched"), found="")
    else:
        echo(nothing_to_rank(len(opened.experiments(left_out))))
        onward(("show", store), ("compare", "--help"))


def _tell_arms(wanted: fs.Comparison, options: RunOptions, as_json: bool, power: bool) -> None:
    """Run the arms, or with `power` look at what the store has of them, and print what they show."""
    from forgetscope.analysis.questions.arms import compare_arms, pairs_needed
    from forgetscope.benchmark.arms import chains_by_arm
    from forgetscope.benchmark.records import first_pairs
    from forgetscope.report.document import study_document
    from forgetscope.report.terminal.arms import arms_view, power_view

    store = fs.Store(options.store)
    if power:
        plan = fs.plan(wanted)
        needed = pairs_needed(compare_arms(store, chains_by_arm(plan)))
        if not needed:
            raise ForgetscopeError(f"{store.path} has no two pairs of these arms that differ. Run some first, without --power.")
        print_either(lambda: study_document(plan=plan.id, power=needed), lambda: power_view(needed), as_json)
        if not as_json:
            onward(("methods", store.path), found="\nRun more pairs: the same command with --pairs, and without --power.")
        return
    plan, outcome = work_off(wanted, store, options.place(), estimating=options.estimate)
    chains, planned = chains_by_arm(plan), first_pairs(store, plan)
    rows = compare_arms(store, chains)
    first = []
    for pairs in sorted({*planned.values()} - {wanted.pairs}):
        of = [wanted.compared_with, *(name for name, number in planned.items() if number == pairs)]
        first += compare_arms(store, {name: chains[name][:pairs] for name in of})
    if as_json:
        least = min(planned.values())
        print_json(study_document(plan=plan.id, pairs=wanted.pairs, planned_pairs=least, arms=rows, planned=first))
    elif rows:
        print_view(arms_view(rows, first))
    _end(wanted, plan, store, outcome, bool(rows))
    if not as_json:
        onward(("methods", store.path), ("report", store.path), ("explain", "matched"))


def _tell(wanted: Contrast, options: RunOptions, key: str | None, view: Callable[[Any], RenderableType]) -> None:
    """Run it and print what it shows, as JSON if there is a key for its rows."""
    from forgetscope.report.document import study_document
    from forgetscope.runs import results

    store = fs.Store(options.store)
    plan, outcome = work_off(wanted, store, options.place(), estimating=options.estimate)
    rows = results(wanted, plan, store)
    if key is not None:
        print_json(study_document(plan=plan.id, **{key: rows}))
    elif rows:
        print_view(view(rows))
    _end(wanted, plan, store, outcome, bool(rows))
    if key is None:
        onward(("report", store.path), ("methods", store.path))


def _end(wanted: Contrast, plan: Plan, store: fs.Store, outcome: Outcome, shown: bool) -> None:
    """What failed, and that nothing could be shown."""
    from forgetscope.runs import nothing_shown

    name_failures(plan, store, outcome)
    if not shown:
        where = f"{shlex.quote(plan.id)} --store {shlex.quote(str(store.path))}"
        raise ForgetscopeError(f"{nothing_shown(wanted)} See `forgetscope bench status {where}`.")
