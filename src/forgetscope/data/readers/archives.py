"""Archives are read in place, member by member; nothing is ever extracted."""

import bz2
import gzip
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from forgetscope.data import limits
from forgetscope.data.sources import open_regular
from forgetscope.errors import DataError

_BLOCK = 512  # bytes: a tar archive is made of such
_PIECE = 2**20  # bytes at a time of what is passed over
_EXTENDED, _LONG_NAME = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE), tarfile.GNUTYPE_LONGNAME


def read_tar(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The contents of the members whose base name is wanted. Members that point outside, links and devices are refused."""
    found: dict[str, bytes] = {}
    try:
        with open_regular(path) as file, _inflated(path, file) as stream:
            for name, size in _tar_files(path, stream, os.fstat(file.fileno()).st_size):
                base = PurePosixPath(name).name
                if base not in wanted:
                    _pass_over(stream, size + _padding(size))
                    continue
                if base in found:
                    raise DataError(f"{path.name} holds {base} twice. Do not trust this archive.")
                limits.check_limit(f"{path.name}, {name}", size, "bytes", limits.MEMBER_BYTES)
                found[base] = _exactly(stream, size)
                _pass_over(stream, _padding(size))
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an archive ({error}). It is damaged or incomplete: get it again.") from None
    return found


def _inflated(path: Path, file: BinaryIO) -> BinaryIO:
    """xz is not among them: its decoder takes as much memory as the file tells it to."""
    magic = file.read(6)
    start = magic[:2]
    file.seek(0)
    if magic == b"\xfd7zXZ\0":
        raise DataError(f"{path} is compressed by xz, which is not read: pack it again, plain, gzip or bzip2.")
    return cast(
        BinaryIO, gzip.GzipFile(fileobj=file) if start == b"\x1f\x8b" else bz2.BZ2File(file) if start == b"BZ" else file
    )


def _tar_files(path: Path, stream: BinaryIO, stored: int) -> Iterator[tuple[str, int]]:
    """Name and size of each file, when the stream stands at its content; whoever gets them reads or passes over all of it.

    Python's tarfile keeps every header in memory and reads those of names and attributes whole, however long they are."""
    members = unpacked = 0
    override: dict[str, str] = {}
    while any(header := _exactly(stream, _BLOCK)):
        info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        members += 1
        limits.check_limit(path.name, members, "members", limits.TAR_MEMBERS)
        if info.type in _EXTENDED or info.type == _LONG_NAME:
            limits.check_limit(path.name, info.size, "bytes of a member's name and attributes", limits.TAR_HEADER_BYTES)
            content = _exactly(stream, info.size + _padding(info.size))[: info.size]
            override |= _attributes(path, content) if info.type in _EXTENDED else {"path": _text(content.rstrip(b"\0"))}
            continue
        name, size = override.get("path", info.name), int(override.get("size", info.size))
        override = {}
        _refuse_strange(path, name, plain=info.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE))
        if info.type == tarfile.DIRTYPE:
            continue
        if size < 0:
            raise ValueError(f"{name} has {size} bytes")
        unpacked += size
        limits.check_unpacked(path.name, unpacked, stored)
        yield name, size
    rest = unpacked
    while piece := stream.read(_PIECE):  # to the end: only there does gzip compare its checksum
        rest += len(piece)
        limits.check_unpacked(path.name, rest, stored)


def _attributes(path: Path, content: bytes) -> dict[str, str]:
    """Path and size, if an extended header has them."""
    if b"GNU.sparse" in content:
        raise DataError(f"{path.name} holds a file with gaps. A data set has none: do not trust this archive.")
    records = re.findall(rb"\d+ (path|size)=([^\n]*)\n", content)
    return {key.decode(): _text(value) for key, value in records}


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _exactly(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError("it ends too early")
    return content


def _padding(size: int) -> int:
    return -size % _BLOCK


def _pass_over(stream: BinaryIO, size: int) -> None:
    while size:
        size -= len(_exactly(stream, min(size, _PIECE)))


def zip_members(path: Path) -> list[str]:
    """Names of the files in a zip archive. Members that point outside, links, oversized and repeated ones are refused."""
    with open_regular(path) as file:
        members = [info for info in zip_directory(path, file) if not info.is_dir()]
        limits.check_unpacked(path.name, sum(info.file_size for info in members), os.fstat(file.fileno()).st_size)
    for info in members:
        _refuse_strange(path, info.filename, plain=(info.external_attr >> 16) & 0o170000 in (0, 0o100000))
        limits.check_limit(f"{path.name}, {info.filename}", info.file_size, "bytes", limits.IMAGE_BYTES)
    return [info.filename for info in members]


def zip_directory(path: Path, file: BinaryIO) -> list[zipfile.ZipInfo]:
    """What a zip archive says that it holds."""
    limits.check_limit(path.name, _directory_bytes(file), "bytes of a list of contents", limits.ZIP_DIRECTORY_BYTES)
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, struct.error) as error:
        raise DataError(
            f"{path} cannot be read as a zip archive ({error}). It is damaged or incomplete: get it again."
        ) from None
    twice = [name for name, count in Counter(info.filename for info in infos).items() if count > 1]
    if twice:
        raise DataError(f"{path.name} holds {twice[0]!r} twice. Do not trust this archive.")
    for info in infos:  # the other methods' decoders take as much memory as the file tells them to
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{path.name}: {info.filename!r} is compressed by another method than deflate. Pack it again.")
    return infos


def _directory_bytes(file: BinaryIO) -> int:
    """How large the directory says that it is, before Python reads it whole: the most that any end record claims."""
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 2**16 - 200))
    tail = file.read()
    file.seek(0)
    claims = [0]
    for signature, size, at in ((b"PK\x05\x06", "<L", 12), (b"PK\x06\x06", "<Q", 40)):
        for found in re.finditer(re.escape(signature), tail):
            claim = tail[found.start() + at :][: struct.calcsize(size)]
            claims += struct.unpack(size, claim) if len(claim) == struct.calcsize(size) else ()
    return max(claim for claim in claims if claim != 2**32 - 1)  # that: the other record says it


def _refuse_strange(path: Path, name: str, plain: bool) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in parts.parts[0:1]:
        raise DataError(f"{path.name} holds {name!r}, which points outside of the archive. Do not trust this archive.")
    if not plain:
        raise DataError(f"{path.name} holds {name!r}, a link or device. A data set has none: do not trust this archive.")
