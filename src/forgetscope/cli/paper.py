"""`forgetscope report --format pdf|latex|png`: all results of a store, for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import forgetscope as fs
from forgetscope.cli.console import echo, patiently
from forgetscope.errors import SpecError

DEFAULT_OUT = {"pdf": "report.pdf", "latex": "report-latex", "png": "report-png"}

FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="html|pdf|latex|png",
        help="html: a page. For papers: pdf, figures and tables; latex, a folder with report.tex; png, figures, also as SVG.",
    ),
]
WidthOption = Annotated[
    float | None,
    typer.Option(
        min=2.5, max=20, metavar="INCHES", help="Of figures for latex and png. Default: 7.16, two columns.", show_default=False
    ),
]


def write_for_paper(store: Path, output: Path | None, format: str, width: float | None, id: str | None) -> None:
    from forgetscope.options import nearest
    from forgetscope.report.typeset.figures import WIDTH
    from forgetscope.report.typeset.papers import FORMATS, refuse_foreign

    chosen = next((known for known in FORMATS if known == format), None)
    if chosen is None:
        raise SpecError(f"--format {format!r} is not known.{nearest(format, ('html', *FORMATS))}")
    if id is not None:
        raise SpecError(f"--format {format} shows the whole store, not one experiment: leave out --experiment, or --format.")
    if width is not None and chosen == "pdf":
        raise SpecError("--format pdf has pages of a fixed size: --width is for latex and png.")
    path = output or Path(DEFAULT_OUT[chosen])
    refuse_foreign(path, chosen)  # before an analysis that may take minutes
    with patiently() as progress:
        found = fs.analyse(store, progress=progress)
        fs.write_paper(found, path, chosen, width=width or WIDTH, progress=progress)
    compile = f"\nCompile it: cd {path} && pdflatex report.tex" if chosen == "latex" else ""
    echo(f"For a paper: {path.resolve()}{compile}")
