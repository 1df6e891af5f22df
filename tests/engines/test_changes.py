"""Code and data that change while a plan is being run: what runs is what the plan was made with, or nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import forgetscope
from conftest import SMALL, rewrite
from forgetscope.benchmark.plans import Plan, benchmark_plan, descendants
from forgetscope.benchmark.records import Journal
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.cli.app import app
from forgetscope.data.cache import folder_of
from forgetscope.data.images import demand_unchanged
from forgetscope.data.library import load_data, remove_data
from forgetscope.engines.dispatch import Dispatch, Watcher
from forgetscope.engines.executor import Executor
from forgetscope.engines.local import LocalEngine
from forgetscope.engines.queue import JobQueue
from forgetscope.engines.work import Work
from forgetscope.errors import DataError, InputError, SpecError
from forgetscope.experiment.chain import run_locked
from forgetscope.experiment.settings import choose_settings
from forgetscope.experiment.stopping import Stop
from forgetscope.housekeeping.verification import verify_store
from forgetscope.store import Store
from ray_cluster import RayCluster, processes_of

FIRST = "def policy(candidates, quota, rng):\n    return range(quota)\n"
THEN = {"code": "own.py has SHA-256", "data": "'squares' was replaced while the run worked"}


@pytest.fixture
def folder(squares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a benchmark that names a policy beside it, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(shutil.copytree(squares, tmp_path / "cache")))
    Path("own.py").write_text(FIRST)
    Path("own.toml").write_text(BenchmarkSpec(**SMALL | {"policies": ["own:policy"], "experiments": 1}).to_toml())
    return tmp_path


def planned() -> Plan:
    return benchmark_plan(BenchmarkSpec.load("own.toml"))


def replace_data() -> None:
    data = load_data("squares")
    images, labels = np.array(data.train.images), np.array(data.train.labels)
    remove_data("squares")
    forgetscope.add_arrays("squares", 255 - images, labels, images, labels)


def run(*more: str) -> Result:
    return CliRunner().invoke(app, ["bench", "run", "own.toml", "--store", "store", "--jobs", "1", "--no-estimate", *more])


def test_a_worker_takes_no_other_data_than_the_plan_s(folder: Path) -> None:
    setup = Work(planned(), Store(folder / "store")).setup()
    before = Executor.ready(setup).data.digest
    replace_data()
    after = load_data("squares").digest
    with pytest.raises(DataError) as error:
        Executor.ready(setup)
    assert f"'squares' was replaced while the run worked: it is {after[:8]}, and the plan was made with {before[:8]}" in str(
        error.value
    )


def test_a_worker_takes_no_other_code_than_the_plan_s(folder: Path) -> None:
    setup = Work(planned(), Store(folder / "store")).setup()
    Path("own.py").write_text(FIRST + "# better")
    with pytest.raises(SpecError, match=r"own.py has SHA-256 .* it was edited since"):
        Executor.ready(setup)


def test_data_that_are_open_stay_what_they_are(folder: Path) -> None:
    data = load_data("squares")
    pixels = np.array(data.train.images)
    replace_data()
    assert np.array_equal(data.train.images, pixels)
    assert not np.array_equal(load_data("squares").train.images, pixels)


def test_data_that_are_written_over_in_place_end_the_step_and_stop_the_run(folder: Path) -> None:
    executor, job = Executor.ready(Work(planned(), Store(folder / "store"), "cpu").setup()), next(iter(planned().jobs.values()))
    executor.store.prepare()
    spec = job.spec.model_dump(mode="json")
    request = {"id": job.id, "parent": None, "spec": spec, "first": spec}
    other = bytes([255 - int(executor.data.test.images.flat[-1])])

    def spoil(epoch: int, loss: float, accuracy: float) -> None:
        with (folder_of("squares") / "test_images.npy").open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(other)

    end = executor.run(request, spoil, lambda text: None)
    assert end["event"] == "refused"
    assert "The pixels or labels of 'squares' were changed while they were in use" in end["message"]
    assert not executor.store.ids()


def test_data_whose_files_are_merely_touched_are_still_the_same(folder: Path) -> None:
    data = load_data("squares")
    for path, _ in data.stamps:
        os.utime(path)
    assert len(data.stamps) == 4
    demand_unchanged(data)


def test_no_step_is_run_under_the_id_of_other_data(folder: Path) -> None:
    store, job, settings = Store(folder / "store"), next(iter(planned().jobs.values())), choose_settings("cpu", 1)
    store.prepare()
    other = replace(load_data("squares"), digest="0" * 64)
    with pytest.raises(DataError, match=rf"Step {job.id[:8]} is not one of the data set 'squares' that is here \(00000000\)"):
        run_locked(job.id, job.spec, None, other, store, settings)
    assert not store.ids()


def test_a_refusing_worker_stops_the_run_and_nothing_has_failed(folder: Path) -> None:
    plan = planned()
    stale = replace(plan, data=replace(plan.data, digest="0" * 64))
    store = Store(folder / "store")
    store.prepare()
    queue, journal = JobQueue(plan.jobs, frozenset(), frozenset(), dict.fromkeys(plan.jobs, 1.0)), Journal(folder)
    dispatch = Dispatch(queue, journal, Watcher())
    with pytest.raises(InputError, match="'squares' was replaced while the run worked"):
        LocalEngine(Work(stale, store, "cpu"), 1, folder).run(dispatch, Stop())
    assert journal.events() == []
    assert not store.ids()


class Engine:
    """One of those that run a plan, as a command of its own; its workers can be killed, as a power cut would."""

    def __init__(self, cluster: RayCluster | None) -> None:
        self._cluster = cluster
        self._options = ["--jobs", "1"] if cluster is None else ["--engine", "ray", "--address", cluster.address]

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "forgetscope", "bench", "run", "own.toml", "--store", "store", "--no-estimate"]
        return subprocess.Popen([*command, *self._options, "--set", "epochs=10"], stderr=subprocess.PIPE, text=True)

    def kill_workers(self, driver: subprocess.Popen[str]) -> None:
        for pid in processes_of(driver.pid) if self._cluster is None else self._cluster.workers("step", "IDLE"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(params=["local", "ray"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(request.getfixturevalue("cluster") if request.param == "ray" else None)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["code", "data"])
def test_what_is_changed_during_a_run_stops_it_and_nothing_has_failed(
    what: str, engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that have loaded it work on with what it was; those that take their places find what it is."""
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")  # where the nodes find own.py
    plan, store = benchmark_plan(BenchmarkSpec.load("own.toml", {"epochs": 10})), Store("store")
    driver = engine.start()
    until = time.monotonic() + 120
    while not store.ids():
        assert time.monotonic() < until
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.02)
    if what == "code":
        Path("own.py").write_text(FIRST + "# better")
    else:
        replace_data()
    engine.kill_workers(driver)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 2, errors
    assert THEN[what] in errors
    assert "Nothing more was run" in errors
    assert "Traceback" not in errors
    assert store.ids() < plan.jobs.keys()
    assert Journal(store.path / "plans" / plan.id).failures(set()) == {}
    Path("own.py").write_text(FIRST)
    again = Engine(None).start()  # whichever engine it was; this one starts sooner
    _, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    now = benchmark_plan(BenchmarkSpec.load("own.toml", {"epochs": 10}))
    assert store.ids() >= now.jobs.keys()
    assert (now.jobs.keys() == plan.jobs.keys()) == (what == "code")
    assert verify_store(store).damage == []


@pytest.mark.slow
def test_what_quarantine_took_is_computed_again(folder: Path) -> None:
    assert run().exit_code == 0
    store, plan = Store("store"), planned()
    first, *_ = plan.chains[0].steps
    info = json.loads((store.step(first).folder / "step.json").read_bytes())
    rewrite(store.step(first).folder, data=info["data"] | {"digest": "0" * 64})
    verify = CliRunner().invoke(app, ["store", "verify", "store", "--quarantine"])
    assert verify.exit_code == 0, verify.output
    assert store.ids() == plan.jobs.keys() - descendants(plan.jobs, [first])
    assert run().exit_code == 0
    assert store.ids() == plan.jobs.keys()
    assert verify_store(store).damage == []
