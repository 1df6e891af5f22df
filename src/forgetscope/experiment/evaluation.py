"""What a step's network makes of the test images of all classes seen so far."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from forgetscope.experiment.preparation import Prepared
from forgetscope.store.tables import Indices, Predictions

BATCH = 500


@torch.no_grad()
def evaluate(step: Prepared) -> Predictions:
    """Class by class, in the order of the head's nodes; the network sees every image once."""
    test, past = step.data.test, len(step.past)
    step.network.eval()
    columns = []
    for node, label in enumerate(step.classes):
        indices = np.flatnonzero(test.labels == label)
        for part in np.array_split(indices, max(1, -(-len(indices) // BATCH))):
            images = torch.from_numpy(test.images[part]).to(step.new_set.images.device)
            logits = step.network(step.normalise(images)).cpu().double().numpy()
            columns.append((part, np.full(len(part), node), *best_nodes(logits, past)))
    return Predictions(past, *map(np.concatenate, zip(*columns, strict=True)))


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
