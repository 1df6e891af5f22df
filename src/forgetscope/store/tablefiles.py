"""Parquet tables of a step, read within bounds: whatever the file says about itself, its pages are looked at before any of them
is unpacked, and the columns are those that `forgetscope.store.tables` writes.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forgetscope.measuring.keepsakes import Spread, spread_length
from forgetscope.store.columns import FLOAT, ONLY_IF_ASKED, SCHEMAS, SINGLE, TEXT, VECTOR
from forgetscope.store.stepfiles import TableName

ROWS = 20_000_000
UNPACKED_BYTES = 2**30  # of a table in memory
TEXT_BYTES = 10_000  # of one text
LIST_BYTES = 240 * 2**20  # of all lists of a table, which hold numbers of 4 bytes; their file then is within its own bound
COLUMNS = 64
ROW_GROUPS = 1000

ONE_OF_THEM: tuple[Spread, ...] = ("variance", "covariance")  # columns of which a table has one
WITH_FORECAST = ("accuracy", "probability")  # columns of keepsakes
# Values; so may every floating-point number, and every list of them.
_MAY_MISS = {"rehearsal_images", "missing_terms", "missing", "best_past", "features_step", "images"}
_KEYS: dict[TableName, tuple[tuple[str, ...], ...]] = {
    "classes": (("class_id",), ("head_node",)),
    "probes": (("probe", "class_id"), ("iteration", "class_id")),
    "pairs": (("class_id", "source_class_id"),),
    "rehearsal": (("class_id", "position"),),
    "confusion": (("true", "predicted"),),
    "extra": (("measure", "iteration", "class_id"),),
    "predictions": (("image",),),
    "keepsakes": (("class_id",),),
    "carried": (("class_id",),),
    "calibration": (("class_id",),),
}


def usual_columns(name: TableName) -> dict[str, pa.DataType]:
    """Those that every such table has, whatever its step was asked for."""
    return {column: type for column, type in SCHEMAS[name].items() if column not in ONLY_IF_ASKED.get(name, ())}


def read_table(content: bytes, name: TableName, columns: Sequence[str] | None = None) -> pa.Table:
    """All columns, or some of them, which are decoded alone. Raises ValueError for a file that is no such table."""
    try:
        # Texts as dictionaries: a thousand rows with the same long text stay as small as they are in the file.
        texts = [column for column, type in SCHEMAS[name].items() if type == TEXT]
        file = pq.ParquetFile(
            pa.BufferReader(content), read_dictionary=texts, thrift_string_size_limit=2**20, thrift_container_size_limit=100_000
        )
        _check_metadata(file, name)
        _check_pages(file.metadata, content, columns)
        # Not pq.read_table: its threads, still starting when a short command ends beside torch, abort the process at exit.
        table = file.read(columns=columns, use_threads=False)
        table.validate(full=True)
        table = _with_texts(table)
    except KeyError as error:  # what it has in place of a text's column
        raise ValueError(f"no column {error.args[0]!r}") from None
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"no table ({' '.join(str(error).split())[:200]})") from None
    _check_values(table, name)
    return table


def _check_metadata(file: pq.ParquetFile, name: TableName) -> None:
    found, metadata = file.schema_arrow, file.metadata
    if metadata.num_columns > COLUMNS or metadata.num_row_groups > ROW_GROUPS or metadata.num_rows > ROWS:
        size = f"{metadata.num_columns} columns, {metadata.num_row_groups} groups, {metadata.num_rows:,} rows"
        raise ValueError(f"{size}; at most {COLUMNS}, {ROW_GROUPS} and {ROWS:,} are read")
    if len(set(found.names)) < len(found.names):
        raise ValueError("two columns of the same name")
    needed = usual_columns(name).keys() - {"missing_terms"}  # which steps of the first versions lack
    for column, type in SCHEMAS[name].items():
        if column not in found.names and column in needed:
            raise ValueError(f"no column {column}")
        if column in found.names and _plain(found.field(column).type) != type:
            raise ValueError(f"column {column} is {found.field(column).type}, not {type}")
    if name in ("keepsakes", "carried") and len({*ONE_OF_THEM} & {*found.names}) != 1:
        raise ValueError(f"not one of the columns {' and '.join(ONE_OF_THEM)}")
    strange = [field.name for field in found if field.name not in SCHEMAS[name] and not pa.types.is_primitive(field.type)]
    if strange:
        raise ValueError(f"{strange[0][:100]!r} is no column of {name}")
    if metadata.num_rows * sum(_width(field.type) for field in found) > UNPACKED_BYTES:
        raise ValueError(f"{metadata.num_rows:,} rows of {len(found)} columns; at most {UNPACKED_BYTES:,} bytes are unpacked")


def _plain(type: pa.DataType) -> pa.DataType:
    return type.value_type if pa.types.is_dictionary(type) else type


def _width(type: pa.DataType) -> int:
    return 8 if pa.types.is_dictionary(type) or pa.types.is_list(type) else max(1, type.bit_width // 8)


def _with_texts(table: pa.Table) -> pa.Table:
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(i)
            longest = max((pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0 for chunk in column.chunks), default=0)
            if longest > TEXT_BYTES or longest * len(column) > UNPACKED_BYTES:
                raise ValueError(f"{field.name} holds a text of {longest:,} bytes; at most {TEXT_BYTES:,} are read")
            table = table.set_column(i, field.name, column.cast(TEXT))
    return table.replace_schema_metadata(None)


def _check_values(table: pa.Table, name: TableName) -> None:
    for column, type in SCHEMAS[name].items():
        if column in table.column_names:
            _check_column(column, table[column], type)
    if name in ("keepsakes", "carried"):
        _check_lengths(table)
    for keys in _KEYS[name]:
        # Its threads, too, could abort a short process.
        if {*keys} <= {*table.column_names} and len(table.group_by(keys, use_threads=False).aggregate([])) < len(table):
            raise ValueError(f"rows with the same {' and '.join(keys)}")


def _check_column(column: str, values: pa.ChunkedArray, type: pa.DataType) -> None:
    if type in (SINGLE, VECTOR):
        numbers = pc.list_flatten(values) if type == VECTOR else values.drop_null()
        if numbers.null_count or not np.isfinite(numbers.to_numpy()).all():
            raise ValueError(f"{column} holds a number that is not finite")
    elif type != FLOAT:
        if values.null_count and column not in _MAY_MISS:
            raise ValueError(f"{column} is missing in {values.null_count} of {len(values)} rows")
        if pa.types.is_integer(type) and len(values) > values.null_count and pc.min(values).as_py() < 0:
            raise ValueError(f"{column} is negative")


def _check_lengths(table: pa.Table) -> None:
    """A mean and a spread of the same features in every row, or neither."""
    found: dict[str, list[int | None]] = {
        column: pc.list_value_length(table[column]).to_pylist()
        for column in ("mean", *ONE_OF_THEM)
        if column in table.column_names
    }
    for column, lengths in found.items():
        distinct = sorted({length for length in lengths if length is not None})
        if len(distinct) > 1 or 0 in distinct:
            raise ValueError(f"{column} holds lists of {' and '.join(map(str, distinct[:2]))} numbers")
    means = found.get("mean", [])
    for kind in ONE_OF_THEM:
        if means and kind in found and found[kind] != [n and spread_length(kind, n) for n in means]:
            raise ValueError(f"{kind} is not of as many features as mean")


def _check_pages(metadata: pq.FileMetaData, content: bytes, columns: Sequence[str] | None) -> None:
    """Add up what the pages unpack to, by their own headers: a reader makes room for each as its header says, whatever the
    sizes at the end of the file are. A list can be of more numbers than its table has rows, all of them in a few bytes."""
    total = listed = 0
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    read = [i for i, path in enumerate(paths) if columns is None or path.split(".")[0] in columns]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for i, chunk in ((i, group.column(i)) for i in read):
            dictionary, data = chunk.dictionary_page_offset or 0, chunk.data_page_offset
            start = min(dictionary, data) if dictionary > 0 and data > 0 else max(dictionary, data)
            for size, values in _pages(content, start, start + chunk.total_compressed_size):
                total += size
                listed += values if metadata.schema.column(i).max_repetition_level else 0
                if total > UNPACKED_BYTES:
                    raise ValueError(f"its pages unpack to more than {UNPACKED_BYTES:,} bytes")
                if 4 * listed > LIST_BYTES:
                    raise ValueError(f"its lists unpack to more than {LIST_BYTES:,} bytes")


def _pages(content: bytes, place: int, end: int) -> Iterator[tuple[int, int]]:
    """Of each page the bytes that it unpacks to and how many values it says it holds."""
    if not 0 <= place <= end <= len(content):
        raise ValueError("its pages lie outside the file")
    while place < end:
        try:
            fields, place = _thrift_struct(content, place)
        except IndexError:
            raise ValueError("a page's header is cut off") from None
        if _UNPACKED not in fields or _PACKED not in fields:
            raise ValueError("a page without a size")
        yield fields[_UNPACKED], max(fields.get(kind, 0) for kind in _DATA_PAGES)
        place += fields[_PACKED]
    if place != end:
        raise ValueError("a page that reaches beyond its column")


_UNPACKED, _PACKED = 2, 3  # numbers of a page header's fields
_DATA_PAGES, _VALUES = (5, 8), 1  # of what describes its data, in two versions, and of how many values there are in it
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of Thrift's truth values, bytes and floating-point numbers


def _thrift_struct(content: bytes, place: int, depth: int = 0) -> tuple[dict[int, int], int]:
    """The 32-bit integers of a structure in Thrift's compact form, by number of their field, and where it ends. A structure
    in it counts as its first integer.

    What two readers could take differently is refused: Arrow skips a size of another type, takes the last of several with the
    same number, and cuts numbers off at 16 and at 32 bits."""
    fields, number = dict[int, int](), 0
    if depth > 8:
        raise ValueError("a page's header is nested too deeply")
    while (head := content[place]) != 0:
        place, kind, before = place + 1, head & 15, number
        if head >> 4:
            number += head >> 4
        else:
            number, place = _signed(content, place)
        if not before < number < 2**15:
            raise ValueError("a page's header whose fields are out of order")
        if kind in (4, 5, 6):
            value, place = _signed(content, place)
            a_size = number in (_UNPACKED, _PACKED) if depth == 0 else (depth, number) == (1, _VALUES)
            if a_size and (kind != 5 or not 0 <= value < 2**31):
                raise ValueError("a page's size that is no number of 32 bits")
            fields[number] = value
        elif kind == 8:
            size, place = _varint(content, place)
            place += size
        elif kind == 12:
            within, place = _thrift_struct(content, place, depth + 1)
            fields[number] = within.get(_VALUES, 0)
        elif kind in _FIXED:
            place += _FIXED[kind]
        else:
            raise ValueError("a page's header that is not understood")
    return fields, place + 1


def _signed(content: bytes, place: int) -> tuple[int, int]:
    value, place = _varint(content, place)
    return value >> 1 ^ -(value & 1), place


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value, place, shift = value | (byte & 127) << shift, place + 1, shift + 7
        if byte < 128 or shift > 63:
            return value, place
