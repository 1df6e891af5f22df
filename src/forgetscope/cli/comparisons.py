"""`forgetscope compare`, `variants` and `controlled`: plans in which one thing differs and everything else is held fixed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forgetscope.cli.console import guarded, print_json, print_view
from forgetscope.cli.options import (
    DEFAULT_STORE,
    BenchmarkArgument,
    ChannelsLastOption,
    CompileOption,
    DeviceOption,
    EstimateOption,
    JobsOption,
    JobThreadsOption,
    JsonOption,
    SetOption,
    StoreOption,
    overrides,
)
from forgetscope.cli.plans import name_failures, work_off
from forgetscope.errors import ForgetscopeError, SpecError

if TYPE_CHECKING:
    from forgetscope.spec import RunSpec


@guarded
def compare(
    config: Annotated[
        Path | None, typer.Argument(help="A run's TOML file; its seed is that of the first pair. Default: the demo's run.")
    ] = None,
    policies: Annotated[str, typer.Option(help="Their names, with commas between.")] = "uniform,herding",
    baseline: Annotated[str | None, typer.Option(help="The policy to compare with. Default: the first.")] = None,
    pairs: Annotated[int, typer.Option(min=1, max=10_000, help="Pairs of class sequence and seed; an interval needs two.")] = 5,
    store: StoreOption = DEFAULT_STORE,
    settings: SetOption = None,
    jobs: JobsOption = None,
    device: DeviceOption = "auto",
    threads: JobThreadsOption = 1,
    channels_last: ChannelsLastOption = True,
    compile: CompileOption = False,
    estimate: EstimateOption = True,
    as_json: JsonOption = False,
) -> None:
    """Compare rehearsal policies: the same class sequences and seeds under each, from common first steps.

    Per step and policy: means over the pairs with 95 % Student t intervals, and below them the mean difference to the baseline
    within pairs. Where policies do not differ, one such interval in twenty excludes zero by chance. Run again, it continues;
    with more pairs or policies, only what is new is run."""
    from forgetscope.benchmark.pairs import Comparison, plan_name
    from forgetscope.engines.local import Local
    from forgetscope.report.document import study_document
    from forgetscope.report.terminal.experiments import comparison_view
    from forgetscope.runs import results
    from forgetscope.store import Store

    if "policy" in overrides(settings):
        raise SpecError("--set policy: name the policies that are compared with --policies, for example uniform,entropy.")
    run, opened = _run(config, settings), Store(store)
    names, title = [name.strip() for name in policies.split(",")], plan_name(config.stem if config else run.dataset, "compare")
    wanted = Comparison(run, names, baseline, pairs, title)
    place = Local(device=device, threads=threads, channels_last=channels_last, compile=compile, jobs=jobs)
    plan, outcome = work_off(wanted, opened, place, estimating=estimate)
    rows = results(wanted, plan, opened)
    if as_json:
        print_json(study_document(plan=plan.id, policies=rows))
    elif rows:
        print_view(comparison_view(rows), whole=True)
    name_failures(plan, opened, outcome)
    if not rows:
        raise ForgetscopeError(
            f"No pair came to its end under {wanted.compared_with} and another policy. {_see(plan.id, store)}"
        )


@guarded
def variants(
    config: Annotated[
        Path | None, typer.Argument(help="A run's TOML file; its seed is that of the first pair. Default: the demo's run.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="An option of the run and its other value; may be repeated. [default: the scripts' three]"
        ),
    ] = None,
    pairs: Annotated[int, typer.Option(min=1, max=10_000, help="Pairs of class sequence and seed; an interval needs two.")] = 5,
    store: StoreOption = DEFAULT_STORE,
    settings: SetOption = None,
    jobs: JobsOption = None,
    device: DeviceOption = "auto",
    threads: JobThreadsOption = 1,
    channels_last: ChannelsLastOption = True,
    compile: CompileOption = False,
    estimate: EstimateOption = True,
    as_json: JsonOption = False,
) -> None:
    """What another protocol changes: one option at a time, on the same class sequences and seeds.

    By default what the paper's released scripts do otherwise than its text: short batches, a tenth of the images set aside, a
    projection before the head. What can change from the second step on starts from the run's own first steps. Per step: means
    over pairs and paired differences to the run as it is, of forgetting and of each measure's rank correlation with it (in
    Fisher's z), with 95 % intervals. Run again, it continues."""
    from forgetscope.benchmark.pairs import plan_name
    from forgetscope.benchmark.variants import Variants
    from forgetscope.engines.local import Local
    from forgetscope.report.document import study_document
    from forgetscope.report.terminal.studies import variants_view
    from forgetscope.runs import results
    from forgetscope.store import Store

    run, opened = _run(config, settings), Store(store)
    wanted = Variants(run, vary or (), pairs, plan_name(config.stem if config else run.dataset, "variants"))
    place = Local(device=device, threads=threads, channels_last=channels_last, compile=compile, jobs=jobs)
    plan, outcome = work_off(wanted, opened, place, estimating=estimate)
    rows = results(wanted, plan, opened)
    if as_json:
        print_json(study_document(plan=plan.id, variants=rows))
    elif rows:
        print_view(variants_view(rows), whole=True)
    name_failures(plan, opened, outcome)
    if not rows:
        raise ForgetscopeError(f"No pair came to its end. {_see(plan.id, store)}")


@guarded
def controlled(
    benchmark: BenchmarkArgument,
    runs: Annotated[int, typer.Option(min=2, max=10_000, help="Further runs of each picked step.")] = 19,
    store: StoreOption = DEFAULT_STORE,
    settings: SetOption = None,
    jobs: JobsOption = None,
    device: DeviceOption = "auto",
    threads: JobThreadsOption = 1,
    channels_last: ChannelsLastOption = True,
    compile: CompileOption = False,
    estimate: EstimateOption = True,
    as_json: JsonOption = False,
) -> None:
    """Run one step of each partition again and again with other new classes, and nothing else changed.

    Result: per past class the rank correlation of NIC and SIC over the runs. If it is positive, runs whose new classes push the
    class down more (NIC) are runs in which its own rehearsal images mislead it more (SIC). Only the new classes can make the
    difference: that parent, seed, rehearsal set and initial weights are equal is checked by digest. The table has a line per
    picked step, over its past classes; --json has every class. What the benchmark has run already is not run again."""
    from forgetscope.benchmark.controlled import Controlled
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.engines.local import Local
    from forgetscope.report.document import study_document
    from forgetscope.report.terminal.studies import controlled_view
    from forgetscope.runs import results
    from forgetscope.store import Store

    wanted, opened = Controlled(BenchmarkSpec.load(benchmark, overrides(settings)), runs), Store(store)
    place = Local(device=device, threads=threads, channels_last=channels_last, compile=compile, jobs=jobs)
    plan, outcome = work_off(wanted, opened, place, estimating=estimate)
    found = results(wanted, plan, opened)
    if as_json:
        print_json(study_document(plan=plan.id, steps=found))
    else:
        print_view(controlled_view(found), whole=True)
    name_failures(plan, opened, outcome)


def _run(config: Path | None, settings: list[str] | None) -> RunSpec:
    from forgetscope.spec import RunSpec

    given = overrides(settings)
    return RunSpec(**given) if config is None else RunSpec.from_toml(config, given)


def _see(plan: str, store: Path) -> str:
    return f"See `forgetscope bench status {shlex.quote(plan)} --store {shlex.quote(str(store))}`."
