"""`forgetscope simulate`: a store with a known truth, without data, torch or training."""

from __future__ import annotations

from typing import Annotated

import typer

import forgetscope as fs
from forgetscope.cli.console import patiently, print_json, print_view
from forgetscope.cli.options import DEFAULT_STORE, JsonOption, SetOption, StoreOption, overrides


def simulate(
    benchmark: Annotated[str, typer.Argument(metavar="PRESET-or-FILE", help="The benchmark whose shape the store gets.")],
    store: StoreOption = DEFAULT_STORE,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Everything random in the simulation follows from it.")] = 0,
    settings: SetOption = None,
    truth: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An effect, noise or correlation (docs/simulation.md); may be repeated."),
    ] = None,
    reruns: Annotated[
        int, typer.Option(min=0, max=10_000, help="Further runs of one step per partition, with other new classes; 0: none.")
    ] = 19,
    as_json: JsonOption = False,
) -> None:
    """Fill a store with made-up results of known effect sizes, to try analysis and reports on.

    Run again, it adds what is missing. It needs neither the data set nor torch. Every record is marked as simulated, and no
    run builds on one."""
    from forgetscope.benchmark.truth import Truth
    from forgetscope.options import parse_setting
    from forgetscope.report.terminal.plans import simulation_document, simulation_view

    spec = fs.BenchmarkSpec.load(benchmark, overrides(settings))
    chosen = Truth(**dict(parse_setting(given, "--truth", "noise=0.2") for given in truth or []))
    with patiently() as progress:
        result = fs.simulate(spec, store, seed, chosen, reruns=reruns, progress=progress)
    if as_json:
        print_json(simulation_document(result, seed, chosen))
    else:
        print_view(simulation_view(result, str(store), seed, chosen))
