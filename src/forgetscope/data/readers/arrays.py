"""One's own images as arrays: given in Python, or in a .npz file."""

import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from tokenize import TokenError  # what numpy lets out of a header that is no Python
from typing import IO, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from forgetscope.data.limits import check_classes, check_unpacked
from forgetscope.data.readers.archives import zip_directory
from forgetscope.data.sources import UNZIPPING, Source, Split, open_regular
from forgetscope.errors import DataError

ARRAYS = (("train_images", "x_train"), ("train_labels", "y_train"), ("test_images", "x_test"), ("test_labels", "y_test"))


def read_npz(path: Path) -> Source:
    """train_images, train_labels, test_images, test_labels (or x_train, y_train, ...), and optionally `classes`, the names."""
    try:
        with open_regular(path) as file:
            members = {info.filename.removesuffix(".npy"): info for info in zip_directory(path, file)}
            chosen = {names[0]: next((name for name in names if name in members), None) for names in ARRAYS}
            missing = [names for names in ARRAYS if chosen[names[0]] is None]
            if missing:
                has = ", ".join(members) or "none"
                raise DataError(f"{path} has no array {missing[0][0]!r} (or {missing[0][1]!r}); it has {has}.")
            wanted = {name: members[member] for name, member in chosen.items() if member is not None}
            wanted |= {"classes": members["classes"]} if "classes" in members else {}
            arrays = _read_arrays(path, file, wanted)
    except (*UNZIPPING, TypeError, TokenError) as error:
        raise DataError(f"{path} cannot be read as a .npz file of plain arrays ({error}).") from None
    except MemoryError:
        raise DataError(f"{path} needs more memory than there is. Give fewer or smaller images.") from None
    return from_arrays(**arrays, origin=str(path))


def _read_arrays(path: Path, file: BinaryIO, wanted: dict[str, zipfile.ZipInfo]) -> dict[str, NDArray[np.generic]]:
    """numpy takes the memory that an array's header asks for before it reads on, so all headers are looked at first."""
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        asked = 0
        for name, info in wanted.items():
            with archive.open(info) as member:
                asked += _asked(name, member)
        check_unpacked(path.name, max(asked, sum(info.file_size for info in wanted.values())), os.fstat(file.fileno()).st_size)
        for name, info in wanted.items():
            with archive.open(info) as member:
                arrays[name] = npy.read_array(member, allow_pickle=False)
                if member.read(1):  # to the end, where zip compares its checksum
                    raise ValueError(f"{name} is longer than it says")
    return arrays


def _asked(name: str, member: IO[bytes]) -> int:
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(member)
    if version not in readers:
        raise ValueError(f"{name} is written in version {version} of the format")
    shape, _, kind = readers[version](member)
    if kind.hasobject or kind.fields is not None:
        raise ValueError(f"{name} holds objects or records")
    if any(side < 0 for side in shape):
        raise ValueError(f"{name} has the shape {shape}")
    if kind.itemsize == 0:  # any number of which fits into no bytes
        raise ValueError(f"{name} holds nothing")
    return math.prod(max(1, side) for side in shape) * kind.itemsize  # numpy cannot count (0, 10**30) either


def from_arrays(
    train_images: ArrayLike,
    train_labels: ArrayLike,
    test_images: ArrayLike,
    test_labels: ArrayLike,
    classes: Iterable[object] | None = None,
    origin: str = "arrays",
) -> Source:
    """uint8 images [n, h, w, 3] or, in grey, [n, h, w]; labels from 0. Class names default to the numbers."""
    splits = [
        Split(_labels(labels, origin), _rgb(images, origin))
        for images, labels in ((train_images, train_labels), (test_images, test_labels))
    ]
    shapes = [split.images.shape[1:] for split in splits if isinstance(split.images, np.ndarray)]
    if shapes[0] != shapes[1]:
        raise DataError(f"{origin}: training images are {shapes[0]}, test images {shapes[1]}. Give both one size.")
    known = max((int(split.labels.max(initial=-1)) for split in splits), default=-1) + 1
    names = map(str, range(known)) if classes is None else _names(classes, origin)
    return Source(origin, tuple(names), splits[0], splits[1])


def _names(classes: Iterable[object], origin: str) -> Iterator[str]:
    if isinstance(classes, np.ndarray) and classes.ndim != 1:
        raise DataError(f"{origin}: class names have the shape {classes.shape}, expected one name per class.")
    if isinstance(classes, Sized):
        check_classes(origin, len(classes))
    for name in classes:
        try:
            yield name.decode("utf-8") if isinstance(name, bytes) else str(name)
        except UnicodeDecodeError:
            raise DataError(f"{origin}: the class name {name!r} is not UTF-8. Give the names as text.") from None


def _rgb(images: ArrayLike, origin: str) -> NDArray[np.uint8]:
    array = np.asarray(images)
    if array.dtype != np.uint8:
        ranges = {"uint16": "65535: (images / 257)", "float": "1: (255 * images)"}
        how = next((text for kind, text in ranges.items() if str(array.dtype).startswith(kind)), "")
        advice = f" From 0 to {how}.round().astype('uint8')." if how else ""
        raise DataError(f"{origin}: images are {array.dtype}, expected uint8 from 0 to 255. Convert them first.{advice}")
    if array.ndim == 4 and array.shape[3] == 1:
        array = array[..., 0]
    if (array.ndim != 3 and not (array.ndim == 4 and array.shape[3] == 3)) or 0 in array.shape[1:3]:
        raise DataError(f"{origin}: images have shape {array.shape}, expected [n, h, w, 3] or [n, h, w].")
    return np.repeat(array[..., None], 3, axis=3) if array.ndim == 3 else array


def _labels(labels: ArrayLike, origin: str) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"{origin}: labels are {array.dtype} of shape {array.shape}, expected whole numbers [n].")
    check_classes(origin, int(array.max(initial=0)) + 1)
    return array.astype(np.int64)
