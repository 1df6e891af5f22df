"""The paper's tables as lines of cells: laid out as in the paper, or a line per estimate, ours beside what the paper prints.

How a cell is written is its notation's business."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pandas as pd

from forgetscope.analysis.inputs.samples import POOLED
from forgetscope.analysis.paper.descriptions import TABLES
from forgetscope.analysis.paper.tables import records

Row = dict[str, Any]
Role = Literal["head", "benchmark", "step", "row"]

EMPTY = "Nothing in the store belongs here."
FACTORS = {"rehearsal": "Retention", "classes": "Increment", "interaction": "Interaction"}
CODING = "The paper codes factors by treatment, ours sum to zero: main effects are different questions."
NAMES = {"all_coefficients": "All coefficients"}
LOST = {
    "diverged": "diverged steps",
    "no_value": "values undefined",
    "undefined": "classes never learned",
    "unmeasured": "classes not measured",
}


class Notation(Protocol):
    """How one kind of document writes what is in a cell."""

    missing: str

    def text(self, text: str) -> str:
        """Text of any origin, to be read as it is."""

    def strong(self, text: str) -> str: ...

    def symbol(self, statistic: str) -> str:
        """Of a statistic, or of a column of an ANOVA; empty for a plain value."""

    def estimate(self, row: Row) -> str:
        """Mean and standard deviation with their intervals, as far as they are known."""

    def number(self, value: float) -> str: ...

    def difference(self, value: float) -> str:
        """A number with its sign."""

    def probability(self, p: float) -> str: ...


@dataclass(frozen=True)
class Cell:
    text: str
    span: int = 1


@dataclass(frozen=True)
class Line:
    role: Role
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Layout:
    """`columns` has a letter for each: l, c or r. An empty table has no columns and no lines."""

    columns: str
    lines: tuple[Line, ...]


def lay_out(label: str, frame: pd.DataFrame, notation: Notation) -> Layout:
    if frame.empty:
        return Layout("", ())
    arrange = {"anova": _anova, "overall": _overall}.get(TABLES[label].layout, _grid)
    return arrange(frame, notation)


def caption(label: str, frame: pd.DataFrame) -> str:
    """What a table shows, what it rests on and what was left out; plain text."""
    description = TABLES[label]
    parts = [f"{description.title}."]
    if description.layout == "anova":
        kind = "treatment" if len(frame) and frame["coding"].iloc[0] == "treatment" else "sum-to-zero"
        parts.append(f"Type-III two-way ANOVA, HC3, {kind} coding of factors.")
    elif description.layout in ("overall", "grid", "controlled"):
        parts.append("Mean ± standard deviation" + (" with 95\u202f% intervals." if description.intervals else "."))
    if len(frame) and frame["simulated"].any():
        parts.append("Simulated: nothing was trained.")
    lost = {words: int(frame[name].max()) for name, words in LOST.items()} if len(frame) else {}
    if any(lost.values()):
        parts.append(f"Left out at most, per entry: {', '.join(f'{n} {words}' for words, n in lost.items() if n)}.")
    return " ".join(parts)


def lay_out_beside(label: str, frame: pd.DataFrame, beside: pd.DataFrame, notation: Notation) -> Layout:
    """A line for each estimate that the paper prints too. beside: of `beside_paper`, with a row for each of the table's."""
    both = pd.concat([frame, beside], axis=1).dropna(subset="paper")
    anova, grid = TABLES[label].layout == "anova", bool(both["class_pct"].ne("").any())
    overlap = bool(both["overlap"].ne("").any())
    keys = ("Retention", "New classes", "") if grid else ("Factor", "") if anova else ("",)
    symbol, p = (f"{notation.symbol(name)} " if anova else "" for name in ("eta2p", "p"))
    columns = [f"{symbol}ours", f"{symbol}paper", "ours " + notation.text("−") + " paper"]
    columns += [f"{p}ours", f"{p}paper"] if anova else ["intervals overlap"] if overlap else []
    lines = [_line("head", *keys, *columns)]
    width = len(keys) + len(columns)
    for heading, group in _groups(both, notation, width):
        lines.append(heading)
        for subset, rows in group.groupby("subset", sort=False):
            lines.append(Line("step", (Cell(_subset(notation, str(subset)), width),)))
            for row in records(rows):
                compared = _compared_tests(notation, row) if anova else _compared_means(notation, row, overlap)
                lines.append(_line("row", *_beside_keys(notation, row, grid, anova), *compared))
    return Layout("l" * len(keys) + "c" * len(columns), tuple(lines))


def caption_beside(label: str, frame: pd.DataFrame, beside: pd.DataFrame) -> str:
    """What is compared, and in how many places intervals overlap; plain text."""
    description = TABLES[label]
    parts = [f"Ours beside what the paper prints: {description.title}."]
    if description.layout == "anova":
        parts += ["Partial eta squared is compared."] + ([CODING] if frame["coding"].eq("sum").any() else [])
    elif description.layout != "weights":
        known = beside["overlap"].ne("")
        parts.append("Mean ± standard deviation" + (" (95\u202f% interval of the mean)." if known.any() else "."))
        if known.any():
            parts.append(f"{beside['overlap'].eq('yes').sum()} of {known.sum()} pairs of intervals overlap.")
    if frame["simulated"].any():
        parts.append("Simulated: nothing was trained.")
    return " ".join(parts)


def _overall(frame: pd.DataFrame, notation: Notation) -> Layout:
    columns = _distinct(frame, "quantity", "statistic")
    lines = [_line("head", "", *(_name(notation, *column) for column in columns))]
    for heading, group in _groups(frame, notation, len(columns) + 1):
        lines.append(heading)
        for subset, rows in group.groupby("subset", sort=False):
            cells = {(row["quantity"], row["statistic"]): notation.estimate(row) for row in records(rows)}
            lines.append(_line("row", _subset(notation, str(subset)), *(cells.get(c, notation.missing) for c in columns)))
    return Layout("l" + "c" * len(columns), tuple(lines))


def _grid(frame: pd.DataFrame, notation: Notation) -> Layout:
    increments = sorted(frame["class_pct"].unique(), key=lambda level: (level == POOLED, _size(level)))
    lines = [_line("head", "Retention", "", *(_share(notation, level, " classes") for level in increments))]
    for heading, group in _groups(frame, notation, len(increments) + 2):
        lines.append(heading)
        for step, part in group.groupby("subset", sort=False):
            lines.append(Line("step", (Cell(_subset(notation, str(step)), len(increments) + 2),)))
            for (kept, quantity, statistic), rows in part.groupby(["rehearsal_pct", "quantity", "statistic"], sort=False):
                cells = {row["class_pct"]: notation.estimate(row) for row in records(rows)}
                names = (_share(notation, str(kept)), _name(notation, str(quantity), str(statistic)))
                lines.append(_line("row", *names, *(cells.get(level, notation.missing) for level in increments)))
    return Layout("ll" + "c" * len(increments), tuple(lines))


def _anova(frame: pd.DataFrame, notation: Notation) -> Layout:
    columns = _distinct(frame, "quantity", "response")
    titles = (Cell(_name(notation, quantity, "" if r == quantity else r), 3) for quantity, r in columns)
    symbols = [notation.symbol(name) for name in ("F", "p", "eta2p")]
    lines = [Line("head", (Cell(""), Cell(""), *titles)), _line("head", "", "", *symbols * len(columns))]
    for heading, group in _groups(frame, notation, 3 * len(columns) + 2):
        lines.append(heading)
        for (subset, factor), rows in group.groupby(["subset", "factor"], sort=False):
            cells = {(row["quantity"], row["response"]): _test(notation, row) for row in records(rows)}
            name = _subset(notation, str(subset)) if factor == "rehearsal" else ""
            numbers = (text for column in columns for text in cells.get(column, (notation.missing,) * 3))
            lines.append(_line("row", name, FACTORS[str(factor)], *numbers))
    return Layout("ll" + "rrr" * len(columns), tuple(lines))


def _test(notation: Notation, row: Row) -> tuple[str, str, str]:
    return notation.number(row["F"]), notation.probability(row["p"]), notation.number(row["eta2p"])


def _beside_keys(notation: Notation, row: Row, grid: bool, anova: bool) -> tuple[str, ...]:
    if anova:
        response = "" if row["response"] == row["quantity"] else row["response"]
        return FACTORS[row["factor"]], _name(notation, row["quantity"], response)
    name = _name(notation, row["quantity"], row["statistic"])
    return (_share(notation, row["rehearsal_pct"]), _share(notation, row["class_pct"]), name) if grid else (name,)


def _compared_means(notation: Notation, row: Row, overlap: bool) -> tuple[str, ...]:
    ours = _mean(notation, row["mean"], row["sd"], row["mean_lo"], row["mean_hi"])
    paper = _mean(notation, row["paper"], row["paper_sd"], row["paper_lo"], row["paper_hi"])
    return (ours, paper, notation.difference(row["difference"]), *([row["overlap"] or notation.missing] if overlap else []))


def _compared_tests(notation: Notation, row: Row) -> tuple[str, ...]:
    sizes = notation.number(row["eta2p"]), notation.number(row["paper"]), notation.difference(row["difference"])
    return (*sizes, notation.probability(row["p"]), notation.probability(row["paper_p"]))


def _mean(notation: Notation, mean: float, sd: float, low: float, high: float) -> str:
    spread = "" if math.isnan(sd) else f" {notation.text('±')} {notation.number(sd)}"
    interval = "" if math.isnan(low) else f" ({notation.number(low)}, {notation.number(high)})"
    return f"{notation.number(mean)}{spread}{interval}"


def _groups(frame: pd.DataFrame, notation: Notation, columns: int) -> Iterable[tuple[Line, pd.DataFrame]]:
    for _, group in frame.groupby(["benchmark", "policy"], sort=False):
        yield Line("benchmark", (Cell(notation.strong(notation.text(benchmark_title(group))), columns),)), group


def benchmark_title(frame: pd.DataFrame) -> str:
    """Of the benchmark and policy that all rows have in common; the usual policy is not worth a word."""
    benchmark, policy = str(frame["benchmark"].iloc[0]), str(frame["policy"].iloc[0])
    return benchmark if policy == "uniform" else f"{benchmark}, {policy}"


def _distinct(frame: pd.DataFrame, first: str, second: str) -> list[tuple[str, str]]:
    return list(dict.fromkeys(zip(frame[first].astype(str), frame[second].astype(str), strict=True)))


def _subset(notation: Notation, label: str) -> str:
    step, *increments = label.split("_")
    restricted = f", increments {', '.join(increments)}\u202f%" if increments else ""
    return notation.text(f"step {step}{restricted}")


def _share(notation: Notation, level: str, what: str = "") -> str:
    if level == POOLED:
        return notation.strong("Pooled")
    return notation.text(share_text(level).removesuffix(what) + what)


def share_text(level: str) -> str:
    """A level of increment or retention: a percentage, or what it says."""
    return f"{level}\u202f%" if math.isfinite(_size(level)) else level


def signed(difference: float) -> str:
    """`+0.05`, and plain 0.00 for what rounds to it."""
    text = f"{difference:+.2f}"
    return text[1:] if float(text) == 0 else text


def _size(level: str) -> float:
    return float(level) if level.replace(".", "", 1).isdigit() else math.inf


def _name(notation: Notation, quantity: str, statistic: str) -> str:
    return f"{notation.text(NAMES.get(quantity, quantity))} {notation.symbol(statistic)}".strip()


def _line(role: Role, *cells: str) -> Line:
    return Line(role, tuple(map(Cell, cells)))
