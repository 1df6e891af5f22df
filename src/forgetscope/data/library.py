"""The library of data sets: opening what is here, and the facts of what is not."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forgetscope.data import glyphs
from forgetscope.data.augmentation import augmentation_of, glyph_augmentation
from forgetscope.data.cache import NAME, cache_folder, downloads, folder_of, is_here, made
from forgetscope.data.conversion import Conversion
from forgetscope.data.images import MANIFEST, DataSet, current_digest, open_data
from forgetscope.data.known import KNOWN
from forgetscope.data.ownership import UNFINISHED, demand_ours, discard, is_ours, not_ours, unfinished
from forgetscope.data.sources import Source, Split
from forgetscope.errors import DamagedData, DataError
from forgetscope.files import size_of
from forgetscope.options import nearest
from forgetscope.outputs import Note, unheard
from forgetscope.spec import AugmentationSpec


def load_data(name: str, image_size: int | None = None, note: Note = unheard, *, verify: bool = True) -> DataSet:
    """Open a data set. Glyphs, and other sizes of a data set, are made the first time; `note` is told of it.

    `verify` reads every file once to see that it is whole; what is damaged and can be made again here, is.

    >>> import forgetscope as fs
    >>> data = fs.load_data("glyphs", image_size=8)
    >>> data.train.images.shape, data.train.images.dtype
    ((20000, 8, 8, 3), dtype('uint8'))
    """
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
            augmentation, digest = augmentation_of(name)(shape[0]), copy.digest if copy else None
        return DataFacts(name, classes, train, test, shape or data.shape, augmentation, digest)
    if known is None:
        raise _no_such_data(name)
    shape = shape or (known.side, known.side)
    return DataFacts(name, known.classes, *known.images, shape, augmentation_of(name)(shape[0]), None)


def installed() -> list[str]:
    """Names of the data sets that are here, other sizes not counted."""
    return [name for name in described() if is_ours(cache_folder() / name)]


def described() -> list[str]:
    """Names of the folders in the cache that have a manifest, perhaps a damaged one, or one that is not ours."""
    names = sorted(path.parent.name for path in cache_folder().glob(f"*/{MANIFEST}"))
    return [name for name in names if re.fullmatch(NAME, name)]


def disk_bytes(name: str) -> int:
    """What a data set takes on disk, other sizes included."""
    return sum(size_of(folder) for folder in _folders_of(name))


def leftovers() -> list[tuple[Path, int, str]]:
    """What is in the cache without being a data set, its bytes, and what becomes of it."""
    deleted = "left by an interrupted conversion or removal; the next `forgetscope data add` or `data get` deletes it"
    continued = "a part of a download, which the same `forgetscope data get` continues; delete it if you do not want that"
    found = [(path, deleted) for path in unfinished(cache_folder())]
    found += [(path, continued) for path in downloads() if size_of(path)]
    return [(path, size_of(path), remark) for path, remark in found]


def remove_data(name: str) -> None:
    """Delete a data set and its other sizes; results in stores, and what forgetscope did not make, are not touched."""
    if UNFINISHED.fullmatch(name):
        folders = [path for path in unfinished(cache_folder()) if path.name == name]
    else:
        folders = _folders_of(name)
        for folder in folders:
            demand_ours(folder)
    if not folders and name == "glyphs":
        raise DataError(f"glyphs is embedded in forgetscope, and nothing of it is in {cache_folder()}.")
    if not folders:
        here = installed()
        raise DataError(f"There is no data set {name!r} in {cache_folder()}.{nearest(name, here) if here else ''}")
    for folder in folders:
        discard(folder)


def check_data(name: str) -> DataSet:
    """Recompute the digest and compare the counts; raises DataError where the files have changed."""
    data = load_data(name)
    found = current_digest(data)
    if found != data.digest:
        raise DataError(
            f"The pixels or labels of {name!r} have changed on disk: digest {found[:12]}, expected {data.digest[:12]}. "
            f"Remove it (`forgetscope data remove {name}`) and make it again."
        )
    return data


def recorded_data(recorded: Mapping[str, object]) -> DataSet | None:
    """The data set that a step's record names; None where it is not here in this size, or has changed. Looking makes no data:
    a record may name a size that nobody has room for."""
    name, size = str(recorded["name"]), recorded.get("image_size")
    size = size if isinstance(size, int) else None
    try:
        folder = _glyphs_folder(size) if name == "glyphs" else folder_of(name)
        data = open_data(folder, size if name == "glyphs" else None) if is_here(folder) else None
        if data is not None and size is not None and data.shape != (size, size):
            folder = _resized_folder(data, size)
            data = open_data(folder, size) if is_here(folder) else None
    except DataError:
        return None
    return data if data is not None and data.digest == recorded["digest"] else None


def _no_such_data(name: str) -> DataError:
    if os.path.lexists(folder := folder_of(name)):
        return not_ours(folder)
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
    return folder_of(data.name).with_name(f"{data.name}@{size}px-{data.digest[:8]}")


def _glyphs(image_size: int | None, note: Note) -> DataSet:
    size = image_size or glyphs.DEFAULT_SIZE

    def render() -> Source:
        train, test = (Split(labels, images) for images, labels in glyphs.render_both(size))
        return Source("drawn", glyphs.CLASS_NAMES, train, test, glyphs.CLASS_SCRIPTS)

    why = f"Drawing the glyphs ({size} x {size} pixels), once"
    return made(_glyphs_folder(size), image_size, note, why, render, Conversion("glyphs", glyph_augmentation))


def _other_size(data: DataSet, size: int, note: Note) -> DataSet:
    """A resized copy, made once."""
    train, test = (Split(np.asarray(part.labels), part.images) for part in (data.train, data.test))
    source = Source(f"{data.name}, resized", data.classes, train, test, data.superclasses)
    why, how = f"Resizing {data.name} to {size} x {size} pixels, once", Conversion(data.name, augmentation_of(data.name), size)
    return made(_resized_folder(data, size), size, note, why, lambda: source, how)


def _folders_of(name: str) -> list[Path]:
    """What is in the cache under the names of a data set and of its other sizes, whoever made it."""
    folder_of(name)  # or an error
    names = rf"glyphs-v{glyphs.VERSION}@\d+px" if name == "glyphs" else rf"{re.escape(name)}(@\d+px-[0-9a-f]{{8}})?"
    return sorted(path for path in cache_folder().glob("*") if re.fullmatch(names, path.name))
