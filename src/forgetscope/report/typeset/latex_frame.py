"""Any frame as a LaTeX table, a column for each of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from forgetscope.report.typeset.latex import escaped

LONG = 60  # characters of a text that is broken into lines


def latex_frame(label: str, title: str, frame: pd.DataFrame) -> str:
    """One `table` environment; it needs booktabs and graphicx."""
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) and not pd.api.types.is_bool_dtype(frame[name]) for name in frame]
    rows = [
        _line(_number(value) if is_number else escaped(str(value)) for value, is_number in zip(row, numeric, strict=True))
        for row in frame.itertuples(index=False)
    ]
    columns = "".join("r" if is_number else _text_column(frame[name]) for name, is_number in zip(frame, numeric, strict=True))
    head = _line(escaped(str(name).replace("_", " ")) for name in frame)
    lines = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", head, "\\midrule", *rows, "\\bottomrule", "\\end{tabular}"]
    inner = "\n".join(lines)
    caption = f"\\caption{{{escaped(title)}.}}\n\\label{{tab:{label}}}"
    return f"\\begin{{table}}[htbp]\n\\centering\n{caption}\n\\resizebox{{\\linewidth}}{{!}}{{%\n{inner}}}\n\\end{{table}}\n"


def _text_column(texts: pd.Series[str]) -> str:
    return "p{9cm}" if len(texts) and texts.astype(str).str.len().max() > LONG else "l"


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _number(value: float) -> str:
    return "--" if math.isnan(value) else f"${value:.4g}$"
