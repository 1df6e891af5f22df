"""Data sets as memory-mapped uint8 arrays with a digest that goes into every step's identity."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from forgetscope.errors import DamagedData
from forgetscope.spec import AugmentationSpec

MANIFEST = "manifest.json"
FILES = ("train_images", "train_labels", "test_images", "test_labels")
SHEET_CLASSES, SHEET_IMAGES = 100, 8
SHEET_QUALITY = 60  # of a WebP: thumbnails, not evidence


@dataclass(frozen=True)
class ImageSet:
    images: NDArray[np.uint8]  # [n, h, w, 3]
    labels: NDArray[np.int64]  # [n]


@dataclass(frozen=True)
class DataSet:
    """Training and test images of named classes; class c is label c."""

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

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of every image."""
        height, width = self.train.images.shape[1:3]
        return height, width

    def __repr__(self) -> str:
        images = f"{len(self.train.labels)} + {len(self.test.labels)} images"
        return f"DataSet({self.name!r}, {len(self.classes)} classes, {images}, {self.shape[0]}x{self.shape[1]})"


def open_data(folder: Path, image_size: int | None = None, *, verify: bool = True) -> DataSet:
    """Map a converted data set; nothing is copied, whatever its size. `verify` reads it once, to see that it is whole."""
    try:
        manifest = _read_manifest(folder)
        for file in FILES if verify else ():
            if file_digest(folder / f"{file}.npy") != manifest["files"][file]:
                raise ValueError(f"{file}.npy does not match its checksum")
        arrays = {file: np.load(folder / f"{file}.npy", mmap_mode="r", allow_pickle=False) for file in FILES}
        return DataSet(
            name=manifest["name"],
            classes=tuple(manifest["classes"]),
            superclasses=tuple(manifest["superclasses"]) if manifest["superclasses"] else None,
            train=ImageSet(arrays["train_images"], arrays["train_labels"]),
            test=ImageSet(arrays["test_images"], arrays["test_labels"]),
            digest=manifest["digest"],
            mean=tuple(manifest["mean"]),
            std=tuple(manifest["std"]),
            augmentation=AugmentationSpec(**manifest["augmentation"]),
            image_size=image_size,
        )
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise DamagedData(f"The data set in {folder} is damaged ({error}). Delete that folder and make it again.") from None


def manifest_bytes(manifest: Mapping[str, object]) -> bytes:
    """A manifest as it is written: with a checksum of all the rest."""
    return json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1, ensure_ascii=False).encode()


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{MANIFEST}: {error}") from None
    if manifest.pop("checksum", None) != _checksum(manifest):
        raise ValueError(f"{MANIFEST} does not match its checksum")
    return manifest


def _checksum(manifest: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pixel_digest(arrays: Iterable[tuple[str, NDArray[np.generic]]]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of FILES."""
    digest = hashlib.sha256()
    for name, array in arrays:
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        rows = max(1, 2**24 // max(1, array[:1].nbytes))  # 16 MB at a time: a mapped array must not be copied whole
        for start in range(0, len(array), rows):
            digest.update(np.ascontiguousarray(array[start : start + rows]).data)
    return digest.hexdigest()


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
