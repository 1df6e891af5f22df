from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from forgetscope.data import conversion, decoding
from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.decoding import decode, resize
from forgetscope.data.images import FILES, contact_sheet, open_data, pixel_digest
from forgetscope.data.sources import FileChunk, Source, Split
from forgetscope.errors import DataError, WriteError
from forgetscope.spec import AugmentationSpec


def plan(**changes: Any) -> Conversion:
    return Conversion("mine", lambda side: AugmentationSpec(crop=side // 8), **changes)


def encoded(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def noise(seed: int, width: int = 8, height: int = 8) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8))


def source_of_files(folder: Path, sizes: list[tuple[int, int]]) -> Source:
    """One class; an image file per size. The first two thirds are for training."""
    folder.mkdir(parents=True)
    paths = [folder / f"{i}.png" for i in range(len(sizes))]
    for i, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        path.write_bytes(encoded(noise(i, *size)))
    cut = 2 * len(paths) // 3
    parts = [Split(np.zeros(len(part), np.int64), [FileChunk((path,)) for path in part]) for part in (paths[:cut], paths[cut:])]
    return Source(str(folder), ("only",), parts[0], parts[1])


def arrays(train: int = 6, test: int = 3, classes: int = 3, shape: tuple[int, int] = (8, 8)) -> Source:
    rng = np.random.default_rng(0)
    splits = [Split(np.arange(n) % classes, rng.integers(256, size=(n, *shape, 3), dtype=np.uint8)) for n in (train, test)]
    return Source("arrays", tuple("abcdefgh"[:classes]), splits[0], splits[1])


def nothing_left(folder: Path) -> bool:
    return not [path for path in folder.iterdir() if path.name.startswith(".making-") or path.name == "set"]


def test_arrays_files_and_workers_give_the_pixels_that_were_given(tmp_path: Path) -> None:
    source = source_of_files(tmp_path / "files", [(8, 8)] * 9)
    counted: list[tuple[int, int]] = []
    convert(source, tmp_path / "one", plan(), progress=lambda done, total: counted.append((done, total)))
    convert(source, tmp_path / "two", plan(), workers=2)
    one, two = open_data(tmp_path / "one"), open_data(tmp_path / "two")
    assert one.digest == two.digest
    for i in range(9):
        part, at = (one.train, i) if i < 6 else (one.test, i - 6)
        assert (part.images[at] == np.asarray(noise(i))).all()
    assert counted == [(i, 9) for i in range(1, 10)]


def test_the_digest_and_the_statistics_are_those_of_the_arrays(tmp_path: Path) -> None:
    source = arrays(train=2500, test=3)  # more than one block
    convert(source, tmp_path / "set", plan())
    data = open_data(tmp_path / "set")
    given = (source.train.images, source.train.labels, source.test.images, source.test.labels)
    assert data.digest == pixel_digest(zip(FILES, given, strict=True))  # type: ignore[arg-type]
    pixels = source.train.images.reshape(-1, 3) / 255  # type: ignore[union-attr]
    np.testing.assert_allclose(data.mean, pixels.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(data.std, pixels.std(axis=0), rtol=1e-10)
    assert data.augmentation.crop == 1


def test_any_pixel_and_any_label_changes_the_digest() -> None:
    images, labels = np.zeros((4, 2, 2, 3), np.uint8), np.arange(4)
    base = pixel_digest([("a", images), ("b", labels)])
    changed = images.copy()
    changed[3, 1, 1, 2] = 1
    assert pixel_digest([("a", changed), ("b", labels)]) != base
    assert pixel_digest([("a", images), ("b", labels[::-1])]) != base
    assert pixel_digest([("a", images.reshape(2, 4, 2, 3)), ("b", labels)]) != base


def test_images_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    source = source_of_files(tmp_path / "files", [(8, 8), (12, 8), (8, 8)])
    with pytest.raises(DataError, match=r"1.png is 12 x 8 pixels, the images before it 8 x 8.*--size 8"):
        convert(source, tmp_path / "set", plan())
    assert nothing_left(tmp_path)
    convert(source, tmp_path / "set", plan(size=16))
    assert open_data(tmp_path / "set").shape == (16, 16)


def test_images_need_not_be_square(tmp_path: Path) -> None:
    convert(arrays(shape=(8, 12)), tmp_path / "set", plan())
    assert open_data(tmp_path / "set").shape == (8, 12)


def test_crop_keeps_proportions_and_stretch_keeps_everything() -> None:
    wide = Image.new("RGB", (40, 20), "black")
    wide.paste("white", (0, 0, 10, 20))  # the left quarter
    cropped, stretched = (np.asarray(resize(wide, 20, fit))[10, :, 0] for fit in ("crop", "stretch"))
    assert (cropped == 0).all()
    assert stretched[0] == 255
    assert stretched[-1] == 0
    assert resize(wide, None, "crop") is wide


def test_a_cut_lies_between_pixels() -> None:
    """Half a pixel to the side, every pixel would be a mixture of two."""
    row = np.tile(np.arange(0, 250, 10, dtype=np.uint8)[None, :, None], (20, 1, 3))
    assert np.array_equal(np.asarray(resize(Image.fromarray(row), 20, "crop")), row[:, 2:22])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ("a", "b")}, "label 2 of a training image is unknown; there are 2 classes"),
        ({"classes": ("a", "b", "c", "d")}, r"1 of 4 classes has no training images \('d'\)"),
        ({"classes": ("a", "a", "c")}, "two classes are called 'a'"),
        ({"test": Split(np.array([0, 1]), np.zeros((2, 8, 8, 3), np.uint8))}, r"1 of 3 classes has no test images \('c'\)"),
        ({"test": Split(np.array([0, 1, 2]), np.zeros((2, 8, 8, 3), np.uint8))}, "2 test images but 3 labels"),
        ({"test": Split(np.array([0, -1, 2]), np.zeros((3, 8, 8, 3), np.uint8))}, "label -1 of a test image is unknown"),
    ],
)
def test_labels_that_do_not_fit_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    whole = arrays()
    source = Source(**{"origin": "mine", "classes": whole.classes, "train": whole.train, "test": whole.test, **change})
    with pytest.raises(DataError, match=message):
        convert(source, tmp_path / "set", plan())
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_image_that_does_not_decode_is_named_and_nothing_is_left(workers: int, tmp_path: Path) -> None:
    source = source_of_files(tmp_path / "files", [(8, 8)] * 6)
    broken = tmp_path / "files" / "4.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(DataError, match=r"4.png cannot be read as an image"):
        convert(source, tmp_path / "set", plan(), workers=workers)
    assert nothing_left(tmp_path)


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match=r"bomb.png is too large to be an image of a class \(40 x 40 pixels\)"):
        decode("bomb.png", encoded(noise(0, 40, 40)), None, "crop")
    monkeypatch.undo()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)  # Pillow's own guard
    with pytest.raises(DataError, match=r"bomb.png is too large"):
        decode("bomb.png", encoded(noise(0, 40, 40)), None, "crop")


def test_text_that_inflates_without_end_is_refused() -> None:
    notes = PngImagePlugin.PngInfo()
    notes.add_text("comment", "x" * 70_000_000, zip=True)
    buffer = io.BytesIO()
    noise(0).save(buffer, "PNG", pnginfo=notes)
    with pytest.raises(DataError, match=r"bomb.png cannot be read as an image"):
        decode("bomb.png", buffer.getvalue(), None, "crop")


def test_a_full_disk_is_one_clear_error_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(conversion.os, "posix_fallocate", no_room)
    with pytest.raises(WriteError, match="No space left on device"):
        convert(arrays(), tmp_path / "set", plan())
    assert nothing_left(tmp_path)


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(arrays(), tmp_path / "set", plan(), progress=stop)
    assert nothing_left(tmp_path)


def test_a_contact_sheet_shows_every_class_once(tmp_path: Path) -> None:
    convert(arrays(train=40, test=8, classes=8), tmp_path / "set", plan())
    data = open_data(tmp_path / "set")
    sheet = np.asarray(contact_sheet(data))
    for label in range(8):
        column, row = divmod(label, 2)
        first = data.train.images[np.flatnonzero(data.train.labels == label)[0]]
        top, left = row * 8, column * (8 * 8 + 2)
        assert (sheet[top : top + 8, left : left + 8] == first).all()
