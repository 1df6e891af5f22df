"""`forgetscope compare`, `variants` and `controlled`: plans in which one thing differs and everything else is held fixed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from forgetscope.cli.console import guarded, print_json, print_view
from forgetscope.cli.options import DEFAULT_STORE, DeviceOption, JsonOption, SetOption, StoreOption, overrides
from forgetscope.cli.plans import (
    BenchmarkArgument,
    EstimateOption,
    JobsOption,
    ThreadsOption,
    get_ready,
    hired,
    load_with_data,
    name_failures,
    work_off,
)
from forgetscope.errors import ForgetscopeError, SpecError


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
    threads: ThreadsOption = 1,
    estimate: EstimateOption = True,
    as_json: JsonOption = False,
) -> None:
    """Compare rehearsal policies: the same class sequences and seeds under each, from common first steps.

    Per step and policy: means over the pairs with 95 % Student t intervals, and below them the mean difference to the baseline
    within pairs. Where policies do not differ, one such interval in twenty excludes zero by chance. Run again, it continues;
    with more pairs or policies, only what is new is run."""
    from forgetscope.analysis.questions.policies import compare_policies, planned_experiments
    from forgetscope.benchmark.pairs import check_comparison, comparison_plan
    from forgetscope.report.document import comparison_document
    from forgetscope.report.terminal.experiments import comparison_view
    from forgetscope.spec import RunSpec
    from forgetscope.store import Store

    given = overrides(settings)
    if "policy" in given:
        raise SpecError("--set policy: name the policies that are compared with --policies, for example uniform,entropy.")
    run = RunSpec(**given) if config is None else RunSpec.from_toml(config, given)
    names = [name.strip() for name in policies.split(",")]
    baseline = baseline or names[0]
    check_comparison(run, names, baseline)
    get_ready(run)
    title = re.sub(r"[^\w.-]", "-", config.stem if config else run.dataset)[:40] + "-compare"
    plan, opened = comparison_plan(run, names, pairs, title), Store(store)
    with hired(plan, opened, jobs, device, threads) as engine:
        outcome = work_off(engine, run, estimating=estimate)
    rows = compare_policies(planned_experiments(opened, (chain.steps for chain in plan.chains)), baseline)
    if as_json:
        print_json(comparison_document(plan.id, rows))
    elif rows:
        print_view(comparison_view(rows), whole=True)
    name_failures(plan, opened, outcome)
    if not rows:
        raise ForgetscopeError(
            f"No pair came to its end under {baseline} and another policy. "
            f"See `forgetscope bench status {shlex.quote(plan.id)} --store {shlex.quote(str(store))}`."
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
    threads: ThreadsOption = 1,
    estimate: EstimateOption = True,
    as_json: JsonOption = False,
) -> None:
    """What another protocol changes: one option at a time, on the same class sequences and seeds.

    By default what the paper's released scripts do otherwise than its text: short batches, a tenth of the images set aside, a
    projection before the head. What can change from the second step on starts from the run's own first steps. Per step: means
    over pairs and paired differences to the run as it is, of forgetting and of each measure's rank correlation with it (in
    Fisher's z), with 95 % intervals. Run again, it continues."""
    from forgetscope.analysis.questions.variants import compare_variants
    from forgetscope.benchmark.variants import BASELINE, changed, parse_variant, variants_plan
    from forgetscope.report.document import variants_document
    from forgetscope.report.terminal.variants import variants_view
    from forgetscope.spec import RunSpec
    from forgetscope.store import Store

    given = overrides(settings)
    run = RunSpec(**given) if config is None else RunSpec.from_toml(config, given)
    wanted = vary or ["sampling=reshuffled-short", "validation=0.1", f"network={run.network}-projected"]
    varied = [parse_variant(setting, run) for setting in wanted]
    for each in (run, *(changed(run, variant) for variant in varied)):
        get_ready(each)
    title = re.sub(r"[^\w.-]", "-", config.stem if config else run.dataset)[:40] + "-variants"
    plan, opened = variants_plan(run, varied, pairs, title), Store(store)
    with hired(plan, opened, jobs, device, threads) as engine:
        outcome = work_off(engine, run, estimating=estimate)
    chains = {v.name: [c.steps for c in plan.chains if c.variant == v.name] for v in (BASELINE, *varied)}
    rows = compare_variants(opened, chains)
    if as_json:
        print_json(variants_document(plan.id, rows))
    elif rows:
        print_view(variants_view(rows), whole=True)
    name_failures(plan, opened, outcome)
    if not rows:
        raise ForgetscopeError(
            f"No pair came to its end. See `forgetscope bench status {shlex.quote(plan.id)} --store {shlex.quote(str(store))}`."
        )


@guarded
def controlled(
    benchmark: BenchmarkArgument,
    runs: Annotated[int, typer.Option(min=2, max=10_000, help="Further runs of each picked step.")] = 19,
    store: StoreOption = DEFAULT_STORE,
    settings: SetOption = None,
    jobs: JobsOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    estimate: EstimateOption = True,
    as_json: JsonOption = False,
) -> None:
    """Run one step of each partition again and again with other new classes, and nothing else changed.

    Result: per past class the rank correlation of NIC and SIC over the runs. If it is positive, runs whose new classes push the
    class down more (NIC) are runs in which its own rehearsal images mislead it more (SIC). Only the new classes can make the
    difference: that parent, seed, rehearsal set and initial weights are equal is checked by digest. The table has a line per
    picked step, over its past classes; --json has every class. What the benchmark has run already is not run again."""
    from forgetscope.analysis.questions.controlled import controlled_results
    from forgetscope.benchmark.controlled import controlled_plan
    from forgetscope.report.document import controlled_document
    from forgetscope.report.terminal.controlled import controlled_view
    from forgetscope.store import Store

    spec, opened = load_with_data(benchmark, settings), Store(store)
    plan = controlled_plan(spec, runs=runs)
    with hired(plan, opened, jobs, device, threads) as engine:
        outcome = work_off(engine, spec.template, estimating=estimate)
    found = controlled_results(opened, plan.reruns)
    if as_json:
        print_json(controlled_document(plan.id, found))
    else:
        print_view(controlled_view(found), whole=True)
    name_failures(plan, opened, outcome)
