"""What a network makes of test images that are passed over, as an evaluation of a run does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from forgetscope.errors import InputError
from forgetscope.measuring.heads import unwrapped
from forgetscope.measuring.watching import device_of, kind_of, logits_of, undisturbed
from forgetscope.monitor.streams import Stream
from forgetscope.store.tables import Predictions, best_nodes


def evaluate(
    network: nn.Module, test: Stream, labels: Sequence[int], past: int, nodes: Mapping[int, int]
) -> tuple[Predictions, int]:
    """Predictions among the classes seen so far, and how many test images are of other classes; these are left out.

    labels: of the classes seen so far, the past ones first; nodes: of the head, by label. Of the predictions classes are
    counted as in `labels`. Logits that are not finite predict nothing: an error, and no accuracy."""
    place, columns = {label: at for at, label in enumerate(labels)}, [nodes[label] for label in labels]
    found, passed, left_out = [], 0, 0
    odd = np.zeros(len(labels), np.int64)  # images by class
    device, run = device_of(network), unwrapped(network)
    with undisturbed(network):
        for inputs, of in test:
            true = np.array([place.get(label, -1) for label in of.tolist()], np.int64)
            seen = np.flatnonzero(true >= 0)
            if len(seen):
                chosen = torch.from_numpy(seen).to(inputs.device)
                logits = logits_of(run(inputs[chosen].to(device)), kind_of(run))
                if max(columns) >= logits.shape[1]:
                    label = labels[int(np.argmax(columns))]
                    raise InputError(
                        f"Class {label} is node {max(columns)} of a head that has {logits.shape[1]}. Grow the head, or map "
                        "labels to nodes with nodes=."
                    )
                scores = logits[:, columns].cpu().double().numpy()
                best = scores.max(axis=1)  # a node that is masked by -inf is never predicted; NaN stays NaN
                odd += np.bincount(true[seen][~np.isfinite(best)], minlength=len(labels))
                found.append((passed + seen, true[seen], *best_nodes(scores, past)))
            passed, left_out = passed + len(true), left_out + len(true) - len(seen)
    if not found:
        raise InputError(f"None of {passed} test images is of a class that was seen so far: {list(labels)[:10]}.")
    if odd.any():
        raise InputError(
            f"The network gives logits that are not finite for {odd.sum():,} of {passed - left_out:,} test images, "
            f"{odd.max():,} of them of class {labels[int(odd.argmax())]}: no prediction follows from them, and no accuracy. "
            "Look whether the loss of the training became NaN."
        )
    image, true, *rest = map(np.concatenate, zip(*found, strict=True))
    order = np.lexsort((image, true))
    return Predictions(past, *(column[order] for column in (image, true, *rest))), left_out
