"""The paper's tables as lines of cells: laid out as in the paper, or a line per estimate, ours beside what the paper prints.

How a cell is written is its notation's business."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from forgetscope.analysis.exhibits.exhibit import MODEL
from forgetscope.analysis.inputs.samples import POOLED, size_of_level
from forgetscope.analysis.rows import Row, grouped, records
from forgetscope.report.exhibited import Shown
from forgetscope.report.words.captions import benchmark_title, share_text, subset_text
from forgetscope.report.words.notation import Notation

Role = Literal["head", "benchmark", "step", "row"]

FACTORS = {"rehearsal": "Retention", "classes": "Increment", "interaction": "Interaction"}
NAMES = {MODEL: "All coefficients"}


@dataclass(frozen=True)
class TableCell:
    text: str
    span: int = 1


@dataclass(frozen=True)
class Line:
    role: Role
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class Tabular:
    """`columns` has a letter for each: l, c or r. An empty table has no columns and no lines."""

    columns: str
    lines: tuple[Line, ...]


def lay_out(shown: Shown, notation: Notation) -> Tabular:
    if shown.frame.empty:
        return Tabular("", ())
    arrange = {"anova": _anova, "overall": _overall, "noise": _noise}.get(shown.exhibit.layout, _grid)
    return arrange(shown.frame, notation)


def lay_out_beside(shown: Shown, beside: pd.DataFrame, notation: Notation) -> Tabular:
    """A line for each estimate that the paper prints too."""
    both = pd.concat([shown.frame, beside], axis=1).dropna(subset="paper")
    anova, grid = shown.exhibit.layout == "anova", bool(both["class_pct"].ne("").any())
    overlap = bool(both["overlap"].ne("").any())
    keys = ("Retention", "New classes", "") if grid else ("Factor", "") if anova else ("",)
    symbol, p = (f"{notation.symbol(name)} " if anova else "" for name in ("eta2p", "p"))
    columns = [f"{symbol}ours", f"{symbol}paper", "ours " + notation.text("−") + " paper"]
    columns += [f"{p}ours", f"{p}paper"] if anova else ["intervals overlap"] if overlap else []
    lines = [_line("head", *keys, *columns)]
    width = len(keys) + len(columns)
    for heading, group in _groups(both, notation, width):
        lines.append(heading)
        for (subset,), rows in grouped(group, "subset").items():
            lines.append(Line("step", (TableCell(notation.text(subset_text(subset)), width),)))
            for row in rows:
                compared = _compared(notation, row, anova, overlap)
                lines.append(_line("row", *_keys(notation, row, grid, anova), *compared))
    return Tabular("l" * len(keys) + "c" * len(columns), tuple(lines))


def _overall(frame: pd.DataFrame, notation: Notation) -> Tabular:
    columns = _distinct(frame, "quantity", "statistic")
    lines = [_line("head", "", *(_name(notation, *column) for column in columns))]
    for heading, group in _groups(frame, notation, len(columns) + 1):
        lines.append(heading)
        for (subset,), rows in grouped(group, "subset").items():
            cells = {(row["quantity"], row["statistic"]): _estimate(notation, row) for row in rows}
            lines.append(_line("row", notation.text(subset_text(subset)), *(cells.get(c, notation.missing) for c in columns)))
    return Tabular("l" + "c" * len(columns), tuple(lines))


def _grid(frame: pd.DataFrame, notation: Notation) -> Tabular:
    levels = set(frame["class_pct"])
    increments = [*sorted(levels - {POOLED}, key=size_of_level), *levels & {POOLED}]
    lines = [_line("head", "Retention", "", *(_share(notation, level, " classes") for level in increments))]
    for heading, group in _groups(frame, notation, len(increments) + 2):
        lines.append(heading)
        for (step,), part in grouped(group, "subset").items():
            lines.append(Line("step", (TableCell(notation.text(subset_text(step)), len(increments) + 2),)))
            for (kept, quantity, statistic), rows in grouped(part, "rehearsal_pct", "quantity", "statistic").items():
                cells = {row["class_pct"]: _estimate(notation, row) for row in rows}
                names = (_share(notation, kept), _name(notation, quantity, statistic))
                lines.append(_line("row", *names, *(cells.get(level, notation.missing) for level in increments)))
    return Tabular("ll" + "c" * len(increments), tuple(lines))


def _noise(frame: pd.DataFrame, notation: Notation) -> Tabular:
    """Each value with what noise alone would show, or with its interval, below."""
    titles = ("FG-R", "FG-HG", "Spread", "Reliability", f"SIC {notation.symbol('rho')}", "Ceiling", "Between runs", "n")
    lines = [_line("head", "Retention", "New classes", *titles)]

    def estimate(row: Row, name: str) -> str:
        below = notation.interval(row[f"{name}_lo"], row[f"{name}_hi"])
        return notation.stacked(notation.number(row[name]), below) if below else notation.number(row[name])

    for heading, group in _groups(frame, notation, len(titles) + 2):
        lines.append(heading)
        for (step,), part in grouped(group, "subset").items():
            lines.append(Line("step", (TableCell(notation.text(subset_text(step)), len(titles) + 2),)))
            for row in part:
                places = [
                    _share(notation, row[key]) if row[key] else notation.text("all") for key in ("rehearsal_pct", "class_pct")
                ]
                severity = [
                    notation.stacked(notation.number(row[name]), f"noise {notation.number(row[f'{name}_floor'])}")
                    for name in ("FG-R", "FG-HG")
                ]
                rest = (estimate(row, "spread"), estimate(row, "reliability"), notation.number(row["SIC_rho"]))
                last = (estimate(row, "ceiling"), estimate(row, "between_runs"), str(row["n"]))
                lines.append(_line("row", *places, *severity, *rest, *last))
    return Tabular("ll" + "c" * len(titles), tuple(lines))


def _anova(frame: pd.DataFrame, notation: Notation) -> Tabular:
    columns = _distinct(frame, "quantity", "response")
    titles = (TableCell(_name(notation, quantity, "" if r == quantity else r), 3) for quantity, r in columns)
    symbols = [notation.symbol(name) for name in ("F", "p", "eta2p")]
    lines = [Line("head", (TableCell(""), TableCell(""), *titles)), _line("head", "", "", *symbols * len(columns))]
    for heading, group in _groups(frame, notation, 3 * len(columns) + 2):
        lines.append(heading)
        for (subset, factor), rows in grouped(group, "subset", "factor").items():
            cells = {(row["quantity"], row["response"]): _test(notation, row) for row in rows}
            name = notation.text(subset_text(subset)) if factor == "rehearsal" else ""
            numbers = (text for column in columns for text in cells.get(column, (notation.missing,) * 3))
            lines.append(_line("row", name, FACTORS[factor], *numbers))
    return Tabular("ll" + "rrr" * len(columns), tuple(lines))


def _test(notation: Notation, row: Row) -> tuple[str, str, str]:
    return notation.number(row["F"]), notation.probability(row["p"]), notation.number(row["eta2p"])


def _keys(notation: Notation, row: Row, grid: bool, anova: bool) -> tuple[str, ...]:
    if anova:
        response = "" if row["response"] == row["quantity"] else row["response"]
        return FACTORS[row["factor"]], _name(notation, row["quantity"], response)
    name = _name(notation, row["quantity"], row["statistic"])
    return (_share(notation, row["rehearsal_pct"]), _share(notation, row["class_pct"]), name) if grid else (name,)


def _estimate(notation: Notation, row: Row) -> str:
    """Mean and standard deviation, and below them their intervals, as far as they are known."""
    above = notation.spread(row["mean"], row["sd"])
    intervals = (notation.interval(row[f"{name}_lo"], row[f"{name}_hi"]) for name in ("mean", "sd"))
    below = f" {notation.text('±')} ".join(filter(None, intervals))
    return notation.stacked(above, below) if below else above


def _compared(notation: Notation, row: Row, anova: bool, overlap: bool) -> tuple[str, ...]:
    difference = notation.number(row["difference"], signed=True)
    if anova:
        tests = notation.probability(row["p"]), notation.probability(row["paper_p"])
        return notation.number(row["eta2p"]), notation.number(row["paper"]), difference, *tests
    ours, paper = (
        f"{notation.spread(row[mean], row[sd])} {notation.interval(row[low], row[high])}".rstrip()
        for mean, sd, low, high in (("mean", "sd", "mean_lo", "mean_hi"), ("paper", "paper_sd", "paper_lo", "paper_hi"))
    )
    return (ours, paper, difference, *([row["overlap"] or notation.missing] if overlap else []))


def _groups(frame: pd.DataFrame, notation: Notation, columns: int) -> Iterable[tuple[Line, list[Row]]]:
    for _, group in frame.groupby(["benchmark", "policy"], sort=False):
        title = notation.strong(notation.text(benchmark_title(group)))
        yield Line("benchmark", (TableCell(title, columns),)), records(group)


def _distinct(frame: pd.DataFrame, first: str, second: str) -> list[tuple[str, str]]:
    return list(dict.fromkeys(zip(frame[first].astype(str), frame[second].astype(str), strict=True)))


def _share(notation: Notation, level: str, what: str = "") -> str:
    if level == POOLED:
        return notation.strong("Pooled")
    return notation.text(share_text(level).removesuffix(what) + what)


def _name(notation: Notation, quantity: str, statistic: str) -> str:
    return f"{notation.text(NAMES.get(quantity, quantity))} {notation.symbol(statistic)}".strip()


def _line(role: Role, *cells: str) -> Line:
    return Line(role, tuple(map(TableCell, cells)))
