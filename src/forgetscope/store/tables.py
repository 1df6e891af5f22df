"""The tables that a step leaves in the store, from plain arrays. Columns are described in `docs/store.md`.

Whoever has the numbers, by training or by simulation, builds its tables here: there is no other place that names a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forgetscope.measuring.forgetting import forgetting
from forgetscope.measuring.quantities import COEFFICIENTS, QUANTITIES

Indices = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Measurements:
    """What the probes of one step found."""

    iterations: Sequence[int]  # of each probe
    values: Values  # [probes, quantities, P]; NaN where a term is missing
    totals: Values  # [coefficients, P]: the plain sums over the probes, as whoever measured added them up
    pairs: Values  # [P, P + N], summed over probes
    log_sim: Values  # [P]

    def missing_terms(self) -> dict[str, NDArray[np.int64]]:
        """At how many probes each class lacked a term, by reason: nothing can be projected on such a gradient."""
        missing = np.isnan(self.values[:, : len(COEFFICIENTS)]).any(axis=1)
        finite = np.isfinite(self.values[:, QUANTITIES.index("gradient_norm")])
        counts = {"gradient vanished": missing & finite, "gradient not finite": missing & ~finite}
        return {reason: where.sum(axis=0) for reason, where in counts.items()}


@dataclass(frozen=True)
class ClassFacts:
    """Per class in the order of the head's nodes, past classes first."""

    ids: Sequence[int]
    names: Sequence[str]
    introduced: Sequence[int]  # step
    train_images: Sequence[int]
    when_learned: Values  # test accuracy at the end of the step that introduced the class
    accuracy: Values  # test accuracy now


def class_table(
    facts: ClassFacts,
    rehearsal: Mapping[int, Indices],
    measured: Measurements | None,
    unmeasured: str = "not measured: probe_every is 0",
) -> pa.Table:
    """One row per class seen so far; forgetting and coefficients are missing for this step's own classes.

    A sum with a missing term is missing; `missing_terms` counts them. `unmeasured` says why nothing was measured at all."""
    past = len(rehearsal)
    kept = [len(images) for images in rehearsal.values()]
    fg = forgetting(facts.when_learned[:past], facts.accuracy[:past])
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
    if measured is not None:
        measures |= dict(zip(COEFFICIENTS, measured.totals, strict=True)) | {"log_sim": measured.log_sim}
        by_reason, probes = measured.missing_terms(), len(measured.iterations)
        counts = np.stack(list(by_reason.values())).sum(axis=0)
        reasons = [[f"{why} at {n[c]} of {probes} probes" for why, n in by_reason.items() if n[c]] for c in range(past)]
        missing = [" and ".join(parts) or None for parts in reasons]
    for name, values in measures.items():
        columns[name] = _padded(values, facts, pa.float64())
    columns["missing_terms"] = _padded(counts, facts, pa.int32())
    columns["missing"] = pa.array([*missing, *[None] * (len(facts.ids) - past)], pa.string())
    return pa.table(columns)


def probes_table(measured: Measurements | None, past: Sequence[int]) -> pa.Table:
    """One row per probe and past class: the terms, the norms of f_c and b_c, the mean losses on D_c and R_c."""
    nothing = np.empty((0, len(QUANTITIES), len(past)))
    return _rows([], nothing, past) if measured is None else _rows(measured.iterations, measured.values, past)


def extra_table(series: Mapping[str, tuple[Sequence[int], Values]], past: Sequence[int]) -> pa.Table:
    """The same rows for every other kind of probe, which `measure` names; series: iterations and values of each."""
    parts = []
    for name, (iterations, values) in series.items():
        rows = _rows(iterations, values, past)
        parts.append(rows.add_column(0, "measure", pa.array([name] * len(rows), pa.string())))
    return pa.concat_tables(parts)


def _rows(iterations: Sequence[int], values: Values, past: Sequence[int]) -> pa.Table:
    """values [probes, quantities, P]"""
    probes, classes = len(iterations), len(past)
    columns: dict[str, pa.Array] = {
        "probe": pa.array(np.repeat(np.arange(probes), classes), pa.int32()),
        "iteration": pa.array(np.repeat(np.array(iterations, np.int64), classes), pa.int64()),
        "class_id": pa.array(np.tile(np.array(past, np.int64), probes), pa.int32()),
    }
    for i, name in enumerate(QUANTITIES):
        columns[name] = _floats(values[:, i].ravel())
    return pa.table(columns)


def pairs_table(measured: Measurements | None, classes: Sequence[int], past: int) -> pa.Table:
    """One row per past class and source class: the term summed over probes."""
    pairs = np.empty((0, len(classes))) if measured is None else measured.pairs
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
    nothing, sizes = np.empty(0, np.int64), [len(images) for images in rehearsal.values()]
    return pa.table(
        {
            "class_id": pa.array(np.repeat(np.array(list(rehearsal), np.int64), sizes), pa.int32()),
            "image": pa.array(np.concatenate([nothing, *rehearsal.values()]), pa.int64()),
            "position": pa.array(np.concatenate([nothing, *map(np.arange, sizes)]), pa.int32()),
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


def _floats(values: Values) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes missing


def _padded(values: Sequence[float] | NDArray[np.float64 | np.int64], facts: ClassFacts, type: pa.DataType) -> pa.Array:
    """Values of the past classes, then missing ones for the new classes."""
    present = [None if isinstance(value, float) and np.isnan(value) else value for value in np.asarray(values).tolist()]
    return pa.array(present + [None] * (len(facts.ids) - len(present)), type)
