"""Tables of a stranger: read within bounds, of known columns, or refused before there is room for them."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forgetscope.errors import DamagedStep
from forgetscope.store import ALL_TABLES, TABLES, Store, TableName, tablefiles
from forgetscope.store.columns import SCHEMAS
from forgetscope.store.tablefiles import TEXT_BYTES, read_table, usual_columns
from strangers import FIRST, SECOND, golden_copy, put


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return golden_copy(tmp_path / "store")


def packed(table: pa.Table, **options: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", **options)
    return buffer.getvalue()


def classes(count: int, **columns: object) -> pa.Table:
    plain: dict[str, object] = {
        name: np.zeros(count) if type == pa.float64() else ["x"] * count if type == pa.string() else np.arange(count)
        for name, type in SCHEMAS["classes"].items()
    }
    return pa.table({**plain, **columns}, pa.schema(SCHEMAS["classes"].items()))


def test_the_columns_are_those_that_are_written(tiny_store: Path) -> None:
    for step in Store(tiny_store).steps():
        for name in TABLES:
            schema = pq.read_schema(step.folder / f"{name}.parquet")
            assert dict(zip(schema.names, schema.types, strict=True)) == usual_columns(name)


@pytest.mark.parametrize("name", TABLES)
def test_what_is_read_is_what_any_reader_reads(store: Store, name: TableName) -> None:
    for id in (FIRST, SECOND):
        direct = pq.read_table(store.step(id).folder / f"{name}.parquet")
        assert store.step(id).table(name).equals(direct)
        some = direct.column_names[:2]
        assert store.step(id).table(name, some).equals(direct.select(some))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_pages_of_every_kind_are_understood(version: str, compression: str) -> None:
    made = classes(3000, class_name=[f"class {i}" for i in range(3000)])
    buffer = io.BytesIO()
    pq.write_table(made, buffer, compression=compression, data_page_version=version, data_page_size=500, row_group_size=999)
    assert read_table(buffer.getvalue(), "classes").equals(made)


@pytest.mark.parametrize("name", ALL_TABLES)
def test_a_table_of_other_columns_is_refused(name: TableName) -> None:
    with pytest.raises(ValueError, match="no column"):
        read_table(packed(pa.table({"x": [1]})), name)
    wrong = pa.table({column: pa.array([], pa.string()) for column in SCHEMAS[name]})
    with pytest.raises(ValueError, match=r"column \w+ is .*string, not (int|double|bool)"):
        read_table(packed(wrong), name)


def test_values_that_cannot_be_are_refused() -> None:
    for columns, reason in (
        ({"class_id": np.zeros(4)}, "rows with the same class_id"),
        ({"class_id": [0, 1, None, 3]}, "class_id is missing in 1 of 4 rows"),
        ({"introduced_step": [-1, 1, 1, 1]}, "introduced_step is negative"),
        ({"class_name": ["x" * (TEXT_BYTES + 1)] * 4}, "class_name holds a text of 10,001 bytes"),
    ):
        with pytest.raises(ValueError, match=reason):
            read_table(packed(classes(4, **columns)), "classes")


def test_a_table_that_is_none_is_refused(store: Store) -> None:
    real = (store.step(FIRST).folder / "classes.parquet").read_bytes()
    for content in (b"", b"PAR1", b"PAR1" * 10, real[:-20], real[:100] + bytes(200) + real[300:]):
        put(store.step(FIRST), "classes.parquet", content)
        with pytest.raises(DamagedStep, match=r"classes\.parquet"):
            store.step(FIRST).table("classes")


def test_more_rows_than_are_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed(classes(5))
    monkeypatch.setattr(tablefiles, "ROWS", 4)
    with pytest.raises(ValueError, match="5 rows; at most"):
        read_table(content, "classes")


def test_a_small_file_that_asks_for_gigabytes_is_refused_in_little_memory(tmp_path: Path) -> None:
    """Five thousand times the same text of a megabyte, which the file holds once."""
    repeated = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, np.int32)), pa.array(["x" * 1_000_000]))
    columns = dict(zip(SCHEMAS["classes"], classes(5000).columns, strict=True)) | {"class_name": repeated}
    (tmp_path / "bomb").write_bytes(packed(pa.table(columns), store_schema=False))
    assert (tmp_path / "bomb").stat().st_size < 3_000_000
    code = f"""
import resource
from forgetscope.store.tablefiles import read_table
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_table(open({str(tmp_path / "bomb")!r}, "rb").read(), "classes")
except ValueError as error:
    print(error, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert " ".join(said[:7]) == "class_name holds a text of 1,000,000 bytes;"
    assert int(said[-1]) < 200  # megabytes


def test_a_table_whose_footer_lies_about_its_pages_is_refused() -> None:
    """The header of a page says what is unpacked; it, and not the sum at the end of the file, is believed."""
    content = bytearray(packed(classes(2)))
    chunk = pq.ParquetFile(io.BytesIO(bytes(content))).metadata.row_group(0).column(0)
    start = chunk.dictionary_page_offset
    assert content[start + 2] == 0x15  # second field, an integer: the size when unpacked
    size = content[start + 3]
    assert size < 128
    grown = content[: start + 3] + b"\xfe\xff\xff\xff\x0f" + content[start + 4 :]  # 2 GB
    with pytest.raises(ValueError, match=r"its pages unpack to more than 1,073,741,824 bytes"):
        read_table(bytes(grown), "classes")


def zigzag(value: int) -> bytes:
    value, found = value << 1, bytearray()
    while value > 127:
        value, _ = value >> 7, found.append(value & 127 | 128)
    return bytes([*found, value])


@pytest.mark.parametrize(
    "field",
    [
        b"\x04\x04\x00",  # the second field again, with 16 bits: Arrow skips it
        b"\x05\x04\x00",  # with 32 bits: for Arrow the last one counts
        b"\x05\x84\x80\x08\x00",  # field 65538, which is 2 in 16 bits
    ],
)
def test_a_page_that_states_its_size_twice_is_refused(field: bytes) -> None:
    header = b"\x15\x00\x15\xfe\xff\xff\xff\x0f\x15\x00" + field + b"\x00"
    with pytest.raises(ValueError, match=r"a page's header whose fields are out of order"):
        list(tablefiles._pages(header, 0, len(header)))


@pytest.mark.parametrize(
    ("unpacked", "packed_size"),
    [
        (b"\x14" + zigzag(5), b"\x15" + zigzag(0)),  # 16 bits
        (b"\x16" + zigzag(5), b"\x15" + zigzag(0)),  # 64 bits
        (b"\x15" + zigzag(5), b"\x16" + zigzag(0)),
        (b"\x15" + zigzag(5), b"\x15" + zigzag(2**32)),  # 0 in 32 bits: the pages behind it would be jumped over
        (b"\x15\x01", b"\x15" + zigzag(0)),
    ],
)
def test_a_page_whose_size_readers_could_take_differently_is_refused(unpacked: bytes, packed_size: bytes) -> None:
    header = b"\x15\x00" + unpacked + packed_size + b"\x00"
    with pytest.raises(ValueError, match=r"a page's size that is no number of 32 bits"):
        list(tablefiles._pages(header, 0, len(header)))


def test_a_page_that_reaches_beyond_its_column_is_refused() -> None:
    header = b"\x15\x00\x15\x0a\x15\x0a\x00"
    assert list(tablefiles._pages(header + b"12345", 0, len(header) + 5)) == [(5, 0)]
    with pytest.raises(ValueError, match=r"a page that reaches beyond its column"):
        list(tablefiles._pages(header + b"12345", 0, len(header) + 4))
