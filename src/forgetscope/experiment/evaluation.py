"""What a step's network makes of the test images of all classes seen so far."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from forgetscope.data.images import ImageSet
from forgetscope.experiment.preparation import Prepared
from forgetscope.store.tables import Indices, Predictions, best_nodes

BATCH = 500
Values = NDArray[np.float64]


def evaluate(step: Prepared, adjusted: Callable[[Values], Values] = lambda logits: logits) -> Predictions:
    """Class by class, in the order of the head's nodes; the network sees every image once. adjusted: makes of logits [n, k]
    those to predict by."""
    test, past = step.data.test, len(step.past)
    columns = []
    for node, label in enumerate(step.classes):
        indices = np.flatnonzero(test.labels == label)
        for part in np.array_split(indices, max(1, -(-len(indices) // BATCH))):
            logits = adjusted(logits_of(step, test, part))
            columns.append((part, np.full(len(part), node), *best_nodes(logits, past)))
    return Predictions(past, *map(np.concatenate, zip(*columns, strict=True)))


@torch.no_grad()
def logits_of(step: Prepared, images: ImageSet, indices: Indices) -> Values:
    """[n, k] of at most a batch of images: those that the step's method predicts by."""
    step.network.eval()
    inputs = torch.from_numpy(images.images[indices]).to(step.new_set.images.device)
    found: Values = step.objective.predict(step.network(step.normalise(inputs))).cpu().double().numpy()
    return found
