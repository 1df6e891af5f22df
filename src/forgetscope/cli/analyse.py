"""`forgetscope analyse`: every table and figure's data from a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import forgetscope as fs
from forgetscope.cli.console import echo, patiently, print_json, print_view
from forgetscope.cli.options import DEFAULT_STORE, JsonOption, StoreArgument
from forgetscope.errors import SpecError

DEFAULT_OUT = Path("forgetscope-analysis")


def analyse(
    store: StoreArgument = DEFAULT_STORE,
    out: Annotated[
        Path | None, typer.Option(help=f"Folder for the files; made if missing. Default: ./{DEFAULT_OUT}.", show_default=False)
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print this table only; with --out, also write it.", show_default=False)
    ] = None,
    coding: Annotated[
        str, typer.Option(help="Of the ANOVA's factors: sum (to zero), or treatment, which gives the paper's numbers.")
    ] = "sum",
    resamples: Annotated[
        int, typer.Option(min=100, max=10**9, help="Bootstrap resamples behind intervals of standard deviations.")
    ] = 1_000_000,
    joint_over_time: Annotated[
        bool,
        typer.Option("--joint-over-time", help="Also the joint model from the first probes only, for every number of probes."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn a store into the paper's tables and the data of its figures, and say what they show.

    Files: tables/, figures/ and more/ as CSV and Parquet, tables also as LaTeX. A second call computes only what is new."""
    from forgetscope.analysis.results import CODINGS
    from forgetscope.options import nearest
    from forgetscope.outputs import refuse_foreign_folder
    from forgetscope.report.datafiles import write_analysis
    from forgetscope.report.document import analysis_document
    from forgetscope.report.exhibited import exhibited
    from forgetscope.report.terminal.exhibits import exhibit_view

    chosen = next((known for known in CODINGS if known == coding), None)
    if chosen is None:
        raise SpecError(f"--coding {coding!r} is not known.{nearest(coding, CODINGS)}")
    if table is None or out is not None:
        refuse_foreign_folder(out or DEFAULT_OUT, "--out")  # before what may take minutes
    with patiently() as progress:
        found = fs.analyse(
            store,
            coding=chosen,
            resamples=resamples,
            tables=None if table is None else [table],
            joint_over_time=joint_over_time,
            progress=progress,
        )
    folder = None
    if table is None or out is not None:
        folder = write_analysis(found, out or DEFAULT_OUT)
    if as_json:
        print_json(analysis_document(found))
        return
    if table is not None:
        print_view(exhibit_view(*exhibited(found)), whole=True)
    else:
        echo(found.reading)
    if folder is not None:
        echo(f"\nThe files: {folder.resolve()}")
