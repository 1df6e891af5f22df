"""Tiny-ImageNet: the official zip or its folder, and Hugging Face Parquet. The labelled validation part is the test set."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from forgetscope.data.readers.archives import zip_members
from forgetscope.data.readers.parquet import class_names, read_split
from forgetscope.data.sources import Chunk, FileChunk, Source, Split, ZipChunk, in_chunks, read_member
from forgetscope.errors import DataError

ReadText = Callable[[str], str]


def read_tiny_imagenet(path: Path) -> Source:
    """Find out in which form `path` holds Tiny-ImageNet, and read that."""
    if path.is_file():
        return _read_zip(path)
    if not path.is_dir():
        raise DataError(f"There is nothing at {path}. Name the archive or folder that holds Tiny-ImageNet.")
    if any(path.rglob("*.parquet")):
        return _read_parquet(path)
    root = path / "tiny-imagenet-200" if (path / "tiny-imagenet-200").is_dir() else path
    members = [file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()]

    def text(name: str) -> str:
        return (root / name).read_text(encoding="utf-8")

    return _read_official(
        str(path), members, text, lambda names: [FileChunk(tuple(root / name for name in part)) for part in in_chunks(names)]
    )


def _read_zip(path: Path) -> Source:
    names = zip_members(path)
    prefix = next((str(PurePosixPath(name).parent) for name in names if PurePosixPath(name).name == "wnids.txt"), ".")
    prefix = "" if prefix == "." else f"{prefix}/"
    members = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def text(name: str) -> str:
        with zipfile.ZipFile(path) as archive:
            return read_member(archive, prefix + name).decode("utf-8")

    return _read_official(
        str(path), members, text, lambda names: [ZipChunk(path, tuple(prefix + n for n in part)) for part in in_chunks(names)]
    )


def _read_official(
    origin: str, members: Sequence[str], text: ReadText, chunks: Callable[[Sequence[str]], Sequence[Chunk]]
) -> Source:
    """wnids.txt orders the classes, words.txt names them, val_annotations.txt labels the test images."""
    present = set(members)
    for name in ("wnids.txt", "val/val_annotations.txt"):
        if name not in present:
            raise DataError(f"{origin} has no {name}: it is not Tiny-ImageNet in the official layout, or a part is missing.")
    wnids = text("wnids.txt").split()
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    train: list[list[str]] = [[] for _ in wnids]
    for name in sorted(members):
        parts = name.split("/")  # train/<wnid>/images/<file>; *_boxes.txt lies beside the images
        if len(parts) == 4 and parts[0] == "train" and parts[2] == "images":
            if parts[1] not in label_of:
                raise DataError(f"{origin}: {name} belongs to {parts[1]}, which wnids.txt does not list.")
            train[label_of[parts[1]]].append(name)
    train_labels = np.repeat(np.arange(len(wnids), dtype=np.int64), [len(names) for names in train])
    test_names, test_labels = _annotations(origin, text("val/val_annotations.txt"), label_of, present)
    names = _class_names(wnids, text("words.txt") if "words.txt" in present else "")
    return Source(
        origin,
        names,
        Split(train_labels, chunks([name for group in train for name in group])),
        Split(np.array(test_labels, np.int64), chunks(test_names)),
    )


def _annotations(origin: str, text: str, label_of: dict[str, int], present: set[str]) -> tuple[list[str], list[int]]:
    names, labels = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        file, wnid = [*line.split("\t"), "", ""][:2]
        if wnid not in label_of:
            raise DataError(f"{origin}: line {number} of val_annotations.txt has the unknown label {wnid!r}.")
        name = f"val/images/{file}"
        if name not in present:
            raise DataError(
                f"{origin} has no {name}, which val_annotations.txt lists. The archive is incomplete: get it again."
            )
        names.append(name)
        labels.append(label_of[wnid])
    return names, labels


def _class_names(wnids: Sequence[str], words: str) -> tuple[str, ...]:
    """The first of a class's words; the wnid is added where two classes share it."""
    lines = (line.split("\t", 1) for line in words.splitlines() if "\t" in line)
    first = {wnid: synonyms.split(",")[0].strip() for wnid, synonyms in lines}
    names = [first.get(wnid, wnid) for wnid in wnids]
    return tuple(f"{name} ({wnid})" if names.count(name) > 1 else name for name, wnid in zip(names, wnids, strict=True))


def _read_parquet(folder: Path) -> Source:
    (train, _), (test, _) = (read_split(folder, split, "image", ("label",)) for split in ("train", "valid"))
    count = int(max(train.labels.max(initial=-1), test.labels.max(initial=-1))) + 1
    names = class_names(folder, "label") or [str(label) for label in range(count)]
    return Source(str(folder), tuple(names), train, test)
