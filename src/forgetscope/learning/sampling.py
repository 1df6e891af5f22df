"""Which images each R-SGD iteration sees: the paper's sampling procedure, drawn for a whole epoch at once.

New images are drawn i.i.d. with replacement. Rehearsal images are drawn in two stages: a multinomial over past classes
with p_c = |R_c| / |R| gives each class's count (the paper's multinomial for k_t^m), then that many images i.i.d. from R_c.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from forgetscope.randomness import Streams


def iterations_per_epoch(new_images: int, new_per_batch: int) -> int:
    """An epoch is one pass' worth of new data, whatever the rehearsal part adds."""
    return math.ceil(new_images / new_per_batch)


def draw_new(streams: Streams, epoch: int, iterations: int, per_batch: int, images: int) -> NDArray[np.int64]:
    """Positions [iterations, per_batch] in the new data."""
    return streams("new-images", epoch).integers(images, size=(iterations, per_batch))


def draw_rehearsal(
    streams: Streams, epoch: int, iterations: int, per_batch: int, class_sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Positions [iterations, per_batch] in the rehearsal set, whose images lie class after class, `class_sizes` of each."""
    shares = class_sizes / class_sizes.sum()
    counts = streams("rehearsal-counts", epoch).multinomial(per_batch, shares, size=iterations)
    classes = np.repeat(np.tile(np.arange(len(class_sizes)), iterations), counts.ravel()).reshape(iterations, per_batch)
    starts = np.cumsum(class_sizes) - class_sizes
    within = streams("rehearsal-images", epoch).integers(class_sizes[classes])
    return starts[classes] + within
