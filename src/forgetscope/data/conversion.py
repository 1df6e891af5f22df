"""Conversion: once, from whatever a reader found into arrays that are mapped from then on.

A data set is written under a temporary name and renamed, so a half-converted one is never visible. Encoded images are decoded
by worker processes that write straight into the file. Plain writes at offsets, not a mapping: a full disk is then an error
instead of a crash.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from operator import call
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from forgetscope.characters import counted
from forgetscope.data.decoding import Fit, decode, resize
from forgetscope.data.images import FILES, MANIFEST, manifest_bytes, pixel_digest, rows_at_once
from forgetscope.data.limits import CONVERTED_BYTES, IMAGES, NAME_CHARACTERS, check_classes, check_limit
from forgetscope.data.ownership import demand_free, is_ours, unfinished_name
from forgetscope.data.sources import Chunk, Source, Split
from forgetscope.errors import DataError
from forgetscope.files import cannot_write, file_digest, sync_folder, told, write_new
from forgetscope.outputs import Note, unheard
from forgetscope.spec import AugmentationSpec

Advance = Callable[[int, int], None]  # images done, images in all
NAMED = 20  # broken images that a message names; the others are counted


@dataclass(frozen=True)
class Conversion:
    name: str
    augmentation: Callable[[int], AugmentationSpec]  # what suits images with this side
    size: int | None = None  # None: as the images are
    fit: Fit = "crop"
    skip_broken: bool | None = None  # leave images out that cannot be read; None: they belong to something that is whole


@dataclass
class _Written:
    values: NDArray[np.int64] = field(default_factory=lambda: np.zeros((3, 256), np.int64))  # how often each occurs
    done: Counter[str] = field(default_factory=Counter)  # what was done to how many images
    broken: list[int] = field(default_factory=list)  # places of images that cannot be read
    reasons: list[str] = field(default_factory=list)  # why, of the first of them
    images: int = 0

    def add(self, other: _Written, start: int) -> None:
        self.values += other.values
        self.done += other.done
        self.broken += [start + place for place in other.broken]
        self.reasons = [*self.reasons, *other.reasons][:NAMED]
        self.images += other.images


def convert(
    source: Source, folder: Path, conversion: Conversion, *, workers: int = 1, progress: Advance = unheard, note: Note = unheard
) -> None:
    """Check, decode, measure and store a data set, and say what was done to its images.

    With several workers the caller's main module must be importable."""
    for remark in source.remarks:
        note(remark)
    try:
        with _new_folder(folder) as building, _executor(workers) as executor:
            written = _write_splits(building, source, conversion, executor, progress)
            _write_manifest(building, source, conversion, written["train"].values)
    except BrokenProcessPool:
        raise DataError(
            f"A process that decodes the images of {source.origin} was killed, perhaps because memory ran out. Nothing was "
            "made. Use fewer processes (--workers 1) or smaller images (--size)."
        ) from None
    except MemoryError:
        raise DataError(
            f"Memory ran out while {source.origin} was converted. Nothing was made. Use smaller images (--size) or fewer."
        ) from None
    _tell(written.values(), note)


def _write_splits(
    building: Path, source: Source, conversion: Conversion, executor: Executor | None, progress: Advance
) -> dict[str, _Written]:
    _check(source)
    shape = _shape(source, conversion)
    splits = {"train": source.train, "test": source.test}
    total, done = sum(len(split.labels) for split in splits.values()), 0
    check_limit(source.origin, 3 * total * shape[0] * shape[1], "bytes of pixels", CONVERTED_BYTES, "Choose a smaller --size.")

    def advance(images: int) -> None:
        nonlocal done
        done += images
        progress(done, total)

    written = {
        name: _write_images(building / f"{name}_images.npy", split, shape, conversion, executor, advance)
        for name, split in splits.items()
    }
    if (broken := _broken(written.values())) and not conversion.skip_broken:
        remedy = "Replace or remove them, or leave them out with --skip-broken (skip_broken=True)."
        if conversion.skip_broken is None:
            remedy = "It is damaged or incomplete: get it again."
        raise DataError(f"{counted(broken[0], 'image', of=total)} cannot be used: {broken[1]}. {remedy}")
    for name, split in splits.items():
        labels = np.delete(split.labels, written[name].broken)
        _check_counts(source, name, labels)
        _drop(building / f"{name}_images.npy", written[name].broken)
        np.save(building / f"{name}_labels.npy", labels.astype(np.int64), allow_pickle=False)
    return written


def _check(source: Source) -> None:
    """Labels are known, classes have names of their own, and each has images to learn from and to be tested on."""
    check_classes(source.origin, len(source.classes))
    for name in source.classes:
        shown = repr(name if len(name) <= 50 else name[:50] + "...")
        check_limit(f"{source.origin}, class {shown}", len(name), "characters in a name", NAME_CHARACTERS, "Rename it.")
        if not name.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise DataError(f"{source.origin}: the class name {shown} is not valid Unicode (UTF-8). Rename it.")
    twice = [name for name, count in Counter(source.classes).items() if count > 1]
    if twice:
        raise DataError(f"{source.origin}: two classes are called {twice[0]!r}.")
    for part, split in (("train", source.train), ("test", source.test)):
        images = sum(map(len, split.images)) if isinstance(split.images, Sequence) else len(split.images)
        check_limit(source.origin, images, "images", IMAGES, "Leave some out.")
        if images != len(split.labels):
            given = counted(images, f"{_KINDS[part]} image")
            raise DataError(f"{source.origin}: {given} but {counted(len(split.labels), 'label')}.")
        unknown = split.labels[(split.labels < 0) | (split.labels >= len(source.classes))]
        if len(unknown):
            raise DataError(
                f"{source.origin}: label {unknown[0]} of a {_KINDS[part]} image is unknown; "
                f"there {'is' if len(source.classes) == 1 else 'are'} {counted(len(source.classes), 'class')}."
            )
        _check_counts(source, part, split.labels)


_KINDS = {"train": "training", "test": "test"}


def _check_counts(source: Source, part: str, labels: NDArray[np.int64]) -> None:
    empty = np.flatnonzero(np.bincount(labels, minlength=len(source.classes)) == 0)
    if len(empty) or not len(labels):
        names = ", ".join(repr(source.classes[label]) for label in empty[:5])
        lacking = counted(len(empty), "class", "has/have", of=len(source.classes))
        raise DataError(f"{source.origin}: {lacking} no {_KINDS[part]} images ({names}). Add some, or leave the class out.")


def _shape(source: Source, conversion: Conversion) -> tuple[int, int]:
    """The given size, or that of the first image that can be read."""
    if conversion.size is not None:
        return conversion.size, conversion.size
    images = source.train.images
    if not isinstance(images, Sequence):
        return images.shape[1], images.shape[2]
    reasons: list[str] = []
    for name, data in (encoded for chunk in images for encoded in chunk.encoded()):
        try:
            height, width, _ = decode(name, data, None, conversion.fit)[0].shape
            return height, width
        except DataError as error:
            reasons = [*reasons, str(error)][:NAMED]
    raise DataError(f"{source.origin}: no training image can be read: {'; '.join(reasons)}.")


def _broken(parts: Collection[_Written]) -> tuple[int, str] | None:
    """How many images cannot be used, and why not, if there are any."""
    count = sum(len(part.broken) for part in parts)
    reasons = sorted(reason for part in parts for reason in part.reasons)[:NAMED]
    more = f"; and {count - len(reasons)} more" if count > len(reasons) else ""
    return (count, "; ".join(reasons) + more) if count else None


def _tell(parts: Collection[_Written], note: Note) -> None:
    total, done = sum(part.images for part in parts), sum((part.done for part in parts), Counter[str]())
    if broken := _broken(parts):
        note(f"Left out {counted(broken[0], 'image')} that cannot be used: {broken[1]}.")
        total -= broken[0]
    for what in sorted(done):
        note(f"{what}: {counted(done[what], 'image', of=total)}.")


def _write_images(
    path: Path,
    split: Split,
    shape: tuple[int, int],
    conversion: Conversion,
    executor: Executor | None,
    advance: Callable[[int], None],
) -> _Written:
    offset, stride = _start_array(path, (len(split.labels), *shape, 3)), shape[0] * shape[1] * 3
    written, start = _Written(), 0
    if not isinstance(split.images, Sequence):
        rows = rows_at_once(max(stride, split.images[:1].nbytes))
        for start in range(0, len(split.images), rows):
            block = _resized(split.images[start : start + rows], conversion)
            _write_at(path, offset + start * stride, block)
            written.add(_Written(_value_counts(block), images=len(block)), start)
            advance(len(block))
        return written
    jobs: list[Callable[[], tuple[int, _Written]]] = []
    for chunk in split.images:
        jobs.append(partial(_decode_chunk, chunk, path, start, offset, shape, conversion.size, conversion.fit))
        start += len(chunk)
    for place, part in map(call, jobs) if executor is None else executor.map(call, jobs):
        written.add(part, place)
        advance(part.images)
    return written


def _decode_chunk(
    chunk: Chunk, path: Path, place: int, offset: int, shape: tuple[int, int], size: int | None, fit: Fit
) -> tuple[int, _Written]:
    """In a worker: decode, write in place, and count what need not be read again. Broken images leave a gap."""
    stride, written, encoded = shape[0] * shape[1] * 3, _Written(), chunk.encoded()
    block = np.empty((min(len(chunk), rows_at_once(stride)), *shape, 3), np.uint8)
    while written.images < len(chunk):
        start, good = written.images, []
        for row, (name, data) in zip(range(min(len(block), len(chunk) - start)), encoded, strict=False):
            written.images += 1
            try:
                image, done = decode(name, data, size, fit)
            except DataError as error:
                written.broken.append(start + row)
                written.reasons = [*written.reasons, str(error)][:NAMED]
                continue
            if image.shape[:2] != shape:
                found, expected = (f"{width} x {height}" for height, width in (image.shape[:2], shape))
                advice = f"Give all one size, for example with --size {min(shape)}."
                raise DataError(f"{name} is {found} pixels, the images before it {expected}. {advice}")
            block[row] = image
            written.done.update(done)
            good.append(row)
        if written.images == start:
            held = counted(start, "image")
            raise DataError(f"{chunk} holds {held}, not {len(chunk)} as it says. It is damaged: get it again.")
        _write_at(path, offset + (place + start) * stride, block[: written.images - start])
        written.values += _value_counts(block[good] if written.broken else block[: len(good)])
    return place, written


def _drop(path: Path, broken: Sequence[int]) -> None:
    """Close the gaps that broken images left."""
    if not broken:
        return
    images = np.load(path, mmap_mode="r", allow_pickle=False)
    kept = np.delete(np.arange(len(images)), broken)
    whole = path.with_name(f"whole-{path.name}")
    offset, rows = _start_array(whole, (len(kept), *images.shape[1:])), rows_at_once(images[0].nbytes)
    for start in range(0, len(kept), rows):
        _write_at(whole, offset + start * images[0].nbytes, images[kept[start : start + rows]])
    os.replace(whole, path)


def _value_counts(images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """[3, 256]"""
    pixels = images.reshape(-1, 3)
    return np.stack([np.bincount(pixels[:, channel], minlength=256) for channel in range(3)])


def _resized(images: NDArray[np.uint8], conversion: Conversion) -> NDArray[np.uint8]:
    if conversion.size is None or images.shape[1:3] == (conversion.size, conversion.size):
        return np.ascontiguousarray(images)
    return np.stack([np.asarray(resize(Image.fromarray(image), conversion.size, conversion.fit)) for image in images])


def _start_array(path: Path, shape: tuple[int, ...]) -> int:
    """Reserve a .npy file of uint8 and return the offset of its first byte; a full disk shows here."""
    with told(path), path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        offset = file.tell()
        size = int(np.prod(shape))
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), offset, size)
    return offset


def _write_at(path: Path, offset: int, block: NDArray[np.uint8]) -> None:
    with told(path), path.open("r+b") as file:
        file.seek(offset)
        file.write(np.ascontiguousarray(block).data)


def _write_manifest(building: Path, source: Source, conversion: Conversion, counts: NDArray[np.int64]) -> None:
    arrays = {file: np.load(building / f"{file}.npy", mmap_mode="r", allow_pickle=False) for file in FILES}
    values, pixels = np.arange(256) / 255, counts.sum(axis=1)
    mean = counts @ values / pixels  # of each channel from 0 to 1, exactly
    variance = counts @ values**2 / pixels - mean**2
    manifest = {
        "name": conversion.name,
        "classes": source.classes,
        "superclasses": source.superclasses,
        "digest": pixel_digest(arrays.items()),
        "mean": mean.tolist(),
        "std": np.sqrt(np.maximum(variance, 0)).tolist(),
        "augmentation": conversion.augmentation(arrays["train_images"].shape[1]).model_dump(exclude_none=True),
        "origin": source.origin.encode(errors="replace").decode(),  # a path may hold bytes that are no text
        "files": {file: file_digest(building / f"{file}.npy") for file in FILES},
    }
    write_new(building / MANIFEST, manifest_bytes(manifest))


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder that appears whole under its name, or not at all."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = folder.with_name(unfinished_name())
        building.mkdir(mode=0o700)
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
        try:
            if not is_ours(folder):
                demand_free(folder)
                os.rename(building, folder)
                sync_folder(folder.parent)
        except OSError as error:
            if not is_ours(folder):  # else another process, which no lock held back, was quicker
                raise cannot_write(folder, error) from None
    finally:
        shutil.rmtree(building, ignore_errors=True)


@contextmanager
def _executor(workers: int) -> Iterator[Executor | None]:
    if workers <= 1:
        yield None
        return
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # for the new processes: nothing in the working folder stands for a module of Python's
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
            yield executor
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
