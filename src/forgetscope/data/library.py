"""The library of data sets: opening what is here, and the facts of what is not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forgetscope.data import glyphs
from forgetscope.data.cache import Note, cache_folder, folder_of, is_here, made, make
from forgetscope.data.conversion import Conversion
from forgetscope.data.images import FILES, MANIFEST, DataSet, class_strips, open_data, pixel_digest
from forgetscope.data.known import KNOWN, glyph_augmentation, own_images, photographs
from forgetscope.data.sources import Source, Split
from forgetscope.errors import DamagedData, DataError
from forgetscope.spec import AugmentationSpec, nearest


def load_data(name: str, image_size: int | None = None, note: Note = lambda text: None, *, verify: bool = True) -> DataSet:
    """Open a data set. Glyphs, and other sizes of a data set, are made the first time; `note` is told of it.

    `verify` reads every file once to see that it is whole; what is damaged and can be made again here, is."""
    if name == "glyphs":
        return _glyphs(image_size, note)
    folder = folder_of(name)
    if not is_here(folder):
        raise _no_such_data(name)
    data = open_data(folder, verify=verify)
    return data if image_size is None or data.shape == (image_size, image_size) else _other_size(data, image_size, note)


@dataclass(frozen=True)
class DataFacts:
    """What a plan needs to know of a data set, which need not be here."""

    name: str
    classes: int
    train_images: float  # of each class, on average
    test_images: float
    shape: tuple[int, int]
    augmentation: AugmentationSpec
    digest: str | None  # None: the data are not here, so their steps have no final ids yet


def data_facts(name: str, image_size: int | None = None) -> DataFacts:
    """From the data set if it is here, in this size; else from what is known about it. Makes, fetches and verifies nothing."""
    known, shape = KNOWN.get(name), None if image_size is None else (image_size, image_size)
    if name == "glyphs":
        shape = shape or (glyphs.DEFAULT_SIZE, glyphs.DEFAULT_SIZE)
        counts = (len(glyphs.CLASS_NAMES), glyphs.TRAIN_IMAGES_PER_CLASS, glyphs.TEST_IMAGES_PER_CLASS)
        made = _open_if_whole(_glyphs_folder(image_size), image_size)
        return DataFacts(name, *counts, shape, glyph_augmentation(shape[0]), made.digest if made else None)
    if is_here(folder := folder_of(name)):
        data = open_data(folder, verify=False)
        classes, augmentation = len(data.classes), data.augmentation
        digest: str | None = data.digest
        train, test = len(data.train.labels) / classes, len(data.test.labels) / classes
        if shape is not None and shape != data.shape:
            copy = _open_if_whole(_resized_folder(data, shape[0]), image_size)
            augmentation, digest = _resized_augmentation(data)(shape[0]), copy.digest if copy else None
        return DataFacts(name, classes, train, test, shape or data.shape, augmentation, digest)
    if known is None:
        raise _no_such_data(name)
    shape = shape or (known.side, known.side)
    return DataFacts(name, known.classes, *known.images, shape, photographs(shape[0]), None)


def installed() -> list[str]:
    """Names of the data sets that are here, other sizes not counted."""
    folder = cache_folder()
    return (
        sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}") if "@" not in path.parent.name)
        if folder.is_dir()
        else []
    )


def disk_bytes(name: str) -> int:
    """What a data set takes on disk, other sizes included."""
    return sum(file.stat().st_size for folder in _folders_of(name) for file in folder.iterdir())


def remove_data(name: str) -> None:
    """Delete a data set and its other sizes; results in stores are not touched."""
    folders = _folders_of(name)
    if not folders:
        raise DataError(f"There is no data set {name!r} in {cache_folder()}.{nearest(name, installed())}")
    for folder in folders:
        (folder / MANIFEST).unlink(missing_ok=True)  # from here on it is no data set, whatever happens next
        shutil.rmtree(folder)


def check_data(name: str) -> DataSet:
    """Recompute the digest and compare the counts; raises DataError where the files have changed."""
    data = load_data(name)
    arrays = (data.train.images, data.train.labels, data.test.images, data.test.labels)
    found = pixel_digest(zip(FILES, arrays, strict=True))
    if found != data.digest:
        raise DataError(
            f"The pixels or labels of {name!r} have changed on disk: digest {found[:12]}, expected {data.digest[:12]}. "
            f"Remove it (`forgetscope data remove {name}`) and make it again."
        )
    return data


def recorded_data(recorded: Mapping[str, object]) -> DataSet | None:
    """The data set that a step's record names; None where it is not here, or has changed."""
    size = recorded["image_size"]
    try:
        data = load_data(str(recorded["name"]), size if isinstance(size, int) else None)
    except DataError:
        return None
    return data if data.digest == recorded["digest"] else None


def recorded_strips(recorded: Mapping[str, object], classes: Iterable[int]) -> dict[int, bytes]:
    """The strips of the data set that a step's record names; empty where that data set is not here, or has changed."""
    data = recorded_data(recorded)
    return {} if data is None else class_strips(data, classes)


def _no_such_data(name: str) -> DataError:
    here = sorted({*installed(), "glyphs", *KNOWN})
    remedy = f"Get it with `forgetscope data get {name}`." if name in KNOWN else nearest(name, here).strip()
    return DataError(f"There is no data set {name!r}. {remedy}")


def _glyphs_folder(image_size: int | None) -> Path:
    return cache_folder() / f"glyphs-v{glyphs.VERSION}@{image_size or glyphs.DEFAULT_SIZE}px"


def _open_if_whole(folder: Path, image_size: int | None) -> DataSet | None:
    """What is damaged here will be made again when it is used."""
    try:
        return open_data(folder, image_size, verify=False) if is_here(folder) else None
    except DamagedData:
        return None


def _resized_folder(data: DataSet, size: int) -> Path:
    """It names the digest of what it is a copy of: a replaced data set gets another."""
    return cache_folder() / f"{data.name}@{size}px-{data.digest[:8]}"


def _resized_augmentation(data: DataSet) -> Callable[[int], AugmentationSpec]:
    return photographs if data.augmentation.flip else own_images


def _glyphs(image_size: int | None, note: Note) -> DataSet:
    size = image_size or glyphs.DEFAULT_SIZE
    folder = _glyphs_folder(size)

    def draw() -> None:
        note(f"Drawing the glyphs ({size} x {size} pixels), once")
        splits = [Split(labels, images) for images, labels in glyphs.render_both(size)]
        source = Source("drawn", glyphs.CLASS_NAMES, splits[0], splits[1], glyphs.CLASS_SCRIPTS)
        make(folder, source, Conversion("glyphs", glyph_augmentation), note)

    return made(folder, image_size, note, draw)


def _other_size(data: DataSet, size: int, note: Note) -> DataSet:
    """A resized copy, made once."""
    folder = _resized_folder(data, size)

    def resize() -> None:
        note(f"Resizing {data.name} to {size} x {size} pixels, once")
        splits = [Split(np.asarray(part.labels), part.images) for part in (data.train, data.test)]
        source = Source(f"{data.name}, resized", data.classes, splits[0], splits[1], data.superclasses)
        make(folder, source, Conversion(data.name, _resized_augmentation(data), size), note)

    return made(folder, size, note, resize)


def _folders_of(name: str) -> list[Path]:
    folder = folder_of(name).parent
    prefix = f"glyphs-v{glyphs.VERSION}" if name == "glyphs" else name
    return (
        sorted(path.parent for path in folder.glob(f"*/{MANIFEST}") if path.parent.name.split("@")[0] == prefix)
        if folder.is_dir()
        else []
    )
