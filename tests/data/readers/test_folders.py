from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from forgetscope.data.readers.folders import read_folders
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


def test_what_is_passed_over_is_counted_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "cat", 4)
    write_images(tmp_path / "dog", 4)
    write_images(tmp_path / "dog" / "brown" / "small", 2)
    write_images(tmp_path / "dog" / ".thumbnails", 1)
    write_images(tmp_path / ".git" / "x", 1)
    (tmp_path / "cat" / "a.HEIC").touch()
    (tmp_path / "cat" / "b.HEIC").touch()
    (tmp_path / "cat" / "README").touch()
    (tmp_path / "cat" / "._0.png").touch()
    (tmp_path / "cat" / "gone.png").symlink_to("nowhere")
    (tmp_path / "cat" / "again").symlink_to(tmp_path / "dog")
    (tmp_path / "loose.png").touch()
    os.mkfifo(tmp_path / "cat" / "pipe.png")
    source = read_folders(tmp_path, 0.25)
    assert np.bincount(source.train.labels).tolist() == [3, 4]
    left, nested = source.remarks
    for part in (
        "2 .HEIC files (such as cat/",
        "1 file without ending (such as cat/README)",
        "1 hidden file (such as cat/._0.png)",
        "2 broken links, pipes or devices (such as cat/",
        "2 hidden or linked folders (such as ",
        "2 beside the class folders (such as .git)",
    ):
        assert part in left
    assert nested == (
        "2 images lie in folders within a class's folder and count as images of that class, such as dog/brown/small/000.png."
    )


def test_one_image_in_an_inner_folder_is_not_called_many(tmp_path: Path) -> None:
    write_images(tmp_path / "cat", 3)
    write_images(tmp_path / "cat" / "black", 1)
    assert read_folders(tmp_path, 0.25).remarks == (
        "1 image lies in folders within a class's folder and counts as an image of that class, such as cat/black/000.png.",
    )


def test_an_unreadable_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "cat", 3)
    write_images(tmp_path / "cat" / "secret", 3)
    scan = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)  # modes do not bind root
    source = read_folders(tmp_path, 0.4)
    assert source.remarks == (f"Left out in {tmp_path}: 1 unreadable folder (such as cat/secret).",)


def test_folders_that_are_not_used_are_told(tmp_path: Path) -> None:
    for part in ("train", "test", "val", "extra"):
        write_images(tmp_path / part / "cat", 1)
    assert read_folders(tmp_path).remarks == (f"extra/, val/ beside train/ and test/ in {tmp_path}: not used.",)


def test_a_device_is_no_folder() -> None:
    with pytest.raises(DataError, match=r"/dev/zero is neither a file nor a folder. Name a folder of images, or a .npz file"):
        read_folders(Path("/dev/zero"))
