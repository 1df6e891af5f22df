"""Hugging Face Parquet: a struct column with encoded image bytes, integer label columns, one or more files per split."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from forgetscope.data.limits import IMAGE_BYTES, IMAGES, ROW_GROUPS, check_classes, check_limit, check_unpacked
from forgetscope.data.sources import Encoded, Split
from forgetscope.errors import DataError

BATCH = 256  # rows at a time
_BYTES = (pa.binary(), pa.large_binary())


@dataclass(frozen=True)
class ParquetChunk:
    path: Path
    group: int
    rows: int
    column: str

    def __len__(self) -> int:
        return self.rows

    def encoded(self) -> Iterator[Encoded]:
        """Read as a dictionary: thousands of rows may share one stored value, which would otherwise be copied for each."""
        row, leaf = 0, f"{self.column}.bytes"
        with _opened(self.path, read_dictionary=[leaf]) as file:
            for batch in file.iter_batches(BATCH, row_groups=[self.group], columns=[leaf], use_threads=False):
                column = batch.column(0)
                present = column.is_valid().to_pylist()
                for value, there in zip(column.field("bytes"), present, strict=True):
                    name = f"{self.path.name}, row {row} of group {self.group}"
                    row += 1
                    yield name, _content(name, value.as_py() if there else None)


def _content(name: str, data: bytes | None) -> bytes | DataError:
    if not data:
        return DataError(f"{name} holds no image bytes")
    return data if len(data) <= IMAGE_BYTES else DataError(f"{name} has {len(data):,} bytes, at most {IMAGE_BYTES:,} are read")


def read_split(folder: Path, split: str, image: str, labels: tuple[str, ...]) -> tuple[Split, dict[str, NDArray[np.int64]]]:
    """A split's images and its label columns; the first of them labels the classes."""
    files = sorted(path for path in parquet_files(folder) if path.name.split("-")[0].split(".")[0] == split)
    if not files:
        raise DataError(
            f"{folder} has no {split} split: no file {split}*.parquet in it. Get the missing file, or name another folder."
        )
    chunks: list[ParquetChunk] = []
    columns: dict[str, list[NDArray[np.int64]]] = {name: [] for name in labels}
    for path in files:
        with _opened(path) as file:
            _check_schema(path, file.schema_arrow, image, labels)
            groups = _rows_of_groups(path, file.metadata)
            chunks += [ParquetChunk(path, group, rows, image) for group, rows in enumerate(groups) if rows]
            check_limit(str(folder), sum(map(len, chunks)), "images", IMAGES)
            table = file.read(columns=list(labels))
        for name in labels:
            columns[name].append(_label_values(path, name, table[name]))
    values = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Split(values[labels[0]], chunks), values


def parquet_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.parquet") if path.is_file())


def _check_schema(path: Path, schema: Any, image: str, labels: Sequence[str]) -> None:
    """Before anything is read: text, or numbers with a fraction, cannot label a class."""
    missing = {image, *labels} - set(schema.names)
    if missing:
        raise DataError(f"{path} has no column {min(missing)!r}; it has {', '.join(schema.names)}.")
    twice = [name for name in (image, *labels) if schema.names.count(name) > 1]
    if twice:
        raise DataError(f"{path} has {schema.names.count(twice[0])} columns called {twice[0]!r}. Leave one.")
    kind = schema.field(image).type
    if not pa.types.is_struct(kind) or (at := kind.get_field_index("bytes")) < 0 or kind.field(at).type not in _BYTES:
        raise DataError(f"{path}: column {image!r} is {kind}, not a struct with image bytes.")
    for name in labels:
        if not pa.types.is_integer(schema.field(name).type):
            raise DataError(f"{path}: column {name!r} is {schema.field(name).type}; labels are whole numbers from 0.")


def _rows_of_groups(path: Path, metadata: Any) -> list[int]:
    check_limit(str(path), metadata.num_row_groups, "row groups", ROW_GROUPS)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    check_unpacked(str(path), sum(max(0, group.total_byte_size) for group in groups), path.stat().st_size)
    rows = [group.num_rows for group in groups]
    if min(rows, default=0) < 0:
        raise DataError(f"{path} has a row group of {min(rows)} rows. It is damaged: get it again.")
    check_limit(str(path), sum(rows), "rows", IMAGES)
    return rows


def _label_values(path: Path, name: str, column: Any) -> NDArray[np.int64]:
    if column.null_count:
        raise DataError(f"{path}: column {name!r} has {column.null_count} missing labels.")
    values: NDArray[np.integer[Any]] = column.to_numpy()
    check_classes(f"{path}, column {name!r}", int(values.max(initial=0)) + 1)
    return values.astype(np.int64)


def class_names(folder: Path, label: str) -> list[str] | None:
    """The names that Hugging Face keeps in the schema's metadata, if it does."""
    for path in parquet_files(folder)[:1]:
        with _opened(path) as file:
            metadata = (file.schema_arrow.metadata or {}).get(b"huggingface", b"{}")
        try:
            names = json.loads(metadata).get("info", {}).get("features", {}).get(label, {}).get("names")
        except (ValueError, AttributeError, RecursionError):
            raise DataError(f"{path}: the names of its classes cannot be read. Get it again.") from None
        if names and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise DataError(f"{path}: the names of its classes are no list of names. Get it again.")
        check_classes(str(path), len(names or ()))
        return names or None
    return None


@contextmanager
def _opened(path: Path, **options: Any) -> Iterator[pq.ParquetFile]:
    if not path.is_file():
        raise DataError(f"{path} is not a file with an end, but a folder, pipe or device.")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, **options) as file:
            yield file
    except (pa.ArrowException, OSError) as error:  # ArrowException includes ArrowMemoryError: a page may ask for 2 GB
        raise DataError(f"{path} cannot be read as Parquet ({error}). It is damaged or incomplete: get it again.") from None
