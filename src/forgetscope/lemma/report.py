"""The lemma's terms as tables, its bound against measurement as a figure, and both as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from forgetscope.analysis.rows import records
from forgetscope.characters import counted
from forgetscope.lemma.summary import SMOOTHNESS, LemmaSummary, second_order
from forgetscope.outputs import writing_folder
from forgetscope.report.datafiles import inert
from forgetscope.report.document import study_document
from forgetscope.report.terminal.columns import make_table, plain, titled
from forgetscope.report.typeset.ink import BLUE, GREEN, GREY, ORANGE, SMALL, printing, save
from forgetscope.report.words.notation import PLAIN

TERMS = {"descent": "descent", "sic": "SIC", "cic": "CIC", "nic": "NIC", "fourth": "fourth", "curvature_every": "curvature"}
FORMATS: tuple[Literal["svg"], Literal["png"]] = ("svg", "png")
MARKS = {"every": ("o", 20, BLUE), "made": ("s", 6, ORANGE), "estimated": ("^", 8, GREEN)}


def lemma_view(frame: pd.DataFrame, summary: LemmaSummary) -> RenderableType:
    """A table per iterate, then what they show together."""
    tables: list[RenderableType] = []
    for _, rows in frame.groupby("epoch", sort=False):
        first = rows.iloc[0]
        table = make_table(("class",), ("change", "error", "bound", *TERMS.values(), "slack", "holds"))
        for row in records(rows):
            change = (f"{row['change']:+.2e}", f"{row['change_error']:.0e}", f"{row['bound_every']:+.2e}")
            numbers = (*change, *(f"{row[name]:+.2e}" for name in TERMS), f"{row['slack']:.2e}")
            table.add_row(str(row["class_name"]), *map(PLAIN.mathematics, numbers), str(row["holds"]))
        epochs, rate = counted(first["epoch"], "epoch"), first["learning_rate"]
        title = f"After {epochs}, iteration {first['iteration']}, learning rate {rate:.3g}"
        smoothness = ", ".join(f"{rows[f'smoothness_{kind}'].median():.3g} {words}" for kind, words in SMOOTHNESS.items())
        remark = f"L, median over classes: {smoothness}; {rows['smoothness_needed'].median():.3g} would have been enough"
        tables += [titled(title, table, remark), Text()]
    return Group(*tables, _rankings(summary), Text(), *(plain(line) for line in lemma_reading(summary)))


def lemma_reading(summary: LemmaSummary) -> list[str]:
    """The result in plain words, the bad parts too."""
    pairs = summary.classes * len(summary.epochs)
    lines = [
        f"{counted(pairs, 'expected change')}: {counted(summary.classes, 'past class')}, "
        f"{counted(len(summary.epochs), 'iterate')}, {counted(summary.draws, 'draw')} each"
    ]
    for kind, words in SMOOTHNESS.items():
        verdict = summary.verdicts[kind]
        unsure = f", {verdict.undecided} undecided" if verdict.undecided else ""
        loose = "What it bounds beyond first order is too small to be measured with so few draws."
        if verdict.looseness is not None:
            least, median, most = (f"{times:.3g}" for times in verdict.looseness)
            loose = f"Its curvature term is {median} times what was measured (median; {least} to {most})."
        lines.append(
            f"L {words}: the bound held {counted(verdict.held, 'time')} and failed {counted(verdict.failed, 'time')}{unsure}. "
            f"{loose} It promised {verdict.decreases_promised} of {counted(summary.decreases, 'decrease')}."
        )
    failed = f"{summary.draws_above:,} of {pairs * summary.draws:,}"
    return [
        *lines,
        f"Draw by draw, with L certified for the draws made, the inequality failed in {failed}.",
        f"First-order terms against the draws' mean: off by {summary.deviation:.2f} standard errors (root mean square; "
        f"1 is chance), at most by {summary.largest_deviation:.1f}.",
    ]


def lemma_document(frame: pd.DataFrame, summary: LemmaSummary, options: dict[str, Any]) -> dict[str, Any]:
    return study_document(options=options, summary=summary, reading=lemma_reading(summary), rows=records(frame))


def write_lemma(frame: pd.DataFrame, folder: Path) -> Path:
    """`lemma.csv` and `lemma.parquet` with all columns, `lemma.svg` and `lemma.png` with the figure."""
    with writing_folder(folder) as building, printing():
        inert(frame).to_csv(building / "lemma.csv", index=False)
        frame.to_parquet(building / "lemma.parquet", index=False)
        figure = Figure(figsize=(6.8, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_bounds(left, frame)
        _draw_curvature(right, frame)
        for format in FORMATS:
            with (building / f"lemma.{format}").open("wb") as file:
                save(figure, file, format)
    return folder


def _draw_bounds(axes: Axes, frame: pd.DataFrame) -> None:
    _against(axes, frame["change"], frame, "bound")
    threshold = float(frame["change"].abs().median()) or 1e-12
    axes.set_xscale("symlog", linthresh=threshold)
    axes.set_yscale("symlog", linthresh=threshold)
    _plain_numbers(axes)
    axes.axhline(0, color=GREY, linewidth=0.5)
    axes.axvline(0, color=GREY, linewidth=0.5)
    labels = {"xlabel": "measured expected change of a past class's loss", "ylabel": "the lemma's bound"}
    axes.set(**labels, title="Bound against measurement")


def _draw_curvature(axes: Axes, frame: pd.DataFrame) -> None:
    """On logarithmic axes, so without a class whose measured second-order part is not positive."""
    shown = frame[second_order(frame) > 0]
    if len(shown):
        _against(axes, second_order(shown), shown, "curvature")
        axes.set(xscale="log", yscale="log")
        _plain_numbers(axes)
        axes.legend(fontsize=SMALL)
    labels = {"xlabel": "measured change beyond first order", "ylabel": "the bound's curvature term"}
    axes.set(**labels, title="Where the slack is")


def _against(axes: Axes, measured: pd.Series[float], frame: pd.DataFrame, column: str) -> None:
    for kind, (marker, size, colour) in MARKS.items():  # where two kinds coincide, both can be seen
        values = frame[f"{column}_{kind}"]
        axes.scatter(measured, values, s=size, c=colour, marker=marker, linewidths=0, label=f"L {SMOOTHNESS[kind]}")
    ends = [float(measured.min()), float(measured.max())]
    axes.plot(ends, ends, color="black", linewidth=1, label="bound = measurement")


def _plain_numbers(axes: Axes) -> None:
    """Powers of ten as numbers: in print, mathematics is switched off."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")


def _rankings(summary: LemmaSummary) -> RenderableType:
    table = make_table(("ranking by",), [counted(epoch, "epoch") for epoch in summary.epochs])
    for name, values in summary.correlations.items():
        table.add_row(name, *(PLAIN.number(rho, signed=True) for rho in values))
    return titled(f"Rank correlation with the measured change, over {counted(summary.classes, 'past class')}", table)
