"""Stores of arms without training: logits of test images are drawn, so that what an arm does to forgetting is known."""

from __future__ import annotations

from collections.abc import Callable, Container

import numpy as np
from numpy.typing import NDArray

from forgetscope.benchmark.arms import chains_by_arm
from forgetscope.benchmark.plans import Plan
from forgetscope.measuring.forgetting import class_accuracy
from forgetscope.store import StepRecord, Store
from forgetscope.store.tables import (
    ClassFacts,
    Predictions,
    best_nodes,
    class_table,
    confusion_table,
    pairs_table,
    predictions_table,
    probes_table,
    rehearsal_table,
)

Logits = NDArray[np.float64]
PAST, NEW, IMAGES = 8, 5, 40
Arm = Callable[[Logits, Logits, np.random.Generator], Logits]  # from the baseline's logits and the pair's losses per class


def fill(store: Store, plan: Plan, arms: dict[str, Arm], diverging: Container[tuple[str, int]] = (), loss: float = 0) -> None:
    """A plan of two steps over PAST and NEW classes. An arm that is not named draws its test images anew.

    diverging: arms and numbers of pairs. loss: of every class when it is learned; 5 leaves it barely learned."""
    store.prepare()
    for number, chains in enumerate(zip(*chains_by_arm(plan).values(), strict=True)):
        losses = np.random.default_rng([number, 0]).normal(2.0, 0.8, PAST)
        learned = _logits(np.full(PAST, float(loss)), np.random.default_rng([number, 1]), new=0)
        base = _logits(losses, np.random.default_rng([number, 2]))
        for place, chain in enumerate(chains):
            name, (first, second) = str(chain.variant), chain.steps
            if first not in store:
                accuracy = _commit(store, plan, first, learned, 0, np.empty(0))
            rng = np.random.default_rng([number, 3, place])
            logits = base if place == 0 else arms[name](base, losses, rng) if name in arms else _logits(losses, rng)
            _commit(store, plan, second, logits, PAST, accuracy, diverged=(name, number) in diverging)


def drawn_again(losses: Logits, rng: np.random.Generator) -> Logits:
    return _logits(losses, rng)


def _logits(losses: Logits, rng: np.random.Generator, new: int = NEW) -> Logits:
    """[images, classes]: past classes' own logits stand out by 4 less their loss; mistakes are new ones, mostly."""
    true = np.repeat(np.arange(PAST + new), IMAGES)
    logits: Logits = rng.normal(size=(len(true), PAST + new))
    logits[:, :PAST] -= 1.0
    logits[np.arange(len(true)), true] += np.concatenate([4 - losses, np.full(new, 4.0)])[true]
    return logits


def _commit(
    store: Store, plan: Plan, id: str, logits: Logits, past: int, learned: NDArray[np.float64], *, diverged: bool = False
) -> NDArray[np.float64]:
    """The accuracy of its classes."""
    job, classes = plan.jobs[id], logits.shape[1]
    ids, true = list(range(classes)), np.repeat(np.arange(classes), IMAGES)
    found = Predictions(past, np.arange(len(true)), true, *best_nodes(logits, past))
    accuracy = class_accuracy(found.confusion(classes))
    rehearsal = {label: label * IMAGES + np.arange(4) for label in ids[:past]}
    facts = ClassFacts(
        ids=ids,
        names=[f"class {label}" for label in ids],
        introduced=[1 if label < PAST else 2 for label in ids],
        train_images=[50] * classes,
        when_learned=np.concatenate([learned, accuracy[past:]]),
        accuracy=accuracy,
    )
    record = StepRecord(
        id=id,
        parent=job.parent,
        spec=job.spec,
        data={"name": "glyphs", "image_size": 8, "shape": [8, 8], "digest": str(plan.data.digest)},
        environment={"device": "cpu"},
        timings={"seconds": 2.5, "probe_seconds": 0.5},
        history=[],
        tables={
            "classes": class_table(facts, rehearsal, None),
            "probes": probes_table(None, ids[:past]),
            "pairs": pairs_table(None, ids, past),
            "rehearsal": rehearsal_table(rehearsal),
            "confusion": confusion_table(found.confusion(classes), ids),
            "predictions": predictions_table(found, ids),
        },
        network="resnet8",
        state={"weight": np.zeros(1, np.float32)},
        divergence={"epoch": 1, "iteration": 3, "loss": "nan"} if diverged else None,
    )
    with store.lock(id, lambda text: None):
        store.commit(record, "2026-01-01T00:00:00+00:00", durable=False)
    return accuracy
