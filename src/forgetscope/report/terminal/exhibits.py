"""One table on a terminal: the columns that say something, as they are in its file."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.console import RenderableType

from forgetscope.analysis.paper.tables import records
from forgetscope.report.exhibited import Shown
from forgetscope.report.terminal.tables import make_table, titled
from forgetscope.report.words.captions import EMPTY
from forgetscope.report.words.notation import PLAIN


def exhibit_view(shown: Shown) -> RenderableType:
    frame = shown.frame
    columns = [name for name in frame.columns if name != "table" and not _empty(frame[name])]
    texts = [name for name in columns if not pd.api.types.is_numeric_dtype(frame[name])]
    numbers = [name for name in columns if name not in texts]
    table = make_table(texts, numbers)
    for row in records(frame):
        table.add_row(*(str(row[name]) for name in texts), *(_text(row[name]) for name in numbers))
    return titled(shown.exhibit.title, table, *([] if len(frame) else [EMPTY]))


def _empty(column: pd.Series[Any]) -> bool:
    return bool((column.isna() | (column.astype(str) == "") | (column.astype(str) == "False")).all()) and len(column) > 0


def _text(value: Any) -> str:
    return PLAIN.significant(value) if isinstance(value, float) else str(value)
