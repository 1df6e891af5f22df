"""The steps of a store that are being run, by what they say of themselves: found without a lock, and without a trace.

Whether a step is alive is told by its signs of life alone. Clocks of two machines may differ, so a `Lookout` that stays also
goes by its own: a sign that has changed since it last looked is a sign of life, whatever time it bears.
"""

from __future__ import annotations

import math
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
from forgetscope.store import Store, StoredObserved
from forgetscope.store.folder import folders_in
from forgetscope.store.observed import RECORD, RUNNING, RunningObserved
from forgetscope.store.stepfiles import TableName, limit_of
from forgetscope.store.tablefiles import read_table
from forgetscope.underway.experience import by_probe, changed, finished_in, marks_of, missing
from forgetscope.underway.foresight import Foreseer
from forgetscope.underway.progress import PROGRESS, Progress, read_progress
from forgetscope.underway.regression import COURSE
from forgetscope.underway.risk import ClassAtRisk, Values, measured_at_risk, predicted_at_risk

AT_RISK = 5  # classes of a step that are shown
FINISHED = 10  # steps, the latest ones

Read = TypeVar("Read")


@dataclass(frozen=True)
class Watched:
    """One past class of a step that is under way. Losses are means over all of its images, and over its rehearsed ones.

    curves: by name what it was at each probe; of SIC and NIC the sums until then. forecast: what will have been forgotten when
    the step ends, and the interval that holds 95 % of what test images will show; so_far: what its keepsake forecasts of what
    has been forgotten by now. NaN where there is none."""

    risk: ClassAtRisk
    loss_all: float
    loss_rehearsed: float
    curves: Mapping[str, Sequence[float]]
    so_far: float = math.nan
    forecast: float = math.nan
    forecast_low: float = math.nan
    forecast_high: float = math.nan


Ranked = tuple[tuple[Watched, ...], str]


@dataclass(frozen=True)
class UnderWay:
    """A step, how far it is, and who is at risk: the first of its past classes. silent: seconds since its last sign of life;
    forecasts_by: from what its forecasts are, or why there are none, in sentences; empty without past classes or probes."""

    key: str  # of its working folder
    progress: Progress
    silent: float
    probes: int
    at_risk: tuple[Watched, ...]
    probed_at: tuple[int, ...] = ()  # iterations of the probes; of a monitor's step, epochs
    classes: tuple[Watched, ...] = ()  # all that are past, the most at risk first
    forecasts_by: str = ""

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
        self._foresight = Foreseer(store)
        self._ranked: dict[str, tuple[tuple[object, ...], Ranked]] = {}  # by key, with all that it was made of

    def look(self) -> list[UnderWay]:
        """What says that it runs, by step: alive or not."""
        working = self._store.path / "working"
        keys = sorted(folders_in(working))
        found = [one for key in keys if (one := self._under_way(working / key)) is not None]
        gone = [path for path in self._read if path.parent.name not in keys and path.parent.parent == working]
        for path in gone:
            del self._read[path]
        self._ranked = {key: ranked for key, ranked in self._ranked.items() if key in keys}
        return sorted(found, key=lambda one: (not one.is_alive, one.progress.step))

    def at(self, key: str) -> UnderWay | None:
        """What works under this name; None where it says nothing."""
        return self._under_way(self._store.path / "working" / key)

    def finished(self, most: int = FINISHED) -> list[Finished]:
        """The latest steps of runs and monitors, the last one first."""
        marks = marks_of(self._store.path)
        if (most, marks) != self._finished[0]:  # a store of many thousand steps is not listed anew at every look
            folders = finished_in(self._store.path, marks)
            latest = sorted(((changed(folder), folder) for folder in folders), reverse=True)[:most]
            rows = [self._of_folder(folder) for _, folder in latest]
            self._finished = (most, marks), [row for row in rows if row is not None]
        return self._finished[1]

    def _of_folder(self, folder: Path) -> Finished | None:
        """Steps never change: one that was read is known, unless another has taken its place, as of an incomplete one."""
        mark, (before, known) = changed(folder), self._read.get(folder, (None, None))
        if mark == before:
            done: Finished | None = known
            return done
        found = None
        with suppress(StoreError):
            of_plan = folder.parent == self._store.path / "steps"  # a monitor may be called so
            step = self._store.step(folder.name) if of_plan else StoredObserved(folder)
            lost = step.past_classes("forgetting")["forgetting"].astype(np.float64)
            lost = lost[np.isfinite(lost)]
            mean = float(lost.mean()) if len(lost) else float("nan")
            found = Finished(step.id, step.number, str(step.info["committed"]), mean)
        self._read[folder] = mark, found
        return found

    def _under_way(self, folder: Path) -> UnderWay | None:
        progress = self._fresh(folder / PROGRESS, lambda path: read_progress(path.parent))
        if progress is None:
            return None
        try:
            probes = self._table(folder, "probes")
            pairs = self._table(folder, "pairs")
            classes, by = ((), "") if probes is None else self._classes(folder, progress, probes, pairs)
        except ValueError as error:
            self._say(f"{folder}: {error}")
            probes, classes, by = None, (), ""
        silent = self._silence(folder.name, progress)
        probed_at = () if probes is None else tuple(np.unique(probes["iteration"].to_numpy()).tolist())
        shown = classes[: self._most]
        return UnderWay(folder.name, progress, silent, len(probed_at), shown, probed_at, classes, by)

    def _classes(self, folder: Path, progress: Progress, probes: pa.Table, pairs: pa.Table | None) -> Ranked:
        """All past classes and from what their forecasts are, made again where something has changed."""
        past = progress.classes[: progress.past]
        if not past or not len(probes):
            return (), ""
        observed = None
        if RUNNING.fullmatch(folder.name):
            observed = self._fresh(folder / RECORD, lambda path: _record(path.parent))
        self._foresight.look()
        of = (probes, pairs, observed, progress.made, progress.epochs, progress.classes, self._foresight.changes)
        before, ranked = self._ranked.get(folder.name, ((), ((), "")))
        if len(before) != len(of) or any(a is not b and a != b for a, b in zip(before, of, strict=True)):
            foreseen = self._foresight.of(progress, observed, by_probe(probes, past, COURSE))
            ranked = _ranked(progress, probes, pairs, foreseen.values), foreseen.by
            self._ranked[folder.name] = of, ranked
        return ranked

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


def _record(folder: Path) -> Mapping[str, Any]:
    """Of an observed step that runs."""
    try:
        return RunningObserved(folder).info
    except StoreError as error:
        raise ValueError(str(error)) from None


def _ranked(progress: Progress, probes: pa.Table, pairs: pa.Table | None, foreseen: Values) -> tuple[Watched, ...]:
    """foreseen [3, P]"""
    past, names = progress.classes[: progress.past], dict(zip(progress.classes, progress.names, strict=True))
    most = len(past)
    course = by_probe(probes, past, COURSE)
    terms = course[:, : len(QUANTITIES)]
    measured = np.isfinite(terms[:, :3]).any()
    if "forecast" in probes.column_names and not measured:
        forecasts = by_probe(probes, past, FORECAST)
        rows = predicted_at_risk(forecasts, forecasts, past, names, most)
    else:
        rows = measured_at_risk(terms, terms.sum(axis=0), _pairs(pairs, progress), past, progress.classes, names, most)
    expected = np.concatenate([course[-1, [COURSE.index("forecast")]], foreseen])
    at = {label: c for c, label in enumerate(past)}
    return tuple(_watched(row, terms[:, :, at[row.label]], expected[:, at[row.label]].tolist()) for row in rows)


def _watched(row: ClassAtRisk, terms: Values, expected: list[float]) -> Watched:
    """terms [probes, QUANTITIES]: of its class; expected: so far, in the end, and that interval."""
    of = {name: terms[:, i] for i, name in enumerate(QUANTITIES)}
    curves = {
        **{name: of[name].cumsum().tolist() for name in ("sic", "nic")},
        **{"loss_all": of["loss_full"].tolist(), "loss_rehearsed": of["loss_rehearsal"].tolist()},
    }
    return Watched(row, curves["loss_all"][-1], curves["loss_rehearsed"][-1], curves, *expected)


def _pairs(pairs: pa.Table | None, progress: Progress) -> Values | None:
    """[P, classes]; None where there are none, or they are of other classes."""
    if pairs is None:
        return None
    at = {label: i for i, label in enumerate(progress.classes)}
    found = missing(progress.past, len(at))
    for target, source, term in zip(
        *(pairs[name].to_pylist() for name in ("class_id", "source_class_id", "term")), strict=True
    ):
        if target in at and source in at and at[target] < progress.past:
            found[at[target], at[source]] = np.nan if term is None else term
    return found
