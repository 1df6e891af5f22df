"""An analysis as files: tidy CSV and Parquet, LaTeX, and a JSON document."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import RenderableType

from forgetscope.analysis.paper.descriptions import TABLES
from forgetscope.analysis.paper.tables import records
from forgetscope.analysis.results import Analysis
from forgetscope.outputs import writing_folder
from forgetscope.report.terminal.tables import make_table, titled
from forgetscope.report.typeset.latex import latex_document, latex_table, table_inputs

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # how a formula begins
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def write_analysis(analysis: Analysis, folder: str | Path) -> Path:
    """`tables/`, `figures/` and `more/`, a CSV and a Parquet file each; tables also as LaTeX, with `tables.tex` for all."""
    folder = Path(folder)
    with writing_folder(folder, "--out") as building:
        (building / "tables.tex").write_text(latex_document(table_inputs(analysis.tables)), encoding="utf-8")
        for part, frames in (("tables", analysis.tables), ("figures", analysis.figures), ("more", analysis.more)):
            (building / part).mkdir()
            for label, frame in frames.items():
                inert(frame).to_csv(building / part / f"{label}.csv", index=False)
                frame.to_parquet(building / part / f"{label}.parquet", index=False)
        for label, frame in analysis.tables.items():
            (building / "tables" / f"{label}.tex").write_text(latex_table(label, frame), encoding="utf-8")
    return folder


def inert(frame: pd.DataFrame) -> pd.DataFrame:
    """For a CSV file: texts that a spreadsheet would take for a formula begin with an apostrophe; numbers stay numbers."""
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.assign(**{name: frame[name].map(_inert) for name in texts})


def _inert(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    formula = value.startswith(FORMULAS) and not NUMBER.fullmatch(value)
    # Python writes a carriage return without quotes, and what follows it would be a line, and a cell, of its own.
    return f"{chr(39) * formula}{value}".replace("\r", "\n")


def analysis_document(analysis: Analysis) -> dict[str, Any]:
    """Everything but the figures, as plain values; missing numbers are null."""
    return {
        "store": str(analysis.store),
        "coding": analysis.coding,
        "resamples": analysis.resamples,
        "reading": analysis.reading.splitlines(),
        "tables": {label: rows_of(frame) for label, frame in analysis.tables.items()},
        "more": {label: rows_of(frame) for label, frame in analysis.more.items()},
    }


def table_view(label: str, frame: pd.DataFrame) -> RenderableType:
    """One table for a terminal: the columns that say something, as they are in its file."""
    shown = [name for name in frame.columns if name != "table" and not _empty(frame[name])]
    texts = [name for name in shown if not pd.api.types.is_numeric_dtype(frame[name])]
    table = make_table(texts, [name for name in shown if name not in texts])
    for row in records(frame):
        table.add_row(*(str(row[name]) for name in texts), *(_text(row[name]) for name in shown if name not in texts))
    title = TABLES[label].title if label in TABLES else label
    return titled(title, table, *([] if len(frame) else ["Nothing in the store belongs here."]))


def _empty(column: pd.Series[Any]) -> bool:
    return bool((column.isna() | (column.astype(str) == "") | (column.astype(str) == "False")).all()) and len(column) > 0


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3g}"
    return str(value)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{name: _plain(value) for name, value in row.items()} for row in records(frame)]


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
