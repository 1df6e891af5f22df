"""Tiny-ImageNet: the official zip or its folder, and Hugging Face Parquet. The labelled validation part is the test set."""

import os
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from forgetscope.data import sources
from forgetscope.data.limits import IMAGES, TEXT_BYTES, check_classes, check_limit
from forgetscope.data.readers.archives import zip_members
from forgetscope.data.readers.parquet import class_names, parquet_files, read_split
from forgetscope.errors import DataError

ReadBytes = Callable[[str], bytes]
CHUNK = 500  # images
ZIP_CHUNKS = 64  # at most: each reads the archive's directory again


def read_tiny_imagenet(path: Path) -> sources.Source:
    """Find out in which form `path` holds Tiny-ImageNet, and read that."""
    if path.is_file():
        return _read_zip(path)
    if not path.is_dir():
        raise sources.not_there(path, "Name the archive or folder that holds Tiny-ImageNet.")
    if parquet_files(path):
        return _read_parquet(path)
    root = path / "tiny-imagenet-200" if (path / "tiny-imagenet-200").is_dir() else path
    members = []
    for folder, _, files in os.walk(root):
        members += [Path(folder, name).relative_to(root).as_posix() for name in files if Path(folder, name).is_file()]
        check_limit(str(path), len(members), "files", IMAGES)
    return _read_official(
        str(path),
        members,
        lambda name: sources.read_regular(root / name, TEXT_BYTES),
        lambda names: sources.FileChunk(tuple(root / name for name in names)),
    )


def _read_zip(path: Path) -> sources.Source:
    names = zip_members(path)
    prefix = next((str(PurePosixPath(name).parent) for name in names if PurePosixPath(name).name == "wnids.txt"), ".")
    prefix = "" if prefix == "." else f"{prefix}/"
    members = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def content(name: str) -> bytes:
        with sources.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            return sources.read_member(path, archive, prefix + name, TEXT_BYTES)

    return _read_official(
        str(path),
        members,
        content,
        lambda names: sources.ZipChunk(path, tuple(prefix + name for name in names)),
        max(CHUNK, len(members) // ZIP_CHUNKS),
    )


def _read_official(
    origin: str, members: Sequence[str], content: ReadBytes, chunk: Callable[[Sequence[str]], sources.Chunk], size: int = CHUNK
) -> sources.Source:
    """wnids.txt orders the classes, words.txt names them, val_annotations.txt labels the test images."""
    present = set(members)
    for name in ("wnids.txt", "val/val_annotations.txt"):
        if name not in present:
            raise DataError(f"{origin} has no {name}: it is not Tiny-ImageNet in the official layout, or a part is missing.")

    def text(name: str) -> str:
        try:
            return content(name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{origin}: {name} is not text in UTF-8 ({error}). Get it again.") from None

    wnids = text("wnids.txt").split()
    check_classes(f"{origin}, wnids.txt", len(wnids))
    if twice := [wnid for wnid, count in Counter(wnids).items() if count > 1]:
        raise DataError(f"{origin}: wnids.txt lists {twice[0]} twice. Get it again.")
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
    files = ([name for group in train for name in group], test_names)
    train_images, test_images = ([chunk(part) for part in sources.in_chunks(paths, size)] for paths in files)
    splits = sources.Split(train_labels, train_images), sources.Split(np.array(test_labels, np.int64), test_images)
    return sources.Source(origin, names, *splits)


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
    uses = Counter(names)
    return tuple(f"{name} ({wnid})" if uses[name] > 1 else name for name, wnid in zip(names, wnids, strict=True))


def _read_parquet(folder: Path) -> sources.Source:
    (train, _), (test, _) = (read_split(folder, split, "image", ("label",)) for split in ("train", "valid"))
    count = int(max(train.labels.max(initial=-1), test.labels.max(initial=-1))) + 1
    names = class_names(folder, "label") or [str(label) for label in range(count)]
    return sources.Source(str(folder), tuple(names), train, test)
