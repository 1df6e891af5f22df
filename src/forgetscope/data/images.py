"""Data sets as memory-mapped uint8 arrays with a digest that goes into every step's identity."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenError  # what numpy lets out of a header that is no Python
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from forgetscope.characters import counted
from forgetscope.data.augmentation import CROPS, augmentation_of
from forgetscope.errors import DamagedData
from forgetscope.files import file_digest
from forgetscope.spec import AugmentationSpec

MANIFEST = "manifest.json"
BLOCK_BYTES = 2**24
FILES = ("train_images", "train_labels", "test_images", "test_labels")
SHEET_CLASSES, SHEET_IMAGES = 100, 8
SHEET_QUALITY = 60  # of a WebP: thumbnails, not evidence
Stamp = tuple[int, int, int, int]  # inode, size, times of the last write and the last change


@dataclass(frozen=True)
class ImageSet:
    images: NDArray[np.uint8]  # [n, h, w, 3]
    labels: NDArray[np.int64]  # [n]

    def first(self, each: int, labels: Iterable[int]) -> ImageSet:
        """The first so many images of each of these classes, class after class."""
        positions = np.concatenate([np.flatnonzero(self.labels == label)[:each] for label in labels])
        return ImageSet(self.images[positions], self.labels[positions])


@dataclass(frozen=True)
class DataSet:
    """Training and test images of named classes; class c is label c.

    >>> import forgetscope as fs
    >>> data = fs.load_data("glyphs", image_size=8)
    >>> data
    DataSet('glyphs', 100 classes, 20000 + 10000 images, 8x8)
    >>> data.classes[data.train.labels[0]]
    'digit 0'
    """

    name: str
    classes: tuple[str, ...]
    superclasses: tuple[str, ...] | None  # the superclass of each class, where the data set has them
    train: ImageSet
    test: ImageSet
    digest: str  # of pixels and labels
    mean: tuple[float, float, float]  # of the training pixels per channel, range 0 to 1
    std: tuple[float, float, float]
    augmentation: AugmentationSpec  # what suits these images, where a run says nothing
    image_size: int | None = None  # the size that was asked for; None: the data set's own
    stamps: tuple[tuple[Path, Stamp], ...] = field(default=(), repr=False, compare=False)  # its files when it was opened

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        height, width = self.train.images.shape[1:3]
        return height, width

    def __repr__(self) -> str:
        images = f"{len(self.train.labels)} + {len(self.test.labels)} images"
        return f"DataSet({self.name!r}, {counted(len(self.classes), 'class')}, {images}, {self.shape[0]}x{self.shape[1]})"


def demand_unchanged(data: DataSet) -> None:
    """What is mapped follows its files: raises DamagedData if these were written to and hold other pixels or labels now."""
    if all(_stamp(path) == stamp for path, stamp in data.stamps):
        return
    found = current_digest(data)
    if found != data.digest:
        raise DamagedData(
            f"The pixels or labels of {data.name!r} were changed while they were in use: digest {found[:12]}, opened as "
            f"{data.digest[:12]}. Nothing of the step is kept. Remove the data set (`forgetscope data remove {data.name}`), "
            "make it again, and run the same command to continue."
        )


def current_digest(data: DataSet) -> str:
    """Of the pixels and labels as they are now."""
    arrays = (data.train.images, data.train.labels, data.test.images, data.test.labels)
    return pixel_digest(zip(FILES, arrays, strict=True))


def _stamp(path: Path) -> Stamp | None:
    """Changes with every write to the file, and with the file itself; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def open_data(folder: Path, image_size: int | None = None, *, verify: bool = True) -> DataSet:
    """Map a converted data set; nothing is copied, whatever its size. `verify` reads it once, to see that it is whole."""
    try:
        manifest = _read_manifest(folder)
        paths = {file: (folder / f"{file}.npy").absolute() for file in FILES}
        stamps = tuple((path, stamp) for path in paths.values() if (stamp := _stamp(path)))
        for file, path in paths.items():
            if path.exists() and not path.is_file():  # a pipe waits for ever, a device never ends
                raise ValueError(f"{path.name} is no plain file")
            if verify and file_digest(path) != manifest["files"][file]:
                raise ValueError(f"{path.name} does not match its checksum")
        arrays = {file: np.load(path, mmap_mode="r", allow_pickle=False) for file, path in paths.items()}
        if _read_manifest(folder) != manifest:  # replaced meanwhile: what is mapped may be of both
            return open_data(folder, image_size, verify=verify)
        _check_arrays(arrays, len(manifest["classes"]))
        return DataSet(
            name=manifest["name"],
            classes=tuple(manifest["classes"]),
            superclasses=tuple(manifest["superclasses"]) if manifest["superclasses"] else None,
            train=ImageSet(arrays["train_images"], arrays["train_labels"]),
            test=ImageSet(arrays["test_images"], arrays["test_labels"]),
            digest=manifest["digest"],
            mean=tuple(manifest["mean"]),
            std=tuple(manifest["std"]),
            augmentation=augmentation_of(manifest["name"])(arrays["train_images"].shape[1])
            if manifest["name"] in CROPS
            else AugmentationSpec(**manifest["augmentation"]),
            image_size=image_size,
            stamps=stamps,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, TokenError) as error:
        raise DamagedData(f"The data set in {folder} is damaged ({error}). Delete that folder and make it again.") from None


def _check_arrays(arrays: Mapping[str, NDArray[np.generic]], classes: int) -> None:
    """What everybody relies on, whoever wrote the checksums."""
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != arrays["train_images"].shape[1:]:
            raise ValueError(f"{part}_images.npy holds {images.dtype} of shape {images.shape}")
        if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
            raise ValueError(f"{part}_labels.npy holds {labels.dtype} of shape {labels.shape}")
        if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
            raise ValueError(f"{part}_labels.npy holds labels of no class")


def manifest_bytes(manifest: Mapping[str, object]) -> bytes:
    """A manifest as it is written: with a checksum of all the rest."""
    return json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1, ensure_ascii=False).encode()


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{MANIFEST}: {error}") from None
    if manifest.pop("checksum", None) != _checksum(manifest):
        raise ValueError(f"{MANIFEST} does not match its checksum")
    return manifest


def _checksum(manifest: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def pixel_digest(arrays: Iterable[tuple[str, NDArray[np.generic]]]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of FILES."""
    digest = hashlib.sha256()
    for name, array in arrays:
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        rows = rows_at_once(array[:1].nbytes)  # a mapped array must not be copied whole
        for start in range(0, len(array), rows):
            digest.update(np.ascontiguousarray(array[start : start + rows]).data)
    return digest.hexdigest()


def rows_at_once(stride: int) -> int:
    """How many images of so many bytes to have in memory, however large they are."""
    return max(1, BLOCK_BYTES // max(1, stride))


def class_strips(data: DataSet, classes: Iterable[int], images: int = 4) -> dict[int, bytes]:
    """A PNG per class with its first training images side by side, to show beside the class's name."""
    strips = {}
    for label in classes:
        buffer = io.BytesIO()
        Image.fromarray(_strip(data, label, images)).save(buffer, "PNG")
        strips[label] = buffer.getvalue()
    return strips


def contact_sheet(data: DataSet) -> Image.Image:
    """The first training images of each class: a strip per class, from top to bottom and then from left to right."""
    labels = range(min(SHEET_CLASSES, len(data.classes)))
    strips = [_strip(data, label, SHEET_IMAGES) for label in labels]
    per_column = -(-len(strips) // min(4, len(strips)))
    height, gap = data.shape[0], max(2, data.shape[1] // 8)
    width = SHEET_IMAGES * data.shape[1] + gap
    sheet = np.full((per_column * height, -(-len(strips) // per_column) * width - gap, 3), 255, np.uint8)
    for i, strip in enumerate(strips):
        left, top = i // per_column * width, i % per_column * height
        sheet[top : top + height, left : left + strip.shape[1]] = strip
    return Image.fromarray(sheet)


def image_sheet(data: DataSet, indices: Sequence[int], side: int, columns: int) -> bytes:
    """Training images as one WebP, each `side` pixels high and wide, line by line; the way to ship thousands of them."""
    sheet = Image.new("RGB", (columns * side, -(-len(indices) // columns) * side))
    for place, index in enumerate(indices):
        image = Image.fromarray(np.asarray(data.train.images[index]).squeeze()).convert("RGB")
        if image.size != (side, side):
            image = image.resize((side, side), Image.Resampling.LANCZOS if image.width > side else Image.Resampling.NEAREST)
        sheet.paste(image, (place % columns * side, place // columns * side))
    buffer = io.BytesIO()
    sheet.save(buffer, "WEBP", quality=SHEET_QUALITY, method=4)
    return buffer.getvalue()


def _strip(data: DataSet, label: int, images: int) -> NDArray[np.uint8]:
    first = np.flatnonzero(data.train.labels == label)[:images]
    return np.concatenate(list(data.train.images[first]), axis=1)
