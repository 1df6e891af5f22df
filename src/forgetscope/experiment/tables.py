"""What a step measured, and the tables that it leaves in the store. Columns are described in `docs/store.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from forgetscope.measuring.forgetting import forgetting
from forgetscope.measuring.probe import Measurement
from forgetscope.store import COEFFICIENTS

Indices = NDArray[np.int64]

QUANTITIES = (*COEFFICIENTS, "gradient_norm", "bias_norm", "loss_full", "loss_rehearsal")


@dataclass
class Measured:
    """The probes of one step so far; small, and all of it goes into each snapshot."""

    iterations: list[int] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)  # per probe [quantities, P]
    pairs: Tensor | None = None  # [P, P + N], summed over probes
    log_sim: Tensor | None = None  # [P]

    def add(self, iteration: int, measurement: Measurement) -> None:
        terms = measurement.terms
        rows = [getattr(terms, name) for name in COEFFICIENTS]
        rows += [getattr(measurement, name) for name in QUANTITIES[len(COEFFICIENTS) :]]
        self.iterations.append(iteration)
        self.values.append(torch.stack(rows))
        self.pairs = measurement.pairs if self.pairs is None else self.pairs + measurement.pairs
        if self.log_sim is None:
            self.log_sim = measurement.new_logits

    def tensors(self) -> dict[str, Tensor]:
        """For a snapshot; empty before the first probe."""
        if self.pairs is None or self.log_sim is None:
            return {}
        return {
            "iterations": torch.tensor(self.iterations),
            "values": torch.stack(self.values),
            "pairs": self.pairs,
            "log_sim": self.log_sim,
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Measured:
        if not tensors:
            return cls()
        return cls(tensors["iterations"].tolist(), list(tensors["values"]), tensors["pairs"], tensors["log_sim"])

    def totals(self) -> dict[str, NDArray[np.float64]]:
        """Each coefficient [P]: the plain sum over the probes, NaN where a term is."""
        total = torch.stack(self.values).sum(dim=0).numpy()
        return {name: total[i] for i, name in enumerate(COEFFICIENTS)}

    def missing_terms(self) -> dict[str, NDArray[np.int64]]:
        """At how many probes each class lacked a term, by reason: nothing can be projected on such a gradient."""
        values = torch.stack(self.values)
        missing = values[:, : len(COEFFICIENTS)].isnan().any(dim=1)
        finite = values[:, QUANTITIES.index("gradient_norm")].isfinite()
        counts = {"gradient vanished": missing & finite, "gradient not finite": missing & ~finite}
        return {reason: where.sum(dim=0).numpy() for reason, where in counts.items()}


@dataclass(frozen=True)
class ClassFacts:
    """Per class in the order of the head's nodes, past classes first."""

    ids: Sequence[int]
    names: Sequence[str]
    introduced: Sequence[int]  # step
    train_images: Sequence[int]
    when_learned: NDArray[np.float64]  # test accuracy at the end of the step that introduced the class
    accuracy: NDArray[np.float64]  # test accuracy now


def class_table(
    facts: ClassFacts,
    rehearsal: Mapping[int, Indices],
    measured: Measured,
    unmeasured: str = "not measured: probe_every is 0",
) -> pa.Table:
    """One row per class seen so far; forgetting and coefficients are missing for this step's own classes.

    A sum with a missing term is missing; `missing_terms` counts them. `unmeasured` says why nothing was measured at all."""
    past = len(rehearsal)
    kept = [len(images) for images in rehearsal.values()]
    fg = forgetting(facts.when_learned[:past], facts.accuracy[:past])
    probes = len(measured.iterations)
    columns: dict[str, pa.Array] = {
        "class_id": pa.array(facts.ids, pa.int32()),
        "class_name": pa.array(facts.names, pa.string()),
        "head_node": pa.array(range(len(facts.ids)), pa.int32()),
        "introduced_step": pa.array(facts.introduced, pa.int32()),
        "train_images": pa.array(facts.train_images, pa.int32()),
        "rehearsal_images": _padded(kept, facts, pa.int32()),
        "share": _padded([n / sum(kept) for n in kept], facts, pa.float64()),
        "accuracy_when_learned": _floats(facts.when_learned),
        "accuracy": _floats(facts.accuracy),
        "forgetting": _padded(fg, facts, pa.float64()),
    }
    measures = {name: np.full(past, np.nan) for name in (*COEFFICIENTS, "log_sim")}
    missing: list[str | None] = [unmeasured] * past
    counts = np.zeros(past, np.int64)
    if probes and measured.log_sim is not None:
        measures |= measured.totals() | {"log_sim": measured.log_sim.numpy()}
        by_reason = measured.missing_terms()
        counts = np.stack(list(by_reason.values())).sum(axis=0)
        reasons = [[f"{why} at {n[c]} of {probes} probes" for why, n in by_reason.items() if n[c]] for c in range(past)]
        missing = [" and ".join(parts) or None for parts in reasons]
    for name, values in measures.items():
        columns[name] = _padded(values, facts, pa.float64())
    columns["missing_terms"] = _padded(counts, facts, pa.int32())
    columns["missing"] = pa.array([*missing, *[None] * (len(facts.ids) - past)], pa.string())
    return pa.table(columns)


def probes_table(measured: Measured, past: Sequence[int]) -> pa.Table:
    """One row per probe and past class: the terms, the norms of f_c and b_c, the mean losses on D_c and R_c."""
    probes, classes = len(measured.iterations), len(past)
    columns: dict[str, pa.Array] = {
        "probe": pa.array(np.repeat(np.arange(probes), classes), pa.int32()),
        "iteration": pa.array(np.repeat(np.array(measured.iterations, np.int64), classes), pa.int64()),
        "class_id": pa.array(np.tile(np.array(past, np.int64), probes), pa.int32()),
    }
    stacked = torch.stack(measured.values).numpy() if probes else np.empty((0, len(QUANTITIES), classes))
    for i, name in enumerate(QUANTITIES):
        columns[name] = _floats(stacked[:, i].ravel())
    return pa.table(columns)


def pairs_table(measured: Measured, classes: Sequence[int], past: int) -> pa.Table:
    """One row per past class and source class: the term summed over probes."""
    pairs = np.empty((0, len(classes))) if measured.pairs is None else measured.pairs.numpy()
    targets = list(classes)[: len(pairs)]
    return pa.table(
        {
            "class_id": pa.array(np.repeat(np.array(targets, np.int64), len(classes)), pa.int32()),
            "source_class_id": pa.array(np.tile(np.array(classes, np.int64), len(targets)), pa.int32()),
            "source_is_new": pa.array(np.tile(np.arange(len(classes)) >= past, len(targets))),
            "term": _floats(pairs.ravel()),
        }
    )


def rehearsal_table(rehearsal: Mapping[int, Indices]) -> pa.Table:
    """One row per kept image, `position` in the order of selection; `image` counts in the training images."""
    labels = [label for label, images in rehearsal.items() for _ in images]
    images = np.concatenate([np.empty(0, np.int64), *rehearsal.values()])
    positions = [position for kept in rehearsal.values() for position in range(len(kept))]
    return pa.table(
        {
            "class_id": pa.array(labels, pa.int32()),
            "image": pa.array(images, pa.int64()),
            "position": pa.array(positions, pa.int32()),
        }
    )


def confusion_table(counts: NDArray[np.int64], classes: Sequence[int]) -> pa.Table:
    """One row per pair of true and predicted class that occurs on the test images; counts [k, k] by head node."""
    true, predicted = counts.nonzero()
    ids = np.array(classes, np.int64)
    return pa.table(
        {
            "true": pa.array(ids[true], pa.int32()),
            "predicted": pa.array(ids[predicted], pa.int32()),
            "count": pa.array(counts[true, predicted], pa.int64()),
        }
    )


def _floats(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes missing


def _padded(values: Sequence[float] | NDArray[np.float64 | np.int64], facts: ClassFacts, type: pa.DataType) -> pa.Array:
    """Values of the past classes, then missing ones for the new classes."""
    present = [None if isinstance(value, float) and np.isnan(value) else value for value in np.asarray(values).tolist()]
    return pa.array(present + [None] * (len(facts.ids) - len(present)), type)
