"""What a reader finds: labelled images, not decoded yet, in pieces that a worker process can decode on its own."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from forgetscope.errors import DataError

T = TypeVar("T")
Fit = Literal["crop", "stretch"]
MAX_PIXELS = 50_000_000  # of one image; more is a decompression bomb or a mistake


class Chunk(Protocol):
    """Some encoded images, described so that another process can fetch them."""

    def __len__(self) -> int: ...

    def encoded(self) -> Iterator[tuple[str, bytes]]:
        """Where each image comes from, for messages, and its bytes."""
        ...


@dataclass(frozen=True)
class Split:
    """Labels of all images, in order, and the images: decoded already, or in chunks."""

    labels: NDArray[np.int64]
    images: NDArray[np.uint8] | Sequence[Chunk]


@dataclass(frozen=True)
class Source:
    """A data set as found. `origin` says where, for messages and the manifest."""

    origin: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    superclasses: tuple[str, ...] | None = None  # the superclass of each class


@dataclass(frozen=True)
class FileChunk:
    """Image files."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def encoded(self) -> Iterator[tuple[str, bytes]]:
        for path in self.paths:
            try:
                yield str(path), path.read_bytes()
            except OSError as error:
                raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None


@dataclass(frozen=True)
class ZipChunk:
    """Members of a zip archive, read in place; nothing is extracted."""

    archive: Path
    members: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.members)

    def encoded(self) -> Iterator[tuple[str, bytes]]:
        with zipfile.ZipFile(self.archive) as archive:
            for member in self.members:
                yield f"{self.archive.name}:{member}", read_member(archive, member)


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except (
        KeyError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        RuntimeError,  # an encrypted member, or a compression that this Python lacks
        ValueError,
    ) as error:
        raise DataError(f"{archive.filename}: cannot read {name} ({error}). The archive is damaged: get it again.") from None


def in_chunks(items: Sequence[T], size: int = 500) -> Iterator[tuple[T, ...]]:
    for start in range(0, len(items), size):
        yield tuple(items[start : start + size])


def decode(name: str, data: bytes, size: int | None, fit: Fit) -> NDArray[np.uint8]:
    """An encoded image of any kind that Pillow reads, as RGB [h, w, 3]; resized if a size is given."""
    try:
        image = Image.open(io.BytesIO(data))  # reads the header only; Pillow refuses twice its own limit here
        if image.width * image.height > MAX_PIXELS:
            raise Image.DecompressionBombError(f"{image.width} x {image.height} pixels")
        return np.asarray(resize(image.convert("RGB"), size, fit))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{name} is too large to be an image of a class ({error}). Remove it or make it smaller.") from None
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError) as error:
        raise DataError(f"{name} cannot be read as an image ({error}). Replace or remove it.") from None


def resize(image: Image.Image, size: int | None, fit: Fit) -> Image.Image:
    """To `size` x `size`: `crop` scales the shorter side and cuts the middle out, `stretch` changes the proportions."""
    if size is None or image.size == (size, size):
        return image
    if fit == "stretch":
        return image.resize((size, size), Image.Resampling.BICUBIC)
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
