"""What a reader finds: labelled images, not decoded yet, in pieces that a worker process can decode on its own."""

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from forgetscope.data.limits import IMAGE_BYTES, check_limit
from forgetscope.errors import DataError

T = TypeVar("T")
Encoded = tuple[str, bytes | DataError]
# What a member raises that cannot be read; RuntimeError: it is encrypted, or compressed in a way that this Python lacks.
UNZIPPING = (KeyError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)


class Chunk(Protocol):
    """Some encoded images, described so that another process can fetch them."""

    def __len__(self) -> int: ...

    def encoded(self) -> Iterator[Encoded]:
        """Where each image comes from, for messages, and its bytes, or why they cannot be read."""
        ...


@dataclass(frozen=True)
class Split:
    """Labels of all images, in order, and the images: decoded already, or in chunks."""

    labels: NDArray[np.int64]
    images: NDArray[np.uint8] | Sequence[Chunk]


@dataclass(frozen=True)
class Source:
    """A data set as found. `origin` says where, for messages and the manifest; `remarks`, what was passed over there."""

    origin: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    superclasses: tuple[str, ...] | None = None  # the superclass of each class
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileChunk:
    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def encoded(self) -> Iterator[Encoded]:
        for path in self.paths:
            try:
                yield str(path), read_regular(path, IMAGE_BYTES)
            except DataError as error:
                yield str(path), error


@dataclass(frozen=True)
class ZipChunk:
    """Members of a zip archive, read in place; nothing is extracted."""

    archive: Path
    members: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.members)

    def encoded(self) -> Iterator[Encoded]:
        with open_regular(self.archive) as file, zipfile.ZipFile(file) as archive:
            for member in self.members:
                name = f"{self.archive.name}:{member}"
                try:
                    yield name, read_member(self.archive, archive, member, IMAGE_BYTES)
                except DataError as error:
                    yield name, error


def read_member(path: Path, archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Python stops at the declared size, so that is what is compared with the limit."""
    try:
        check_limit(f"{path.name}, {name}", archive.getinfo(name).file_size, "bytes", limit)
        return archive.read(name)
    except UNZIPPING as error:
        raise DataError(f"{path.name}: cannot read {name} ({error})") from None


def read_regular(path: Path, limit: int) -> bytes:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_limit(str(path), size, "bytes", limit, "Remove it or make it smaller.")
        try:
            return file.read(size)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror or error})") from None


def open_regular(path: Path) -> BinaryIO:
    """Open a file, and nothing that only looks like one: a FIFO waits for ever, a device never ends."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"{path} is not a file with an end, but a folder, pipe or device")
    return os.fdopen(descriptor, "rb")


def not_there(path: Path, remedy: str) -> DataError:
    found = f"{path} is neither a file nor a folder." if path.exists() else f"There is nothing at {path}."
    return DataError(f"{found} {remedy}")


def in_chunks(items: Sequence[T], size: int = 500) -> Iterator[tuple[T, ...]]:
    for start in range(0, len(items), size):
        yield tuple(items[start : start + size])
