"""Calibrations: what a trained step predicts once offsets or scales are put on its logits. The step stays as it is.

    STORE/calibrated/<step id>/<id>/    whole or not there, verified when read; its id follows from the step and its own name

Beside the offsets and scales there are the predictions that follow, so whatever reads a step's predictions reads these alike.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from forgetscope.choices import canonical_calibration
from forgetscope.errors import SpecError, StoreError
from forgetscope.files import sync_folder, told, write_new
from forgetscope.foreign import Count, Id, StrictRecord, Text, first_problem
from forgetscope.measuring.forgetting import class_accuracy, forgetting
from forgetscope.spec import PROTOCOL
from forgetscope.store.folder import Store, TellLeftOut, folders_in, leaving_out
from forgetscope.store.stepfiles import Scalar, TableName
from forgetscope.store.stored import StoredStep
from forgetscope.store.tables import (
    Predictions,
    calibration_table,
    confusion_table,
    json_bytes,
    manifest_bytes,
    parquet_bytes,
    predictions_table,
)
from forgetscope.store.verified import StoredTables, past_rows

CALIBRATION_SCHEMA = 1
ID = re.compile("[0-9a-f]{32}")  # of a step or of a calibration
CALIBRATION = "calibration.json"
CALIBRATION_TABLES: tuple[TableName, ...] = ("calibration", "confusion", "predictions")

Values = NDArray[np.float64]


@dataclass(frozen=True)
class CalibrationRecord:
    """Everything that a calibration leaves behind; arrays [k] in the order of the head's nodes."""

    step: StoredStep
    calibration: str  # in its canonical form
    scales: Values  # by which logits are multiplied,
    offsets: Values  # and what is then added to them
    predictions: Predictions
    said: str  # what it was expected to gain and to cost, without test images
    expected: Mapping[str, Values]  # `expected_as_trained` and `expected` forgetting [P], where it predicts them; else empty
    held_out: int  # bytes of past classes' images that it looked at and that training never saw
    seconds: float
    environment: Mapping[str, object]


class _Made(StrictRecord):
    """Every key of calibration.json that anybody uses."""

    id: Id
    step: Id
    calibration: Text
    said: Annotated[str, Field(max_length=10_000)]
    held_out: Count
    seconds: Annotated[float, Field(ge=0)]
    environment: dict[Text, Scalar]
    committed: Text


def calibration_id(step: str, calibration: str) -> str:
    """128 bits in hexadecimal. calibration: in its canonical form."""
    content = {"step": step, "calibration": calibration, "protocol": PROTOCOL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class StoredCalibration(StoredTables):
    """One of a step's. It has the step's tables, in which accuracy, forgetting and predictions are those with the calibration;
    accuracy when learned is the one without.

    named: its id, where that is not the folder's name because it is not in its place yet."""

    needed = frozenset({CALIBRATION, *(f"{name}.parquet" for name in CALIBRATION_TABLES)})
    remedy = "then the command that made it makes it again"

    step: StoredStep
    named: str | None = None

    @property
    def id(self) -> str:
        return self.folder.name if self.named is None else self.named

    @property
    def there(self) -> bool:
        """Whether it is in the store at all. What a link leads to is not."""
        return self.folder.is_dir() and not any(path.is_symlink() for path in (self.folder, *self.folder.parents[:2]))

    @property
    def title(self) -> str:
        return f"Calibration {self.id[:8]} of step {self.step.id[:8]}"

    @property
    def store(self) -> Path:
        return self.folder.parents[2]

    @property
    def number(self) -> int:
        return self.step.number

    @property
    def new_classes(self) -> tuple[int, ...]:
        return self.step.new_classes

    @property
    def unpredicted(self) -> str | None:
        return self.step.unpredicted

    @property
    def info(self) -> Mapping[str, Any]:
        """The content of calibration.json."""
        return self._record

    @cached_property
    def _record(self) -> dict[str, Any]:
        return self.read_record(CALIBRATION, CALIBRATION_SCHEMA, self._check_record)[0]

    def _check_record(self, content: Mapping[str, Any]) -> None:
        try:
            record = _Made.model_validate({name: value for name, value in content.items() if name != "schema"})
            known = canonical_calibration(record.calibration)
        except (ValidationError, SpecError) as error:
            problem = first_problem(error) if isinstance(error, ValidationError) else str(error)
            raise ValueError(f"no record of a calibration ({problem})") from None
        if (record.id, record.step) != (self.id, self.step.id) or self.id != calibration_id(self.step.id, str(known)):
            raise ValueError(f"it is the record of {record.calibration!r} of step {record.step[:8]}")

    @property
    def calibration(self) -> str:
        return str(self.info["calibration"])

    @property
    def held_out_bytes(self) -> int:
        return int(self.info["held_out"])

    def has(self, name: TableName) -> bool:
        return super().has(name) if name in CALIBRATION_TABLES else self.step.has(name)

    def table(self, name: TableName, columns: Sequence[str] | None = None) -> pa.Table:
        if name in CALIBRATION_TABLES:
            return super().table(name, columns)
        if name != "classes":
            return self.step.table(name, columns)
        table = self.step.table("classes")
        own = self._own(table)
        for column, calibrated in (("accuracy", "calibrated_accuracy"), ("forgetting", "calibrated_forgetting")):
            table = table.set_column(table.column_names.index(column), column, own[calibrated])
        return table if columns is None else table.select(list(dict.fromkeys(columns)))

    def _own(self, classes: pa.Table) -> pa.Table:
        """Its own table, of the step's classes and with what follows from its predictions."""
        own, confusion = super().table("calibration"), super().table("confusion")
        file, ids = "calibration.parquet", classes["class_id"].to_pylist()
        with self.naming(file):
            if own["class_id"].to_pylist() != ids:
                raise ValueError("not of the classes of its step, in the order of the head's nodes")
            nodes = {id: node for node, id in enumerate(ids)}
            counts = np.zeros((len(ids),) * 2, np.int64)
            for true, predicted, count in zip(*(confusion[name].to_pylist() for name in confusion.column_names), strict=True):
                if true not in nodes or predicted not in nodes:
                    raise ValueError(f"confusion.parquet names class {true if true not in nodes else predicted}, which is none")
                counts[nodes[true], nodes[predicted]] = count
            accuracy, past = class_accuracy(counts), past_rows(classes, self.number)
            lost = np.full(len(ids), np.nan)
            lost[past] = forgetting(classes["accuracy_when_learned"].to_numpy()[past], accuracy[past])
            for column, expected in (("calibrated_accuracy", accuracy), ("calibrated_forgetting", lost)):
                if not np.allclose(own[column].to_numpy(), expected, rtol=0, atol=1e-9, equal_nan=True):
                    raise ValueError(f"{column} is not what its predictions give")
        return own

    def verify(self) -> None:
        """Read and check every file; raises DamagedStep at the first that does not match."""
        for name in self.manifest:
            self.check(name)
        self.check_contents()

    def check_contents(self) -> None:
        """Hold its record and its tables against one another and against its step; raises DamagedStep."""
        _ = self.info, self.table("classes"), self.predictions()


def stored_calibration(store: Store, step: StoredStep, calibration: str) -> StoredCalibration:
    """As it is in the store, or would be. calibration: in its canonical form."""
    return StoredCalibration(store.path / "calibrated" / step.id / calibration_id(step.id, calibration), step)


def calibrations_of(store: Store, step: StoredStep, left_out: TellLeftOut | None = None) -> list[StoredCalibration]:
    """Those of a step that are in the store, by name. What lies there and is none of its own is passed over. What is wrong
    with one is told to `left_out`; without it, the first is an error."""
    named: dict[str, StoredCalibration] = {}
    for one in _lying_in(store.path / "calibrated" / step.id, step):
        with leaving_out(left_out):
            named[one.calibration] = one
    return [one for _, one in sorted(named.items())]


def all_calibrations(store: Store) -> list[StoredCalibration]:
    """Whatever is called as a calibration where they are, by folder, also where its step is missing. Reads none."""
    store.refuse_links("calibrated")
    folder = store.path / "calibrated"
    return [one for id in sorted(folders_in(folder)) if ID.fullmatch(id) for one in _lying_in(folder / id, store.step(id))]


def _lying_in(folder: Path, step: StoredStep) -> list[StoredCalibration]:
    found = [StoredCalibration(folder / name, step) for name in sorted(folders_in(folder)) if ID.fullmatch(name)]
    return [one for one in found if one.there]


def commit_calibration(store: Store, record: CalibrationRecord, committed: str) -> StoredCalibration:
    """Write a calibration whole. If another process was first, its own stays."""
    step, classes = record.step, record.step.table("classes", ["class_id", "introduced_step", "accuracy_when_learned"])
    made, ids = stored_calibration(store, step, record.calibration), classes["class_id"].to_pylist()
    confusion = record.predictions.confusion(len(ids))
    accuracy, past = class_accuracy(confusion), past_rows(classes, step.number)
    lost = forgetting(classes["accuracy_when_learned"].to_numpy()[past], accuracy[past])
    facts = {
        "schema": CALIBRATION_SCHEMA,
        "id": made.id,
        "step": step.id,
        "calibration": record.calibration,
        "said": record.said,
        "held_out": record.held_out,
        "seconds": round(record.seconds, 3),
        "environment": dict(record.environment),
        "committed": committed,
    }
    contents = {
        CALIBRATION: json_bytes(facts),
        "calibration.parquet": parquet_bytes(
            calibration_table(ids, record.scales, record.offsets, accuracy, lost, record.expected), "calibration"
        ),
        "confusion.parquet": parquet_bytes(confusion_table(confusion, ids), "confusion"),
        "predictions.parquet": parquet_bytes(predictions_table(record.predictions, ids), "predictions"),
    }
    contents["manifest.json"] = manifest_bytes(contents)

    def write(folder: Path) -> None:
        for name, data in contents.items():
            write_new(folder / name, data)

    store.prepare()
    store.refuse_links(f"calibrated/{step.id}")
    with told(made.folder):
        made.folder.parent.mkdir(parents=True, exist_ok=True)
        for folder in (made.folder.parents[1], store.path):
            sync_folder(folder)
    if not store.put_in_place(made.folder, made.id, write):
        made.verify()
    return made


def has_calibrations(store: Store, id: str, calibrations: Sequence[str]) -> bool:
    """Whether all of these, in their canonical form, are there; or cannot be, because the step came to no end."""
    if not calibrations:
        return True
    step = store.step(id)
    if all(stored_calibration(store, step, name).there for name in calibrations):
        return True
    try:
        return step.divergence is not None
    except StoreError:  # whoever runs it says what is wrong with it
        return True
