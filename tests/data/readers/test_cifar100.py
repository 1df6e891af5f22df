"""Every form of CIFAR-100 must give the same pixels, labels and superclasses; whatever is wrong must be named."""

from __future__ import annotations

import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.images import DataSet, open_data
from forgetscope.data.readers.cifar100 import CLASSES, SUPERCLASSES, read_cifar100
from forgetscope.errors import DataError
from forgetscope.spec import AugmentationSpec
from tiny_cifar100 import COARSE_OF, FORMS, SPLITS, binary, pickled, write_files, write_parquet, write_tar


def converted(path: Path, tmp: Path) -> DataSet:
    convert(read_cifar100(path), tmp / "converted", Conversion("cifar100", lambda side: AugmentationSpec(crop=side // 8)))
    return open_data(tmp / "converted")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_pixels_and_labels(form: str, tmp_path: Path) -> None:
    data = converted(FORMS[form](tmp_path), tmp_path)
    assert data.classes == CLASSES
    for name, part in (("train", data.train), ("test", data.test)):
        images, labels = SPLITS[name]
        if form == "image folders":  # files lie class after class
            order = np.argsort(labels, kind="stable")
            images, labels = images[order], labels[order]
        assert (part.labels == labels).all()
        assert (part.images == images).all()
    if form != "image folders":
        assert data.superclasses == tuple(SUPERCLASSES[COARSE_OF[label]] for label in range(100))


def test_the_names_are_a_hundred_sorted_and_twenty() -> None:
    assert len(CLASSES) == len(set(CLASSES)) == 100
    assert list(CLASSES) == sorted(CLASSES)
    assert len(SUPERCLASSES) == len(set(SUPERCLASSES)) == 20


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch evil-was-here",)


def evil_members(tmp: Path) -> dict[str, Path]:
    whole = {f"cifar-100-binary/{n}.bin": binary(n) for n in SPLITS}
    truncated = write_tar(tmp / "truncated.tar.gz", whole)
    truncated.write_bytes(truncated.read_bytes()[:-5000])
    altered = write_tar(tmp / "altered.tar.gz", whole)
    content = bytearray(altered.read_bytes())
    content[len(content) // 2] ^= 255
    altered.write_bytes(content)
    linked, device = tmp / "linked.tar", tmp / "device.tar"
    for path, kind in ((linked, tarfile.SYMTYPE), (device, tarfile.CHRTYPE)):
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo("cifar-100-binary/train.bin")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    batch = pickled("train")
    return {
        r"truncated.tar.gz cannot be read as an archive": truncated,
        r"altered.tar.gz": altered,
        r"linked.tar holds 'cifar-100-binary/train.bin', a link or device": linked,
        r"device.tar holds 'cifar-100-binary/train.bin', a link or device": device,
        r"outside.tar.gz holds '../train.bin', which points outside": write_tar(tmp / "outside.tar.gz", {"../train.bin": b""}),
        r"absolute.tar.gz holds '/train.bin', which points outside": write_tar(tmp / "absolute.tar.gz", {"/train.bin": b""}),
        r"one.tar.gz has no test.bin: a split is missing": write_tar(tmp / "one.tar.gz", {"train.bin": binary("train")}),
        r"short.tar.gz: train.bin has 100 bytes, not a whole number of records": write_tar(
            tmp / "short.tar.gz", {"train.bin": binary("train")[:100], "test.bin": binary("test")}
        ),
        r"empty.tar.gz holds CIFAR-100 in no form that is known": write_tar(tmp / "empty.tar.gz", {"readme": b""}),
        r"asks for posix.system, but a data set needs only numpy arrays": write_files(
            tmp / "evil", {"train": pickle.dumps({b"data": Evil()}, protocol=2), "test": batch}
        ),
        r"train is damaged": write_files(tmp / "cut", {"train": batch[: len(batch) // 2], "test": batch}),
        r"train is not a CIFAR-100 batch \(data is uint8 of shape \(3, 3072\)\)": write_files(
            tmp / "few", {"train": pickled("train", data=np.zeros((3, 3072), np.uint8)), "test": batch}
        ),
        r"train is not a CIFAR-100 batch \(b'fine_labels'\)": write_files(
            tmp / "none", {"train": pickle.dumps({b"data": 1}), "test": batch}
        ),
        r"has no test split: no file test\*.parquet": write_files(
            tmp / "half", {"train-0.parquet": (write_parquet(tmp / "tmp1") / "train-00000-of-00001.parquet").read_bytes()}
        ),
        r"has no column 'coarse_label'; it has img, fine_label": write_parquet(tmp / "nocoarse", drop="coarse_label"),
        r"image 0 has the labels 117 and \d+; there are 100 classes": write_parquet(tmp / "wild", fine=lambda x: x * 0 + 117),
        r"images of one class have different superclasses": write_parquet(tmp / "mixed", fine=lambda x: x * 0 + 5),
        r"There is nothing at .*nowhere": tmp / "nowhere",
    }


def test_whatever_is_wrong_is_named_and_nothing_is_run_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for message, path in evil_members(tmp_path).items():
        with pytest.raises(DataError, match=message):
            converted(path, tmp_path)
    assert not (tmp_path / "evil-was-here").exists()
    assert not (tmp_path / "converted").exists()
    assert not list(tmp_path.glob(".making-*"))


def test_a_damaged_parquet_page_is_noticed(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "parquet")
    path = folder / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-00000-of-00001.parquet cannot be read as Parquet"):
        converted(folder, tmp_path)
