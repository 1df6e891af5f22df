"""One committed step, as it is read: nothing before it is asked for, and everything verified, bounded and of known form."""

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pyarrow as pa
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from forgetscope.errors import DamagedStep, StateFreed, StoreError
from forgetscope.files import open_regular, read_regular
from forgetscope.foreign import strict_json
from forgetscope.measuring.keepsakes import Keepsake
from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.spec import StepSpec
from forgetscope.store.condition import Setting
from forgetscope.store.contents import check_predictions, keepsakes_of
from forgetscope.store.stepfiles import FREED, STATE, TableName, checked_manifest, checked_record, limit_of
from forgetscope.store.tablefiles import read_table

SCHEMA = 2

ALL_TABLES: tuple[TableName, ...] = get_args(TableName)
# Those that every step has. `extra` is there where something was measured beside the probes, `keepsakes` where a run asks for
# them, `predictions` in whatever was trained since schema version 2.
TABLES = ALL_TABLES[:5]
NEEDED = {"step.json", STATE, *(f"{name}.parquet" for name in TABLES)}
Tensors = dict[str, NDArray[np.generic]]


def past_rows(classes: Any, number: int) -> NDArray[np.bool_]:
    """Which rows of a step's `classes`, an Arrow table or a data frame, are of past classes."""
    return np.asarray(classes["introduced_step"]) < number


@dataclass(frozen=True)
class StoredStep:
    """A committed step. Nothing is read before it is asked for; what is read is verified.

    name: its id, where that is not the folder's name because the step is not in its place yet. known: what is known of its
    step.json, checked before, and taken for it."""

    folder: Path
    name: str = ""
    known: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def id(self) -> str:
        return self.name or self.folder.name

    @property
    def info(self) -> Mapping[str, Any]:
        """The content of step.json."""
        return self._record[0] if self.known is None else self.known

    @cached_property
    def _record(self) -> tuple[dict[str, Any], StepSpec]:
        content = self.verified("step.json")
        try:
            info: dict[str, Any] = strict_json(content)
            schema = info["schema"] if isinstance(info, dict) else None
            if type(schema) is not int:
                raise ValueError("no record of a step (it has no schema)")
            if schema <= SCHEMA:
                return info, checked_record(info, self.id)
        except (ValueError, KeyError) as error:
            raise self.damaged("step.json", " ".join(str(error).split())) from None
        raise StoreError(
            f"Step {self.id[:8]} in {self.folder.parents[1]} has schema version {schema}; this forgetscope "
            f"reads up to {SCHEMA}. Upgrade it: `pip install --upgrade forgetscope`."
        )

    @property
    def parent(self) -> str | None:
        return cast(str | None, self.info["parent"])

    @property
    def number(self) -> int:
        """Of the step in its chain. Without `spec`, whose making takes longer than all the rest in a store of many steps."""
        return int(self.info["spec"]["step"])

    @cached_property
    def spec(self) -> StepSpec:
        return self._record[1] if self.known is None else StepSpec.model_validate(self.known["spec"])

    @property
    def setting(self) -> Setting:
        return Setting.of(self.info)

    @property
    def divergence(self) -> dict[str, Any] | None:
        """Epoch, iteration and loss at which training diverged; None for a step that came to its end."""
        return cast(dict[str, Any] | None, self.info.get("divergence"))

    @property
    def simulated(self) -> dict[str, Any] | None:
        """Seed and truth of a simulation; None for a step that was trained."""
        return cast(dict[str, Any] | None, self.info.get("simulated"))

    @property
    def start_weights(self) -> str | None:
        """SHA-256 of the network when training began, head grown; None where it was not recorded."""
        return cast(str | None, self.info.get("start", {}).get("weights"))

    def has(self, name: TableName) -> bool:
        return f"{name}.parquet" in self.manifest

    @property
    def unpredicted(self) -> str | None:
        """Why the step holds no predictions of single test images, to stand behind its name; None where it holds them."""
        if not self.has("predictions"):
            if self.simulated is not None:
                return "is simulated without test images"
            return "was made by an earlier version, which recorded counts only" if self.info["schema"] < 2 else "lost them"
        return None if self.divergence is None else "diverged"

    def table(self, name: TableName, columns: Sequence[str] | None = None) -> pa.Table:
        """All columns, or some of them, which are decoded alone."""
        content = self.verified(f"{name}.parquet")
        with self._naming(f"{name}.parquet"):
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
        with self._naming(file):
            check_predictions(table, confusion, ids[past], ids[~past])
        return None if self.divergence is not None else table

    def keepsakes(self) -> dict[int, Keepsake | None]:
        """By past class, in the order of the head's nodes; None where nothing was kept. Empty where the step asks for none."""
        kind, file = self.spec.rehearsal.keepsake if self.spec.rehearsal else None, "keepsakes.parquet"
        if kind is None or self.simulated is not None:
            return {}
        if not self.has("keepsakes"):
            raise self.damaged(file, "not there, and its specification asks for it")
        past = self.past_classes("class_id", "introduced_step")
        introduced = dict(zip(past["class_id"].tolist(), past["introduced_step"].tolist(), strict=True))
        table = self.table("keepsakes")
        with self._naming(file):
            return keepsakes_of(table, kind, introduced)

    @contextmanager
    def _naming(self, file: str) -> Iterator[None]:
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

    def state(self) -> Tensors:
        """The tensors that the next step starts from; raises StateFreed if they were freed."""
        try:
            content = self.verified(STATE)
        except DamagedStep:
            if not self.state_freed:
                raise
            raise StateFreed(
                f"The state of step {self.id[:8]} in {self.folder.parents[1]} was freed by `forgetscope store gc`; "
                "its results are all there. The next `forgetscope run` that builds on this step recomputes it."
            ) from None
        try:
            tensors: Tensors = safetensors.numpy.load(content)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise self.damaged(STATE, f"no state ({str(error)[:200]})") from None
        return tensors

    @property
    def state_freed(self) -> bool:
        """Whether the state is gone on purpose: it is not there, and the marker names the one that was."""
        try:
            marker = read_regular(self.folder / FREED, limit_of(FREED))
        except OSError:
            return False
        return marker.decode("ascii", "replace") == self.manifest[STATE]["sha256"] and not (self.folder / STATE).exists()

    def verify(self) -> None:
        """Read and check every file; raises DamagedStep at the first that does not match. A freed state is no damage."""
        for name in self.manifest:
            try:
                self.check(name)
            except DamagedStep:
                if name != STATE or not self.state_freed:  # asked afterwards: it may be freed while we look
                    raise
        _ = self.info

    @cached_property
    def manifest(self) -> dict[str, dict[str, Any]]:
        """SHA-256 and size of each file, by name."""
        try:
            return checked_manifest(self.content("manifest.json"), NEEDED)
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

    def damaged(self, name: str, reason: str) -> DamagedStep:
        """What to raise where a file is not as it must be."""
        store = shlex.quote(str(self.folder.parent.parent))
        return DamagedStep(
            f"Step {self.id[:8]} is damaged: {self.folder / name}: {reason}. "
            f"`forgetscope store verify {store} --quarantine` moves it out of the way; then the command "
            "that made it computes it again.",
            name,
            reason,
        )
