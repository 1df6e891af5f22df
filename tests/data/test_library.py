from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from own_data import own

from forgetscope.data.acquisition import add_data, get_data
from forgetscope.data.library import check_data, installed, load_data, remove_data
from forgetscope.errors import DataError

pytestmark = pytest.mark.usefixtures("empty_cache")


def test_another_size_is_made_once_and_anew_when_the_data_set_changes(empty_cache: Path) -> None:
    own()
    notes: list[str] = []
    small = load_data("mine", 8, notes.append)
    again = load_data("mine", 8, notes.append)
    assert small.shape == (8, 8)
    assert small.digest == again.digest
    assert notes == ["Resizing mine to 8 x 8 pixels, once"]
    assert small.augmentation.crop == 1
    assert load_data("mine", 16).digest == load_data("mine").digest  # its own size needs no copy
    assert installed() == ["mine"]
    shutil.rmtree(empty_cache / "mine")  # replaced behind our back
    own(shape=(24, 24))
    assert load_data("mine", 8, notes.append).digest != small.digest
    assert len(notes) == 2


def test_removing_takes_the_other_sizes_along(empty_cache: Path) -> None:
    own()
    load_data("mine", 8)
    remove_data("mine")
    assert installed() == []
    assert not [path for path in empty_cache.iterdir() if path.is_dir()]
    with pytest.raises(DataError, match="There is no data set 'mine'"):
        remove_data("mine")


def test_missing_data_sets_say_how_to_get_them() -> None:
    with pytest.raises(DataError, match=r"There is no data set 'cifar100'. Get it with `forgetscope data get cifar100`"):
        load_data("cifar100")
    with pytest.raises(DataError, match=r"Did you mean 'tiny-imagenet'\?"):
        load_data("tiny-imagnet")
    with pytest.raises(DataError, match=r"'cifar10' is not a public data set that is known. Did you mean 'cifar100'\?"):
        get_data("cifar10")
    with pytest.raises(DataError, match="There is nothing at"):
        add_data("mine", "/does/not/exist")


def test_changed_pixels_are_noticed_by_a_check(empty_cache: Path) -> None:
    own()
    assert check_data("mine").name == "mine"
    path = empty_cache / "mine" / "train_images.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"mine is damaged \(train_images.npy does not match its checksum\)"):
        check_data("mine")
