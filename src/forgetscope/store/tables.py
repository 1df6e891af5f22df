"""The tables that a step leaves in the store, from plain arrays. `columns` describes them.

Whoever has the numbers, by training or by simulation, builds its tables here; what is read is checked against the same schema.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from forgetscope.measuring.forgetting import forgetting
from forgetscope.measuring.keepsakes import Carried, Keepsake
from forgetscope.measuring.quantities import COEFFICIENTS, ESTIMATES, FORECAST, METHODS_OWN, QUANTITIES
from forgetscope.spec import Kept
from forgetscope.store.columns import ERRORS, ONLY_IF_ASKED, SCHEMAS
from forgetscope.store.stepfiles import TableName
from forgetscope.store.tablefiles import WITH_FORECAST

Indices = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Measurements:
    """What the probes of one step found."""

    iterations: Sequence[int]  # of each probe
    values: Values  # [probes, quantities, P]; NaN where a term is missing
    totals: Values  # [coefficients, P]: the sums over the probes, as whoever measured added them up
    pairs: Values  # [P, P + N], summed over probes
    log_sim: Values  # [P]
    unknown: Sequence[str | None] = ()  # of each class, why some of its terms cannot be known at any probe
    errors: Values | None = None  # [coefficients, P]: standard errors of the totals, where probes looked at some images only
    of_method: Values | None = None  # [coefficients, P]: the totals of what the step's method does, where they were measured

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
    nodes: Sequence[int] | None = None  # where they are not counted from 0


@dataclass(frozen=True)
class Predictions:
    """Of test images, in the order of their true node, then of their index. Classes are head nodes, past ones first."""

    past: int  # how many classes are; without any, `best_past` and `margin` mean nothing
    image: Indices  # index in the test images
    true: Indices
    predicted: Indices  # where the largest logit is
    best_past: Indices  # where the largest of a past class is,
    best_new: Indices  # and of a new one
    margin: NDArray[np.float32]  # the former minus the latter: not negative where a past class is predicted; NaN is missing

    def confusion(self, classes: int) -> NDArray[np.int64]:
        """Counts [true node, predicted node]."""
        return np.bincount(self.true * classes + self.predicted, minlength=classes**2).reshape(classes, classes)


def best_nodes(logits: NDArray[np.float64], past: int) -> tuple[Indices, Indices, Indices, NDArray[np.float32]]:
    """Of logits [n, k] whose first columns are of past classes: the nodes of the largest, of the largest past and of the
    largest new one, of equal ones the first, and the margin, largest past minus largest new.

    The first is the second where the margin is not negative, else the third. Where a logit is not finite the margin is NaN; so
    it is in a first step, whose past node means nothing."""
    predicted, new, rows = logits.argmax(axis=1), past + logits[:, past:].argmax(axis=1), np.arange(len(logits))
    if not past:
        return predicted, np.zeros_like(predicted), new, np.full(len(logits), np.nan, np.float32)
    old = logits[:, :past].argmax(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        margin = (logits[rows, old] - logits[rows, new]).astype(np.float32)
    margin[(margin == 0) & (predicted >= past)] = -np.finfo(np.float32).tiny  # too small for its type, but not equal
    return predicted, old, new, np.where(np.isfinite(margin) & np.isfinite(logits).all(axis=1), margin, np.float32(np.nan))


def class_table(
    facts: ClassFacts,
    rehearsal: Mapping[int, Indices],
    measured: Measurements | None,
    unmeasured: str = "not measured: probe_every is 0",
    forecasts: Values | None = None,
    probe_weight: float = 1.0,
    unforecast: Sequence[str | None] | None = None,
) -> pa.Table:
    """One row per class seen so far; forgetting and coefficients are missing for this step's own classes.

    A sum with a missing term is missing; `missing_terms` counts them. `unmeasured` says why nothing was measured at all.
    forecasts [probes, forecast, P]: if any were made; a class has that of the last probe, and the sums of its estimates, in
    which a probe counts by its weight. unforecast: why there is none of each past class."""
    past = len(rehearsal)
    kept = [len(images) for images in rehearsal.values()]
    fg = forgetting(facts.when_learned[:past], facts.accuracy[:past])
    measures = {name: np.full(past, np.nan) for name in (*COEFFICIENTS, "log_sim")}
    missing: list[str | None] = [unmeasured] * past
    counts = np.zeros(past, np.int64)
    if measured is not None:
        measures |= dict(zip(COEFFICIENTS, measured.totals, strict=True)) | {"log_sim": measured.log_sim}
        measures |= {} if measured.errors is None else dict(zip(ERRORS, measured.errors, strict=True))
        measures |= {} if measured.of_method is None else dict(zip(METHODS_OWN, measured.of_method, strict=True))
        by_reason, probes = measured.missing_terms(), len(measured.iterations)
        counts = np.stack(list(by_reason.values())).sum(axis=0)
        reasons = [[f"{why} at {n[c]} of {probes} probes" for why, n in by_reason.items() if n[c]] for c in range(past)]
        unknown = measured.unknown or [None] * past
        missing = [why or " and ".join(parts) or None for why, parts in zip(unknown, reasons, strict=True)]
    of_all = {
        "class_id": facts.ids,
        "class_name": facts.names,
        "head_node": range(len(facts.ids)) if facts.nodes is None else facts.nodes,
        "introduced_step": facts.introduced,
        "train_images": facts.train_images,
        "accuracy_when_learned": facts.when_learned,
        "accuracy": facts.accuracy,
    }
    of_past: dict[str, Any] = {
        "rehearsal_images": kept,
        "share": [n / max(sum(kept), 1) for n in kept],
        "forgetting": fg,
        **measures,
    }
    if unforecast is not None:
        missing = ["; ".join(filter(None, both)) or None for both in zip(missing, unforecast, strict=True)]
    of_past |= {"missing_terms": counts, "missing": missing}
    if forecasts is not None:
        of_past |= dict(zip(FORECAST, forecast_of_classes(forecasts, probe_weight), strict=True))
    new = [None] * (len(facts.ids) - past)
    return _table("classes", {**of_all, **{name: [*values, *new] for name, values in of_past.items()}})


def forecast_of_classes(forecasts: Values, probe_weight: float) -> Values:
    """[forecast, P] of [probes, forecast, P]: forgetting at the last probe, and the sums of the estimates."""
    at = len(FORECAST) - len(ESTIMATES)
    return np.concatenate([forecasts[-1, :at], probe_weight * forecasts[:, at:].sum(axis=0)])


def probes_table(measured: Measurements | None, past: Sequence[int], forecasts: Values | None = None) -> pa.Table:
    """One row per probe and past class: the terms, the norms of f_c and b_c, the mean losses on D_c and R_c; forecasts [probes,
    forecast, P], if any were made."""
    nothing = np.empty((0, len(QUANTITIES), len(past)))
    iterations, values = ([], nothing) if measured is None else (measured.iterations, measured.values)
    beside = {} if forecasts is None else {name: forecasts[:, i].ravel() for i, name in enumerate(FORECAST)}
    return _table("probes", {**_rows(iterations, values, past), **beside})


def extra_table(series: Mapping[str, tuple[Sequence[int], Values]], past: Sequence[int]) -> pa.Table:
    """The same rows for every other kind of probe, which `measure` names; series: iterations and values of each."""
    return pa.concat_tables(
        _table("extra", {"measure": [name] * len(iterations) * len(past), **_rows(iterations, values, past)})
        for name, (iterations, values) in series.items()
    )


def _rows(iterations: Sequence[int], values: Values, past: Sequence[int]) -> dict[str, NDArray[Any]]:
    """values [probes, quantities, P]"""
    probes, classes = len(iterations), len(past)
    return {
        "probe": np.repeat(np.arange(probes), classes),
        "iteration": np.repeat(np.array(iterations, np.int64), classes),
        "class_id": np.tile(np.array(past, np.int64), probes),
        **{name: values[:, i].ravel() for i, name in enumerate(QUANTITIES)},
    }


def pairs_table(measured: Measurements | None, classes: Sequence[int], past: int) -> pa.Table:
    """One row per past class and source class: the term summed over probes."""
    pairs = np.empty((0, len(classes))) if measured is None else measured.pairs
    targets = list(classes)[: len(pairs)]
    columns = {
        "class_id": np.repeat(np.array(targets, np.int64), len(classes)),
        "source_class_id": np.tile(np.array(classes, np.int64), len(targets)),
        "source_is_new": np.tile(np.arange(len(classes)) >= past, len(targets)),
        "term": pairs.ravel(),
    }
    return _table("pairs", columns)


def rehearsal_table(rehearsal: Mapping[int, Indices]) -> pa.Table:
    """One row per kept image, `position` in the order of selection; `image` counts in the training images."""
    nothing, sizes = np.empty(0, np.int64), [len(images) for images in rehearsal.values()]
    columns = {
        "class_id": np.repeat(np.array(list(rehearsal), np.int64), sizes),
        "image": np.concatenate([nothing, *rehearsal.values()]),
        "position": np.concatenate([nothing, *map(np.arange, sizes)]),
    }
    return _table("rehearsal", columns)


def confusion_table(counts: NDArray[np.int64], classes: Sequence[int]) -> pa.Table:
    """One row per pair of true and predicted class that occurs on the test images; counts [k, k] by head node."""
    true, predicted = counts.nonzero()
    ids = np.array(classes, np.int64)
    return _table("confusion", {"true": ids[true], "predicted": ids[predicted], "count": counts[true, predicted]})


def predictions_table(found: Predictions | None, classes: Sequence[int]) -> pa.Table:
    """One row per test image of the classes seen; None: of a step that diverged."""
    ids, nothing = np.array(classes, np.int64), np.empty(0, np.int64)
    if found is None:
        found = Predictions(0, nothing, nothing, nothing, nothing, nothing, np.empty(0, np.float32))
    missing = [None] * len(found.image)
    columns = {
        "image": found.image,
        "true": ids[found.true],
        "predicted": ids[found.predicted],
        "best_past": ids[found.best_past] if found.past else missing,
        "best_new": ids[found.best_new],
        "margin": found.margin if found.past else missing,
    }
    return _table("predictions", columns)


def keepsakes_table(kept: Mapping[int, Keepsake | None], kind: Kept, *, forecast: bool = False) -> pa.Table:
    """One row per past class, in the order of the head's nodes; of a class without keepsake all but its id is missing.

    forecast: with what a forecast needs beside them."""
    found = list(kept.values())
    columns = {
        "class_id": list(kept),
        "features_step": [one and one.features_step for one in found],
        "images": [one and one.images for one in found],
        "training_accuracy": [one and one.training_accuracy for one in found],
        "mean": [one and one.mean for one in found],
        kind: [one and one.spread for one in found],
    }
    if forecast:
        columns |= {name: [one and getattr(one, name) for one in found] for name in WITH_FORECAST}
    return _table("keepsakes", columns)


def carried_table(carried: Mapping[int, Carried | None], kind: Kept) -> pa.Table:
    """One row per past class, in the order of the head's nodes; of one of which nothing is known all but its id is missing."""
    found = list(carried.values())
    columns = {
        "class_id": list(carried),
        "mean": [one and one.mean for one in found],
        kind: [one and one.spread for one in found],
        "error": [one and one.error for one in found],
    }
    return _table("carried", columns)


def calibration_table(
    ids: Sequence[int], scales: Values, offsets: Values, accuracy: Values, lost: Values, expected: Mapping[str, Values]
) -> pa.Table:
    """One row per class, in the order of the head's nodes. lost [P]: forgetting of past classes; expected: likewise."""
    missing = np.full(len(ids) - len(lost), np.nan)
    columns = {
        "class_id": ids,
        "scale": scales,
        "offset": offsets,
        "calibrated_accuracy": accuracy,
        "calibrated_forgetting": np.concatenate([lost, missing]),
        **{name: np.concatenate([values, missing]) for name, values in expected.items()},
    }
    return _table("calibration", columns)


def _table(name: TableName, columns: Mapping[str, Any]) -> pa.Table:
    """In the order and of the types of the table's schema; NaN becomes missing."""
    optional = ONLY_IF_ASKED.get(name, ())
    types = {column: type for column, type in SCHEMAS[name].items() if column in columns or column not in optional}
    return pa.table({column: pa.array(columns[column], type, from_pandas=True) for column, type in types.items()})


def parquet_bytes(table: pa.Table, name: TableName | None = None) -> bytes:
    """A table's file; name: which of a step's tables it is."""
    encodings = _ENCODINGS.get(name, {})
    options = {"use_dictionary": [c for c in table.column_names if c not in encodings]} if encodings else {}
    leaves = {
        f"{c}.list.element" if pa.types.is_list(table.schema.field(c).type) else c: encodings[c]
        for c in encodings
        if c in table.column_names
    }
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, compression="zstd", column_encoding=leaves or None, **options) as writer:
        for part in _row_groups(table) if name == "keepsakes" else [table]:
            writer.write_table(part)
    return buffer.getvalue()


def _row_groups(table: pa.Table) -> Iterator[pa.Table]:
    """Rows of one step's features after the other: what is handed on has the same bytes in every file, and packs into one."""
    steps = table["features_step"].to_pylist()
    starts = [i for i, step in enumerate(steps) if i == 0 or step != steps[i - 1]]
    for start, end in zip(starts, [*starts[1:], len(steps)], strict=True):
        yield table.slice(start, end - start)


# Of columns in which hardly a value occurs twice: a dictionary of them would double the file.
_ENCODINGS: dict[TableName | None, dict[str, str]] = {
    "predictions": {"image": "DELTA_BINARY_PACKED", "margin": "BYTE_STREAM_SPLIT"},
    **dict.fromkeys(("keepsakes", "carried"), dict.fromkeys(("mean", "variance", "covariance"), "BYTE_STREAM_SPLIT")),
}


def json_bytes(value: object) -> bytes:
    """A record's file."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode()


def manifest_bytes(contents: Mapping[str, bytes]) -> bytes:
    """A manifest's file: SHA-256 and size of each of these."""
    return json_bytes(
        {name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in contents.items()}
    )
