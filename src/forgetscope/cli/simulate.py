"""`forgetscope simulate`: a store with a known truth, without data, torch or training."""

from __future__ import annotations

from typing import Annotated

import typer

from forgetscope.cli.console import guarded, print_json, print_view
from forgetscope.cli.options import DEFAULT_STORE, JsonOption, SetOption, StoreOption, overrides

PATIENCE = 2.0  # seconds before progress is shown


@guarded
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
    from forgetscope.benchmark import simulation
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.benchmark.truth import Truth
    from forgetscope.progress import counting
    from forgetscope.report.terminal.plans import simulation_document, simulation_view
    from forgetscope.spec import parse_setting
    from forgetscope.store import Store

    spec = BenchmarkSpec.load(benchmark, overrides(settings))
    chosen = Truth(**dict(parse_setting(given, "--truth", "noise=0.2") for given in truth or []))
    with counting(PATIENCE) as progress:
        result = simulation.simulate(spec, Store(store), seed, chosen, reruns=reruns, progress=progress)
    if as_json:
        print_json(simulation_document(result, seed, chosen))
    else:
        print_view(simulation_view(result, str(store), seed, chosen))
