"""What a monitored step leaves in the store: the tables of a step, from what was measured and seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forgetscope.measuring.forgetting import class_accuracy
from forgetscope.measuring.quantities import QUANTITIES
from forgetscope.measuring.sums import Sums
from forgetscope.monitor.passes import Passes
from forgetscope.store import TableName
from forgetscope.store.observed import StoredObserved
from forgetscope.store.tables import (
    ClassFacts,
    Indices,
    Measurements,
    Predictions,
    class_table,
    confusion_table,
    pairs_table,
    predictions_table,
    probes_table,
    rehearsal_table,
)

UNGIVEN = "no images of past classes were given"


@dataclass(frozen=True)
class Learned:
    """What earlier steps of a monitor say of a class."""

    introduced: int  # step
    node: int
    accuracy: float  # when it was learned; NaN if that was not evaluated
    images: int = 0  # it was trained on; 0: nobody saw that


def learned_before(steps: Iterable[StoredObserved]) -> dict[int, Learned]:
    """By label."""
    found: dict[int, Learned] = {}
    for step in steps:
        columns = ["class_id", "head_node", "introduced_step", "accuracy_when_learned", "train_images"]
        for label, node, introduced, accuracy, images in zip(*step.table("classes", columns).to_pydict().values(), strict=True):
            if introduced == step.number or label not in found:
                trained = images if introduced == step.number else 0
                found[label] = Learned(introduced, node, np.nan if accuracy is None else accuracy, trained)
    return found


@dataclass(frozen=True)
class Classes:
    """Those that a step has seen, by label: the past ones, measured or not, then the new ones, each in the order of nodes."""

    past: tuple[int, ...] = ()
    new: tuple[int, ...] = ()
    measured: tuple[int, ...] = ()  # of the past ones
    nodes: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, passes: Passes, before: Mapping[int, Learned]) -> Classes:
        if not passes.known:
            return cls()
        measured, new = ([passes.label(node) for node in part.tolist()] for part in (passes.past_nodes, passes.new_nodes))
        nodes = dict(zip([*measured, *new], passes.nodes.tolist(), strict=True))
        elsewhere = {label: known.node for label, known in before.items() if label not in nodes}
        nodes |= {label: passes.node(label, node) for label, node in elsewhere.items()}
        past = sorted([*measured, *elsewhere], key=lambda label: nodes[label])
        return cls(tuple(past), tuple(new), tuple(measured), nodes)

    @property
    def seen(self) -> tuple[int, ...]:
        return (*self.past, *self.new)


def tables_of(
    number: int,
    classes: Classes,
    passes: Passes,
    sums: Sums,
    predictions: Predictions | None,
    names: Mapping[int, str],
    before: Mapping[int, Learned],
    why_unweighted: str | None,
    forecasts: NDArray[np.float64] | None = None,
    probed: Sequence[int] = (),
    unforecast: Sequence[str | None] | None = None,
) -> dict[TableName, pa.Table]:
    """sums: weighted; why_unweighted: if alpha is not known; forecasts [probes, forecast, P]: if there are any; probed: after
    which epochs; unforecast: why there is no forecast of each past class."""
    seen, past = classes.seen, len(classes.past)
    if not seen:
        return {}
    confusion = np.zeros((len(seen), len(seen)), np.int64) if predictions is None else predictions.confusion(len(seen))
    measured = _measurements(sums, classes, passes, why_unweighted)
    accuracy = class_accuracy(confusion)
    known = [before.get(label, Learned(1, 0, np.nan)) for label in classes.past]
    images = {label: passes.images.get(classes.nodes[label], 0) for label in seen}
    if passes.only_memory:  # that is not what they were trained on
        images |= {label: one.images for label, one in zip(classes.past, known, strict=True) if one.images}
    facts = ClassFacts(
        ids=seen,
        names=[names.get(label, str(label)) for label in seen],
        introduced=[*(one.introduced for one in known), *[number] * len(classes.new)],
        train_images=[images[label] for label in seen],
        when_learned=np.array([*(one.accuracy for one in known), *accuracy[past:]]),
        accuracy=accuracy,
        nodes=[classes.nodes[label] for label in seen],
    )
    rehearsal = _rehearsal(classes, passes)
    return {
        "classes": class_table(facts, rehearsal, measured, UNGIVEN, forecasts, sums.weight, unforecast),
        **probe_tables(measured, classes, forecasts, probed),
        "rehearsal": rehearsal_table(rehearsal),
        "confusion": confusion_table(confusion, seen),
        "predictions": predictions_table(predictions, seen),
    }


def probe_tables(
    measured: Measurements | None, classes: Classes, forecasts: NDArray[np.float64] | None, probed: Sequence[int]
) -> dict[TableName, pa.Table]:
    pairs = pairs_table(measured, classes.seen, len(classes.past))
    if measured is None and forecasts is not None:  # then there were probes, and they found nothing else
        nothing = np.full((len(forecasts), len(QUANTITIES), past := len(classes.past)), np.nan)
        measured = Measurements(probed, nothing, nothing[0, :4], np.empty((past, 0)), nothing[0, 0])
    return {"probes": probes_table(measured, classes.past, forecasts), "pairs": pairs}


def _rehearsal(classes: Classes, passes: Passes) -> dict[int, Indices]:
    memory = np.array(passes.memory, np.int64)
    return {label: np.flatnonzero(memory == classes.nodes[label]) for label in classes.past}


def _measurements(sums: Sums, classes: Classes, passes: Passes, why_unweighted: str | None) -> Measurements | None:
    """Of all past classes; those without images are missing."""
    if sums.pairs is None:
        return None
    at = np.array([classes.past.index(label) for label in classes.measured], np.int64)
    found = Measurements(**sums.arrays())
    columns = np.concatenate([at, len(classes.past) + np.arange(len(classes.new))])
    past, sources = len(classes.past), len(classes.seen)
    pairs = np.full((past, sources), np.nan)
    pairs[np.ix_(at, columns)] = found.pairs
    unknown: list[str | None] = ["no image of it was given"] * past
    for c, kept in zip(at.tolist(), passes.kept.tolist(), strict=True):
        unknown[c] = why_unweighted or _unknown(kept, passes)
    return replace(
        found,
        values=_spread(found.values, at, past),
        totals=_spread(found.totals, at, past),
        errors=None if found.errors is None else _spread(found.errors, at, past),
        log_sim=_spread(found.log_sim, at, past),
        pairs=pairs,
        unknown=unknown,
    )


def _unknown(kept: float, passes: Passes) -> str | None:
    if passes.only_memory:
        return "SIC, CIC and NIC are unknown: past images are those in memory"
    if not passes.rehearses:
        return "SIC and CIC are missing: nothing is rehearsed"
    return None if kept else "SIC is unknown: no image of it is stored"


def _spread(values: NDArray[np.float64], at: Sequence[int] | Indices, past: int) -> NDArray[np.float64]:
    """Along the last axis, to these places among all past classes."""
    whole = np.full((*values.shape[:-1], past), np.nan)
    whole[..., at] = values
    return whole
