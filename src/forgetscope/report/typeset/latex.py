"""The paper's tables as LaTeX, laid out as in the paper: booktabs, one file per table, and documents that show them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from forgetscope.report.typeset.layout import (
    EMPTY,
    Cell,
    Layout,
    Line,
    caption,
    caption_beside,
    lay_out,
    lay_out_beside,
    signed,
)

SYMBOLS = {
    "rho": r"$\rho$",
    "rho_p": r"$\rho_p$",
    "rho_p_SIC": r"$\rho_p^{\mathrm{SIC}}$",
    "rho_p_CIC": r"$\rho_p^{\mathrm{CIC}}$",
    "rho-rho_p": r"$\rho - \rho_p$",
    "mae": "MAE",
    "value": "",
    "F": "$F$",
    "p": "$p$",
    "eta2p": r"$\eta_p^2$",
}
SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "ρ": r"$\rho$",
    "ₚ": "$_p$",
    "−": "$-$",
    "–": "--",
    "’": "'",
    "\u202f": r"\,",
}
BESIDE = "_beside_paper"  # ends the name of a table that compares
TALLEST = 600.0  # points: what a page holds below a caption
FITTING = r"\ifdim\width>\linewidth\linewidth\else\width\fi"  # as wide as the text, but never enlarged
PREAMBLE = r"""\documentclass{article}
\usepackage{booktabs}
\usepackage{graphicx}
\textwidth=17cm \oddsidemargin=-0.5cm \textheight=24cm \topmargin=-1.5cm
\setlength{\belowcaptionskip}{6pt}
"""


def latex_document(body: str) -> str:
    """A whole document; what it needs is part of every basic installation, and its fonts are outlines."""
    return f"{PREAMBLE}\\begin{{document}}\n{body}\n\\end{{document}}\n"


def table_inputs(labels: Iterable[str]) -> str:
    """Includes the files of these tables, from the folder `tables` beside the document."""
    return "\n".join(f"\\input{{tables/{label}.tex}}" for label in labels) + "\n\\clearpage"


def latex_table(label: str, frame: pd.DataFrame) -> str:
    """A `table` environment, or several where a page cannot hold all benchmarks; they need booktabs and graphicx."""
    return _floats(label, caption(label, frame), lay_out(label, frame, LatexNotation()))


def latex_beside(label: str, frame: pd.DataFrame, beside: pd.DataFrame) -> str:
    """The same with a line for each estimate that the paper prints too, ours beside it."""
    layout = lay_out_beside(label, frame, beside, LatexNotation())
    return _floats(f"{label}{BESIDE}", caption_beside(label, frame, beside), layout)


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is; a character that its fonts may lack is named by its number."""
    return "".join(SPECIAL.get(c, c if c.isascii() and c.isprintable() else f"U+{ord(c):04X}") for c in text)


class LatexNotation:
    missing = "--"

    def text(self, text: str) -> str:
        return escaped(text)

    def strong(self, text: str) -> str:
        return f"\\textbf{{{text}}}"

    def symbol(self, statistic: str) -> str:
        return SYMBOLS.get(statistic, escaped(statistic))

    def number(self, value: float) -> str:
        return self.missing if math.isnan(value) else f"${value:.2f}$"

    def difference(self, value: float) -> str:
        return f"${signed(value)}$"

    def estimate(self, row: dict[str, Any]) -> str:
        """Intervals stand in a second line, so that six columns remain readable on a page."""
        spread = "" if math.isnan(row["sd"]) else f" $\\pm$ {self.number(row['sd'])}"
        intervals = (self._interval(row[f"{name}_lo"], row[f"{name}_hi"]) for name in ("mean", "sd"))
        below = " $\\pm$ ".join(interval for interval in intervals if interval)
        above = self.number(row["mean"]) + spread
        return f"\\begin{{tabular}}{{@{{}}c@{{}}}}{above} \\\\[-3pt] {{\\tiny {below}}}\\end{{tabular}}" if below else above

    def probability(self, p: float) -> str:
        if math.isnan(p):
            return self.missing
        mantissa, exponent = f"{p:.2e}".split("e")
        return f"${mantissa}$" if exponent == "+00" else f"${mantissa} \\cdot 10^{{{int(exponent)}}}$"

    def _interval(self, low: float, high: float) -> str:
        return "" if math.isnan(low) or math.isnan(high) else f"({self.number(low)}, {self.number(high)})"


def _floats(label: str, text: str, layout: Layout) -> str:
    first, *others = _parts(layout)
    continued = (_float(f"{label}-{i}", f"{text} Continued.", part) for i, part in enumerate(others, start=2))
    return "\n".join([_float(label, text, first), *continued])


def _float(label: str, text: str, layout: Layout) -> str:
    inner = "\n".join(_tabular(layout)) if layout.lines else EMPTY
    boxed = f"\\resizebox{{{FITTING}}}{{!}}{{%\n{inner}}}" if layout.lines else inner
    above = f"\\caption{{{escaped(text)}}}\n\\label{{tab:{label}}}"
    return f"\\begin{{table}}[htbp]\n\\centering\n{above}\n\\footnotesize\n{boxed}\n\\end{{table}}\n"


def _parts(layout: Layout) -> list[Layout]:
    """Cut before benchmarks, so that each part fits on a page; every part has the head."""
    head = [line for line in layout.lines if line.role == "head"]
    parts, part, height = [], list(head), 0.0
    for group in _by_benchmark(layout.lines[len(head) :]):
        own = sum(map(_height, group))
        if height and height + own > TALLEST:
            parts.append(part)
            part, height = list(head), 0.0
        part += group
        height += own
    return [Layout(layout.columns, tuple(lines)) for lines in (*parts, part)]


def _by_benchmark(lines: Iterable[Line]) -> list[list[Line]]:
    groups: list[list[Line]] = []
    for line in lines:
        if line.role == "benchmark":
            groups.append([])
        groups[-1].append(line)
    return groups


def _height(line: Line) -> float:
    """Points, of a line that is not shrunk to fit the width."""
    double = any("\\begin{tabular}" in cell.text for cell in line.cells)
    return 20.0 if line.role != "row" else 17.0 if double else 10.0


def _tabular(layout: Layout) -> Iterator[str]:
    yield f"\\begin{{tabular}}{{{layout.columns}}}\n\\toprule"
    for line in layout.lines:
        text = _line(*map(_cell, line.cells))
        if line.role == "benchmark":
            yield f"\\midrule\n{text}\n\\midrule"
        else:
            yield f"\\addlinespace\n{text}\n\\midrule" if line.role == "step" else text
    yield "\\bottomrule\n\\end{tabular}"


def _cell(cell: Cell) -> str:
    return cell.text if cell.span == 1 else f"\\multicolumn{{{cell.span}}}{{c}}{{{cell.text}}}"


def _line(*cells: str) -> str:
    return " & ".join(cells) + r" \\"
