"""One committed step, as it is read: nothing before it is asked for, and everything verified, bounded and of known form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast, get_args

import numpy as np
import pyarrow as pa
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from forgetscope.errors import DamagedStep, StateFreed
from forgetscope.measuring.keepsakes import Carried, Keepsake
from forgetscope.spec import StepSpec
from forgetscope.store.condition import Setting
from forgetscope.store.contents import carried_of, check_forecasts, check_unforecast, forecasts_of, keepsakes_of
from forgetscope.store.stepfiles import CARRIED, KEEPSAKES, MARKERS, STATE, TableName, checked_record
from forgetscope.store.verified import StoredTables, past_rows

SCHEMA = 2

ALL_TABLES: tuple[TableName, ...] = tuple(name for name in get_args(TableName) if name != "calibration")
# Those that every step has. `extra` is there where something was measured beside the probes, `keepsakes` where a run asks for
# them, `predictions` in whatever was trained since schema version 2.
TABLES = ALL_TABLES[:5]
Tensors = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class StoredStep(StoredTables):
    """A committed step. Nothing is read before it is asked for; what is read is verified.

    name: its id, where that is not the folder's name because the step is not in its place yet. known: what is known of its
    step.json, checked before, and taken for it."""

    needed = frozenset({"step.json", STATE, *(f"{name}.parquet" for name in TABLES)})
    markers = MARKERS
    remedy = "then the command that made it computes it again"

    name: str = ""
    known: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def id(self) -> str:
        return self.name or self.folder.name

    @property
    def info(self) -> Mapping[str, Any]:
        """The content of step.json."""
        return self._record[0] if self.known is None else self.known

    @property
    def title(self) -> str:
        return f"Step {self.id[:8]}"

    @cached_property
    def _record(self) -> tuple[dict[str, Any], StepSpec]:
        return self.read_record("step.json", SCHEMA, lambda info: checked_record(info, self.id))

    @property
    def parent(self) -> str | None:
        return cast(str | None, self.info["parent"])

    @property
    def number(self) -> int:
        """Of the step in its chain. Without `spec`, whose making takes longer than all the rest in a store of many steps."""
        return int(self.info["spec"]["step"])

    @property
    def new_classes(self) -> tuple[int, ...]:
        return self.spec.classes

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

    @property
    def kept_bytes(self) -> dict[str, int] | None:
        """Bytes of past classes' `images`, `logits` and `keepsakes` that training had; None where it was not recorded."""
        return cast(dict[str, int] | None, self.info.get("kept"))

    @property
    def unpredicted(self) -> str | None:
        if not self.has("predictions"):
            if self.simulated is not None:
                return "is simulated without test images"
            return "was made by an earlier version, which recorded counts only" if self.info["schema"] < 2 else "lost them"
        return None if self.divergence is None else "diverged"

    def keepsakes(self) -> dict[int, Keepsake | None]:
        """By past class, in the order of the head's nodes; None where nothing was kept. Empty where the step asks for none."""
        kind, file = self.spec.rehearsal.keepsake if self.spec.rehearsal else None, KEEPSAKES
        if kind is None or self.simulated is not None:
            return {}
        self._demand(file, "keepsakes")
        past = self.past_classes("class_id", "introduced_step")
        introduced = dict(zip(past["class_id"].tolist(), past["introduced_step"].tolist(), strict=True))
        table = self.table("keepsakes")
        with self.naming(file):
            return keepsakes_of(table, kind, introduced, forecast=self.forecasts, counted=True)

    def carried(self) -> dict[int, Carried | None]:
        """Where a forecast found its past classes as the step ended, by class in the order of the head's nodes; None where
        nothing was known. Empty where the step makes no forecast."""
        kind = self.spec.rehearsal.keepsake if self.spec.rehearsal else None
        if kind is None or not self.forecasts:
            return {}
        self._demand(CARRIED, "carried")
        past, table = self.past_classes("class_id")["class_id"].tolist(), self.table("carried")
        with self.naming(CARRIED):
            return carried_of(table, kind, past)

    def _demand(self, file: str, name: TableName) -> None:
        """A table that its specification asks for."""
        if self.left_out(file):
            raise StateFreed(
                f"{file} of step {self.id[:8]} in {self.store} was left out when it was exported; all else is there. "
                "The next `forgetscope run` that builds on this step recomputes it."
            )
        if not self.has(name):
            raise self.damaged(file, "not there, and its specification asks for it")

    @property
    def forecasts(self) -> bool:
        """Whether it predicts forgetting at its probes."""
        return bool(self.spec.rehearsal and self.spec.rehearsal.forecast) and self.simulated is None

    def check_forecasts(self) -> None:
        """Those of its probes and of its classes against one another; raises DamagedStep."""
        classes, probes = self.table("classes"), self.table("probes")
        if not self.forecasts:
            for file, table in (("classes.parquet", classes), ("probes.parquet", probes)):
                with self.naming(file):
                    check_unforecast(table)
            return
        past = classes.filter(pa.array(past_rows(classes, self.number)))
        with self.naming("probes.parquet"):
            by_probe = forecasts_of(probes, past["class_id"].to_numpy())
        with self.naming("classes.parquet"):
            check_forecasts(past, by_probe, None if self.divergence is not None else self.spec.probe_weight)

    def state(self) -> Tensors:
        """The tensors that the next step starts from; raises StateFreed if they were freed."""
        try:
            content = self.verified(STATE)
        except DamagedStep:
            if not self.left_out(STATE):
                raise
            raise StateFreed(
                f"The state of step {self.id[:8]} in {self.store} was freed by `forgetscope store gc`; "
                "its results are all there. The next `forgetscope run` that builds on this step recomputes it."
            ) from None
        try:
            tensors: Tensors = safetensors.numpy.load(content)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise self.damaged(STATE, f"no state ({str(error)[:200]})") from None
        return tensors

    @property
    def state_freed(self) -> bool:
        """Whether something that the next step starts from, its state or its keepsakes, is gone on purpose."""
        return any(map(self.left_out, MARKERS))

    def verify(self) -> None:
        """Read and check every file; raises DamagedStep at the first that does not match. What was left out is no damage."""
        for name in self.manifest:
            try:
                self.check(name)
            except DamagedStep:
                if not self.left_out(name):  # asked afterwards: it may be freed while we look
                    raise
        _ = self.info
