"""Parquet files that ask for more than they are worth, or whose columns are not what they should be."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from forgetscope.data import limits
from forgetscope.data.readers import parquet
from forgetscope.data.readers.parquet import ParquetChunk, class_names, read_split
from forgetscope.data.readers.tiny_imagenet import read_tiny_imagenet
from forgetscope.errors import DataError


def image(value: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (value, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def write(folder: Path, labels: Any = (0, 1, 2), images: Any = None, split: str = "train", **options: Any) -> Path:
    folder.mkdir(exist_ok=True)
    images = [{"bytes": image(i), "path": None} for i in range(len(labels))] if images is None else images
    pq.write_table(pa.table({"image": images, "label": labels}), folder / f"{split}-0.parquet", **options)
    return folder


def read(folder: Path) -> tuple[list[int], list[bytes]]:
    split, _ = read_split(folder, "train", "image", ("label",))
    return split.labels.tolist(), [data for chunk in split.images for _, data in chunk.encoded()]  # type: ignore[union-attr,misc]


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"row_group_size": 2}, {"compression": "zstd"}])
def test_images_and_labels_are_read_in_order(options: dict[str, Any], tmp_path: Path) -> None:
    labels, images = read(write(tmp_path, [2, 0, 1, 1, 2], **options))
    assert labels == [2, 0, 1, 1, 2]
    assert images == [image(i) for i in range(5)]


def test_more_rows_than_a_batch_are_read(tmp_path: Path) -> None:
    count = parquet.BATCH * 2 + 7
    content = [{"bytes": b"%d" % i, "path": None} for i in range(count)]
    assert read(write(tmp_path, [0] * count, content))[1] == [b"%d" % i for i in range(count)]


def test_large_binary_is_read(tmp_path: Path) -> None:
    kind = pa.struct([("bytes", pa.large_binary())])
    assert read(write(tmp_path, [0], pa.array([{"bytes": image()}], kind)))[1] == [image()]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.0, 1.9, 2.0], "column 'label' is double; labels are whole numbers from 0"),
        (["0", "1", "2"], "column 'label' is string; labels are whole numbers"),
        ([0, 1, None], "column 'label' has 1 missing labels"),
        ([0, 1, 10**12], "column 'label': 1,000,000,000,001 classes, at most 100,000 are read"),
        (np.array([0, 1, 2**64 - 1], np.uint64), "18,446,744,073,709,551,616 classes"),
    ],
)
def test_labels_that_are_no_labels_are_refused(labels: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path, labels))


@pytest.mark.parametrize("images", [["a"] * 3, [{"path": "a"}] * 3, [{"bytes": "text"}] * 3, [{"bytes": [b"a"]}] * 3])
def test_images_that_are_no_bytes_are_refused(images: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a struct with image bytes"):
        read(write(tmp_path, images=images))


@pytest.mark.parametrize("twice", ["image", "label"])
def test_a_column_that_is_there_twice_is_refused(twice: str, tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path) / "train-0.parquet")
    pq.write_table(table.append_column(twice, table[twice]), tmp_path / "train-0.parquet")
    with pytest.raises(DataError, match=rf"train-0.parquet has 2 columns called '{twice}'"):
        read(tmp_path)


def test_missing_images_are_named_one_by_one(tmp_path: Path) -> None:
    folder = write(tmp_path, images=[{"bytes": image(), "path": ""}, {"bytes": None, "path": "x"}, None])
    split, _ = read_split(folder, "train", "image", ("label",))
    found = [(name, data) for chunk in split.images for name, data in chunk.encoded()]  # type: ignore[union-attr]
    assert found[0] == ("train-0.parquet, row 0 of group 0", image())
    assert [str(data) for _, data in found[1:]] == [f"train-0.parquet, row {i} of group 0 holds no image bytes" for i in (1, 2)]


def test_thousands_of_rows_with_one_value_take_the_memory_of_one(tmp_path: Path) -> None:
    """Parquet's dictionaries: 20,000 rows of 4 MB would be 80 GB."""
    content = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array([bytes(4_000_000)]))
    table = pa.table({"image": pa.StructArray.from_arrays([content], ["bytes"]), "label": [0] * 20_000})
    pq.write_table(table, tmp_path / "train.parquet", store_schema=False)
    before = pa.default_memory_pool().max_memory()
    rows = ParquetChunk(tmp_path / "train.parquet", 0, 20_000, "image").encoded()
    for _ in range(10):  # a batch is read whole
        name, data = next(rows)
        assert isinstance(data, bytes), name
        assert len(data) == 4_000_000
    assert pa.default_memory_pool().max_memory() - before < 100e6


def test_a_file_is_held_to_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, [0] * 100, row_group_size=10)
    for name, limit, message in (
        ("ROW_GROUPS", 9, "10 row groups, at most 9"),
        ("IMAGES", 99, "100 rows, at most 99"),
        ("IMAGE_BYTES", 50, None),
    ):
        monkeypatch.setattr(parquet, name, limit)
        if message:
            with pytest.raises(DataError, match=message):
                read(folder)
        else:
            assert "bytes, at most 50 are read" in str(read(folder)[1][0])
        monkeypatch.undo()
    monkeypatch.setattr(limits, "UNPACKED_BYTES", 1000)
    monkeypatch.setattr(limits, "UNPACKED_RATIO", 0.01)
    with pytest.raises(DataError, match="bytes to unpack from a file of"):
        read(folder)


def test_damage_within_a_page_is_one_clear_error(tmp_path: Path) -> None:
    folder = write(tmp_path, write_page_checksum=True)
    content = bytearray((folder / "train-0.parquet").read_bytes())
    content[content.index(b"IHDR") + 5] ^= 1
    (folder / "train-0.parquet").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(folder)


def test_pipes_are_no_files(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, split="valid")
    os.mkfifo(tmp_path / "train-1.parquet")
    assert read_tiny_imagenet(tmp_path).classes == ("0", "1", "2")


@pytest.mark.parametrize("metadata", ["{", "[1]", '{"info": 5}', "[" * 100_000])
def test_metadata_that_is_none_is_refused(metadata: str, tmp_path: Path) -> None:
    table = pa.table({"label": [0]}).replace_schema_metadata({"huggingface": metadata})
    pq.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(DataError, match="the names of its classes cannot be read"):
        class_names(tmp_path, "label")


def test_names_of_classes_are_text_and_not_too_many(tmp_path: Path) -> None:
    for names, message in (([1, 2], "are no list of names"), ([str(i) for i in range(100_001)], "100,001 classes, at most")):
        metadata = json.dumps({"info": {"features": {"label": {"names": names}}}})
        pq.write_table(pa.table({"label": [0]}).replace_schema_metadata({"huggingface": metadata}), tmp_path / "train.parquet")
        with pytest.raises(DataError, match=message):
            class_names(tmp_path, "label")
