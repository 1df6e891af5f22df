from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.images import DataSet, open_data
from forgetscope.data.readers.tiny_imagenet import read_tiny_imagenet
from forgetscope.errors import DataError
from forgetscope.spec import AugmentationSpec

WNIDS = ("n02", "n01", "n03")  # not sorted: wnids.txt decides


def picture(seed: int, mode: str = "RGB") -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(256, size=(64, 64, 3), dtype=np.uint8)).convert(mode)


def encoded(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def official(tmp_path: Path) -> Path:
    root = tmp_path / "tiny-imagenet-200"
    for label, wnid in enumerate(WNIDS):
        (root / "train" / wnid / "images").mkdir(parents=True)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("boxes")
        for i in range(2):
            mode = "L" if (label, i) == (0, 1) else "RGB"
            (root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG").write_bytes(encoded(picture(10 * label + i, mode)))
    (root / "val" / "images").mkdir(parents=True)
    lines = []
    for i, wnid in enumerate(reversed(WNIDS)):
        (root / "val" / "images" / f"val_{i}.JPEG").write_bytes(encoded(picture(100 + i)))
        lines.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t62\t62")
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (root / "test" / "images").mkdir(parents=True)
    (root / "test" / "images" / "test_0.JPEG").write_bytes(b"unlabelled, never read")
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (root / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tcrane\nn03\tcrane\nn99\tother\n")
    return root


def zipped(root: Path) -> Path:
    return Path(shutil.make_archive(str(root.parent / "tiny"), "zip", root.parent, root.name))


def converted(path: Path, tmp: Path) -> DataSet:
    shutil.rmtree(tmp / "converted", ignore_errors=True)
    convert(read_tiny_imagenet(path), tmp / "converted", Conversion("tiny-imagenet", lambda side: AugmentationSpec()))
    return open_data(tmp / "converted")


def test_zip_folder_and_parent_folder_agree(official: Path, tmp_path: Path) -> None:
    archive = zipped(official)
    digests = {converted(path, tmp_path).digest for path in (archive, official, official.parent)}
    assert len(digests) == 1


def test_classes_follow_wnids_and_the_validation_part_is_the_test_set(official: Path, tmp_path: Path) -> None:
    data = converted(zipped(official), tmp_path)
    assert data.classes == ("crane (n02)", "goldfish", "crane (n03)")
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.test.labels.tolist() == [2, 1, 0]
    assert (data.test.images[0] == np.asarray(picture(100))).all()


def test_grey_images_become_rgb(official: Path, tmp_path: Path) -> None:
    data = converted(official, tmp_path)
    assert (data.train.images[1] == np.asarray(picture(1, "L"))[..., None]).all()


def test_parquet_of_the_hub(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    names = {"info": {"features": {"label": {"names": list(WNIDS), "_type": "ClassLabel"}}}}
    for split, labels in (("train", [2, 0, 1, 1]), ("valid", [0, 1, 2])):
        images = [{"bytes": encoded(picture(label)), "path": None} for label in labels]
        table = pa.table({"image": images, "label": labels}).replace_schema_metadata({"huggingface": json.dumps(names)})
        pq.write_table(table, folder / f"{split}-00000-of-00001-abc.parquet")
    data = converted(folder, tmp_path)
    assert data.classes == WNIDS
    assert data.train.labels.tolist() == [2, 0, 1, 1]
    assert (data.test.images[2] == np.asarray(picture(2))).all()


def test_whatever_is_wrong_is_named(official: Path, tmp_path: Path) -> None:
    annotations = official / "val" / "val_annotations.txt"
    whole = annotations.read_text()

    annotations.write_text(whole.replace("n01", "n77"))
    with pytest.raises(DataError, match=r"line 2 of val_annotations.txt has the unknown label 'n77'"):
        converted(official, tmp_path)
    annotations.write_text(whole + "val_9.JPEG\tn01\t0\t0\t1\t1\n")
    with pytest.raises(DataError, match=r"has no val/images/val_9.JPEG, which val_annotations.txt lists"):
        converted(official, tmp_path)
    annotations.write_text("\n".join(whole.splitlines()[:2]))
    with pytest.raises(DataError, match=r"1 of 3 classes has no test images \('crane \(n02\)'\)"):
        converted(official, tmp_path)
    annotations.unlink()
    with pytest.raises(DataError, match=r"has no val/val_annotations.txt"):
        converted(official, tmp_path)
    with pytest.raises(DataError, match="There is nothing at"):
        converted(tmp_path / "none", tmp_path)


def test_archives_that_are_damaged_or_not_to_be_trusted(official: Path, tmp_path: Path) -> None:
    archive = zipped(official)
    cut = tmp_path / "cut.zip"
    cut.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"cut.zip cannot be read as a zip archive"):
        converted(cut, tmp_path)
    flipped = bytearray(archive.read_bytes())
    at = flipped.index(b"n02_0.JPEG") + 500  # inside of the first image's data
    flipped[at] ^= 255
    (tmp_path / "flipped.zip").write_bytes(flipped)
    with pytest.raises(DataError, match=r"flipped.zip: cannot read .*n02_0.JPEG .*Bad CRC"):
        converted(tmp_path / "flipped.zip", tmp_path)
    for name, attribute, message in (
        ("../wnids.txt", 0, "points outside"),
        ("/wnids.txt", 0, "points outside"),
        ("wnids.txt", 0o120777, "a link or device"),
    ):
        with zipfile.ZipFile(tmp_path / "evil.zip", "w") as evil:
            info = zipfile.ZipInfo(name)
            info.external_attr = attribute << 16
            evil.writestr(info, "n01")
        with pytest.raises(DataError, match=message):
            converted(tmp_path / "evil.zip", tmp_path)
    assert not (tmp_path / "converted").exists()


def test_a_hundred_thousand_classes_take_no_time_and_more_are_refused(official: Path) -> None:
    wnids = [*WNIDS, *(f"x{i}" for i in range(99_997))]
    (official / "wnids.txt").write_text("\n".join(wnids))
    (official / "words.txt").write_text("".join(f"{wnid}\tsame\n" for wnid in wnids))
    assert read_tiny_imagenet(official).classes[0] == "same (n02)"
    (official / "wnids.txt").write_text("\n".join([*wnids, "one-more"]))
    with pytest.raises(DataError, match=r"wnids.txt: 100,001 classes, at most 100,000 are read"):
        read_tiny_imagenet(official)


def test_lists_are_text_of_a_bounded_length_that_names_each_class_once(official: Path) -> None:
    (official / "wnids.txt").write_text("n01 n02 n01")
    with pytest.raises(DataError, match=r"wnids.txt lists n01 twice"):
        read_tiny_imagenet(official)
    (official / "wnids.txt").write_bytes(b"n01 \xff")
    with pytest.raises(DataError, match=r"wnids.txt is not text in UTF-8"):
        read_tiny_imagenet(official)
    with (official / "wnids.txt").open("wb") as file:
        file.truncate(2**30)  # takes no room on disk
    with pytest.raises(DataError, match=r"wnids.txt: 1,073,741,824 bytes, at most 16,777,216 are read"):
        read_tiny_imagenet(official)
