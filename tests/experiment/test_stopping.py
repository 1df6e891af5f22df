"""A run that is asked to stop saves where it is, and goes on from there to the same bytes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from conftest import TINY, run_experiment
from forgetscope.benchmark.plans import Job
from forgetscope.engines.dispatch import Watcher
from forgetscope.errors import Interrupted
from forgetscope.experiment import course
from forgetscope.experiment.stopping import SIGNALS, Stop, on_signals
from forgetscope.learning.snapshots import Snapshot, load_snapshot
from forgetscope.spec import RunSpec
from forgetscope.store import TABLES, Store, StoredStep

ITERATIONS = 13  # of an epoch of the first step: 400 images in batches of 32
FILES = ["state.safetensors", *(f"{name}.parquet" for name in (*TABLES, "predictions"))]


class StopsAtLook(Stop):
    """Is asked to stop just before somebody looks for the n-th time: after an iteration, or before a batch of a probe."""

    def __init__(self, n: int) -> None:
        self.left = n
        super().__init__()

    @property
    def requested(self) -> bool:
        self.left -= 1
        return self.left < 0

    @requested.setter
    def requested(self, value: bool) -> None: ...


@pytest.fixture
def steps(tiny_store: Path) -> list[StoredStep]:
    (chain,) = Store(tiny_store).experiments()
    return chain


def run(store: Store, stop: Stop | None = None, progress: Watcher | None = None) -> None:
    run_experiment(RunSpec(**TINY), store, device="cpu", threads=1, stop=stop, progress=progress)


def last_snapshot(store: Store, step: StoredStep) -> Snapshot | None:
    return load_snapshot(store.working(step.id), lambda path: pytest.fail(f"{path} is damaged"))


def assert_same_bytes(store: Store, steps: list[StoredStep]) -> None:
    for step in steps:
        for name in FILES:
            assert (store.step(step.id).folder / name).read_bytes() == (step.folder / name).read_bytes(), name
        assert store.step(step.id).start_weights == step.start_weights is not None  # a snapshot does not make another start


def test_a_run_that_is_stopped_at_every_iteration_and_in_every_probe_ends_in_the_same_bytes(
    tmp_path: Path, steps: list[StoredStep]
) -> None:
    store, stops, positions = Store(tmp_path / "store"), 0, set()
    while len(store.steps()) < 3:
        with contextlib.suppress(Interrupted):
            run(store, StopsAtLook(7))
        stops += 1
        for step in steps:
            found = last_snapshot(store, step) if store.working(step.id).is_dir() else None
            if found is not None:
                positions.add((step.spec.step, found.epoch, found.iterations))
        assert stops < 200
    assert stops > 10
    assert any(iterations for _, _, iterations in positions)  # within epochs
    assert_same_bytes(store, steps)


def test_what_was_trained_is_not_trained_again(
    tmp_path: Path, steps: list[StoredStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, trained = Store(tmp_path / "store"), []
    original = course.Saver.iteration_ended

    def counting(self: Any, so_far: Any) -> None:
        trained.append((so_far.epoch, so_far.done))
        original(self, so_far)

    monkeypatch.setattr(course.Saver, "iteration_ended", counting)
    for looks in (3, 5, None):
        with contextlib.suppress(Interrupted):
            run(store, None if looks is None else StopsAtLook(looks))
    within = range(1, ITERATIONS + 1)
    assert trained[: 2 * ITERATIONS] == [(epoch, done) for epoch in (0, 1) for done in within]
    assert_same_bytes(store, steps)


def test_a_snapshot_is_taken_within_an_epoch_when_it_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "SAVE_SECONDS", 0.0)
    saved: list[tuple[int, int]] = []
    original = course.save_snapshot

    def noting(folder: Path, snapshot: Snapshot, write: Any) -> None:
        saved.append((snapshot.epoch, snapshot.iterations))
        original(folder, snapshot, write)

    monkeypatch.setattr(course, "save_snapshot", noting)
    run_experiment(RunSpec(**{**TINY, "sequence": TINY["sequence"][:1]}), Store(tmp_path), device="cpu", threads=1)
    within = range(1, ITERATIONS + 1)
    assert saved == [*((0, i) for i in within), (1, 0), *((1, i) for i in within), (2, 0)]


def test_large_snapshots_wait_when_epochs_are_short_but_a_stop_saves_all(
    tmp_path: Path, steps: list[StoredStep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "SMALL", 0.0)
    monkeypatch.setattr(course, "BYTES_PER_SECOND", 1.0)
    store, saved, original = Store(tmp_path / "store"), [], course.save_snapshot

    def noting(folder: Path, snapshot: Snapshot, write: Any) -> None:
        saved.append((folder.name, snapshot.epoch, snapshot.iterations))
        original(folder, snapshot, write)

    monkeypatch.setattr(course, "save_snapshot", noting)
    with pytest.raises(Interrupted):
        run(store, StopsAtLook(ITERATIONS + 4))  # in the second epoch
    assert saved == [(steps[0].id, 1, 0), (steps[0].id, 1, 5)]
    run(store)
    assert saved[2:] == [(step.id, 1, 0) for step in steps[1:]]  # the first epoch of each step, and no second one
    assert_same_bytes(store, steps)


def test_damaged_snapshots_are_named_put_aside_and_made_up_for(tmp_path: Path, steps: list[StoredStep]) -> None:
    store, notes = Store(tmp_path / "store"), []

    class Listens(Watcher):
        def note(self, text: str) -> None:
            notes.append(text)

    with pytest.raises(Interrupted):
        run(store, StopsAtLook(20))
    working = store.working(steps[0].id)
    for path in working.glob("snapshot-*"):
        path.write_bytes(path.read_bytes()[:-1])
    run(store, progress=Listens())
    assert len(notes) == 2
    for turn, note in enumerate(notes):
        assert f"snapshot-{turn} is damaged. Moved to" in note
        assert (store.path / "quarantine" / f"{steps[0].id}-snapshot-{turn}-1").is_file()
    assert_same_bytes(store, steps)


def test_while_training_the_first_signal_waits_and_the_second_does_not() -> None:
    stop = Stop()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
    try:
        with on_signals(stop):
            with stop.deferred():
                os.kill(os.getpid(), signal.SIGTERM)
                assert stop.requested
                with pytest.raises(KeyboardInterrupt):
                    os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):  # outside of training at once
                os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGINT, before)


def test_signals_that_somebody_else_has_taken_are_left_to_them() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    taken = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        mine = signal.getsignal(signal.SIGUSR1)
        with on_signals(Stop()):
            assert signal.getsignal(signal.SIGUSR1) is mine
            assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
    finally:
        signal.signal(signal.SIGUSR1, taken)
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


def test_a_thread_other_than_the_main_one_installs_nothing() -> None:
    seen: list[Any] = []

    def look() -> None:
        with on_signals(Stop()):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_a_freed_state_is_recomputed_when_a_step_builds_on_it(tmp_path: Path, steps: list[StoredStep]) -> None:
    from forgetscope.housekeeping.freeing import free, freeable

    store, notes = Store(tmp_path / "store"), []

    class Listens(Watcher):
        def note(self, text: str) -> None:
            notes.append(text)

    two = RunSpec(**{**TINY, "sequence": TINY["sequence"][:2]})
    run_experiment(two, store, device="cpu", threads=1)
    for found in freeable(store, every_state=True):
        free(store, found)
    assert [step.state_freed for step in store.steps()] == [True, True]
    run_experiment(two, store, device="cpu", threads=1)  # nothing builds on them: nothing to do
    assert [step.state_freed for step in store.steps()] == [True, True]
    run(store, progress=Listens())
    assert sum("was freed and is needed again" in note for note in notes) == 2
    assert not (store.path / "quarantine").exists()
    assert_same_bytes(store, steps)


def test_a_freed_state_that_comes_back_with_other_bits_replaces_its_record(tmp_path: Path, steps: list[StoredStep]) -> None:
    from forgetscope.housekeeping.freeing import free, freeable

    store, notes = Store(tmp_path / "store"), []

    class Listens(Watcher):
        def note(self, text: str) -> None:
            notes.append(text)

    run_experiment(RunSpec(**{**TINY, "sequence": TINY["sequence"][:1]}), store, device="cpu", threads=1, channels_last=False)
    for found in freeable(store, every_state=True):
        free(store, found)
    run(store, progress=Listens())
    assert any("has other last bits than before" in note for note in notes)
    assert [path.name for path in (store.path / "quarantine").iterdir()] == [f"{steps[0].id}-1"]
    assert_same_bytes(store, steps)


@pytest.mark.parametrize("freed", [False, True])
def test_a_step_whose_working_folder_another_process_removes_ends_in_the_same_bytes(
    freed: bool, tmp_path: Path, steps: list[StoredStep]
) -> None:
    """Where locks do nothing, two processes run the same step; whoever commits it first tidies up."""
    from forgetscope.housekeeping.freeing import free, freeable

    store = Store(tmp_path / "store")
    if freed:
        run_experiment(RunSpec(**{**TINY, "sequence": TINY["sequence"][:2]}), store, device="cpu", threads=1)
        for found in freeable(store, every_state=True):
            free(store, found)

    class Removes(Watcher):
        def started(self, job: Job) -> None:
            self.working = store.working(job.id)

        def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
            shutil.rmtree(self.working, ignore_errors=True)

    run(store, progress=Removes())
    assert_same_bytes(store, steps)
    assert list((store.path / "working").iterdir()) == []
