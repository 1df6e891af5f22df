"""Shared fixtures: a cache for generated data, one thread, and a tiny experiment that takes about two seconds."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest

import forgetscope  # before torch, so that OpenMP's threads wait briefly: tests run beside each other

import torch  # isort: skip

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from forgetscope.analysis.experiments import Experiment
    from forgetscope.analysis.results import Analysis
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.engines.dispatch import Watcher
    from forgetscope.experiment.stopping import Stop
    from forgetscope.spec import RunSpec
    from forgetscope.store import Store
    from ray_cluster import RayCluster

# No timed tests: shared machines are noisy. The same examples on every run, so that a failure can be repeated.
hypothesis.settings.register_profile("forgetscope", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("forgetscope")
torch.set_num_threads(1)
# Nothing here has a terminal that lines are wrapped for. readline, which pytest imports, says so behind Python's back.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

TINY = {"image_size": 8, "sequence": ((0, 1), (2, 3), (4, 5)), "epochs": 2, "first_batch": 32, "batch": 64, "retention": 0.08}


SMALL = {
    "name": "small",
    "dataset": "squares",
    "network": "resnet8",
    "increments": [0.25, 0.5],
    "retentions": [0.25],
    "experiments": 2,
    "epochs": 2,
    "first_batch": 16,
    "batch": 16,
    "learning_rate": 0.05,
}


def run_experiment(
    spec: RunSpec, store: Store, *, progress: Watcher | None = None, stop: Stop | None = None, **settings: Any
) -> Experiment:
    """As fs.run does, with a stop that a test decides on."""
    from forgetscope.engines.dispatch import Watcher
    from forgetscope.engines.here import Here
    from forgetscope.engines.running import carry_out

    plan, _ = carry_out(spec, store, Here(**settings), progress or Watcher(), raising=True, stop=stop)
    return forgetscope.Experiment(store.chain(plan.chains[0].steps[-1]))


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated data sets go to FORGETSCOPE_CACHE if it is set (`make` sets it), else to a folder of this session."""
    if "FORGETSCOPE_CACHE" not in os.environ:
        os.environ["FORGETSCOPE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return Path(os.environ["FORGETSCOPE_CACHE"])


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one finished three-step experiment; do not write to it."""
    from forgetscope.spec import RunSpec
    from forgetscope.store import Store

    path = tmp_path_factory.mktemp("tiny") / "store"
    run_experiment(RunSpec(**TINY), Store(path), device="cpu", threads=1)
    return path


@pytest.fixture(scope="session")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the packaged second and third steps of ten experiments on CIFAR-100; do not write to it."""
    from underway.cut import unpack

    return unpack(tmp_path_factory.mktemp("replicated") / "store").path


@pytest.fixture(scope="session")
def same(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Of a simulated store with the paper's settings on CIFAR-100, so that its printed values stand beside ours."""
    from forgetscope.analysis.results import analyse
    from forgetscope.benchmark.simulation import simulate
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.store import Store

    store = Store(tmp_path_factory.mktemp("same") / "store")
    shape = {"experiments": 2, "increments": [0.1, 0.2], "retentions": [0.08, 0.2]}
    simulate(BenchmarkSpec.load("cifar100", shape), store, seed=2, reruns=0)
    return analyse(store, resamples=100, cached=False)


@pytest.fixture(scope="session")
def paper_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated store of the paper's shape, with three experiments per partition and three re-runs; do not write to it."""
    from forgetscope.benchmark.simulation import simulate
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.store import Store

    path = tmp_path_factory.mktemp("paper") / "store"
    for name in ("cifar100", "tiny-imagenet"):
        simulate(BenchmarkSpec.load(name, {"experiments": 3, "epochs": 4}), Store(path), seed=1, reruns=3)
    return path


@pytest.fixture(scope="session")
def analysed(paper_store: Path) -> Analysis:
    """Its analysis, with few resamples."""
    from forgetscope.analysis.results import analyse

    return analyse(paper_store, resamples=200, cached=False)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real one, for pages."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH")
    flags = ("no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking")
    flags += ("disable-component-update", "disable-sync")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[f"--{flag}" for flag in flags])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A real one, of two nodes."""
    from ray_cluster import RayCluster

    pytest.importorskip("ray", reason="Ray is not installed")
    cluster = RayCluster()
    yield cluster
    cluster.close()


@pytest.fixture
def store(tiny_store: Path, tmp_path: Path) -> Store:
    """A copy of that store, free to be harmed."""
    from forgetscope.store import Store

    return Store(shutil.copytree(tiny_store, tmp_path / "store"))


@pytest.fixture
def chain(store: Store) -> list[str]:
    """The ids of the experiment's three steps, first step first."""
    (steps,) = store.experiments()
    return [step.id for step in steps]


@pytest.fixture
def exported(store: Store, tmp_path: Path) -> Path:
    """Its steps in a file."""
    from forgetscope.housekeeping.exporting import export_steps

    path = tmp_path / "steps.tar"
    export_steps(store.steps(), path)
    return path


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """A store where nothing is yet."""
    from forgetscope.store import Store

    return Store(tmp_path / "other")


def heed_interruptions() -> None:
    """A shell starts background processes with Ctrl-C ignored, and children inherit that; a terminal does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def rewrite(folder: Path, **changes: object) -> None:
    """Change a record and make its checksum fit, as a mistaken or malicious hand would."""
    info = json.loads((folder / "step.json").read_bytes()) | changes
    (folder / "step.json").write_text(json.dumps(info))
    manifest = json.loads((folder / "manifest.json").read_bytes())
    content = (folder / "step.json").read_bytes()
    manifest["step.json"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def raise_schema(folder: Path) -> None:
    """Make a committed step look as if a newer forgetscope had written it, checksums included."""
    from forgetscope.store import SCHEMA

    rewrite(folder, schema=SCHEMA + 1)


@pytest.fixture(scope="session")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a data set of eight classes that a step learns in a fraction of a second."""
    cache = tmp_path_factory.mktemp("squares")
    rng = np.random.default_rng(0)

    def images(each: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.arange(8), each)
        pixels = rng.integers(0, 80, size=(len(labels), 8, 8, 3))
        for i, label in enumerate(labels):
            pixels[i, label // 4 * 4 : label // 4 * 4 + 4, label % 4 * 2 : label % 4 * 2 + 2] += 150
        return pixels.astype(np.uint8), labels

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGETSCOPE_CACHE", str(cache))
        (train, train_labels), (test, test_labels) = images(12), images(6)
        forgetscope.add_arrays("squares", train, train_labels, test, test_labels)
    return cache


@pytest.fixture
def small(squares: Path, monkeypatch: pytest.MonkeyPatch) -> BenchmarkSpec:
    """A benchmark over it."""
    from forgetscope.benchmark.space import BenchmarkSpec

    monkeypatch.setenv("FORGETSCOPE_CACHE", str(squares))
    return BenchmarkSpec(**SMALL)


@pytest.fixture
def small_file(small: BenchmarkSpec, tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(small.to_toml())
    return file


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(cache))
    return cache
