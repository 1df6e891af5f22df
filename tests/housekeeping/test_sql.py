"""SQL sees every table of every step, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from forgetscope.errors import DamagedStep, SpecError
from forgetscope.housekeeping.sql import query, rows
from forgetscope.store import TABLES, Store


@pytest.fixture
def store(tiny_store: Path) -> Store:
    return Store(tiny_store)


def ask(store: Store, text: str) -> list[dict[str, object]]:
    return rows(query(store, text))


@pytest.mark.parametrize("name", [*TABLES, "predictions"])
def test_each_table_is_what_duckdb_itself_reads_from_the_files(store: Store, name: str) -> None:
    direct = duckdb.sql(f"""
        SELECT parse_path(filename)[-2] AS step_id, * EXCLUDE (filename)
        FROM read_parquet('{store.path}/steps/*/{name}.parquet', filename = true) ORDER BY ALL
    """).fetchall()
    ours = query(store, f"SELECT * EXCLUDE (step) FROM {name} ORDER BY ALL")
    assert list(zip(*(column.to_pylist() for column in ours.columns), strict=True)) == direct
    assert query(store, f"SELECT * FROM {name} LIMIT 0").column_names[:2] == ["step_id", "step"]


def test_steps_are_their_records(store: Store) -> None:
    found = ask(store, "SELECT * FROM steps ORDER BY step")
    assert len(found) == 3
    for row, step in zip(found, store.experiments()[0], strict=True):
        info = json.loads((step.folder / "step.json").read_bytes())
        assert (row["id"], row["parent"]) == (step.id, info["parent"])
        assert (row["seed"], row["classes"], row["epochs"]) == (0, 2, 2)
        assert row["seconds"] == info["timings"]["seconds"]
        assert (row["device"], row["threads"], row["dataset"], row["network"]) == ("cpu", 1, "glyphs", "resnet8")
        assert row["status"] == info["status"]
    kept = ("policy", "retention", "alpha", "memory", "memory_bytes", "quota")
    assert [tuple(row[name] for name in kept) for row in found] == [
        (None, None, None, None, None, None),
        ("uniform", 0.08, 0.5, None, None, "balanced"),
        ("uniform", 0.08, 0.5, None, None, "balanced"),
    ]


def test_the_paper_s_identity_can_be_asked_for(store: Store) -> None:
    (row,) = ask(
        store,
        """
        SELECT max(abs(c.nic - p.total)) AS error, count(*) AS n FROM classes c JOIN (
            SELECT step_id, class_id, sum(term) AS total FROM pairs WHERE source_is_new GROUP BY ALL
        ) p USING (step_id, class_id)
        """,
    )
    assert row["n"] == 2 + 4
    assert row["error"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT count(*) FROM Steps", set()),
        ("SELECT classes FROM steps", set()),  # a column of that name
        ("FROM main.classes", {"classes"}),
        ("WITH x AS (FROM probes) SELECT (SELECT count(*) FROM pairs) FROM x", {"probes", "pairs"}),
        ("DESCRIBE confusion", {"confusion"}),
        ("SUMMARIZE rehearsal", {"rehearsal"}),
        ("PIVOT classes ON step USING avg(accuracy) GROUP BY class_name", {"classes"}),
        ("EXPLAIN SELECT * FROM probes", {"probes"}),
        ("SELECT 'classes'", set()),
    ],
)
def test_only_the_tables_that_are_named_are_read(
    store: Store, text: str, read: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    table = type(store.steps()[0]).table

    def spy(step: object, name: str) -> pa.Table:
        seen.add(name)
        return table(step, name)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store.steps()[0]), "table", spy)
    assert query(store, text).num_rows > 0
    assert seen == read


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM '{file}'",
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('/etc/*')",
        "COPY steps TO '{folder}/out.csv'",
        "COPY (SELECT 1) TO '{folder}/out.parquet'",
        "ATTACH '{folder}/out.db'",
        "EXPORT DATABASE '{folder}/out'",
        "INSTALL httpfs",
        "LOAD '{folder}/out.so'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SELECT * FROM secret",
    ],
)
def test_a_query_reads_and_writes_no_file_and_sees_no_variable(store: Store, text: str, tmp_path: Path) -> None:
    secret = pa.table({"secret": [1]})
    file = store.steps()[0].folder / "classes.parquet"
    with pytest.raises(SpecError, match="DuckDB does not accept the query"):
        query(store, text.format(file=file, folder=tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert secret.num_rows == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELEC 1", r'syntax error at or near "SELEC"'),
        ("SELECT nope FROM classes", r'"nope" not found.*`DESCRIBE classes` lists'),
        ("SELECT * FROM klasses", r"klasses does not exist.*The tables are steps, classes, probes"),
        ("SELECT 1; SELECT 2", "One SQL query is needed"),
        ("", "One SQL query is needed"),
    ],
)
def test_a_wrong_query_is_one_clear_error(store: Store, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        query(store, text)
    assert "\n" not in str(caught.value)


def test_a_damaged_table_is_an_error_where_it_is_read(store: Store, tmp_path: Path) -> None:
    import shutil

    harmed = Store(shutil.copytree(store.path, tmp_path / "harmed"))
    path = harmed.steps()[1].folder / "pairs.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedStep, match=r"pairs.parquet"):
        query(harmed, "SELECT count(*) FROM pairs")
    assert ask(harmed, "SELECT count(*) AS n FROM classes") == [{"n": 2 + 4 + 6}]


def test_an_empty_store_has_empty_tables(tmp_path: Path) -> None:
    empty = Store(tmp_path)
    empty.prepare()
    assert ask(empty, "SELECT count(*) AS n FROM steps") == [{"n": 0}]
    assert ask(empty, "SELECT step FROM classes") == []


def test_rows_are_json(store: Store) -> None:
    text = """
        SELECT 1 AS a, 2 AS a, 'nan'::DOUBLE AS nan, sum(range) AS whole, 1.5::DECIMAL(4, 2) AS part, DATE '2026-01-02' AS day,
               [1, NULL] AS list, {'x': 'inf'::DOUBLE} AS struct, NULL AS nothing, true AS yes FROM range(4)
    """
    (row,) = json.loads(json.dumps(ask(store, text), allow_nan=False))
    assert row == {
        "a": 1,
        "a_1": 2,
        "nan": None,
        "whole": 6,
        "part": 1.5,
        "day": "2026-01-02",
        "list": [1, None],
        "struct": {"x": None},
        "nothing": None,
        "yes": True,
    }
