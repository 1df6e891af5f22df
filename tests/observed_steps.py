"""Observed steps without a training, for tests: records made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forgetscope.measuring.quantities import QUANTITIES
from forgetscope.store import ObservedRecord, Store, StoredObserved, commit_observed
from forgetscope.store.tables import (
    ClassFacts,
    Measurements,
    Predictions,
    class_table,
    confusion_table,
    pairs_table,
    predictions_table,
    probes_table,
    rehearsal_table,
)

CLASSES, IMAGES, PROBES = 2, 20, 3  # per step; of each class in the test data; of each step
NAMES = {30: "wren", 10: "owl", 50: "kite", 20: "rook", 40: "teal", 60: "swan", 80: "gull", 70: "coot", 90: "tern", 5: "smew"}
LABELS = tuple(NAMES)  # in the order in which they are learned


def observed_record(number: int, name: str = "birds", **changes: Any) -> ObservedRecord:
    """Two labels per step; head nodes in the order of learning. The class that was learned first is forgotten most."""
    past, ids = CLASSES * (number - 1), list(LABELS[: CLASSES * number])
    right = [max(0, IMAGES - 4 - 3 * (past - i)) if i < past else IMAGES - 4 for i in range(len(ids))]
    predictions = _predictions(past, right)
    facts = ClassFacts(
        ids=ids,
        names=[NAMES[id] for id in ids],
        introduced=[i // CLASSES + 1 for i in range(len(ids))],
        train_images=[50] * len(ids),
        when_learned=np.full(len(ids), (IMAGES - 4) / IMAGES),
        accuracy=np.array(right) / IMAGES,
    )
    rehearsal = {id: np.arange(5) for id in ids[:past]}
    measured = _measurements(past, len(ids)) if past else None
    tables = {
        "classes": class_table(facts, rehearsal, measured),
        "probes": probes_table(measured, ids[:past]),
        "pairs": pairs_table(measured, ids, past),
        "rehearsal": rehearsal_table(rehearsal),
        "confusion": confusion_table(predictions.confusion(len(ids)), ids),
        "predictions": predictions_table(predictions, ids),
    }
    known: dict[str, Any] = {
        **{"name": name, "number": number, "status": "done", "reason": None, "settings": {"lr": 0.1, "memory": 10}},
        **{"alpha": 0.5 if past else None, "alpha_from": "given" if past else None, "past": "all" if past else "none"},
        **{"epochs": PROBES - 1, "network": "Sequential", "head_nodes": len(ids), "said": ("Measured at the last layer.",)},
        **{"environment": {"device": "cpu"}, "timings": {"seconds": 2.5, "probe_seconds": 0.5}, "tables": tables},
    }
    return ObservedRecord(**known | changes)


def observe(store: Store, steps: int = 3, name: str = "birds", **changes: Any) -> list[StoredObserved]:
    """Commit so many steps of one monitor; changes: as of `observed_record`."""
    return [commit_observed(store, observed_record(i + 1, name, **changes), "2026-01-01T00:00:00+00:00") for i in range(steps)]


def incomplete(number: int, name: str = "birds", reason: str = "RuntimeError: stopped", **changes: Any) -> ObservedRecord:
    """A step of which the end was not seen: never evaluated."""
    whole: Mapping[Any, Any] = observed_record(number, name).tables
    tables = {table: rows for table, rows in whole.items() if table not in ("confusion", "predictions")}
    return observed_record(number, name, status="incomplete", reason=reason, tables=tables, **changes)


def _predictions(past: int, right: list[int]) -> Predictions:
    """Of each class the first images are taken for it, the others for the last new class (of that one, for the first)."""
    classes = len(right)
    true = np.repeat(np.arange(classes), IMAGES)
    wrong = np.where(true == classes - 1, 0, classes - 1)
    predicted = np.where(np.arange(len(true)) % IMAGES < np.array(right)[true], true, wrong)
    of_past = predicted < past
    return Predictions(
        past=past,
        image=np.arange(len(true)),
        true=true,
        predicted=predicted,
        best_past=np.where(of_past, predicted, 0),
        best_new=np.where(of_past, classes - 1, predicted),
        margin=np.where(of_past, 1.5, -0.5).astype(np.float32),
    )


def _measurements(past: int, classes: int) -> Measurements:
    """SIC falls from class to class as forgetting does; pairs add up to the coefficients."""
    pairs = 0.01 * np.abs(np.cos(np.arange(past * classes, dtype=np.float64))).reshape(past, classes)
    pairs[:, :past][np.diag_indices(past)] = np.linspace(0.5, 0.1, past)
    sic, nic = np.diagonal(pairs[:, :past]), pairs[:, past:].sum(axis=1)
    terms = np.stack([sic, pairs[:, :past].sum(axis=1) - sic, nic, -nic])
    values = np.stack([np.concatenate([terms, np.ones((len(QUANTITIES) - 4, past))]) / PROBES] * PROBES)
    return Measurements([0, 10, 20], values, terms, pairs, np.cos(np.arange(past, dtype=np.float64)))
