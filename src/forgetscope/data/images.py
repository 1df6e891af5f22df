"""Data sets as memory-mapped uint8 arrays with a digest that goes into every step's identity."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from platformdirs import user_cache_path

from forgetscope.data import glyphs
from forgetscope.errors import DataError
from forgetscope.spec import AugmentationSpec, nearest

Arrays = dict[str, NDArray[np.generic]]
FILES = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True)
class ImageSet:
    images: NDArray[np.uint8]  # [n, h, w, 3]
    labels: NDArray[np.int64]  # [n]


@dataclass(frozen=True)
class DataSet:
    """Training and test images of named classes; class c is label c."""

    name: str
    classes: tuple[str, ...]
    train: ImageSet
    test: ImageSet
    digest: str  # of pixels and labels
    mean: tuple[float, float, float]  # of the training pixels per channel, range 0 to 1
    std: tuple[float, float, float]
    augmentation: AugmentationSpec  # what suits these images, where a run says nothing

    def __repr__(self) -> str:
        side = "x".join(map(str, self.train.images.shape[1:3]))
        images = f"{len(self.train.labels)} + {len(self.test.labels)} images"
        return f"DataSet({self.name!r}, {len(self.classes)} classes, {images}, {side})"


def cache_folder() -> Path:
    """Where converted data sets live; FORGETSCOPE_CACHE moves it."""
    override = os.environ.get("FORGETSCOPE_CACHE")
    return Path(override) if override else user_cache_path("forgetscope", appauthor=False)


def load_data(name: str, image_size: int | None = None, note: Callable[[str], None] = lambda text: None) -> DataSet:
    """Open a data set, making it first if it is not in the cache; `note` is told what takes time."""
    if name != "glyphs":
        raise DataError(f"There is no data set {name!r}.{nearest(name, ['glyphs'])}")
    size = image_size or glyphs.DEFAULT_SIZE
    folder = cache_folder() / f"glyphs-v{glyphs.VERSION}-{size}px"
    if not (folder / "manifest.json").is_file():
        note(f"Drawing the glyphs ({size} x {size} pixels), once")
        _write(
            folder,
            "glyphs",
            glyphs.CLASS_NAMES,
            AugmentationSpec(crop=max(1, size // 16), brightness=63 / 255),
            _draw_glyphs(size),
        )
    return _open(folder)


def class_strips(data: DataSet, classes: Iterable[int], images: int = 4) -> dict[int, bytes]:
    """A PNG per class with its first training images side by side, to show beside the class's name."""
    strips = {}
    for label in classes:
        first = np.flatnonzero(data.train.labels == label)[:images]
        buffer = io.BytesIO()
        Image.fromarray(np.concatenate(list(data.train.images[first]), axis=1)).save(buffer, "PNG")
        strips[label] = buffer.getvalue()
    return strips


def recorded_strips(recorded: Mapping[str, object], classes: Iterable[int]) -> dict[int, bytes]:
    """The strips of the data set that a step's record names; empty where that data set is not here, or has changed."""
    try:
        data = load_data(str(recorded["name"]), int(str(recorded["image_size"])))
    except DataError:
        return {}
    return class_strips(data, classes) if data.digest == recorded["digest"] else {}


def _draw_glyphs(size: int) -> Arrays:
    train_images, train_labels = glyphs.render("glyphs-train", glyphs.TRAIN_IMAGES_PER_CLASS, size)
    test_images, test_labels = glyphs.render("glyphs-test", glyphs.TEST_IMAGES_PER_CLASS, size)
    return dict(zip(FILES, (train_images, train_labels, test_images, test_labels), strict=True))


def _write(folder: Path, name: str, classes: tuple[str, ...], augmentation: AugmentationSpec, arrays: Arrays) -> None:
    """Write under a temporary name and rename: a reader sees a whole data set or none."""
    pixels = arrays["train_images"].reshape(-1, 3)
    mean, std = _channel_statistics(pixels)
    digest = hashlib.sha256()
    for file in FILES:
        digest.update(f"{file}{arrays[file].dtype}{arrays[file].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[file]).data)
    manifest = {
        "name": name,
        "classes": classes,
        "digest": digest.hexdigest(),
        "mean": mean,
        "std": std,
        "augmentation": augmentation.model_dump(),
    }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            for file in FILES:
                np.save(temporary / f"{file}.npy", arrays[file], allow_pickle=False)
            (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)  # remains of something that is not a whole data set
            os.rename(temporary, folder)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            if not (folder / "manifest.json").is_file():  # else another process was faster, and that is as good
                raise
    except OSError as error:
        raise DataError(
            f"Cannot write the data set to {folder.parent}: {error}. Set FORGETSCOPE_CACHE to another folder."
        ) from None


def _channel_statistics(pixels: NDArray[np.generic]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel from 0 to 1, exactly, from counts of the 256 values."""
    values = np.arange(256) / 255
    counts = np.stack([np.bincount(pixels[:, channel], minlength=256) for channel in range(3)])
    mean = counts @ values / counts.sum(axis=1)
    variance = counts @ values**2 / counts.sum(axis=1) - mean**2
    return mean.tolist(), np.sqrt(variance).tolist()


def _open(folder: Path) -> DataSet:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        arrays = {file: np.load(folder / f"{file}.npy", mmap_mode="r", allow_pickle=False) for file in FILES}
        return DataSet(
            name=manifest["name"],
            classes=tuple(manifest["classes"]),
            train=ImageSet(arrays["train_images"], arrays["train_labels"]),
            test=ImageSet(arrays["test_images"], arrays["test_labels"]),
            digest=manifest["digest"],
            mean=tuple(manifest["mean"]),
            std=tuple(manifest["std"]),
            augmentation=AugmentationSpec(**manifest["augmentation"]),
        )
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"The data set in {folder} is damaged ({error}). Delete that folder; it is made again.") from None
