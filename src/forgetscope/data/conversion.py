"""Conversion: once, from whatever a reader found into arrays that are mapped from then on.

A data set is written under a temporary name and renamed, so a half-converted one is never visible. Encoded images are decoded
by worker processes that write straight into the file. Plain writes at offsets, not a mapping: a full disk is then an error
instead of a crash.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from forgetscope.data.images import FILES, MANIFEST, file_digest, manifest_bytes, pixel_digest
from forgetscope.data.sources import Chunk, Fit, Source, Split, decode, resize
from forgetscope.errors import DataError
from forgetscope.files import cannot_write, sync_folder, write_durably
from forgetscope.spec import AugmentationSpec

Progress = Callable[[int, int], None]  # images done, images in all
Result = TypeVar("Result")
BLOCK = 1000  # images at a time


@dataclass(frozen=True)
class Conversion:
    """How a data set is to be stored."""

    name: str
    augmentation: Callable[[int], AugmentationSpec]  # what suits images with this side
    size: int | None = None  # None: as the images are
    fit: Fit = "crop"


def convert(
    source: Source, folder: Path, conversion: Conversion, *, workers: int = 1, progress: Progress = lambda done, total: None
) -> None:
    """Check, decode, measure and store a data set. With several workers the caller's main module must be importable."""
    _check(source)
    shape = _shape(source, conversion)
    splits = {"train": source.train, "test": source.test}
    total = sum(len(split.labels) for split in splits.values())
    done = 0

    def advance(images: int) -> None:
        nonlocal done
        done += images
        progress(done, total)

    counts: dict[str, NDArray[np.int64]] = {}
    with _new_folder(folder) as building, _executor(workers) as executor:
        for name, split in splits.items():
            np.save(building / f"{name}_labels.npy", split.labels.astype(np.int64), allow_pickle=False)
            counts[name] = _write_images(building / f"{name}_images.npy", split, shape, conversion, executor, advance)
        _write_manifest(building, source, conversion, counts["train"])


def _check(source: Source) -> None:
    """Labels are known, and every class has images to learn from and to be tested on."""
    for name, split in (("training", source.train), ("test", source.test)):
        images = sum(map(len, split.images)) if isinstance(split.images, Sequence) else len(split.images)
        if images != len(split.labels):
            raise DataError(f"{source.origin}: {images} {name} images but {len(split.labels)} labels.")
        unknown = split.labels[(split.labels < 0) | (split.labels >= len(source.classes))]
        if len(unknown):
            raise DataError(
                f"{source.origin}: label {unknown[0]} of a {name} image is unknown; there are {len(source.classes)} classes."
            )
        counts = np.bincount(split.labels, minlength=len(source.classes))
        empty = np.flatnonzero(counts == 0)
        if len(empty):
            names = ", ".join(repr(source.classes[label]) for label in empty[:5])
            raise DataError(
                f"{source.origin}: {len(empty)} of {len(source.classes)} classes have no {name} images ({names}). "
                "Add some, or leave the class out."
            )
    if len(set(source.classes)) < len(source.classes):
        twice = next(name for name in source.classes if source.classes.count(name) > 1)
        raise DataError(f"{source.origin}: two classes are called {twice!r}.")


def _shape(source: Source, conversion: Conversion) -> tuple[int, int]:
    if conversion.size is not None:
        return conversion.size, conversion.size
    images = source.train.images
    if not isinstance(images, Sequence):
        return images.shape[1], images.shape[2]
    name, data = next(iter(images[0].encoded()))
    height, width, _ = decode(name, data, None, conversion.fit).shape
    return height, width


def _write_images(
    path: Path,
    split: Split,
    shape: tuple[int, int],
    conversion: Conversion,
    executor: Executor | None,
    advance: Callable[[int], None],
) -> NDArray[np.int64]:
    """Write all images of a split and return how often each of the 256 values occurs in each channel."""
    offset, stride = _start_array(path, (len(split.labels), *shape, 3)), shape[0] * shape[1] * 3
    counts, start = np.zeros((3, 256), np.int64), 0
    if not isinstance(split.images, Sequence):
        for start in range(0, len(split.images), BLOCK):
            block = _resized(split.images[start : start + BLOCK], conversion)
            _write_at(path, offset + start * stride, block)
            counts += _value_counts(block)
            advance(len(block))
        return counts
    jobs: list[Callable[[], tuple[int, NDArray[np.int64]]]] = []
    for chunk in split.images:
        jobs.append(partial(_decode_chunk, chunk, path, offset + start * stride, shape, conversion.size, conversion.fit))
        start += len(chunk)
    for images, values in _run(jobs, executor):
        counts += values
        advance(images)
    return counts


def _decode_chunk(
    chunk: Chunk, path: Path, offset: int, shape: tuple[int, int], size: int | None, fit: Fit
) -> tuple[int, NDArray[np.int64]]:
    """In a worker: decode, write in place, and count what need not be read again."""
    block = np.empty((len(chunk), *shape, 3), np.uint8)
    for i, (name, data) in enumerate(chunk.encoded()):
        image = decode(name, data, size, fit)
        if image.shape[:2] != shape:
            found, expected = (f"{width} x {height}" for height, width in (image.shape[:2], shape))
            raise DataError(
                f"{name} is {found} pixels, the images before it {expected}. "
                f"Give all one size, for example with --size {min(shape)}."
            )
        block[i] = image
    _write_at(path, offset, block)
    return len(chunk), _value_counts(block)


def _value_counts(images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """[3, 256]"""
    pixels = images.reshape(-1, 3)
    return np.stack([np.bincount(pixels[:, channel], minlength=256) for channel in range(3)])


def _run(jobs: Sequence[Callable[[], Result]], executor: Executor | None) -> Iterator[Result]:
    if executor is None:
        yield from (job() for job in jobs)
        return
    futures: list[Future[Result]] = [executor.submit(job) for job in jobs]
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        for future in futures:
            future.cancel()


def _resized(images: NDArray[np.uint8], conversion: Conversion) -> NDArray[np.uint8]:
    if conversion.size is None or images.shape[1:3] == (conversion.size, conversion.size):
        return np.ascontiguousarray(images)
    return np.stack([np.asarray(resize(Image.fromarray(image), conversion.size, conversion.fit)) for image in images])


def _start_array(path: Path, shape: tuple[int, ...]) -> int:
    """Reserve a .npy file of uint8 and return the offset of its first byte; a full disk shows here."""
    try:
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            offset = file.tell()
            size = int(np.prod(shape))
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), offset, size)
        return offset
    except OSError as error:
        raise cannot_write(path, error) from None


def _write_at(path: Path, offset: int, block: NDArray[np.uint8]) -> None:
    try:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(np.ascontiguousarray(block).data)
    except OSError as error:
        raise cannot_write(path, error) from None


def _write_manifest(building: Path, source: Source, conversion: Conversion, counts: NDArray[np.int64]) -> None:
    arrays = {file: np.load(building / f"{file}.npy", mmap_mode="r", allow_pickle=False) for file in FILES}
    mean, std = _channel_statistics(counts)
    manifest = {
        "name": conversion.name,
        "classes": source.classes,
        "superclasses": source.superclasses,
        "digest": pixel_digest(arrays.items()),
        "mean": mean,
        "std": std,
        "augmentation": conversion.augmentation(arrays["train_images"].shape[1]).model_dump(),
        "origin": source.origin,
        "files": {file: file_digest(building / f"{file}.npy") for file in FILES},
    }
    write_durably(building / MANIFEST, manifest_bytes(manifest))


def _channel_statistics(counts: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel from 0 to 1, exactly, from counts of the 256 values [3, 256]."""
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(axis=1)
    variance = counts @ values**2 / counts.sum(axis=1) - mean**2
    return mean.tolist(), np.sqrt(np.maximum(variance, 0)).tolist()


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder that appears whole under its name, or not at all."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    except OSError as error:
        raise DataError(
            f"Cannot write to the cache {folder.parent}: {error.strerror or error}. Set FORGETSCOPE_CACHE to another folder."
        ) from None
    try:
        yield building
        for path in building.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(building)
        building.chmod(0o755)
        if folder.exists() and not (folder / MANIFEST).is_file():
            shutil.rmtree(folder)  # not a data set: what somebody left under this name
        os.rename(building, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


@contextmanager
def _executor(workers: int) -> Iterator[Executor | None]:
    if workers <= 1:
        yield None
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
        yield executor
