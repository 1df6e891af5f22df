"""A folder of tables with a record and a manifest, as it is read: nothing before it is asked for, and everything verified,
bounded and of known form. A step is one, and so is an observed step.
"""

import hashlib
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forgetscope.errors import DamagedStep, StoreError
from forgetscope.files import open_regular, read_regular
from forgetscope.foreign import strict_json
from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.store.contents import check_predictions
from forgetscope.store.stepfiles import TableName, checked_manifest, limit_of
from forgetscope.store.tablefiles import read_table

Checked = TypeVar("Checked")


def past_rows(classes: Any, number: int) -> NDArray[np.bool_]:
    """Which rows of a step's `classes`, an Arrow table or a data frame, are of past classes."""
    return np.asarray(classes["introduced_step"]) < number


@dataclass(frozen=True)
class StoredTables(ABC):
    """What a step and an observed step have in common. Nothing is read before it is asked for; what is read is verified."""

    needed: ClassVar[frozenset[str]]  # files that the manifest must name
    remedy: ClassVar[str]  # how to have it again when it is damaged and out of the way, to end a sentence with
    markers: ClassVar[Mapping[str, str]] = {}  # what may be left out on purpose, and the file that then stands for it

    folder: Path

    @property
    @abstractmethod
    def title(self) -> str:
        """What to call it, to begin a sentence with."""

    @property
    def store(self) -> Path:
        """The store that it is in."""
        return self.folder.parents[1]

    @property
    @abstractmethod
    def number(self) -> int:
        """Of the step in its chain, from 1."""

    @property
    @abstractmethod
    def new_classes(self) -> tuple[int, ...]:
        """That the step learned, in the order of the head's nodes."""

    @property
    @abstractmethod
    def info(self) -> Mapping[str, Any]:
        """The content of its record."""

    @property
    @abstractmethod
    def unpredicted(self) -> str | None:
        """Why it holds no predictions of single test images, to stand behind its name; None where it holds them."""

    def damaged(self, name: str, reason: str) -> DamagedStep:
        """What to raise where a file is not as it must be."""
        return DamagedStep(
            f"{self.title} is damaged: {self.folder / name}: {reason}. "
            f"`forgetscope store verify {shlex.quote(str(self.store))} --quarantine` moves it out of the way; {self.remedy}.",
            name,
            reason,
        )

    def read_record(self, file: str, newest: int, check: Callable[[dict[str, Any]], Checked]) -> tuple[dict[str, Any], Checked]:
        """The content of its record, of a schema version up to the newest, and what checking it gave."""
        content = self.verified(file)
        try:
            info: dict[str, Any] = strict_json(content)
            schema = info.get("schema") if isinstance(info, dict) else None
            if type(schema) is not int:
                raise ValueError("no record of a step (it has no schema)")
            if schema <= newest:
                return info, check(info)
        except (ValueError, KeyError) as error:
            raise self.damaged(file, " ".join(str(error).split())) from None
        raise StoreError(
            f"{self.title} in {self.store} has schema version {schema}; this forgetscope "
            f"reads up to {newest}. Upgrade it: `pip install --upgrade forgetscope`."
        )

    def has(self, name: TableName) -> bool:
        return f"{name}.parquet" in self.manifest and not self.left_out(f"{name}.parquet")

    def left_out(self, name: str) -> bool:
        """Whether a file is gone on purpose: it is not there, and a marker names the one that was."""
        if name not in self.markers or name not in self.manifest:
            return False
        try:
            marker = read_regular(self.folder / self.markers[name], limit_of(self.markers[name]))
        except OSError:
            return False
        return marker.decode("ascii", "replace") == self.manifest[name]["sha256"] and not (self.folder / name).exists()

    def table(self, name: TableName, columns: Sequence[str] | None = None) -> pa.Table:
        """All columns, or some of them, which are decoded alone."""
        content = self.verified(f"{name}.parquet")
        with self.naming(f"{name}.parquet"):
            return read_table(content, name, columns)

    def past_classes(self, *columns: str) -> dict[str, NDArray[Any]]:
        """Columns of `classes` for the classes that earlier steps introduced, in the order of the head's nodes."""
        table = self.table("classes", ["introduced_step", *columns])
        past = past_rows(table, self.number)
        return {name: table[name].to_numpy(zero_copy_only=False)[past] for name in columns}

    def predictions(self) -> pa.Table | None:
        """Of single test images, as `classes` and `confusion` have them; None where `unpredicted` says that there are none."""
        file = "predictions.parquet"
        if not self.has("predictions"):
            return None
        table, confusion = self.table("predictions"), self.table("confusion")
        classes = self.table("classes", ["class_id", "introduced_step"])
        ids, past = classes["class_id"].to_numpy(), past_rows(classes, self.number)
        with self.naming(file):
            check_predictions(table, confusion, ids[past], ids[~past])
        return None if self.unpredicted else table

    @contextmanager
    def naming(self, file: str) -> Iterator[None]:
        """A ValueError of the block is what is wrong with this file."""
        try:
            yield
        except ValueError as error:
            raise self.damaged(file, str(error)) from None

    def partial_sums(self, class_ids: Sequence[int] | NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Iterations [probes] and sums [probes, 4, classes] of the terms so far of the coefficients, of the past classes in
        this order. Once a term is missing, so is every later sum."""
        table = self.table("probes", ["probe", "iteration", "class_id", *COEFFICIENTS])
        classes, probes = len(class_ids), table.num_rows // max(1, len(class_ids))
        ids, order = table["class_id"].to_numpy(), np.arange(table.num_rows)
        if not np.array_equal(ids, np.tile(class_ids, probes)):  # not as it is written here: put in order
            node = {int(id): i for i, id in enumerate(class_ids)}
            numbers = table["probe"].to_numpy()
            if len(ids) != probes * classes or len(np.unique(numbers)) != probes or not node.keys() >= set(ids.tolist()):
                raise self.damaged("probes.parquet", "no row for each probe and past class of classes.parquet")
            order = np.lexsort(([node[id] for id in ids.tolist()], numbers))
        terms = np.empty((probes, len(COEFFICIENTS), classes))
        for i, name in enumerate(COEFFICIENTS):
            terms[:, i] = table[name].to_numpy(zero_copy_only=False)[order].reshape(probes, classes)
        iterations = table["iteration"].to_numpy()[order][:: max(1, classes)]
        return iterations, np.cumsum(terms, axis=0, out=terms)

    @cached_property
    def manifest(self) -> dict[str, dict[str, Any]]:
        """SHA-256 and size of each file, by name."""
        try:
            return checked_manifest(self.content("manifest.json"), self.needed)
        except ValueError as error:
            raise self.damaged("manifest.json", " ".join(str(error).split())[:300]) from None

    def verified(self, name: str) -> bytes:
        """The content of a file that the manifest names."""
        expected = self.manifest[name]
        content = self.content(name)
        self._compare(name, expected, len(content), hashlib.sha256(content).hexdigest())
        return content

    def content(self, name: str) -> bytes:
        """The same of any file, compared with nothing."""
        try:
            return read_regular(self.folder / name, limit_of(name))
        except OSError as error:
            raise self.damaged(name, error.strerror or str(error)) from None

    def check(self, name: str) -> None:
        """The same without keeping it: a state may be large."""
        expected = self.manifest[name]
        try:
            with open_regular(self.folder / name, limit_of(name)) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
        except OSError as error:
            raise self.damaged(name, error.strerror or str(error)) from None
        self._compare(name, expected, size, digest)

    def _compare(self, name: str, expected: dict[str, Any], size: int, digest: str) -> None:
        if (expected["sha256"], expected["size"]) != (digest, size):
            raise self.damaged(name, f"{size} bytes that do not match the checksum")
