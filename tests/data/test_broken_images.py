"""Images that cannot be read, and conversions that cannot end: all named, left out on request, and nothing half made."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from forgetscope.data import conversion, images
from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.images import open_data
from forgetscope.data.sources import Encoded, FileChunk, Source, Split, in_chunks
from forgetscope.errors import DataError
from forgetscope.spec import AugmentationSpec


def plan(**changes: Any) -> Conversion:
    return Conversion("mine", lambda side: AugmentationSpec(), **{"skip_broken": False, **changes})


def encoded(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(256, size=(8, 8, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def source_of(paths: list[Path], chunk: int = 4) -> Source:
    """Two classes in turn. The last four images are for testing."""
    parts = [
        Split(np.arange(len(part)) % 2, [FileChunk(piece) for piece in in_chunks(part, chunk)])
        for part in (paths[:-4], paths[-4:])
    ]
    return Source("mine", ("a", "b"), parts[0], parts[1])


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{i:02}.png" for i in range(16)]
    for i, path in enumerate(found):
        path.write_bytes(encoded(i))
    return found


def spoil(paths: list[Path]) -> dict[int, str]:
    """Break some images; why each is of no use."""
    paths[0].write_bytes(b"")
    paths[5].write_bytes(paths[5].read_bytes()[:60])
    paths[6].unlink()
    Image.fromarray(np.zeros((8, 8), np.float32)).save(paths[13], "TIFF")
    return {0: "is empty (0 bytes)", 5: "cannot be read as an image", 6: "cannot be read (No such file", 13: "floating-point"}


@pytest.mark.parametrize("workers", [1, 2])
def test_all_broken_images_are_named_at_once(workers: int, paths: list[Path], tmp_path: Path) -> None:
    reasons = spoil(paths)
    with pytest.raises(DataError) as refusal:
        convert(source_of(paths), tmp_path / "set", plan(), workers=workers)
    message = str(refusal.value)
    assert message.startswith("4 of 16 images cannot be used: ")
    assert message.endswith("Replace or remove them, or leave them out with --skip-broken (skip_broken=True).")
    for number, reason in reasons.items():
        assert f"{paths[number]} {reason}" in message or (f"{paths[number]} holds" in message and reason in message)
    assert not (tmp_path / "set").exists()
    assert not list(tmp_path.glob(".making-*"))


@pytest.mark.parametrize("workers", [1, 2])
def test_broken_images_are_left_out_on_request(
    workers: int, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "BLOCK_BYTES", 3 * 8 * 8 * 3)  # blocks smaller than chunks
    whole = source_of(paths)
    good = {
        part: [i for i in places if i not in (0, 5, 6, 13)] for part, places in (("train", range(12)), ("test", range(12, 16)))
    }
    pixels = {i: np.asarray(Image.open(path)) for i, path in enumerate(paths)}
    spoil(paths)
    notes: list[str] = []
    convert(whole, tmp_path / "set", plan(skip_broken=True), workers=workers, note=notes.append)
    data = open_data(tmp_path / "set")
    for part, kept in (("train", data.train), ("test", data.test)):
        assert (kept.images == np.stack([pixels[i] for i in good[part]])).all()
        assert kept.labels.tolist() == [i % 2 for i in good[part]]
    np.testing.assert_allclose(data.mean, np.stack([pixels[i] for i in good["train"]]).mean(axis=(0, 1, 2)) / 255)
    assert sorted(path.name for path in (tmp_path / "set").iterdir() if path.suffix == ".npy") == [
        "test_images.npy",
        "test_labels.npy",
        "train_images.npy",
        "train_labels.npy",
    ]
    assert len(notes) == 1
    assert notes[0].startswith("Left out 4 images that cannot be used: ")
    for number in (0, 5, 6, 13):
        assert str(paths[number]) in notes[0]


def test_what_is_left_must_still_be_a_data_set(paths: list[Path], tmp_path: Path) -> None:
    for path in paths[0:12:2]:
        path.write_bytes(b"x")
    with pytest.raises(DataError, match=r"1 of 2 classes has no training images \('a'\)"):
        convert(source_of(paths), tmp_path / "set", plan(skip_broken=True))
    for path in paths:
        path.write_bytes(b"x")
    with pytest.raises(DataError, match=r"no training image can be read: .*00.png cannot be read as an image"):
        convert(source_of(paths), tmp_path / "set", plan(skip_broken=True))
    assert not list(tmp_path.glob(".making-*"))


def test_many_broken_images_are_counted(paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "NAMED", 2)
    for path in paths[:10]:
        path.write_bytes(b"x")
    with pytest.raises(DataError, match=r"10 of 16 images cannot be used: .*00.png .*; .*01.png .*; and 8 more\. Replace"):
        convert(source_of(paths), tmp_path / "set", plan())


def test_a_public_data_set_is_whole_or_refused(paths: list[Path], tmp_path: Path) -> None:
    paths[3].write_bytes(b"")
    with pytest.raises(DataError, match=r"03.png is empty \(0 bytes\). It is damaged or incomplete: get it again"):
        convert(source_of(paths), tmp_path / "set", plan(skip_broken=None))


def test_what_was_done_to_images_is_told_with_numbers(paths: list[Path], tmp_path: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(paths[0])
    Image.new("RGBA", (8, 8)).save(paths[1])
    Image.new("RGBA", (8, 8)).save(paths[14])
    notes: list[str] = []
    convert(source_of(paths), tmp_path / "set", plan(), note=notes.append)
    assert notes == [
        "Scaled from 16 bits per channel to 8: 1 of 16 images.",
        "Transparent in places, laid on white: 2 of 16 images.",
    ]
    data = open_data(tmp_path / "set")
    assert (data.test.images[2] == 255).all()


@dataclass(frozen=True)
class Trap:
    """Kills the process that opens it, as the system does when memory runs out; or says that it has run out."""

    kill: bool

    def __len__(self) -> int:
        return 2

    def encoded(self) -> Iterator[Encoded]:
        yield "first", encoded(0)
        if self.kill and os.getpid() != int(os.environ["TRAP_SPARES"]):
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError


@pytest.mark.parametrize("kill", [False, True])
def test_want_of_memory_is_one_clear_error(kill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAP_SPARES", str(os.getpid()))
    split = Split(np.array([0, 1]), [Trap(kill)])
    message = (
        r"was killed, perhaps because memory ran out. Nothing was made. Use fewer" if kill else "Memory ran out while mine"
    )
    with pytest.raises(DataError, match=message):
        convert(Source("mine", ("a", "b"), split, split), tmp_path / "set", plan(), workers=2 if kill else 1)
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Short:
    """Promises three images and has one."""

    def __len__(self) -> int:
        return 3

    def encoded(self) -> Iterator[Encoded]:
        yield "first", encoded(0)


def test_a_chunk_with_fewer_images_than_it_says_is_refused(tmp_path: Path) -> None:
    split = Split(np.array([0, 0, 0]), [Short()])
    with pytest.raises(DataError, match=r"holds 1 image, not 3 as it says"):
        convert(Source("mine", ("a",), split, split), tmp_path / "set", plan())


def test_more_pixels_than_a_disk_can_hold_are_refused(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "CONVERTED_BYTES", 3000)
    with pytest.raises(DataError, match=r"3,072 bytes of pixels, at most 3,000 are read. Choose a smaller --size"):
        convert(source_of(paths), tmp_path / "set", plan())
