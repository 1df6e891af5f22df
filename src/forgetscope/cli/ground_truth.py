"""What results can be held against: `forgetscope lemma`, theory; `simulate`, a store with a known truth."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import forgetscope as fs
from forgetscope.cli import options as option
from forgetscope.cli.console import note, onward, patiently, print_either, print_json, print_view
from forgetscope.errors import ForgetscopeError

DEFAULT_OUT = Path("forgetscope-lemma")


def lemma(
    data: Annotated[str, typer.Option(help="Data set to learn: glyphs, cifar100, or another that is in the cache.")] = "glyphs",
    hidden: Annotated[int, typer.Option(min=0, max=4096, help="Tanh units of the network; 0: a linear softmax model.")] = 32,
    images: Annotated[int, typer.Option(min=2, max=100_000, help="Training images used of each class, the first ones.")] = 100,
    draws: Annotated[int, typer.Option(min=2, max=1_000_000, help="Mini-batches drawn at each iterate.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Everything random follows from it.")] = 0,
    settings: option.Set = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for table and figure; made if missing.")] = DEFAULT_OUT,
    threads: option.Threads = None,
    as_json: option.Json = False,
) -> None:
    """Check the paper's lemma: expected one-step changes of past classes' losses against its bound, term by term.

    Trains the second of two steps on a small smooth network by plain R-SGD. At several iterates it makes many updates, each
    from the same weights. --set takes a run's options (`forgetscope config`), such as increment, retention or learning_rate."""
    from forgetscope.lemma.check import LemmaCheck, check_lemma
    from forgetscope.lemma.report import lemma_document, lemma_view, write_lemma
    from forgetscope.lemma.summary import judged, summarise_lemma
    from forgetscope.outputs import refuse_foreign_folder

    refuse_foreign_folder(output)  # before what may take minutes
    options = {"dataset": data, "seed": seed, **option.overrides(settings)}
    check = LemmaCheck.of(options, hidden=hidden, images=images, draws=draws)
    try:
        with patiently() as progress:
            frame = judged(check_lemma(check, threads=threads, note=note, progress=progress))
    except KeyboardInterrupt:
        raise ForgetscopeError("Interrupted, and nothing was written. The same command starts from the beginning.") from None
    summary, folder = summarise_lemma(frame), write_lemma(frame, output)
    if as_json:
        print_json(lemma_document(frame, summary, {**asdict(check), "run": check.run.model_dump(mode="json")}))
        return
    print_view(lemma_view(frame, summary))
    onward(("lemma", "--hidden", "0", "-o", f"{folder}-linear"), found=f"\nTable and figure: {folder.resolve()}")


def simulate(
    benchmark: Annotated[str, typer.Argument(metavar="PRESET-or-FILE", help="The benchmark whose shape the store gets.")],
    store: option.Store = option.DEFAULT_STORE,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Everything random in the simulation follows from it.")] = 0,
    settings: option.Set = None,
    truth: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An effect, noise or correlation (docs/simulation.md); may be repeated."),
    ] = None,
    reruns: Annotated[
        int, typer.Option(min=0, max=10_000, help="Further runs of one step per partition, with other new classes; 0: none.")
    ] = 19,
    as_json: option.Json = False,
) -> None:
    """Fill a store with made-up results of known effect sizes, to try analysis and reports on.

    Run again, it adds what is missing. It needs neither the data set nor torch. Every record is marked as simulated, and no
    run builds on one."""
    from forgetscope.benchmark.truth import Truth
    from forgetscope.options import parse_setting
    from forgetscope.report.terminal.plans import simulation_document, simulation_view

    spec = fs.BenchmarkSpec.load(benchmark, option.overrides(settings))
    chosen = Truth(**dict(parse_setting(given, "--truth", "noise=0.2") for given in truth or []))
    with patiently() as progress:
        result = fs.simulate(spec, store, seed, chosen, reruns=reruns, progress=progress)
    view = partial(simulation_view, result, str(store), seed, chosen)
    print_either(partial(simulation_document, result, seed, chosen), view, as_json)
    if not as_json:
        onward(("analyse", store), ("report", store), found="\nNothing was trained: numbers follow the truth above.")
