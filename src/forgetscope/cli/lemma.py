"""`forgetscope lemma`: the Class-Wise R-SGD lemma against training."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from forgetscope.cli.console import echo, note, patiently, print_json, print_view
from forgetscope.cli.options import JsonOption, SetOption, ThreadsOption, overrides
from forgetscope.errors import ForgetscopeError

DEFAULT_OUT = Path("forgetscope-lemma")


def lemma(
    data: Annotated[str, typer.Option(help="Data set to learn: glyphs, cifar100, or another that is in the cache.")] = "glyphs",
    hidden: Annotated[int, typer.Option(min=0, max=4096, help="Tanh units of the network; 0: a linear softmax model.")] = 32,
    images: Annotated[int, typer.Option(min=2, max=100_000, help="Training images used of each class, the first ones.")] = 100,
    draws: Annotated[int, typer.Option(min=2, max=1_000_000, help="Mini-batches drawn at each iterate.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Everything random follows from it.")] = 0,
    settings: SetOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for table and figure; made if missing.")] = DEFAULT_OUT,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the paper's lemma: expected one-step changes of past classes' losses against its bound, term by term.

    Trains the second of two steps on a small smooth network by plain R-SGD. At several iterates it makes many updates, each
    from the same weights. --set takes a run's options (`forgetscope config`), such as increment, retention or learning_rate."""
    from forgetscope.lemma.check import LemmaCheck, check_lemma
    from forgetscope.lemma.report import lemma_document, lemma_view, write_lemma
    from forgetscope.lemma.summary import judged, summarise_lemma
    from forgetscope.outputs import refuse_foreign_folder

    refuse_foreign_folder(output)  # before what may take minutes
    options = {"dataset": data, "seed": seed, **overrides(settings)}
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
    print_view(lemma_view(frame, summary), whole=True)
    echo(f"\nTable and figure: {folder.resolve()}")
