"""The library of data sets: what is known, what is here, and how each gets into the cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import ArrayLike
from platformdirs import user_cache_path

from forgetscope.data import glyphs
from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.download import download
from forgetscope.data.images import FILES, MANIFEST, DataSet, class_strips, open_data, pixel_digest
from forgetscope.data.readers.cifar100 import read_cifar100
from forgetscope.data.readers.folders import from_arrays, read_folders, read_npz
from forgetscope.data.readers.tiny_imagenet import read_tiny_imagenet
from forgetscope.data.sources import Fit, Source, Split
from forgetscope.errors import DamagedData, DataError
from forgetscope.files import locked, put_aside
from forgetscope.spec import AugmentationSpec, nearest

Note = Callable[[str], None]
Progress = Callable[[str, int, int], None]  # "bytes" or "images", how many are done, how many there are (0: unknown)
BRIGHTNESS = 63 / 255


@dataclass(frozen=True)
class Known:
    """A public data set: where it is, what its archives must sum up to, and how to read it."""

    address: str
    archives: Mapping[str, str]  # official file name -> MD5
    read: Callable[[Path], Source]
    classes: int
    images: tuple[int, int]  # of each class: to train and to test
    side: int  # pixels

    @property
    def summary(self) -> str:
        train, test = self.images
        return f"{self.classes} classes, {train} + {test} images, {self.side} x {self.side}"


KNOWN = {
    "cifar100": Known(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        {
            "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
            "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
        },
        read_cifar100,
        100,
        (500, 100),
        32,
    ),
    "tiny-imagenet": Known(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        {"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
        read_tiny_imagenet,
        200,
        (500, 50),
        64,
    ),
}


def cache_folder() -> Path:
    """Where converted data sets live; FORGETSCOPE_CACHE moves it."""
    override = os.environ.get("FORGETSCOPE_CACHE")
    return Path(override) if override else user_cache_path("forgetscope", appauthor=False)


def load_data(name: str, image_size: int | None = None, note: Note = lambda text: None, *, verify: bool = True) -> DataSet:
    """Open a data set. Glyphs, and other sizes of a data set, are made the first time; `note` is told of it.

    `verify` reads every file once to see that it is whole; what is damaged and can be made again here, is."""
    if name == "glyphs":
        return _glyphs(image_size, note)
    folder = _folder(name)
    if not (folder / MANIFEST).is_file():
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
        return DataFacts(name, *counts, shape, _glyph_augmentation(shape[0]), made.digest if made else None)
    if (_folder(name) / MANIFEST).is_file():
        data = open_data(_folder(name), verify=False)
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
    return DataFacts(name, known.classes, *known.images, shape, _photographs(shape[0]), None)


def get_data(
    name: str, origin: str | None = None, *, workers: int = 1, progress: Progress | None = None, note: Note = print
) -> DataSet:
    """Fetch a known data set, or take it from a file, folder or address, and convert it."""
    known = KNOWN.get(name)
    if known is None:
        raise DataError(
            f"{name!r} is not a public data set that is known.{nearest(name, sorted(KNOWN))} Your own: `forgetscope data add`."
        )
    if (_folder(name) / MANIFEST).is_file():
        note(f"{name} is here already. To make it anew, remove it first: `forgetscope data remove {name}`.")
        return load_data(name)
    address = origin or known.address
    remote = "://" in address
    path = _downloaded(address, known, progress, note) if remote else Path(address)
    if path.is_file():
        _verify_archive(path, known)
    _convert(known.read(path), Conversion(name, _photographs), workers, progress, note)
    if remote:
        path.unlink(missing_ok=True)
    return load_data(name)


def add_data(
    name: str,
    path: str | Path,
    *,
    test_share: float | None = None,
    size: int | None = None,
    fit: Fit = "crop",
    workers: int = 1,
    progress: Progress | None = None,
    note: Note = print,
) -> DataSet:
    """Convert one's own images: folders of images per class, or a .npz file."""
    _refuse_name(name)
    _refuse_existing(name)
    path = Path(path)
    if not path.exists():
        raise DataError(f"There is nothing at {path}.")
    source = read_npz(path) if path.is_file() else read_folders(path, test_share)
    _convert(source, Conversion(name, _own_images, size, fit), workers, progress, note)
    return load_data(name)


def add_arrays(
    name: str,
    train_images: ArrayLike,
    train_labels: ArrayLike,
    test_images: ArrayLike,
    test_labels: ArrayLike,
    classes: Iterable[str] | None = None,
) -> DataSet:
    """Keep arrays as a data set: uint8 images [n, h, w, 3] or [n, h, w], labels from 0."""
    _refuse_name(name)
    _refuse_existing(name)
    names = None if classes is None else list(classes)
    source = from_arrays(train_images, train_labels, test_images, test_labels, names)
    _convert(source, Conversion(name, _own_images), 1, None, lambda text: None)
    return load_data(name)


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
        return open_data(folder, image_size, verify=False) if (folder / MANIFEST).is_file() else None
    except DamagedData:
        return None


def _glyph_augmentation(side: int) -> AugmentationSpec:
    return AugmentationSpec(crop=max(1, side // 16), brightness=BRIGHTNESS)


def _resized_folder(data: DataSet, size: int) -> Path:
    """It names the digest of what it is a copy of: a replaced data set gets another."""
    return cache_folder() / f"{data.name}@{size}px-{data.digest[:8]}"


def _resized_augmentation(data: DataSet) -> Callable[[int], AugmentationSpec]:
    return _photographs if data.augmentation.flip else _own_images


def _glyphs(image_size: int | None, note: Note) -> DataSet:
    size = image_size or glyphs.DEFAULT_SIZE
    folder = _glyphs_folder(size)

    def make() -> None:
        note(f"Drawing the glyphs ({size} x {size} pixels), once")
        splits = [Split(labels, images) for images, labels in glyphs.render_both(size)]
        source = Source("drawn", glyphs.CLASS_NAMES, splits[0], splits[1], glyphs.CLASS_SCRIPTS)
        _make(folder, source, Conversion("glyphs", _glyph_augmentation), note)

    return _made(folder, image_size, note, make)


def _other_size(data: DataSet, size: int, note: Note) -> DataSet:
    """A resized copy, made once."""
    folder = _resized_folder(data, size)

    def make() -> None:
        note(f"Resizing {data.name} to {size} x {size} pixels, once")
        splits = [Split(np.asarray(part.labels), part.images) for part in (data.train, data.test)]
        source = Source(f"{data.name}, resized", data.classes, splits[0], splits[1], data.superclasses)
        _make(folder, source, Conversion(data.name, _resized_augmentation(data), size), note)

    return _made(folder, size, note, make)


def _made(folder: Path, image_size: int | None, note: Note, make: Callable[[], None]) -> DataSet:
    """Open what was made before, or make it. What is damaged is put aside and made again."""
    if not (folder / MANIFEST).is_file():
        make()
    try:
        return open_data(folder, image_size)
    except DamagedData as damage:
        with _lock(folder, note, lambda: False):
            try:
                return open_data(folder, image_size)  # another process may have made it again meanwhile
            except DamagedData:
                if folder.exists():
                    aside = put_aside(folder, folder.parent / "quarantine", folder.name)
                    note(f"{str(damage).removesuffix(' Delete that folder and make it again.')} Moved to {aside}.")
    make()
    return open_data(folder, image_size)


def _convert(source: Source, conversion: Conversion, workers: int, progress: Progress | None, note: Note) -> None:
    _make(_folder(conversion.name), source, conversion, note, workers, progress)


def _make(
    folder: Path, source: Source, conversion: Conversion, note: Note, workers: int = 1, progress: Progress | None = None
) -> None:
    """Convert unless another process has done it meanwhile."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"Cannot write to the cache {folder.parent}: {error}. Set FORGETSCOPE_CACHE to another folder."
        ) from None

    def done() -> bool:
        return (folder / MANIFEST).is_file()

    with _lock(folder, note, done):
        if not done():
            convert(source, folder, conversion, workers=workers, progress=partial(progress or _silence, "images"))


def _lock(folder: Path, note: Note, done: Callable[[], bool]) -> AbstractContextManager[None]:
    waiting = f"Another process is making {folder.name}; waiting for it."
    return locked(folder.parent / f".{folder.name}.lock", lambda: note(waiting), done)


def _silence(what: str, done: int, total: int) -> None: ...


def _downloaded(address: str, known: Known, progress: Progress | None, note: Note) -> Path:
    file = Path(urlsplit(address).path).name or "download"
    target = cache_folder() / "downloads" / file
    note(f"Downloading {address}")
    return download(
        address,
        target,
        md5=known.archives.get(file),
        progress=lambda done, total: progress("bytes", done, total or 0) if progress else None,
        blocked=lambda: note("Another process is downloading it; waiting for it."),
    )


def _verify_archive(path: Path, known: Known) -> None:
    """An archive under the official name must be the official one."""
    expected = known.archives.get(path.name)
    if expected is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != expected:
        raise DataError(
            f"{path} is not the official archive: MD5 {found}, expected {expected}. It is incomplete or altered: get it again, "
            "or rename it if you made it yourself."
        )


def _folder(name: str) -> Path:
    _refuse_name(name, known_too=False)
    return cache_folder() / name


def _folders_of(name: str) -> list[Path]:
    _refuse_name(name, known_too=False)
    folder = cache_folder()
    prefix = f"glyphs-v{glyphs.VERSION}" if name == "glyphs" else name
    return (
        sorted(path.parent for path in folder.glob(f"*/{MANIFEST}") if path.parent.name.split("@")[0] == prefix)
        if folder.is_dir()
        else []
    )


def _refuse_name(name: str, known_too: bool = True) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise DataError(f"{name!r} cannot be a data set's name. Use letters, digits, '.', '_' and '-'.")
    if known_too and (name in KNOWN or name.startswith("glyphs") or name == "downloads"):
        remedy = f"`forgetscope data get {name} --from PATH`" if name in KNOWN else "another name"
        raise DataError(f"The name {name!r} is taken. Use {remedy}.")


def _refuse_existing(name: str) -> None:
    if (_folder(name) / MANIFEST).is_file():
        raise DataError(f"There is a data set {name!r} already. Remove it first: `forgetscope data remove {name}`.")


def _photographs(side: int) -> AugmentationSpec:
    """The paper's augmentation: 4 px at 32 x 32, 8 px at 64 x 64."""
    return AugmentationSpec(crop=side // 8, flip=True, brightness=BRIGHTNESS)


def _own_images(side: int) -> AugmentationSpec:
    """No flip unless asked for: a mirrored letter or sign is another one."""
    return AugmentationSpec(crop=side // 8, flip=False, brightness=BRIGHTNESS)
