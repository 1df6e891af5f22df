"""The tables of a store with their columns, and those that SQL sees, from the schema."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from forgetscope.store.columns import StoreColumn
from generating.marking import code, prose, table


def files(which: str) -> str:
    """which: tables, of steps; or sql."""
    return "\n".join(_tables() if which == "tables" else _sql())


def _tables() -> Iterator[str]:
    from forgetscope.store.columns import TABLES

    for name, one in TABLES.items():
        yield f"### {name}.parquet\n"
        asked = f" Only with {prose(one.asked)}." if one.asked else ""
        yield f"A row is of {prose(one.row)}.{asked} {prose(one.note)}\n"
        yield table(["column", "type", "unit", "meaning"], [_column(*its) for its in one.columns.items()])


def _column(name: str, its: StoreColumn) -> list[str]:
    asked = f"; only with {code(its.asked)}" if its.asked else ""
    return [code(name), _type(its.type), its.unit, prose(its.meaning) + asked]


def _sql() -> Iterator[str]:
    from forgetscope.housekeeping.sql import TABLES
    from forgetscope.store.columns import SCHEMAS

    of_files = {str(name): columns for name, columns in SCHEMAS.items()} | {"calibrated": SCHEMAS["calibration"]}
    rows = []
    for name, schema in TABLES.items():
        known = of_files.get(name.removeprefix("observed_"), {})
        own = ", ".join(code(column) for column in schema.names if column not in known)
        rows.append([code(name), f"{own}, then those of the file" if known else own])
    yield table(["table", "columns"], rows)


def _type(type: pa.DataType) -> str:
    return f"list of {type.value_type}" if pa.types.is_list(type) else str(type)
