from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from forgetscope.data.readers.folders import from_arrays, read_folders, read_npz
from forgetscope.data.sources import Source
from forgetscope.errors import DataError


def write_images(folder: Path, count: int, side: int = 8) -> None:
    folder.mkdir(parents=True)
    for i in range(count):
        Image.fromarray(np.full((side, side, 3), 10 * i, np.uint8)).save(folder / f"{i:03}.png")


def file_names(source: Source, part: str) -> list[str]:
    return [Path(name).name for chunk in getattr(source, part).images for name, _ in chunk.encoded()]


def test_train_and_test_folders(tmp_path: Path) -> None:
    for name, train, test in (("cat", 3, 1), ("ant", 2, 2)):
        write_images(tmp_path / "train" / name, train)
        write_images(tmp_path / "val" / name, test)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    source = read_folders(tmp_path)
    assert source.classes == ("ant", "cat")
    assert source.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert source.test.labels.tolist() == [0, 0, 1]


def test_a_held_out_share_is_fixed_and_disjoint(tmp_path: Path) -> None:
    write_images(tmp_path / "a", 10)
    write_images(tmp_path / "b", 2)
    source, again = read_folders(tmp_path, 0.3), read_folders(tmp_path, 0.3)
    assert np.bincount(source.test.labels).tolist() == [3, 1]
    assert np.bincount(source.train.labels).tolist() == [7, 1]
    assert file_names(source, "test") == file_names(again, "test")
    assert not set(file_names(source, "train")[:7]) & set(file_names(source, "test")[:3])


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    write_images(tmp_path / "plain" / "a", 2)
    with pytest.raises(DataError, match=r"has no train/ folder.*--test-share 0.2"):
        read_folders(tmp_path / "plain")
    write_images(tmp_path / "half" / "train" / "a", 2)
    with pytest.raises(DataError, match=r"has train/ but none of test/, val/"):
        read_folders(tmp_path / "half")
    write_images(tmp_path / "half" / "test" / "z", 2)
    with pytest.raises(DataError, match=r"has a class 'z' that .*train has not"):
        read_folders(tmp_path / "half")
    (tmp_path / "empty" / "train").mkdir(parents=True)
    (tmp_path / "empty" / "test").mkdir()
    with pytest.raises(DataError, match="holds no class folders"):
        read_folders(tmp_path / "empty")


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
