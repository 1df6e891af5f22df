"""The steps of a store that are being run, by what they say of themselves: found without a lock, and without a trace.

Whether a step is alive is told by its signs of life alone. Clocks of two machines may differ, so a `Lookout` that stays also
goes by its own: a sign that has changed since it last looked is a sign of life, whatever time it bears.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from forgetscope.errors import StoreError
from forgetscope.files import read_regular
from forgetscope.measuring.quantities import FORECAST, QUANTITIES
from forgetscope.store import Store
from forgetscope.store.folder import folders_in
from forgetscope.store.stepfiles import TableName, limit_of
from forgetscope.store.tablefiles import read_table
from forgetscope.underway.progress import PROGRESS, Progress, read_progress
from forgetscope.underway.risk import ClassAtRisk, Values, measured_at_risk, predicted_at_risk

AT_RISK = 5  # classes of a step that are shown
FINISHED = 10  # steps, the latest ones

Read = TypeVar("Read")


@dataclass(frozen=True)
class Watched:
    """One past class of a step that is under way. Losses are means over all of its images, and over its rehearsed ones.

    curves: by name what it was at each probe; of SIC and NIC the sums until then."""

    risk: ClassAtRisk
    loss_all: float
    loss_rehearsed: float
    curves: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class UnderWay:
    """A step, how far it is, and who is at risk. silent: seconds since its last sign of life."""

    key: str  # of its working folder
    progress: Progress
    silent: float
    probes: int
    at_risk: tuple[Watched, ...]
    probed_at: tuple[int, ...] = ()  # iterations of the probes; of a monitor's step, epochs

    @property
    def is_alive(self) -> bool:
        return self.progress.state == "running" and self.silent <= self.progress.patience


@dataclass(frozen=True)
class Finished:
    """A step that is done. mean_forgetting: over its past classes; NaN without any."""

    step: str
    number: int
    committed: str  # when, UTC
    mean_forgetting: float


class Lookout:
    """Looks at a store again and again; what has not changed is not read again."""

    def __init__(self, store: Store, tell: Callable[[str], None] = lambda problem: None, most: int = AT_RISK) -> None:
        self._store, self._tell, self._most = store, tell, most
        self._read: dict[Path, tuple[object, Any]] = {}  # by file: what it was when it was read, and what it held
        self._heard: dict[str, tuple[str, float]] = {}  # by step: its last sign of life, and when we first saw that
        self._finished: tuple[object, list[Finished]] = None, []  # what the folders were when it was last listed
        self._told: set[str] = set()

    def look(self) -> list[UnderWay]:
        """What says that it runs, by step: alive or not."""
        working = self._store.path / "working"
        keys = sorted(folders_in(working))
        found = [one for key in keys if (one := self._under_way(working / key)) is not None]
        gone = [path for path in self._read if path.parent.name not in keys and path.parent.parent == working]
        for path in gone:
            del self._read[path]
        return sorted(found, key=lambda one: (not one.is_alive, one.progress.step))

    def finished(self, most: int = FINISHED) -> list[Finished]:
        """The latest steps of runs and monitors, the last one first."""
        observed = self._store.path / "observed"
        parents = [self._store.path / "steps", observed, *(observed / name for name in sorted(folders_in(observed)))]
        marks = (most, *((path, _changed(path)) for path in parents))
        if marks != self._finished[0]:  # a store of many thousand steps is not listed anew at every look
            folders = [parent / name for parent in parents if parent != observed for name in folders_in(parent)]
            latest = sorted(((_changed(folder), folder) for folder in folders), reverse=True)[:most]
            rows = [self._of_folder(folder) for _, folder in latest]
            self._finished = marks, [row for row in rows if row is not None]
        return self._finished[1]

    def _of_folder(self, folder: Path) -> Finished | None:
        """Steps never change: one that was read is known."""
        if folder in self._read:
            known: Finished | None = self._read[folder][1]
            return known
        found = None
        with suppress(StoreError):
            of_plan = folder.parent.name == "steps"
            step = self._store.step(folder.name) if of_plan else self._store.observed_step(folder.parent.name, int(folder.name))
            lost = step.past_classes("forgetting")["forgetting"].astype(np.float64)
            lost = lost[np.isfinite(lost)]
            mean = float(lost.mean()) if len(lost) else float("nan")
            found = Finished(step.id, step.number, str(step.info["committed"]), mean)
        self._read[folder] = None, found
        return found

    def _under_way(self, folder: Path) -> UnderWay | None:
        progress = self._fresh(folder / PROGRESS, lambda path: read_progress(path.parent))
        if progress is None:
            return None
        try:
            probes = self._table(folder, "probes")
            pairs = self._table(folder, "pairs")
            at_risk = () if probes is None else _at_risk(progress, probes, pairs, self._most)
        except ValueError as error:
            self._say(f"{folder}: {error}")
            probes, at_risk = None, ()
        silent = self._silence(folder.name, progress)
        probed_at = () if probes is None else tuple(np.unique(probes["iteration"].to_numpy()).tolist())
        return UnderWay(folder.name, progress, silent, len(probed_at), at_risk, probed_at)

    def _silence(self, key: str, progress: Progress) -> float:
        """By the sign's own time at first; by ours, once it has changed before our eyes."""
        now, (sign, since) = time.monotonic(), self._heard.get(key, ("", 0.0))
        if sign == progress.heartbeat:
            return now - since
        age = 0.0
        if not sign:
            with suppress(ValueError):
                told = datetime.fromisoformat(progress.heartbeat)
                age = (datetime.now(UTC) - (told if told.tzinfo else told.replace(tzinfo=UTC))).total_seconds()
        self._heard[key] = progress.heartbeat, now - max(0.0, age)
        return max(0.0, age)

    def _table(self, folder: Path, name: TableName) -> pa.Table | None:
        file = f"{name}.parquet"
        return self._fresh(folder / file, lambda path: read_table(read_regular(path, limit_of(file)), name))

    def _fresh(self, path: Path, read: Callable[[Path], Read]) -> Read | None:
        """What is in a file, read again where it has changed; None where there is none, or what is there cannot be read."""
        try:
            facts = path.stat()
        except OSError:
            return None
        mark, (before, value) = (facts.st_mtime_ns, facts.st_size, facts.st_ino), self._read.get(path, (None, None))
        if mark != before:
            value = None
            try:
                value = read(path)
            except FileNotFoundError:
                return None
            except (OSError, ValueError) as error:
                self._say(f"{path}: {error}" if str(path.parent) not in str(error) else str(error))
            self._read[path] = mark, value
        found: Read | None = value
        return found

    def _say(self, problem: str) -> None:
        """Once."""
        if problem not in self._told:
            self._told.add(problem)
            self._tell(problem)


def _changed(path: Path) -> int:
    """When a folder got or lost an entry, in nanoseconds; 0 where it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _at_risk(progress: Progress, probes: pa.Table, pairs: pa.Table | None, most: int) -> tuple[Watched, ...]:
    past, names = progress.classes[: progress.past], dict(zip(progress.classes, progress.names, strict=True))
    if not past or not len(probes):
        return ()
    terms = _by_probe(probes, past, QUANTITIES)
    measured = np.isfinite(terms[:, :3]).any()
    if "forecast" in probes.column_names and not measured:
        forecasts = _by_probe(probes, past, FORECAST)
        rows = predicted_at_risk(forecasts, forecasts, past, names, most)
    else:
        rows = measured_at_risk(terms, terms.sum(axis=0), _pairs(pairs, progress), past, progress.classes, names, most)
    return tuple(_watched(row, terms[:, :, past.index(row.label)]) for row in rows)


def _watched(row: ClassAtRisk, terms: Values) -> Watched:
    """terms [probes, QUANTITIES]: of its class."""
    of = {name: terms[:, i] for i, name in enumerate(QUANTITIES)}
    curves = {
        **{name: of[name].cumsum().tolist() for name in ("sic", "nic")},
        **{"loss_all": of["loss_full"].tolist(), "loss_rehearsed": of["loss_rehearsal"].tolist()},
    }
    return Watched(row, curves["loss_all"][-1], curves["loss_rehearsed"][-1], curves)


def _by_probe(probes: pa.Table, past: list[int], names: tuple[str, ...]) -> Values:
    """[probes, names, P]"""
    ids, numbers = probes["class_id"].to_numpy(), probes["probe"].to_numpy()
    which, rows = np.unique(numbers, return_inverse=True)
    at = {label: c for c, label in enumerate(past)}
    if unknown := set(ids.tolist()) - set(past):
        raise ValueError(f"probes.parquet has class {min(unknown)}, which is no past class")
    columns = np.array([at[label] for label in ids.tolist()], np.int64)
    found = np.full((len(which), len(names), len(past)), np.nan)
    for i, name in enumerate(names):
        found[rows, i, columns] = probes[name].to_numpy(zero_copy_only=False)
    return found


def _pairs(pairs: pa.Table | None, progress: Progress) -> Values | None:
    """[P, classes]; None where there are none, or they are of other classes."""
    if pairs is None:
        return None
    at = {label: i for i, label in enumerate(progress.classes)}
    found = np.full((progress.past, len(at)), np.nan)
    for target, source, term in zip(
        *(pairs[name].to_pylist() for name in ("class_id", "source_class_id", "term")), strict=True
    ):
        if target in at and source in at and at[target] < progress.past:
            found[at[target], at[source]] = np.nan if term is None else term
    return found
