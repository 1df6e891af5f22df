"""What a step's network makes of the test images of all classes seen so far."""

from __future__ import annotations

import numpy as np
import torch

from forgetscope.experiment.preparation import Prepared
from forgetscope.store.tables import Predictions, best_nodes

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
            logits = step.objective.predict(step.network(step.normalise(images))).cpu().double().numpy()
            columns.append((part, np.full(len(part), node), *best_nodes(logits, past)))
    return Predictions(past, *map(np.concatenate, zip(*columns, strict=True)))
