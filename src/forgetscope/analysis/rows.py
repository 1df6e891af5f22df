"""Rows of tidy frames."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from forgetscope.analysis.statistics.estimates import Estimate

Row = dict[str, Any]


def records(frame: pd.DataFrame) -> list[Row]:
    """Its rows, by column."""
    columns = [frame[name].tolist() for name in frame.columns]  # many times faster than pandas' own for a few rows
    return [dict(zip(map(str, frame.columns), row, strict=True)) for row in zip(*columns, strict=True)]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by their values of these columns, in the order in which these first come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def matching(frame: pd.DataFrame, **keys: object) -> pd.DataFrame:
    """The rows in which these columns have these values."""
    chosen = np.ones(len(frame), bool)
    for name, value in keys.items():
        chosen &= (frame[name] == value).to_numpy()
    return frame[chosen]


def estimate_of(row: Row, of: str) -> Estimate:
    """A number of a row with its interval, where the row has one."""
    low, high = (f"{of}_lo", f"{of}_hi") if f"{of}_lo" in row else ("low", "high")
    return Estimate(float(row[of]), float(row.get(low, np.nan)), float(row.get(high, np.nan)), int(row["n"]))
