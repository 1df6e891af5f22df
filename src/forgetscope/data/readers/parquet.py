"""Hugging Face Parquet: a struct column with encoded image bytes, integer label columns, one or more files per split."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from forgetscope.data.sources import Split
from forgetscope.errors import DataError


@dataclass(frozen=True)
class ParquetChunk:
    """A row group's images."""

    path: Path
    group: int
    rows: int
    column: str

    def __len__(self) -> int:
        return self.rows

    def encoded(self) -> Iterator[tuple[str, bytes]]:
        with _opened(self.path) as file:
            column = file.read_row_group(self.group, columns=[self.column])[self.column].combine_chunks()
        if not pa.types.is_struct(column.type) or column.type.get_field_index("bytes") < 0:
            raise DataError(f"{self.path}: column {self.column!r} is {column.type}, not a struct with image bytes.")
        for row, data in enumerate(column.field("bytes").to_pylist()):
            name = f"{self.path.name}, row {row} of group {self.group}"
            if not data:
                raise DataError(f"{name}: {self.column!r} holds no image bytes.")
            yield name, data


def read_split(folder: Path, split: str, image: str, labels: tuple[str, ...]) -> tuple[Split, dict[str, NDArray[np.int64]]]:
    """A split's images and its label columns; the first of them labels the classes."""
    files = sorted(path for path in folder.rglob("*.parquet") if path.name.split("-")[0].split(".")[0] == split)
    if not files:
        raise DataError(
            f"{folder} has no {split} split: no file {split}*.parquet in it. Get the missing file, or name another folder."
        )
    chunks: list[ParquetChunk] = []
    columns: dict[str, list[NDArray[np.int64]]] = {name: [] for name in labels}
    for path in files:
        with _opened(path) as file:
            missing = {image, *labels} - set(file.schema_arrow.names)
            if missing:
                raise DataError(f"{path} has no column {min(missing)!r}; it has {', '.join(file.schema_arrow.names)}.")
            groups = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            chunks += [ParquetChunk(path, group, rows, image) for group, rows in enumerate(groups)]
            table = file.read(columns=list(labels))
        for name in labels:
            if table[name].null_count:
                raise DataError(f"{path}: column {name!r} has {table[name].null_count} missing labels.")
            columns[name].append(table[name].to_numpy().astype(np.int64))
    values = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Split(values[labels[0]], chunks), values


def class_names(folder: Path, label: str) -> list[str] | None:
    """The names that Hugging Face keeps in the schema's metadata, if it does."""
    for path in sorted(folder.rglob("*.parquet"))[:1]:
        with _opened(path) as file:
            metadata = json.loads((file.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
        names = metadata.get("info", {}).get("features", {}).get(label, {}).get("names")
        return [str(name) for name in names] if names else None
    return None


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet ({error}). It is damaged or incomplete: get it again.") from None
