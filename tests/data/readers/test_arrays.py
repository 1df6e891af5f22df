"""Arrays given in Python, and .npz files: whole, hostile and damaged."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.readers.arrays import from_arrays, read_npz
from forgetscope.errors import DataError
from forgetscope.spec import AugmentationSpec


def arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    given = {
        "train_images": rng.integers(256, size=(6, 8, 10, 3), dtype=np.uint8),
        "train_labels": np.array([0, 1, 2, 0, 1, 2]),
        "test_images": rng.integers(256, size=(3, 8, 10, 3), dtype=np.uint8),
        "test_labels": np.array([0, 1, 2]),
    }
    return given | changes


def test_npz_files_with_either_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays(), classes=np.array(["x", "y", "z"]))
    source = read_npz(tmp_path / "a.npz")
    assert source.classes == ("x", "y", "z")
    assert (source.train.images == arrays()["train_images"]).all()  # type: ignore[union-attr]
    renamed = {"x_train": "train_images", "y_train": "train_labels", "x_test": "test_images", "y_test": "test_labels"}
    np.savez(tmp_path / "b.npz", **{new: arrays()[old] for new, old in renamed.items()})
    assert read_npz(tmp_path / "b.npz").classes == ("0", "1", "2")


def test_grey_arrays_become_rgb() -> None:
    grey = np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 8, 8)
    for images in (grey, grey[..., None]):
        source = from_arrays(images, [0, 1], images, [[0], [1]])
        assert source.train.images.shape == (2, 8, 8, 3)  # type: ignore[union-attr]
        assert source.test.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((6, 8, 10, 3))}, "images are float64, expected uint8"),
        ({"train_images": np.zeros((6, 8), np.uint8)}, r"images have shape \(6, 8\)"),
        ({"train_labels": np.array([0.5] * 6)}, "labels are float64"),
        ({"test_images": np.zeros((3, 9, 10, 3), np.uint8)}, r"training images are \(8, 10, 3\), test images \(9, 10, 3\)"),
    ],
)
def test_arrays_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(**arrays(**changes))


def test_npz_files_that_do_not_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", train_images=np.zeros(3))
    with pytest.raises(DataError, match=r"has no array 'train_labels' \(or 'y_train'\); it has train_images"):
        read_npz(tmp_path / "few.npz")
    np.savez(tmp_path / "objects.npz", **arrays(train_labels=np.array([object()] * 6, dtype=object)))
    with pytest.raises(DataError, match=r"cannot be read as a .npz file of plain arrays"):
        read_npz(tmp_path / "objects.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "few.npz").read_bytes()[:50])
    with pytest.raises(DataError, match=r"cut.npz cannot be read"):
        read_npz(tmp_path / "cut.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((6, 8, 10, 3), np.uint16)}, r"images are uint16.*\(images / 257\).round\(\).astype"),
        ({"train_images": np.zeros((6, 8, 10, 3), np.float32)}, r"images are float32.*From 0 to 1: \(255 \* images\)"),
        ({"train_images": np.zeros((6, 0, 0, 3), np.uint8)}, r"images have shape \(6, 0, 0, 3\)"),
        ({"train_labels": np.array(["cat"] * 6)}, "labels are <U3 of shape"),
        ({"train_labels": np.array([0.0] * 6)}, "labels are float64 of shape"),
        ({"train_labels": np.array([0, 1, 2, 0, 1, 10**12])}, "arrays: 1,000,000,000,001 classes, at most 100,000 are read"),
        ({"train_labels": np.array([0, 1, 2, 0, 1, 2**64 - 1], np.uint64)}, "18,446,744,073,709,551,616 classes"),
        ({"classes": [b"\xff", "b", "c"]}, r"the class name b'\\xff' is not UTF-8"),
        ({"classes": np.array([["a", "b", "c"]])}, r"class names have the shape \(1, 3\)"),
    ],
)
def test_arrays_without_a_clear_meaning_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(**arrays(**changes))


def test_bytes_are_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays(), classes=np.array([b"cat", "ä".encode(), b"dog"]))
    assert read_npz(tmp_path / "a.npz").classes == ("cat", "ä", "dog")
    assert from_arrays(**arrays(), classes=[b"cat", "owl", 3]).classes == ("cat", "owl", "3")


def claiming(shape: tuple[int, ...], kind: str = "|u1", content: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    npy.write_array_header_1_0(buffer, {"descr": kind, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + content


def npz(path: Path, **members: bytes) -> Path:
    """A .npz file whose members are bytes; those that are not given are as they should be."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays())
    with zipfile.ZipFile(buffer) as whole, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in whole.namelist():
            archive.writestr(name, members.pop(name.removesuffix(".npy"), whole.read(name)))
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"train_images": claiming((3_000_000, 32, 32, 3))}, r"9,216,\d\d\d,\d\d\d bytes to unpack from a file of"),
        ({"classes": claiming((3,), "<U100000000")}, r"1,200,\d\d\d,\d\d\d bytes to unpack"),
        ({"train_images": claiming((6, 8, 10, 3))}, "cannot be read as a .npz file"),  # nothing follows
        ({"train_labels": claiming((6,), "<i8", bytes(56))}, "train_labels is longer than it says"),
        ({"train_labels": claiming((-6,), "<i8", bytes(48))}, r"cannot be read as a .npz file"),
        ({"train_labels": b"\x93NUMPY\x09\x00"}, r"cannot be read as a .npz file"),
        ({"train_labels": b""}, r"cannot be read as a .npz file"),
        ({"train_labels": claiming((6,), "<i8", bytes(48)).replace(b"}", b" ")}, r"cannot be read as a .npz file"),
        ({"train_labels": claiming((6,), "|O", bytes(48))}, r"train_labels holds objects"),
        ({"classes": claiming((3,), [("a", "|u1")], bytes(3))}, r"classes holds objects or records"),  # type: ignore[arg-type]
        ({"classes": claiming((10**12,), "<U0")}, r"classes holds nothing"),  # of which there would be no end
        ({"train_images": claiming((10**12, 8, 8, 3), "|V0")}, r"train_images holds nothing"),
        ({"train_images": claiming((0, 10**30))}, r"bytes to unpack from a file of"),
        ({"classes": claiming((200_000,), "|S1", b"a" * 200_000)}, r"200,000 classes, at most 100,000"),
    ],
)
def test_an_npz_file_is_held_to_what_it_holds(members: dict[str, bytes], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_npz(npz(tmp_path / "a.npz", **members))


def test_a_flipped_bit_in_an_npz_file_is_noticed(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays())
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[content.index(b"train_images.npy") + 500] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a.npz cannot be read as a .npz file of plain arrays \(Bad CRC-32"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["a", "b", "c" * 100_000_000], r"class 'c{50}...': 100,000,000 characters in a name, at most 1,000 are read. Rename"),
        (["a", "b", "\udcff"], r"class name '\\udcff' is not valid Unicode"),
        (map(str, range(1_000_000)), "1,000,000 classes, at most 100,000"),
        (range(10**15), "1,000,000,000,000,000 classes, at most 100,000"),
        (["same"] * 100_000, "two classes are called 'same'"),
    ],
)
def test_names_have_bounds(classes: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        convert(from_arrays(**arrays(), classes=classes), tmp_path / "set", Conversion("mine", lambda side: AugmentationSpec()))


def test_nothing_at_all_is_refused(tmp_path: Path) -> None:
    images, labels = np.zeros((0, 8, 8, 3), np.uint8), np.zeros(0, np.int64)
    with pytest.raises(DataError, match="0 of 0 classes have no training images"):
        convert(
            from_arrays(images, labels, images, labels), tmp_path / "set", Conversion("mine", lambda side: AugmentationSpec())
        )
