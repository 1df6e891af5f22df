"""Archives are read in place, member by member; nothing is ever extracted."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from forgetscope.errors import DataError

MAX_MEMBER = 2**29  # bytes; the largest real one, CIFAR-100's training images, has 155 MB


def read_tar(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The contents of the members whose base name is wanted. Members that point outside, links and devices are refused."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                _refuse_outside(path, member.name)
                if not (member.isfile() or member.isdir()):
                    raise DataError(
                        f"{path.name} holds {member.name!r}, a link or device. A data set has none: do not trust this archive."
                    )
                name = PurePosixPath(member.name).name
                if member.isfile() and name in wanted:
                    if member.size > MAX_MEMBER:
                        raise DataError(
                            f"{path.name}: {member.name} has {member.size} bytes, more than any real one. "
                            "Do not trust this archive."
                        )
                    file = archive.extractfile(member)
                    found[name] = file.read() if file else b""
            while archive.fileobj and archive.fileobj.read(2**20):
                continue  # to the end: only there does gzip compare its checksum
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an archive ({error}). It is damaged or incomplete: get it again.") from None
    return found


def zip_members(path: Path) -> list[str]:
    """Names of the files in a zip archive. Members that point outside, links and oversized ones are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as a zip archive ({error}). It is damaged or incomplete: get it again."
        ) from None
    for info in members:
        _refuse_outside(path, info.filename)
        if (info.external_attr >> 16) & 0o170000 not in (0, 0o100000):
            raise DataError(
                f"{path.name} holds {info.filename!r}, a link or device. A data set has none: do not trust this archive."
            )
        if info.file_size > MAX_MEMBER:
            raise DataError(
                f"{path.name}: {info.filename} has {info.file_size} bytes, more than any image. Do not trust this archive."
            )
    return [info.filename for info in members]


def _refuse_outside(path: Path, name: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in parts.parts[0:1]:
        raise DataError(f"{path.name} holds {name!r}, which points outside of the archive. Do not trust this archive.")
