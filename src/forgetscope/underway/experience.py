"""What became of finished steps that are like one that runs: their courses, probe by probe, and what was forgotten.

A store of many thousand steps is looked through once, and again only what has joined it; of steps that are alike the latest
few are read, when they are first needed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forgetscope.errors import StoreError
from forgetscope.files import read_regular
from forgetscope.foreign import strict_json
from forgetscope.store import Setting, Store, StoredObserved, StoredStep, first_step
from forgetscope.store.folder import folders_in
from forgetscope.store.observed import MONITOR, NUMBER, PROBING, RECORD
from forgetscope.store.stepfiles import limit_of
from forgetscope.store.tablefiles import UNPACKED_BYTES
from forgetscope.underway.regression import COURSE

Values = NDArray[np.float64]

LOOKED_AT = 2000  # finished steps, the latest ones
READ = 60  # of those that are like one: more tell hardly more
HARDLY_LEARNED = -1.0  # a class that came to twice its accuracy when learned: a few test images decide such a quotient


@dataclass(frozen=True)
class FinishedCourse:
    """A finished step. experiment: which sequence of classes and seed it belongs to."""

    experiment: str
    course: Values  # [probes, COURSE, P]
    forgetting: Values  # [P], NaN where undefined
    new: int  # classes


def kind_of_step(record: Mapping[str, Any]) -> Hashable:
    """Equal of steps that differ in seed and classes alone; of a step.json, or of what a running step says of itself."""
    return "step", Setting.of(record), int(record["spec"]["step"])


def kind_of_observed(info: Mapping[str, Any], epochs: int) -> Hashable:
    """The same of a monitor's step, of whose training its user's settings say what can be known."""
    probing = tuple((name, info[name]) for name in PROBING if info.get(name) is not None)
    settings = frozenset(info["settings"].items())
    return "observed", settings, info["network"], int(info["number"]), epochs, info["past"], probing


class Experience:
    """Of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._marks: object = None  # what the folders were when they were last looked through
        self._known: dict[Path, Hashable] = {}  # by folder; None: of no use
        self._parents: dict[str, str | None] = {}
        self._times: dict[Path, int] = {}
        self._outcomes: dict[Path, FinishedCourse | None] = {}
        self.changes = 0  # how often something has joined, or gone

    def look(self) -> None:
        """What has joined, and what is gone."""
        marks = marks_of(self._store.path)
        if marks == self._marks:
            return
        self._marks, self.changes = marks, self.changes + 1
        here = finished_in(self._store.path, marks)
        for gone in self._known.keys() - here:
            del self._known[gone], self._times[gone]
            self._outcomes.pop(gone, None)
        self._times |= {path: changed(path) for path in here - self._times.keys()}
        latest = sorted(here, key=lambda path: (-self._times[path], path))[:LOOKED_AT]
        for path in latest:
            if path not in self._known:
                self._known[path] = self._kind(path)

    def like(self, kind: Hashable, past: int, new: int) -> list[FinishedCourse]:
        """The latest of this kind with as many past and new classes."""
        alike = sorted((path for path, own in self._known.items() if own == kind), key=lambda path: -self._times[path])
        found: list[FinishedCourse] = []
        for path in alike:
            if path not in self._outcomes:
                self._outcomes[path] = self._outcome(path)
            one = self._outcomes[path]
            if one is not None and (one.course.shape[2], one.new) == (past, new):
                found.append(one)
            if len(found) == READ:
                break
        return found

    def _kind(self, folder: Path) -> Hashable:
        """By its record as it stands; whatever is used of it is verified when it is read."""
        name = "step.json" if self._is_of_plan(folder) else RECORD
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            record = strict_json(read_regular(folder / name, limit_of(name)))
            if name == RECORD:
                return kind_of_observed(record, record["epochs"])
            self._parents[folder.name] = record["parent"]
            kind = kind_of_step(record)
            hash(kind)
            return kind
        return None

    def _is_of_plan(self, folder: Path) -> bool:
        return folder.parent == self._store.path / "steps"

    def _outcome(self, folder: Path) -> FinishedCourse | None:
        """None where there is nothing to learn from it."""
        with suppress(StoreError, ValueError):
            if not self._is_of_plan(folder):
                observed = StoredObserved(folder)
                return None if observed.incomplete is not None else _read(observed, observed.name)
            step = StoredStep(folder)
            if kind_of_step(step.info) == self._known[folder] and step.divergence is None and step.simulated is None:
                return _read(step, first_step(step.id, self._parents))
        return None


def marks_of(store: Path) -> tuple[tuple[Path, int], ...]:
    """The folders in which finished steps appear, of runs and of monitors, and when each has last changed."""
    observed = store / "observed"
    monitors = [path for path in _inside(observed) if MONITOR.fullmatch(path.name)]
    return tuple((path, changed(path)) for path in (store / "steps", observed, *monitors))


def finished_in(store: Path, marks: Iterable[tuple[Path, int]]) -> set[Path]:
    """The folders of finished steps, and of nothing else that lies beside what a monitor saw."""
    parents = [parent for parent, _ in marks if parent != store / "observed"]
    found = {path for parent in parents for path in _inside(parent)}
    return {path for path in found if path.parent == store / "steps" or NUMBER.fullmatch(path.name)}


def _inside(folder: Path) -> list[Path]:
    return [folder / name for name in sorted(folders_in(folder))]


def changed(path: Path) -> int:
    """When a folder got or lost an entry, in nanoseconds; 0 where it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read(step: StoredStep | StoredObserved, experiment: str) -> FinishedCourse | None:
    past = step.past_classes("class_id", "forgetting")
    course = by_probe(step.table("probes"), past["class_id"].tolist(), COURSE)
    lost = past["forgetting"].astype(np.float64)
    lost = np.where(lost >= HARDLY_LEARNED, lost, np.nan)
    if not len(course) or not np.isfinite(lost).any():
        return None
    return FinishedCourse(experiment, course, lost, len(step.new_classes))


def missing(*shape: int) -> Values:
    """NaN; ValueError for more than a table may hold. A few bytes can name a hundred thousand classes."""
    if 8 * math.prod(shape) > UNPACKED_BYTES:
        size = " x ".join(f"{length:,}" for length in shape)
        raise ValueError(f"{size} numbers of its classes; at most {UNPACKED_BYTES:,} bytes are taken for them")
    return np.full(shape, np.nan)


def by_probe(probes: pa.Table, past: list[int], names: Sequence[str]) -> Values:
    """[probes, names, P] of a table of probes; NaN where something is missing."""
    ids, numbers = probes["class_id"].to_numpy(), probes["probe"].to_numpy()
    which, rows = np.unique(numbers, return_inverse=True)
    at = {label: c for c, label in enumerate(past)}
    if unknown := set(ids.tolist()) - set(past):
        raise ValueError(f"probes.parquet has class {min(unknown)}, which is no past class")
    columns = np.array([at[label] for label in ids.tolist()], np.int64)
    found = missing(len(which), len(names), len(past))
    for i, name in enumerate(names):
        if name in probes.column_names:
            found[rows, i, columns] = probes[name].to_numpy(zero_copy_only=False)
    return found
