"""Archives that ask for more than they are worth."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from forgetscope.data import limits
from forgetscope.data.readers.archives import read_tar, zip_members
from forgetscope.errors import DataError
from tiny_cifar100 import write_tar


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE, form: int = tarfile.GNU_FORMAT) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(form)


def tar(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content + bytes(1024), 1))
    return path


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2"])
def test_members_are_found_in_every_form(form: int, mode: str, tmp_path: Path) -> None:
    folder = "x" * (90 if form == tarfile.USTAR_FORMAT else 120)  # too long for a plain header
    with tarfile.open(tmp_path / "a.tar", mode, format=form) as archive:  # type: ignore[call-overload]
        for name, content in ((f"{folder}/other", b"o" * 700), (f"{folder}/train", b"t" * 1025), (f"{folder}/empty", b"")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        folder_info = tarfile.TarInfo("test")
        folder_info.type = tarfile.DIRTYPE
        archive.addfile(folder_info)
    assert read_tar(tmp_path / "a.tar", {"train", "test", "empty"}) == {"train": b"t" * 1025, "empty": b""}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"".join(header(f"{i}", 0) for i in range(10_001)), "10,001 members, at most 10,000"),
        (header("x", 8_500_000_000, tarfile.XHDTYPE), "8,500,000,000 bytes of a member's name and attributes, at most 65,536"),
        (header("x", 8_500_000_000, tarfile.GNUTYPE_LONGNAME), "8,500,000,000 bytes of a member's name"),
        (header("train", 2**29 + 1), "train: 536,870,913 bytes, at most 536,870,912"),
        (header("other", 2**34), "17,179,869,184 bytes to unpack from a file of"),
        (header("train", 10, tarfile.GNUTYPE_SPARSE), "'train', a link or device"),
        (header("x", 512, tarfile.XHDTYPE) + b"22 GNU.sparse.major=1\n".ljust(512, b"\0"), "a file with gaps"),
        (header("a/train", 0) + header("b/train", 0), "holds train twice"),
        (
            header("x", 512, tarfile.XHDTYPE) + b"16 path=../train\n".ljust(512, b"\0") + header("y", 0),
            "'../train', which points",
        ),
        (header("x", 512, tarfile.XHDTYPE) + b"11 size=-5\n".ljust(512, b"\0") + header("train", 0), "train has -5 bytes"),
        (header("train", 4000) + b"short", "it ends too early"),
        (b"no header at all".ljust(512), "cannot be read as an archive"),
    ],
)
def test_a_tar_archive_is_held_to_its_limits(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_tar(tar(tmp_path / "a.tar.gz", content), {"train", "test"})


def test_what_follows_a_tar_archive_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNPACKED_BYTES", 2**20)
    with pytest.raises(DataError, match="bytes to unpack from a file of"):
        read_tar(tar(tmp_path / "a.tar.gz", bytes(2**24)), {"train"})


def test_xz_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "a.tar.xz").write_bytes(lzma.compress(header("train", 0) + bytes(1024)))
    with pytest.raises(DataError, match=r"a.tar.xz is compressed by xz, which is not read: .* plain, gzip or bzip2"):
        read_tar(tmp_path / "a.tar.xz", {"train"})


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar.gz")
    for read in (lambda path: read_tar(path, {"train"}), zip_members):
        with pytest.raises(DataError, match="not a file with an end, but a folder, pipe or device"):
            read(tmp_path / "a.tar.gz")


def zipped(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_zip_archive_is_held_to_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zipped(tmp_path / "a.zip", {f"{i}.png": b"x" * 1000 for i in range(20)})
    assert len(zip_members(archive)) == 20
    monkeypatch.setattr(limits, "ZIP_DIRECTORY_BYTES", 1000)
    with pytest.raises(DataError, match=r"a.zip: 1,\d\d\d bytes of a list of contents, at most 1,000"):
        zip_members(archive)
    monkeypatch.undo()
    monkeypatch.setattr(limits, "IMAGE_BYTES", 999)
    with pytest.raises(DataError, match=r"a.zip, 0.png: 1,000 bytes, at most 999"):
        zip_members(archive)
    monkeypatch.undo()
    bomb = bytearray(archive.read_bytes())
    for _ in range(20):  # directory entries that claim 200 MB each
        at = bomb.index(b"PK\x01\x02")
        bomb[at : at + 4] = b"pk\x01\x02"
        bomb[at + 24 : at + 28] = (200_000_000).to_bytes(4, "little")
    (tmp_path / "bomb.zip").write_bytes(bomb.replace(b"pk\x01\x02", b"PK\x01\x02"))
    with pytest.raises(DataError, match=r"bomb.zip: 4,000,000,000 bytes to unpack from a file of 1,\d\d\d"):
        zip_members(tmp_path / "bomb.zip")


def test_members_that_appear_twice_or_need_another_decoder_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive:
        archive.writestr("a.png", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.png", b"2")
    with pytest.raises(DataError, match=r"twice.zip holds 'a.png' twice"):
        zip_members(tmp_path / "twice.zip")
    with pytest.raises(DataError, match=r"'a.png' is compressed by another method than deflate"):
        zip_members(zipped(tmp_path / "lzma.zip", {"a.png": b"1"}, zipfile.ZIP_LZMA))


def test_an_archive_that_is_whole_is_read(tmp_path: Path) -> None:
    assert read_tar(write_tar(tmp_path / "a.tar.gz", {"a/train": b"1", "a/test": b"22"}), {"train", "test"}) == {
        "train": b"1",
        "test": b"22",
    }
