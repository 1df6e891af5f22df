"""Observed steps: what a monitor saw of somebody's own training, by the monitor's name and the step's number.

    STORE/observed/<name>/<number>/          committed: whole or not there, verified when read; once done, never written again
    STORE/working/observed-<name>-<number>/  while it runs: `observed.json` and the tables so far, each file replaced whole

The tables are those of a step, with the same columns; `class_id` is the user's label. There is no state: what the next step
builds on are keepsakes, which are here of all classes seen so far.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from forgetscope.errors import DamagedStep, SpecError, StoreError
from forgetscope.files import locked_if_free, replace_durably, sync_folder, told, write_new
from forgetscope.foreign import Count, StrictRecord, Text, first_problem
from forgetscope.measuring.keepsakes import Carried, Keepsake, Spread
from forgetscope.measuring.subsampled.quotas import FEWEST
from forgetscope.store.contents import (
    Ids,
    carried_of,
    check_forecasts,
    check_labels,
    check_observed_classes,
    check_sources,
    check_unforecast,
    forecasts_of,
    keepsakes_of,
)
from forgetscope.store.stepfiles import STEPS, Scalar, TableName
from forgetscope.store.tablefiles import ONE_OF_THEM, usual_columns
from forgetscope.store.tables import json_bytes, manifest_bytes, parquet_bytes
from forgetscope.store.verified import StoredTables, past_rows

if TYPE_CHECKING:
    import pandas as pd

    from forgetscope.store.folder import Store

OBSERVED_SCHEMA = 1
RECORD = "observed.json"
OBSERVED_TABLES: tuple[TableName, ...] = ("classes", "probes", "pairs", "rehearsal", "confusion", "predictions")
KEPT_TABLES: tuple[TableName, ...] = ("keepsakes", "carried")  # where the monitor keeps them
ALL_OBSERVED_TABLES = (*OBSERVED_TABLES, *KEPT_TABLES)
PROBING = ("probe_images", "probes")  # of a record, only where they are set
MONITOR = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")  # its name, and that of its folder
NUMBER = re.compile(r"[1-9][0-9]{0,5}")
RUNNING = re.compile(rf"observed-(?P<name>{MONITOR.pattern})-(?P<number>{NUMBER.pattern})")

Values = NDArray[np.float64]
Settings = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class ObservedRecord:
    """Everything that an observed step leaves behind, or has so far. Tables that are not given are empty."""

    name: str  # the monitor's: letters, digits, `.`, `_` and `-`, at most 100
    number: int  # from 1
    status: str  # done, incomplete or running
    reason: str | None  # why incomplete
    settings: Settings  # whatever the user says of the training
    alpha: float | None  # weight of rehearsal in a batch
    alpha_from: str | None  # given, or counted from batches
    past: str  # which past images the coefficients are of: all, those in the memory, or none
    epochs: int  # that ended
    network: str
    head_nodes: int
    said: tuple[str, ...]  # what was measured, in sentences
    environment: Mapping[str, object]
    timings: Mapping[str, float]  # seconds, probe_seconds
    tables: Mapping[TableName, pa.Table]  # of `KEPT_TABLES`, those that there are
    mark: Mapping[str, Sequence[float]] | None = None  # by which the network that made keepsakes is recognised
    probe_images: int | None = None  # of each past class, where a probe looked at some only
    probes: int | None = None  # how many were asked for, in place of one after each epoch


class _Mark(StrictRecord):
    shape: Annotated[list[Annotated[int, Field(ge=1, le=2**24)]], Field(max_length=8)]
    values: Annotated[list[float], Field(min_length=9, max_length=9)]


class _Observed(StrictRecord):
    """Every key of observed.json that anybody uses."""

    name: Annotated[str, Field(pattern=f"^{MONITOR.pattern}$")]
    number: Annotated[int, Field(ge=1, le=STEPS)]
    status: Literal["done", "incomplete", "running"]
    reason: Annotated[str, Field(max_length=10_000)] | None
    settings: dict[Text, Text | int | float | bool]
    alpha: Annotated[float, Field(ge=0, le=1)] | None
    alpha_from: Literal["given", "batches"] | None
    past: Literal["all", "memory", "none"]
    epochs: Count
    network: Text
    head_nodes: Annotated[int, Field(ge=0, lt=2**31)]
    said: Annotated[list[Annotated[str, Field(max_length=10_000)]], Field(max_length=1000)]
    environment: dict[Text, Scalar]
    timings: dict[Text, float]
    probe_images: Annotated[int, Field(ge=FEWEST)] | None = None
    probes: Annotated[int, Field(ge=2)] | None = None
    forgetscope: Text
    committed: Text
    mark: _Mark | None = None


def checked_observed(content: Mapping[str, Any], name: str, number: int) -> None:
    """Whether an observed.json is of the form it must have, and of this step; raises ValueError."""
    try:
        record = _Observed.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"no record of an observed step ({first_problem(error)})") from None
    if (record.name, record.number) != (name, number):
        raise ValueError(f"it is the record of {record.name}/{record.number}")
    if (record.status == "incomplete") != (record.reason is not None):
        raise ValueError(f"no record of an observed step (it is {record.status}, and its reason {record.reason!r})")
    if record.mark is not None and math.prod(record.mark.shape) > 2**24:
        raise ValueError(f"no record of an observed step (its mark is by inputs of shape {record.mark.shape})")
    if (record.alpha is None) != (record.alpha_from is None):
        raise ValueError(f"no record of an observed step (alpha is {record.alpha}, alpha_from {record.alpha_from})")


@dataclass(frozen=True)
class StoredObserved(StoredTables):
    """A committed observed step. Nothing is read before it is asked for; what is read is verified.

    place: name and number, where its folder does not tell them because it is not in its place yet."""

    needed = frozenset({RECORD, *(f"{name}.parquet" for name in OBSERVED_TABLES)})
    remedy = "get it from a copy of the store"
    statuses: ClassVar[tuple[str, ...]] = ("done", "incomplete")

    place: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """The monitor's."""
        return self.place[0] if self.place else self.folder.parent.name

    @property
    def number(self) -> int:
        return self.place[1] if self.place else int(self.folder.name)

    @property
    def id(self) -> str:
        return f"{self.name}/{self.number}"

    @property
    def key(self) -> str:
        """What it is called in `working/`, and its lock."""
        return running_key(self.name, self.number)

    @property
    def title(self) -> str:
        return f"Observed step {self.id}"

    @property
    def store(self) -> Path:
        return self.folder.parents[1 if self.place else 2]

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """The content of observed.json."""

        def check(info: dict[str, Any]) -> None:
            checked_observed(info, self.name, self.number)
            if info["status"] not in self.statuses:
                raise ValueError(f"its status is {info['status']!r}")

        return self.read_record(RECORD, OBSERVED_SCHEMA, check)[0]

    @property
    def settings(self) -> Settings:
        found: Settings = self.info["settings"]
        return found

    @property
    def mark(self) -> Mapping[str, Sequence[float]] | None:
        """Of the network that its keepsakes are of; None: there is none, as in steps of earlier versions."""
        found: Mapping[str, Sequence[float]] | None = self.info.get("mark")
        return found

    @property
    def incomplete(self) -> str | None:
        """Why it does not count: readers name such steps and leave them out of statistics."""
        reason: str | None = self.info["reason"]
        return reason

    @property
    def gives_way(self) -> bool:
        """Whether another may be committed under its number: it is there and can be read, and is incomplete."""
        with suppress(StoreError):
            return self.incomplete is not None
        return False

    @property
    def probing(self) -> dict[str, int]:
        """How its probes were made other than on all images after each epoch; empty where they were not."""
        return {name: self.info[name] for name in PROBING if self.info.get(name) is not None}

    def to_frame(self) -> pd.DataFrame:
        """A row per class: its name, coefficients, accuracies and forgetting."""
        frame: pd.DataFrame = self.table("classes").to_pandas()
        return frame

    @cached_property
    def new_classes(self) -> tuple[int, ...]:
        table = self.table("classes", ["class_id", "introduced_step"])
        return tuple(table["class_id"].to_numpy()[~past_rows(table, self.number)].tolist())

    @cached_property
    def unpredicted(self) -> str | None:
        return None if len(self.table("predictions", ["image"])) else "was not evaluated"

    @cached_property
    def kept_kind(self) -> Spread | None:
        """Which spread of features it keeps beside their mean; None: no keepsakes."""
        if not self.has("keepsakes"):
            return None
        columns = self.table("keepsakes").column_names
        return next(kind for kind in ONE_OF_THEM if kind in columns)  # reading it demands one of them

    def keepsakes(self) -> dict[int, Keepsake | None]:
        """By class, of all seen so far: those of the step that learned it, which this or an earlier one is; None where nothing
        was kept. Empty where the monitor keeps none."""
        if self.kept_kind is None:
            return {}
        classes, table = self.table("classes", ["class_id", "introduced_step"]), self.table("keepsakes")
        introduced = dict(zip(*(classes[name].to_pylist() for name in classes.column_names), strict=True))
        with self.naming("keepsakes.parquet"):
            return keepsakes_of(table, self.kept_kind, introduced, forecast=True)

    def carried(self) -> dict[int, Carried | None]:
        """By past class: where its features are believed to lie under the network that this step left; None where that is
        not known."""
        if self.kept_kind is None or not self.has("carried"):
            return {}
        past, table = self.past_classes("class_id")["class_id"].tolist(), self.table("carried")
        with self.naming("carried.parquet"):
            return carried_of(table, self.kept_kind, past)

    def partial_sums(self, class_ids: Sequence[int] | Ids) -> tuple[Ids, Values]:
        """As of a step; those of a past class that was never measured are missing."""
        ids = np.asarray(class_ids, np.int64)
        measured = np.isin(ids, self.table("probes", ["class_id"])["class_id"].to_numpy())
        iterations, known = super().partial_sums(ids[measured])
        sums = np.full((*known.shape[:2], len(ids)), np.nan)
        sums[:, :, measured] = known
        return iterations, sums

    def verify(self) -> None:
        """Read and check every file, and the tables against one another; raises DamagedStep at the first that does not fit."""
        for name in self.manifest:
            self.check(name)
        _ = self.info
        self.check_contents()

    def check_contents(self) -> None:
        """Tables that are whole may still be none of this step; raises DamagedStep."""
        classes = self.table("classes", ["class_id", "introduced_step", "head_node", "accuracy", "accuracy_when_learned"])
        ids, past = classes["class_id"].to_numpy(), past_rows(classes, self.number)
        with self.naming("classes.parquet"):
            check_observed_classes(classes, self.number, self.info["head_nodes"])
        columns: dict[TableName, tuple[str, ...]] = {
            **{"probes": ("class_id",), "pairs": ("class_id", "source_class_id"), "rehearsal": ("class_id",)},
            **{"confusion": ("true", "predicted")},
        }
        for name, labels in columns.items():
            table = self.table(name)
            with self.naming(f"{name}.parquet"):
                for label in labels:
                    of_past = label == "class_id" and name != "rehearsal"  # a memory may hold new classes already
                    check_labels(table, label, ids[past] if of_past else ids, "past" if of_past else "such")
                if name == "pairs":
                    check_sources(table, ids[~past])
        self.predictions()
        self.keepsakes()
        self.carried()
        self._check_forecasts()

    def _check_forecasts(self) -> None:
        """Where there are any: of the probes and of the classes against one another."""
        classes, probes = self.table("classes"), self.table("probes")
        of_past = classes.filter(pa.array(past_rows(classes, self.number)))
        if "forecast" not in classes.column_names:
            with self.naming("probes.parquet"):
                check_unforecast(probes)
            return
        with self.naming("probes.parquet"):
            by_probe = forecasts_of(probes, of_past["class_id"].to_numpy())
        with self.naming("classes.parquet"):
            weight = 1.0 if self.info.get("probes") is None else (self.info["epochs"] + 1) / len(by_probe)
            check_forecasts(of_past, by_probe, weight)


def running_key(name: str, number: int) -> str:
    """Of the folder and the lock in `working/` of a step that is being observed."""
    return f"observed-{name}-{number}"


@dataclass(frozen=True)
class RunningObserved(StoredObserved):
    """An observed step that is not committed: its record and its tables so far. They have no manifest yet."""

    statuses = ("running",)
    store = StoredTables.store  # as a step in `working/` is

    @property
    def name(self) -> str:
        return self._named["name"]

    @property
    def number(self) -> int:
        return int(self._named["number"])

    @property
    def _named(self) -> re.Match[str]:
        found = RUNNING.fullmatch(self.folder.name)
        assert found is not None, self.folder
        return found

    def verified(self, name: str) -> bytes:
        return self.content(name)

    def has(self, name: TableName) -> bool:
        return (self.folder / f"{name}.parquet").is_file()


def commit_observed(store: Store, record: ObservedRecord, committed: str | None = None) -> StoredObserved:
    """Write an observed step whole. The number of one that is done is never written again: that is a StoreError.

    An incomplete one gives way: it goes to quarantine when all of ours is on disk. A crash in between leaves its number free.
    What nobody could read back, such as tables that contradict each other, is a SpecError, and nothing is written."""
    step = StoredObserved(store.path / "observed" / record.name / str(record.number))
    _refuse_strange(record, StoredObserved.statuses)
    store.prepare()
    store.refuse_links(f"observed/{record.name}")
    contents = {RECORD: _record_bytes(record, committed)}
    for name in OBSERVED_TABLES:
        empty = pa.schema(usual_columns(name).items()).empty_table()
        contents[f"{name}.parquet"] = parquet_bytes(record.tables.get(name, empty), name)
    for name in KEPT_TABLES:
        if name in record.tables:
            contents[f"{name}.parquet"] = parquet_bytes(record.tables[name], name)
    contents["manifest.json"] = manifest_bytes(contents)

    def write(folder: Path) -> None:
        for name, data in contents.items():
            write_new(folder / name, data)
        try:
            StoredObserved(folder, (record.name, record.number)).verify()
        except DamagedStep as error:
            raise SpecError(f"{step.title} cannot be kept: {error.file}: {error.reason}. Nothing was written.") from None
        if StoredObserved(step.folder).gives_way:
            store.quarantine(step.folder)

    with told(step.folder):
        step.folder.parent.mkdir(parents=True, exist_ok=True)
        for folder in (step.folder.parents[1], store.path):
            sync_folder(folder)
    with locked_if_free(store.lock_file(step.key)):  # or `gc` would take it for a leftover
        if not store.put_in_place(step.folder, step.key, write):
            raise StoreError(
                f"{step.title} is in {store.path} already, and is never written again. "
                f"Continue with number {max(other.number for other in store.observed(record.name)) + 1}, or use another name."
            )
    shutil.rmtree(store.working(step.key), ignore_errors=True)
    return step


def write_running(store: Store, record: ObservedRecord) -> RunningObserved:
    """Write the record of an observed step that runs, and those of its tables that are given, each file whole or not at all."""
    _refuse_strange(record, RunningObserved.statuses)
    step = RunningObserved(store.working(running_key(record.name, record.number)))
    store.refuse_links("working", f"working/{step.key}")
    with told(step.folder):
        step.folder.mkdir(parents=True, exist_ok=True)
    replace_durably(step.folder / RECORD, _record_bytes(record))
    for name, table in record.tables.items():
        replace_durably(step.folder / f"{name}.parquet", parquet_bytes(table, name))
    return step


def _refuse_strange(record: ObservedRecord, statuses: tuple[str, ...]) -> None:
    """Names and numbers are those of folders."""
    if not MONITOR.fullmatch(record.name):
        allowed = "letters (a to z), digits, '.', '_' and '-', 100 of them at most, and begins with none of '.' and '-'"
        raise SpecError(f"A monitor's name has {allowed}; this was {record.name[:200]!r}.")
    if type(record.number) is not int or not 1 <= record.number <= STEPS:
        raise SpecError(f"Observed steps are numbered from 1 to {STEPS:,}; this was {record.number!r}.")
    if record.status not in statuses:
        raise SpecError(
            f"Its status must be {' or '.join(statuses)}; that of {record.name}/{record.number} is {record.status!r}."
        )


def _record_bytes(record: ObservedRecord, committed: str | None = None) -> bytes:
    facts = {one.name: getattr(record, one.name) for one in fields(record) if one.name != "tables"}
    facts = {name: value for name, value in facts.items() if value is not None or name not in (*PROBING, "mark")}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in facts.items()}
    now = committed or datetime.now(UTC).isoformat(timespec="seconds")
    try:
        return json_bytes({"schema": OBSERVED_SCHEMA, **plain, "forgetscope": version("forgetscope"), "committed": now})
    except (ValueError, TypeError) as error:
        raise SpecError(
            f"The record of {record.name}/{record.number} cannot be written: {error}. "
            "Settings are texts, finite numbers and truth values."
        ) from None
