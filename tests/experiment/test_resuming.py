"""Snapshots that somebody else's hand changed, checksums made to fit: put aside, as damaged ones are."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_stopping import StopsAtLook, assert_same_bytes

from conftest import TINY, run_experiment
from forgetscope.engines.dispatch import Watcher
from forgetscope.errors import Interrupted
from forgetscope.learning.snapshots import Snapshot, load_snapshot, save_snapshot
from forgetscope.spec import RunSpec
from forgetscope.store import Store, StoredStep

EVERYTHING = {"all_layers_every": 1, "every_iteration": True, "released_nic": True, "method_interference": True}
SHORT = {**TINY, "sequence": TINY["sequence"][:2], "method": "logit-adjusted", **EVERYTHING}


class Listens(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(store: Store, stop: StopsAtLook | None = None, **options: object) -> list[str]:
    listens = Listens()
    with contextlib.suppress(Interrupted):
        run_experiment(RunSpec(**SHORT | options), store, device="cpu", threads=1, progress=listens, stop=stop)
    return listens.notes


def latest(working: Path) -> Snapshot:
    found = load_snapshot(working, lambda path: pytest.fail(f"{path} is damaged"))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[StoredStep]:
    store = Store(tmp_path_factory.mktemp("whole") / "store")
    run(store)
    (chain,) = store.experiments()
    return chain


@pytest.fixture(scope="module")
def stopped(whole: list[StoredStep], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose second step stands in the middle of its last epoch, with everything measured that can be."""
    path = tmp_path_factory.mktemp("stopped") / "store"
    run(Store(path), StopsAtLook(40))
    while not _is_there(path, whole[1].id):
        run(Store(path), StopsAtLook(12))
    return path


def _is_there(path: Path, id: str) -> bool:
    working = Store(path).working(id)
    found = load_snapshot(working, lambda path: None) if working.is_dir() else None
    return found is not None and found.epoch == 1 and found.iterations > 0


def without(tensors: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: tensor for other, tensor in tensors.items() if other != name}


def first_of(tensors: dict[str, Any], change: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    name = next(name for name, tensor in tensors.items() if tensor.ndim)
    return {**tensors, name: change(tensors[name])}


HARM: dict[str, Callable[[Snapshot], dict[str, object]]] = {
    "a tensor less": lambda s: {"network": without(s.network, next(iter(s.network)))},
    "a tensor more": lambda s: {"network": {**s.network, "more": torch.ones(1)}},
    "another shape": lambda s: {"network": first_of(s.network, lambda tensor: tensor[:1])},
    "another type": lambda s: {"network": first_of(s.network, lambda tensor: tensor.double())},
    "no momentum": lambda s: {"momentum": []},
    "less momentum": lambda s: {"momentum": s.momentum[:-1]},
    "momentum of another shape": lambda s: {"momentum": [s.momentum[0][:1], *s.momentum[1:]]},
    "fewer images": lambda s: {"images": s.images[:3]},
    "images of another type": lambda s: {"images": s.images.float()},
    "longer epoch": lambda s: {"begun": {**s.begun, "losses": torch.ones(1000)}},
    "nothing begun": lambda s: {"begun": {}},
    "an epoch more": lambda s: {"epoch": s.epoch + 1, "history": [*s.history, {**s.history[0], "epoch": 2}]},
    "no history": lambda s: {"history": []},
    "nothing measured": lambda s: {"measured": {}},
    "a probe less": lambda s: {"measured": {**s.measured, "values": s.measured["values"][:1]}},
    "other iterations": lambda s: {"measured": {**s.measured, "iterations": s.measured["iterations"] + 1}},
    "another measure": lambda s: {"measured": {**s.measured, "extra.mine.values": torch.ones(1)}},
    "no interference of the method": lambda s: {"measured": without(s.measured, "extra.method.values")},
    "a measure less": lambda s: {"measured": without(s.measured, "extra.every iteration.values")},
}


@pytest.mark.parametrize("harm", HARM)
def test_a_forged_snapshot_is_put_aside_and_the_one_before_takes_over(
    harm: str, stopped: Path, whole: list[StoredStep], tmp_path: Path
) -> None:
    store = Store(shutil.copytree(stopped, tmp_path / "store"))
    working = store.working(whole[1].id)
    found = latest(working)
    forged = dataclasses.replace(found, serial=found.serial + 2, **HARM[harm](found))  # type: ignore[arg-type]
    save_snapshot(working, forged, lambda path, data: path.write_bytes(data) and None)
    path = working / f"snapshot-{forged.serial % 2}"
    other = path.with_name(f"snapshot-{1 - found.serial % 2}")
    assert other.exists()
    notes = run(store, StopsAtLook(2))
    assert notes == [f"{path} is damaged. Moved to {store.path / 'quarantine' / f'{whole[1].id}-{path.name}-1'}."]
    assert latest(working).serial <= found.serial + 1


def test_two_forged_snapshots_are_made_up_for_from_the_start(stopped: Path, whole: list[StoredStep], tmp_path: Path) -> None:
    store = Store(shutil.copytree(stopped, tmp_path / "store"))
    working = store.working(whole[1].id)
    found = latest(working)
    for serial in (1, 2):
        forged = dataclasses.replace(found, serial=serial, network={})
        save_snapshot(working, forged, lambda path, data: path.write_bytes(data) and None)
    assert len(run(store)) == 2
    assert_same_bytes(store, whole)


def test_a_whole_snapshot_fits_wherever_it_was_taken(whole: list[StoredStep], tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for _ in range(200):
        if len(store.ids()) == 2:
            break
        assert run(store, StopsAtLook(11)) == []
    assert_same_bytes(store, whole)


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.0, "weight_decay": 0.0},
        {"precision": "bfloat16"},
        {"sampling": "reshuffled"},
        {"sampling": "reshuffled-short"},
        {"validation": 0.2},
        {"alpha": 0.3, "batch": 50, "first_batch": 64},
        {"probe_every": 2, "epochs": 3, "all_layers_every": 2},
        {"probes": 3, "probe_images": 8, "epochs": 3, "released_nic": False, "method_interference": False},
        {"probe_every": 0, "all_layers_every": 0, **dict.fromkeys([*EVERYTHING][1:], False)},
        {"policy": "least-forgotten", "retention": 0.05},
        {"network": "resnet8-projected"},
    ],
    ids=lambda options: ",".join(options),
)
def test_whatever_is_run_no_snapshot_of_its_own_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for _ in range(200):
        assert run(store, StopsAtLook(17), **options) == []
        if len(store.ids()) == 2:
            return
    pytest.fail("no progress")
