"""Real steps that seem to run: the tables of finished ones, cut off after some probes."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from forgetscope.housekeeping.importing import import_steps
from forgetscope.store import Store, StoredStep, parquet_bytes, past_rows
from forgetscope.underway.progress import Beacon, Facts

MADE = ("spec", "data", "network")


def unpack(path: Path) -> Store:
    """Second and third steps of ten experiments on CIFAR-100, trained for real: 10 % increments, 8 % kept."""
    store = Store(path)
    store.prepare()
    with resources.as_file(resources.files("forgetscope.housekeeping") / "replicated" / "10-8.tar.xz") as packed:
        import_steps(packed, store)
    return store


def second_steps(store: Store) -> list[StoredStep]:
    return sorted((step for step in store.steps() if step.number == 2), key=lambda step: step.spec.seed)


def cut_off(step: StoredStep, probes: int, store: Store, **change: Any) -> Path:
    """Its working folder as it was after so many probes; change: of what it says of itself."""
    folder, classes, table = store.working(step.id), step.table("classes"), step.table("probes")
    folder.mkdir(parents=True)
    past = int(past_rows(classes, step.number).sum())
    (folder / "probes.parquet").write_bytes(parquet_bytes(table.filter(pc.less(table["probe"], probes)), "probes"))
    (folder / "pairs.parquet").write_bytes(parquet_bytes(step.table("pairs"), "pairs"))
    made: dict[str, Any] = {name: step.info[name] for name in MADE} | change
    ids, names = (classes[name].to_pylist() for name in ("class_id", "class_name"))
    Beacon(folder, Facts(step.id, step.number, past, ids, names, 20, made)).epoch_ended(probes - 1)
    return folder


def without(store: Store, *steps: StoredStep) -> None:
    for step in steps:
        shutil.rmtree(store.path / "steps" / step.id)
