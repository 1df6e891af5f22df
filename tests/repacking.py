"""Exported files, taken apart and packed anew as a stranger may have done."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

Members = list[tuple[tarfile.TarInfo, bytes]]
ID = "a" * 32  # of no step


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def repacked(
    path: Path, change: Callable[[Members], Members], index: Callable[[dict[str, object]], None] | None = None
) -> None:
    """Write an exported file anew with other members."""
    with tarfile.open(path) as tar:
        members = [(member, tar.extractfile(member).read()) for member in tar.getmembers()]  # type: ignore[union-attr]
    if index is not None:
        document = json.loads(members[0][1])
        index(document)
        data = json.dumps(document).encode()
        members[0][0].size = len(data)
        members[0] = (members[0][0], data)
    with tarfile.open(path, "w") as tar:
        for member, data in change(members):
            tar.addfile(member, io.BytesIO(data))


def extra(name: str, type: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = type, link, len(data) if type == tarfile.REGTYPE else 0
    return member, data


def packed(name: str, data: bytes) -> tuple[tarfile.TarInfo, io.BytesIO]:
    member, _ = extra(name, data=data)
    return member, io.BytesIO(data)
