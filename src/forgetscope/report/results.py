"""An analysis as files: tidy CSV and Parquet, LaTeX, and a JSON document."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import RenderableType

from forgetscope.analysis.paper import TABLES
from forgetscope.analysis.results import Analysis
from forgetscope.analysis.tabulation import records
from forgetscope.files import told
from forgetscope.report.latex import latex_document, latex_table, table_inputs
from forgetscope.report.tables import make_table, titled


def write_analysis(analysis: Analysis, folder: str | Path) -> Path:
    """`tables/`, `figures/` and `more/`, a CSV and a Parquet file each; tables also as LaTeX, with `tables.tex` for all."""
    folder = Path(folder)
    with told(folder):
        for part, frames in (("tables", analysis.tables), ("figures", analysis.figures), ("more", analysis.more)):
            (folder / part).mkdir(parents=True, exist_ok=True)
            for label, frame in frames.items():
                frame.to_csv(folder / part / f"{label}.csv", index=False)
                frame.to_parquet(folder / part / f"{label}.parquet", index=False)
        for label, frame in analysis.tables.items():
            (folder / "tables" / f"{label}.tex").write_text(latex_table(label, frame), encoding="utf-8")
        (folder / "tables.tex").write_text(latex_document(table_inputs(analysis.tables)), encoding="utf-8")
    return folder


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
