"""The real data sets, where they lie beside the checkout."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from conftest import run_experiment
from forgetscope.data.acquisition import get_data
from forgetscope.data.cache import cache_folder
from forgetscope.data.images import DataSet
from forgetscope.data.library import check_data, load_data
from forgetscope.data.preprocessing import Normalisation
from forgetscope.learning.networks import build_network
from forgetscope.learning.rsgd import TrainingSet, make_optimiser, train_step
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec, RunSpec, TrainingSpec
from forgetscope.store import Store

SHARED = Path(__file__).parents[3] / "shared" / "data"
CIFAR, TINY = SHARED / "cifar100", SHARED / "tiny-imagenet-40.zip"

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.slow,
    pytest.mark.skipif(not (CIFAR.is_dir() and TINY.is_file()), reason=f"no real data in {SHARED}"),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("real")


@pytest.fixture
def _in_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(cache))


@pytest.fixture
def cifar(_in_cache: None) -> DataSet:
    if not (cache_folder() / "cifar100").is_dir():
        get_data("cifar100", str(CIFAR), workers=2, note=lambda text: None)
    return load_data("cifar100")


@pytest.fixture
def tiny(_in_cache: None) -> DataSet:
    if not (cache_folder() / "tiny-imagenet").is_dir():
        get_data("tiny-imagenet", str(TINY), workers=2, note=lambda text: None)
    return load_data("tiny-imagenet")


def test_cifar100_is_pixel_exact(cifar: DataSet) -> None:
    assert np.bincount(cifar.train.labels).tolist() == [500] * 100
    assert np.bincount(cifar.test.labels).tolist() == [100] * 100
    assert cifar.train.images.shape == (50000, 32, 32, 3)
    for part, file in ((cifar.train, "train"), (cifar.test, "test")):
        table = pq.read_table(CIFAR / f"{file}-00000-of-00001.parquet")
        assert (part.labels == table["fine_label"].to_numpy()).all()
        for i in range(0, len(part.labels), 37):  # decoded one by one, here, in plain Pillow
            image = Image.open(io.BytesIO(table["img"][i]["bytes"].as_py()))
            assert (part.images[i] == np.asarray(image)).all(), (file, i)


def test_cifar100_s_superclasses_have_five_classes_each(cifar: DataSet) -> None:
    assert cifar.superclasses is not None
    assert {cifar.superclasses.count(name) for name in cifar.superclasses} == {5}
    of = dict(zip(cifar.classes, cifar.superclasses, strict=True))
    assert (of["whale"], of["tulip"], of["tank"], of["woman"]) == ("aquatic_mammals", "flowers", "vehicles_2", "people")


def test_opening_takes_no_memory(cifar: DataSet, cache: Path) -> None:
    code = """
import re
from forgetscope.data.library import load_data
def private():
    text = open("/proc/self/smaps_rollup").read()
    return sum(int(n) for n in re.findall(r"Private_\\w+:\\s+(\\d+) kB", text)) / 1024
before = private()
data = load_data("cifar100")
print(private() - before, data.train.images.nbytes)
"""
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("needs /proc/self/smaps_rollup")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, size = map(float, ran.stdout.split())
    assert size > 150e6
    assert grown < 50


def test_tiny_imagenet_from_the_official_layout(tiny: DataSet) -> None:
    assert np.bincount(tiny.train.labels).tolist() == [500] * 40
    assert np.bincount(tiny.test.labels).tolist() == [50] * 40
    assert tiny.train.images.shape == (20000, 64, 64, 3)
    assert check_data("tiny-imagenet").digest == tiny.digest
    with zipfile.ZipFile(TINY) as archive:
        wnids = archive.read("tiny-imagenet-200/wnids.txt").decode().split()
        grey = 0
        for label, wnid in enumerate(wnids[:8]):
            names = sorted(n for n in archive.namelist() if f"/train/{wnid}/images/" in n)
            for i, name in enumerate(names):
                image = Image.open(io.BytesIO(archive.read(name)))
                if image.mode == "L" or i == 0:
                    grey += image.mode == "L"
                    assert (tiny.train.images[500 * label + i] == np.asarray(image.convert("RGB"))).all()
        assert grey > 0


def test_a_short_two_step_run_on_tiny_imagenet(tiny: DataSet, tmp_path: Path) -> None:
    store = Store(tmp_path)
    spec = RunSpec(dataset="tiny-imagenet", image_size=16, network="resnet8", sequence=[[0, 1, 2], [3, 4]], epochs=2)
    plan = run_experiment(spec, store, device="cpu", threads=1)
    classes = store.step(plan.id).table("classes").to_pandas()
    assert classes["rehearsal_images"].dropna().tolist() == [40] * 3
    assert classes["accuracy"].mean() > 0.25  # five classes: better than chance
    assert classes["sic"].notna().sum() == 3
    assert store.step(plan.id).spec.training.augmentation.crop == 1  # a sixteenth of the side, as 4 pixels of 64 are
    assert tiny.augmentation.crop == 4


def test_one_iteration_of_resnet18_at_64_pixels(tiny: DataSet) -> None:
    network = build_network("resnet18", 10, np.random.default_rng(0))
    assert sum(p.numel() for p in network.parameters()) == 11_173_962
    images = torch.from_numpy(np.concatenate([tiny.train.images[500 * c : 500 * c + 2] for c in range(10)]))
    new = TrainingSet(images, torch.arange(10).repeat_interleave(2), np.full(10, 2))
    training = TrainingSpec(
        epochs=1, batch=20, learning_rate=0.1, momentum=0.9, weight_decay=5e-4, augmentation=AugmentationSpec(crop=8, flip=True)
    )
    normalise = Normalisation(torch.tensor(tiny.mean), torch.tensor(tiny.std))
    (end,) = train_step(network, make_optimiser(network, training), new, None, normalise, training, 0.0, Streams(0, 1))
    assert end.iteration == 1
    assert 1.5 < end.loss < 5
