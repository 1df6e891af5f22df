"""An analysis as files to go on with: tidy CSV and Parquet, and LaTeX."""

import re
from pathlib import Path
from typing import Any

import pandas as pd

from forgetscope.analysis.observed import ObservedAnalysis
from forgetscope.analysis.results import Analysis
from forgetscope.outputs import writing_folder
from forgetscope.report.exhibited import exhibited
from forgetscope.report.typeset.latex import latex_document, latex_table, table_inputs

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # how a formula begins
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def write_analysis(analysis: Analysis, folder: str | Path) -> Path:
    """`tables/`, `figures/` and `more/`, a CSV and a Parquet file each; tables also as LaTeX, with `tables.tex` for all."""
    folder = Path(folder)
    with writing_folder(folder, "--out") as building:
        (building / "tables.tex").write_text(latex_document(table_inputs(analysis.tables)), encoding="utf-8")
        for part in ("tables", "figures", "more"):
            (building / part).mkdir()
        for shown in exhibited(analysis):
            file = str(building / shown.exhibit.part / shown.exhibit.label)
            inert(shown.frame).to_csv(f"{file}.csv", index=False)
            shown.frame.to_parquet(f"{file}.parquet", index=False)
            if shown.exhibit.kind == "table":
                Path(f"{file}.tex").write_text(latex_table(shown), encoding="utf-8")
    return folder


def write_observed(analysis: ObservedAnalysis, folder: str | Path) -> Path:
    """`observed/`, a CSV and a Parquet file of each table."""
    folder = Path(folder)
    with writing_folder(folder, "--out") as building:
        (building / "observed").mkdir()
        for label, frame in analysis.tables.items():
            inert(frame).to_csv(building / "observed" / f"{label}.csv", index=False)
            frame.to_parquet(building / "observed" / f"{label}.parquet", index=False)
    return folder


def inert(frame: pd.DataFrame) -> pd.DataFrame:
    """For a CSV file: texts that a spreadsheet would take for a formula begin with an apostrophe; numbers stay numbers."""
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    active = [name for name in texts if any(_inert(value) != value for value in frame[name].unique())]
    return frame.assign(**{name: frame[name].map(_inert) for name in active})


def _inert(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    formula = value.startswith(FORMULAS) and not NUMBER.fullmatch(value)
    # Python writes a carriage return without quotes, and what follows it would be a line, and a cell, of its own.
    return f"{chr(39) * formula}{value}".replace("\r", "\n")
