"""Ad hoc questions in SQL over the tables of all steps. Everything that knows DuckDB is here.

The database is in memory and sees verified tables only: a query can neither read nor write a file.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TypeVar, cast

import duckdb
import pyarrow as pa

from forgetscope.errors import SpecError
from forgetscope.store import (
    ALL_TABLES,
    Store,
    StoredObserved,
    StoredStep,
    StoredTables,
    TableName,
    TellLeftOut,
    calibrations_of,
    leaving_out,
)
from forgetscope.store.columns import SCHEMAS
from forgetscope.store.observed import ALL_OBSERVED_TABLES, PROBING

Step = TypeVar("Step")
_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()


def _recorded(name: str) -> Callable[[StoredTables], object]:
    return lambda step: step.info[name]


def _if_set(name: str) -> Callable[[StoredTables], object]:
    return lambda step: step.info.get(name)


_FACTS: dict[str, tuple[pa.DataType, Callable[[StoredStep], object]]] = {
    "id": (_TEXT, lambda step: step.id),
    "parent": (_TEXT, lambda step: step.parent),
    "step": (_WHOLE, lambda step: step.spec.step),
    "seed": (_WHOLE, lambda step: step.spec.seed),
    "status": (_TEXT, lambda step: step.info["status"]),
    "dataset": (_TEXT, lambda step: step.info["data"]["name"]),
    "network": (_TEXT, lambda step: step.info["network"]),
    "policy": (_TEXT, lambda step: getattr(step.spec.rehearsal, "policy", None)),  # a first step has none
    "method": (_TEXT, lambda step: (step.spec.rehearsal.method or "replay") if step.spec.rehearsal else None),
    "retention": (_NUMBER, lambda step: getattr(step.spec.rehearsal, "retention", None)),
    "memory": (_WHOLE, lambda step: getattr(step.spec.rehearsal, "memory", None)),
    "memory_bytes": (_WHOLE, lambda step: getattr(step.spec.rehearsal, "memory_bytes", None)),
    "quota": (_TEXT, lambda step: (step.spec.rehearsal.quota or "balanced") if step.spec.rehearsal else None),
    "alpha": (_NUMBER, lambda step: getattr(step.spec.rehearsal, "alpha", None)),
    "epochs": (_WHOLE, lambda step: step.spec.training.epochs),
    "classes": (_WHOLE, lambda step: len(step.spec.classes)),
    "device": (_TEXT, lambda step: step.info["environment"].get("device")),
    "threads": (_WHOLE, lambda step: step.info["environment"].get("threads")),
    "seconds": (_NUMBER, lambda step: step.info["timings"].get("seconds")),
    "committed": (_TEXT, lambda step: step.info["committed"]),
    "simulated": (pa.bool_(), lambda step: step.simulated is not None),
}
_SEEN: dict[str, tuple[pa.DataType, Callable[[StoredObserved], object]]] = {
    "id": (_TEXT, lambda step: step.id),
    "monitor": (_TEXT, lambda step: step.name),
    "step": (_WHOLE, lambda step: step.number),
    **{name: (_TEXT, _recorded(name)) for name in ("status", "reason", "network")},
    "head_nodes": (_WHOLE, _recorded("head_nodes")),
    "alpha": (_NUMBER, _recorded("alpha")),
    **{name: (_TEXT, _recorded(name)) for name in ("alpha_from", "past")},
    "epochs": (_WHOLE, _recorded("epochs")),
    **{name: (_WHOLE, _if_set(name)) for name in PROBING},
    "settings": (_TEXT, lambda step: json.dumps(step.settings, ensure_ascii=False)),
    "device": (_TEXT, lambda step: step.info["environment"].get("device")),
    "seconds": (_NUMBER, lambda step: step.info["timings"].get("seconds")),
    "committed": (_TEXT, _recorded("committed")),
}
_IN_FRONT = [("step_id", pa.string()), ("step", pa.int64())]
_CALIBRATED = [*_IN_FRONT, ("calibration", pa.string())]
_OBSERVED: dict[str, TableName] = {f"observed_{name}": name for name in ALL_OBSERVED_TABLES}
TABLES: dict[str, pa.Schema] = {
    "steps": pa.schema([(name, type) for name, (type, _) in _FACTS.items()]),
    **{name: pa.schema([*_IN_FRONT, *SCHEMAS[name].items()]) for name in ALL_TABLES},
    "calibrated": pa.schema([*_CALIBRATED, *SCHEMAS["calibration"].items()]),
    "observed": pa.schema([(name, type) for name, (type, _) in _SEEN.items()]),
    **{called: pa.schema([*_IN_FRONT, *SCHEMAS[name].items()]) for called, name in _OBSERVED.items()},
}
_LISTING = re.compile(r"\s*(SHOW(\s+ALL)?\s+TABLES|SHOW|DESCRIBE|DESC)\s*;?\s*", re.IGNORECASE)
_CLOSED = {
    "enable_external_access": "false",  # no files, no network, no extensions
    "python_enable_replacements": "false",  # a name in a query never means a variable of this program
    "temp_directory": "",  # nothing spills to disk
    "lock_configuration": "true",  # and no query can open any of it again
}


def query(store: Store, text: str, left_out: TellLeftOut | None = None) -> pa.Table:
    """The answer to one SQL query over the view `steps` and one of each table that a step can have, over `calibrated`, the
    tables of their calibrations, and over those of observed steps, `observed` and `observed_...`, which are never among the
    others.

    Only the tables that the query names are read. left_out: is told of damaged steps; without it, the first is an error.
    Raises SpecError for a query that DuckDB does not accept."""
    with duckdb.connect(":memory:", config=dict(_CLOSED)) as database:
        try:
            if len(database.extract_statements(text)) != 1:
                raise SpecError(f"One SQL query is needed, for example {EXAMPLE!r}; this was {text!r}.")
            named = _named_tables(database, text)
            for name, columns in TABLES.items():
                if name in named:
                    database.register(name, _view(store, name, left_out))
                elif _LISTING.fullmatch(text):  # asks for names, so nothing needs to be read
                    database.register(name, columns.empty_table())
            answer = database.sql(text)
            table: pa.Table | None = None if answer is None else answer.to_arrow_table()
        except duckdb.Error as error:
            reason = " ".join(str(error).split("\n\nLINE ")[0].split())
            reason += "" if reason.endswith((".", "?")) else "."
            raise SpecError(f"DuckDB does not accept the query: {reason} {_HINT}") from None
    if table is None:
        raise SpecError(f"The query gives no rows to show. {_HINT}")
    return table


def rows(answer: pa.Table) -> list[dict[str, object]]:
    """The rows of an answer as JSON has them; of columns with the same name, later ones get a number."""
    names = [
        f"{name}_{again}" if (again := answer.column_names[:i].count(name)) else name
        for i, name in enumerate(answer.column_names)
    ]
    columns = [column.to_pylist() for column in answer.columns]
    return [dict(zip(names, map(_json_value, row), strict=True)) for row in zip(*columns, strict=True)]


EXAMPLE = "SELECT step, avg(forgetting) FROM classes GROUP BY step ORDER BY step"
_HINT = f"The tables are {', '.join(TABLES)}; `DESCRIBE classes` lists a table's columns."


def _named_tables(database: duckdb.DuckDBPyConnection, text: str) -> set[str]:
    """The tables that a query refers to, or may refer to, in lower case."""
    ((serialised,),) = database.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()  # all: it must be done
    tree = json.loads(serialised)
    # DuckDB serialises plain queries only; of PIVOT or EXPLAIN any word may be a table.
    names = re.findall(r"\w+", text) if tree["error"] else _table_names(tree)
    return {name.lower() for name in names}


def _table_names(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(name := node.get("table_name"), str):
            yield name
        for value in node.values():
            yield from _table_names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _table_names(value)


def _view(store: Store, name: str, left_out: TellLeftOut | None) -> pa.Table:
    if name == "steps":
        return _facts_view(store.readable(left_out), _FACTS)
    if name == "observed":
        return _facts_view(store.readable_observed(left_out), _SEEN)
    if name == "calibrated":
        return _calibrated_view(store, left_out)
    if name in _OBSERVED:
        return _table_view(store.readable_observed(left_out), _OBSERVED[name], left_out)
    return _table_view(store.readable(left_out), cast(TableName, name), left_out)


def _facts_view(steps: Sequence[Step], facts: Mapping[str, tuple[pa.DataType, Callable[[Step], object]]]) -> pa.Table:
    rows = [{name: _held(of(step), type) for name, (type, of) in facts.items()} for step in steps]
    return pa.Table.from_pylist(rows, pa.schema([(name, type) for name, (type, _) in facts.items()]))


def _table_view(steps: Sequence[StoredStep | StoredObserved], name: TableName, left_out: TellLeftOut | None) -> pa.Table:
    """One table of all steps, with `step_id` and `step` in front; columns that a step lacks are missing there."""
    parts = [pa.schema(_IN_FRONT).empty_table()]
    for step in steps:
        with leaving_out(left_out):
            if step.has(name):
                parts.append(_in_front(step.table(name), (step.id, step.number), _IN_FRONT))
    return pa.concat_tables(parts, promote_options="permissive")


def _in_front(table: pa.Table, values: Sequence[object], columns: Sequence[tuple[str, pa.DataType]]) -> pa.Table:
    """The table behind columns that say the same in every row."""
    for (column, type), value in reversed([*zip(columns, values, strict=True)]):
        table = table.add_column(0, column, pa.array([value] * len(table), type))
    return table


def _calibrated_view(store: Store, left_out: TellLeftOut | None) -> pa.Table:
    parts = [TABLES["calibrated"].empty_table()]  # so that a store without any has the columns
    for step in store.readable(left_out):
        for one in calibrations_of(store, step, left_out):
            with leaving_out(left_out):
                _ = one.table("classes")  # which holds its own against its step's
                parts.append(_in_front(one.table("calibration"), (step.id, step.number, one.calibration), _CALIBRATED))
    return pa.concat_tables(parts, promote_options="permissive")


def _held(value: object, type: pa.DataType) -> object:
    """A value, or a missing one where a column cannot hold it: seeds could once be larger than 64 bits."""
    if pa.types.is_integer(type):
        return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None
    if pa.types.is_string(type):
        return None if value is None else str(value)
    return value


def _json_value(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):  # sums of integers are
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
