"""What a store shows: `forgetscope analyse`, `approximations`, and `report` for a paper (`--format pdf|latex|png`)."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

import forgetscope as fs
from forgetscope.characters import counted
from forgetscope.cli import options as option
from forgetscope.cli.console import Unreadable, echo, onward, patiently, print_either, print_json, print_view
from forgetscope.cli.observed import FlagOption, analyse_observed, files_said, mention_observed, only_observed
from forgetscope.errors import SpecError

DEFAULT_OUT = Path("forgetscope-analysis")
RESAMPLES = 1_000_000
JUDGING = ("claims", "claims_in_detail")  # tables
PAPERS = {"pdf": "report.pdf", "latex": "report-latex", "png": "report-png"}
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
OutOption = Annotated[
    Path | None, typer.Option(help=f"Folder for the files; made if missing. Default: ./{DEFAULT_OUT}.", show_default=False)
]

ResamplesOption = Annotated[
    int, typer.Option(min=100, max=10**9, help="Bootstrap resamples behind intervals of standard deviations.")
]


def analyse(
    store: option.StoreArgument = option.DEFAULT_STORE,
    out: OutOption = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print this table only; with --out, also write it.", show_default=False)
    ] = None,
    coding: Annotated[
        str, typer.Option(help="Of the ANOVA's factors: sum (to zero), or treatment, which gives the paper's numbers.")
    ] = "sum",
    controls: Annotated[
        str, typer.Option(help="Of overall partial correlations: others, or paper, SIC and CIC given ALL-NIC too.")
    ] = "others",
    resamples: ResamplesOption = RESAMPLES,
    joint_over_time: Annotated[
        bool,
        typer.Option("--joint-over-time", help="Also the joint model from the first probes only, for every number of probes."),
    ] = False,
    observed: FlagOption = False,
    as_json: option.Json = False,
) -> None:
    """Turn a store into the paper's tables and the data of its figures, and say what they show.

    Files: tables/, figures/ and more/ as CSV and Parquet, tables also as LaTeX; with --table or --json only where --out says. A
    second call computes only what is new."""
    from forgetscope.analysis.results import CODINGS, CONTROLS
    from forgetscope.outputs import holds_earlier, refuse_foreign_folder
    from forgetscope.report.datafiles import write_analysis
    from forgetscope.report.document import analysis_document

    coded, controlled = option.one_of("--coding", coding, CODINGS), option.one_of("--controls", controls, CONTROLS)
    folder, replaced = out or (DEFAULT_OUT if table is None and not as_json else None), False
    if folder is not None:
        refuse_foreign_folder(folder, "--out")  # before what may take minutes
        replaced = holds_earlier(folder)
    if observed or only_observed(store):
        _refuse_of_planned(coding, controls, resamples, joint_over_time)
        return analyse_observed(store, folder, table, as_json, replaced)
    with patiently() as progress:
        found = fs.analyse(
            store,
            coding=coded,
            controls=controlled,
            resamples=resamples,
            tables=None if table is None else [table],
            joint_over_time=joint_over_time,
            progress=progress,
        )
    if folder is not None:
        write_analysis(found, folder)
    if as_json:
        print_json(analysis_document(found))
        return
    _print_analysis(found, store, table)
    onward(("report", store), *[("analyse", store, "--table", "noise")][: table is None], found=files_said(folder, replaced))


def _print_analysis(found: fs.Analysis, store: Path, table: str | None) -> None:
    from forgetscope.report.exhibited import exhibited
    from forgetscope.report.terminal.studies import exhibit_view
    from forgetscope.report.words.reading import unjudged

    if table in JUDGING and (reason := unjudged(found)):
        echo(f"{reason} The files and --json have what the functions that judge say.")
    elif table is not None:
        print_view(exhibit_view(*exhibited(found)))
    else:
        echo(found.reading)
        mention_observed(store)


def _refuse_of_planned(coding: str, controls: str, resamples: int, joint_over_time: bool) -> None:
    """Options of the paper's analysis, where there is none."""
    given = {
        **{"--coding": coding != "sum", "--controls": controls != "others"},
        **{"--resamples": resamples != RESAMPLES, "--joint-over-time": joint_over_time},
    }
    if names := [name for name, is_given in given.items() if is_given]:
        raise SpecError(f"{', '.join(names)}: for planned steps only. Observed ones have means by settings: leave it out.")


def approximations(store: option.StoreArgument = option.DEFAULT_STORE, as_json: option.Json = False) -> None:
    """What the paper's approximations cost: the last layer for all, epochs for iterations, NIC as released.

    For every setting in the store whose steps measured something beside the probes (options all_layers_every, every_iteration,
    released_nic, method_interference). Means over steps with 95 % intervals, differences paired over steps. docs/beyond.md says
    how to read it."""
    from forgetscope.analysis.questions.approximations import approximations as compute
    from forgetscope.report.document import study_document
    from forgetscope.report.terminal.studies import approximations_view

    left_out = Unreadable()
    found = compute(fs.Store.existing(store), left_out)
    left_out.tell(True)
    print_either(lambda: study_document(settings=found), lambda: approximations_view(found), as_json)
    if not as_json:
        steps = counted(sum(group.steps for group in found), "step")
        onward(("analyse", store), found=f"\n{counted(len(found), 'setting')}, {steps} that measured more than the paper does.")


def write_for_paper(store: Path, output: Path | None, format: str, width: float | None, id: str | None) -> None:
    from forgetscope.report.typeset.figures import WIDTH
    from forgetscope.report.typeset.papers import FORMATS, refuse_foreign

    chosen = option.one_of("--format", format, FORMATS, "html")
    if id is not None:
        raise SpecError(f"--format {format} shows the whole store, not one experiment: leave out --experiment, or --format.")
    if width is not None and chosen == "pdf":
        raise SpecError("--format pdf has pages of a fixed size: --width is for latex and png.")
    if only_observed(store):
        place = shlex.quote(str(store))
        raise SpecError(
            f"--format {format}: such documents are made of planned steps, and {store} holds observed ones only. These are "
            f"shown by `forgetscope report {place}`, a page, and `forgetscope analyse {place}`, tables as files."
        )
    path = output or Path(PAPERS[chosen])
    refuse_foreign(path, chosen)  # before an analysis that may take minutes
    with patiently() as progress:
        found = fs.analyse(store, progress=progress)
        fs.write_paper(found, path, chosen, width=width or WIDTH, progress=progress)
    compile = [f"cd {shlex.quote(str(path))} && pdflatex report.tex"] if chosen == "latex" else []
    onward(*compile, ("report", store), found=f"For a paper: {path.resolve()}")
