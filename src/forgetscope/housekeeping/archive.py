"""The file in which steps travel: its form, how it is written, and how one from elsewhere is read, bounded and checked.

It is a plain tar: `index.json` with the SHA-256 and size of each member, then `steps/<id>/<file>`, ancestors first, so
that an import that stops half-way leaves whole chains; then `calibrated/<step>/<id>/<file>`, `observed/<name>/<number>/<file>`
and `plans/<id>/plan.json`. Equal steps give equal bytes: no times, owners or paths. With a name that ends in `.xz` it is
compressed as a whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, cast

from forgetscope.errors import DamagedExport, StoreError
from forgetscope.files import replacing, told, too_large
from forgetscope.foreign import strict_json
from forgetscope.outputs import XZ_MEMORY
from forgetscope.store import ALL_TABLES, MARKERS, STATE
from forgetscope.store.calibrated import CALIBRATION, CALIBRATION_TABLES, ID
from forgetscope.store.observed import ALL_OBSERVED_TABLES, MONITOR, NUMBER, RECORD
from forgetscope.store.stepfiles import PLAN_BYTES, PLAN_ID, limit_of

FORMAT = 1
INDEX = "index.json"
CHUNK = 2**20  # bytes that are read at once
INDEX_LIMIT = 256 * 2**20  # bytes; the index of ten thousand steps has about 15 MB
XZ = b"\xfd7zXZ\0"  # how a compressed file begins
XZ_RATIO, XZ_SMALL = 100, 2**26  # a compressed file may unpack to so many times its size, or to so many bytes
FILES = ("manifest.json", "step.json", *(f"{name}.parquet" for name in ALL_TABLES), STATE, *MARKERS.values())
SEEN = ("manifest.json", RECORD, *(f"{name}.parquet" for name in ALL_OBSERVED_TABLES))  # files of an observed step
BESIDE = ("manifest.json", CALIBRATION, *(f"{name}.parquet" for name in CALIBRATION_TABLES))  # of a calibration
MEMBER = re.compile(
    rf"steps/{ID.pattern}/({'|'.join(map(re.escape, FILES))})|plans/{PLAN_ID.pattern}/plan\.json"
    rf"|observed/{MONITOR.pattern}/{NUMBER.pattern}/({'|'.join(map(re.escape, SEEN))})"
    rf"|calibrated/{ID.pattern}/{ID.pattern}/({'|'.join(map(re.escape, BESIDE))})"
)


@dataclass(frozen=True)
class Entry:
    """What the index says of a member."""

    sha256: str
    size: int

    @classmethod
    def of(cls, content: bytes) -> Entry:
        return cls(hashlib.sha256(content).hexdigest(), len(content))


@contextmanager
def writing(path: Path, entries: Mapping[str, Entry]) -> Iterator[tarfile.TarFile]:
    """A new file that begins with its index; members are to be added in the same order. Where that fails, none is written."""
    listing = {name: asdict(entry) for name, entry in entries.items()}
    index = json.dumps({"forgetscope": "export", "format": FORMAT, "members": listing}, indent=1).encode()
    with (
        replacing(path) as file,
        _compressing(file) if path.suffix == ".xz" else nullcontext(file) as target,
        tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        add(tar, INDEX, index)
        yield tar


def _compressing(file: BinaryIO) -> lzma.LZMAFile:
    return lzma.LZMAFile(file, "wb", preset=9 | lzma.PRESET_EXTREME)


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """One member, which tells nothing but its name and content."""
    member = tarfile.TarInfo(name)  # times, owners and mode are zero or fixed by default
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


@contextmanager
def opened(path: Path) -> Iterator[tarfile.TarFile]:
    """A file from elsewhere, unpacked if it is compressed; StoreError if it is none of these."""
    try:
        if path.exists() and not path.is_file():
            raise OSError("no plain file")  # opening a pipe would wait for ever
        file = path.open("rb")
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    with file, _plain(file, path) as plain:
        try:
            tar = tarfile.open(fileobj=_Bounded(plain), mode="r:")  # type: ignore[call-overload]  # noqa: SIM115
        except (tarfile.TarError, ValueError, RecursionError) as error:  # of names before names before names
            raise StoreError(f"{path} is no file of `forgetscope store export`: {error}.") from None
        with tar:
            yield tar


@contextmanager
def _plain(file: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """The file itself, or what is compressed in it."""
    compressed = file.read(len(XZ)) == XZ
    file.seek(0)
    if not compressed:
        yield file
        return
    with tempfile.TemporaryFile() as plain:
        with told(Path(tempfile.gettempdir(), path.name)):
            for chunk in _unpacked(file, path):
                plain.write(chunk)
            plain.seek(0)
        yield cast(BinaryIO, plain)


def _unpacked(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Piece by piece, no more than such a file can hold; whatever it is instead is told before much is written."""
    decompressor, size = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY), 0
    limit = max(XZ_SMALL, XZ_RATIO * file.seek(0, os.SEEK_END))
    file.seek(0)
    while not decompressor.eof:
        given = file.read(CHUNK) if decompressor.needs_input else b""
        try:
            chunk = decompressor.decompress(given, CHUNK)
        except lzma.LZMAError as error:
            raise _not_unpacked(path, str(error).lower()) from None
        if not given and not chunk:
            raise _not_unpacked(path, "it ends too early")
        if size == 0 and chunk and not chunk.startswith(INDEX.encode()):
            raise StoreError(f"{path} is no file of `forgetscope store export`: it does not begin with {INDEX}.")
        if (size := size + len(chunk)) > limit:
            raise _not_unpacked(path, f"it holds more than {limit:,} bytes")
        yield chunk
    if decompressor.unused_data or file.read(1):
        raise _not_unpacked(path, "something follows after its end")


def _not_unpacked(path: Path, reason: str) -> DamagedExport:
    return DamagedExport(f"{path} cannot be unpacked: {reason}. Nothing was imported. Get it, or export it, again.")


class _Bounded:
    """A file of which nobody reads much at once: a header may announce more than there is room for."""

    def __init__(self, file: BinaryIO) -> None:
        self.seek, self.tell, self._read = file.seek, file.tell, file.read

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= CHUNK:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._read(size)


def read_index(tar: tarfile.TarFile, path: Path) -> dict[str, Entry]:
    """By member, in the order of the file."""
    first = tar.next()
    if first is None or first.name != INDEX or first.type != tarfile.REGTYPE or first.size > INDEX_LIMIT:
        raise StoreError(f"{path} is no file of `forgetscope store export`: it does not begin with {INDEX}.")
    try:
        index = strict_json(b"".join(chunks(tar, first)))
        if index["format"] != FORMAT:
            raise StoreError(f"{path} has format {index['format']}; this forgetscope reads {FORMAT}. Upgrade it.")
        return {name: Entry(str(entry["sha256"]), int(entry["size"])) for name, entry in index["members"].items()}
    except (tarfile.TarError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedExport(f"{path} is damaged: its index cannot be read ({error}). Export it again.") from None


def checked_members(tar: tarfile.TarFile, index: Mapping[str, Entry], path: Path) -> dict[str, tarfile.TarInfo]:
    """The members after the index, each exactly as listed. A file that ends early just has fewer."""
    found: dict[str, tarfile.TarInfo] = {}
    while (member := _next(tar)) is not None:
        reason = None
        if not MEMBER.fullmatch(member.name):
            reason = "no name of a step's or a plan's file"
        elif member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse() or member.pax_headers:
            reason = "no plain file"
        elif member.size > (limit := PLAN_BYTES if member.name.startswith("plans/") else limit_of(member.name.split("/")[-1])):
            reason = too_large(member.size, limit).strerror
        elif member.name in found:
            reason = "there twice"
        elif member.name not in index:
            reason = "not in the index"
        elif member.size != index[member.name].size:
            reason = f"{member.size} bytes, {index[member.name].size} in the index"
        if reason:
            raise DamagedExport(f"{path} is refused: {member.name!r} is {reason}. Nothing was imported. Export it again.")
        found[member.name] = member
    for name in index:
        if not MEMBER.fullmatch(name):
            raise DamagedExport(f"{path} is refused: its index lists {name!r}, which is no name of a step's or a plan's file.")
    return found


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    try:
        return tar.next()
    except (tarfile.TarError, ValueError, OSError, RecursionError):
        return None  # cut off; what is missing is found by the index


def chunks(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    """The content of a member, piece by piece; TarError where it cannot be read."""
    try:
        file = tar.extractfile(member)
        if file is None:
            raise tarfile.ReadError("no plain file")
        with file:
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        raise tarfile.ReadError(str(error)) from None
