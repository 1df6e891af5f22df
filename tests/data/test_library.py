from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
from own_data import own
from typer.testing import CliRunner

import forgetscope as fs
from forgetscope.benchmark.plans import benchmark_plan, left_behind
from forgetscope.benchmark.recipes import recorded_plan
from forgetscope.benchmark.records import recorded_plans
from forgetscope.cli.app import app
from forgetscope.data.acquisition import add_data, get_data
from forgetscope.data.cache import make
from forgetscope.data.conversion import Conversion
from forgetscope.data.images import DataSet
from forgetscope.data.library import check_data, data_facts, installed, load_data, remove_data
from forgetscope.data.readers.arrays import from_arrays
from forgetscope.errors import DataError
from forgetscope.spec import AugmentationSpec
from forgetscope.store import Store

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


@pytest.fixture
def converted_earlier(empty_cache: Path) -> DataSet:
    """Tiny-ImageNet in the cache as earlier versions made it: with a crop of an eighth of the side."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(40, 64, 64, 3), dtype=np.uint8), np.arange(40) % 4
    source = from_arrays(images, labels, images[:8], labels[:8], None)
    folder = empty_cache / "tiny-imagenet"
    make(folder, lambda: source, Conversion("tiny-imagenet", lambda side: earlier(side)), lambda text: None)
    assert json.loads((folder / "manifest.json").read_text())["augmentation"]["crop"] == 8
    return load_data("tiny-imagenet")


def earlier(side: int) -> AugmentationSpec:
    return AugmentationSpec(crop=side // 8, flip=True, brightness=63 / 255)


def test_public_data_sets_are_augmented_as_the_code_says_whoever_converted_them(converted_earlier: DataSet) -> None:
    assert converted_earlier.augmentation == AugmentationSpec(crop=4, flip=True, brightness=63 / 255)
    assert data_facts("tiny-imagenet").augmentation == converted_earlier.augmentation
    assert load_data("tiny-imagenet", 32).augmentation.crop == data_facts("tiny-imagenet", 32).augmentation.crop == 2


@pytest.mark.usefixtures("empty_cache")
def test_what_is_not_here_is_augmented_in_the_same_way() -> None:
    assert [data_facts(name).augmentation.crop for name in ("cifar100", "tiny-imagenet")] == [4, 4]
    assert data_facts("cifar100", 16).augmentation.crop == 2


@pytest.mark.usefixtures("converted_earlier")
def test_a_plan_says_how_many_steps_of_an_earlier_version_are_not_reused(tmp_path: Path) -> None:
    options = {"dataset": "tiny-imagenet", "image_size": 16, "network": "resnet8", "epochs": 1, "first_batch": 4, "batch": 4}
    spec = fs.BenchmarkSpec(name="small", increments=[0.5], retentions=[0.2], experiments=2, steps=2, **options)
    store, old = Store(tmp_path / "store"), fs.BenchmarkSpec(**tomllib.loads(spec.to_toml()), crop=2)
    fs.run(old, store, progress=False, threads=1)
    made = store.ids()
    assert len(made) == 4
    assert left_behind(spec, benchmark_plan(spec), store) == made
    assert left_behind(old, benchmark_plan(old), store) == set()
    (tmp_path / "small.toml").write_text(spec.to_toml())
    command = ["bench", "plan", str(tmp_path / "small.toml"), "--store", str(store.path), "--no-estimate"]
    said = " ".join(CliRunner().invoke(app, command).output.split())
    assert "4 steps were made by an earlier version with a crop of 2 pixels, now 1; readable as before, not reused" in said
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["steps_not_reused"] == 4
    assert "0 steps are done" in said
    again = " ".join(CliRunner().invoke(app, [*command, "--set", "crop=2"]).output.split())
    assert "4 steps are done" in again
    assert "earlier version" not in again
    (record,) = (plan for plan in recorded_plans(store) if "crop = 2" in plan["benchmark"])
    assert recorded_plan(record).done(store) == made
