"""Which images each R-SGD iteration sees, drawn for a whole epoch at once.

`iid` is the paper's procedure: new images i.i.d. with replacement; rehearsal images in two stages, a multinomial over past
classes with p_c = |R_c| / |R| for each class's count (the paper's k_t^m), then that many images i.i.d. from R_c.
`reshuffled` goes through new and rehearsal data in shuffled passes; where a pass ends within a batch, the next fills it up.
`reshuffled-short` leaves that batch short, as the released scripts do, which breaks the mix of new and rehearsed images.
"""

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from forgetscope.randomness import Streams
from forgetscope.spec import Sampling

Positions = NDArray[np.int64]


def iterations_per_epoch(new_images: int, new_per_batch: int) -> int:
    """An epoch is one pass' worth of new data, whatever the rehearsal part adds."""
    return math.ceil(new_images / new_per_batch)


def new_batches(sampling: Sampling, streams: Streams, epoch: int, per_batch: int, images: int) -> list[Positions]:
    """One epoch's positions in the new data, an array per iteration."""
    rng, iterations = streams("new-images", epoch), iterations_per_epoch(images, per_batch)
    if sampling == "iid":
        return list(rng.integers(images, size=(iterations, per_batch)))
    return list(islice(_passes(rng, images, per_batch, short=sampling == "reshuffled-short"), iterations))


def rehearsal_batches(
    sampling: Sampling, streams: Streams, epoch: int, iterations: int, per_batch: int, class_sizes: NDArray[np.int64]
) -> list[Positions]:
    """One epoch's positions in the rehearsal set, whose images lie class after class, `class_sizes` of each."""
    if sampling == "iid":
        return list(_two_stages(streams, epoch, iterations, per_batch, class_sizes))
    rng = streams("rehearsal-images", epoch)
    return list(islice(_passes(rng, int(class_sizes.sum()), per_batch, short=sampling == "reshuffled-short"), iterations))


def _two_stages(streams: Streams, epoch: int, iterations: int, per_batch: int, class_sizes: NDArray[np.int64]) -> Positions:
    shares = class_sizes / class_sizes.sum()
    counts = streams("rehearsal-counts", epoch).multinomial(per_batch, shares, size=iterations)
    classes = np.repeat(np.tile(np.arange(len(class_sizes)), iterations), counts.ravel()).reshape(iterations, per_batch)
    starts = np.cumsum(class_sizes) - class_sizes
    within = streams("rehearsal-images", epoch).integers(class_sizes[classes])
    return starts[classes] + within


def _passes(rng: np.random.Generator, images: int, per_batch: int, short: bool) -> Iterator[Positions]:
    """Endless batches from shuffled passes over all images."""
    waiting = np.empty(0, np.int64)
    while True:
        order = rng.permutation(images)
        if short:
            yield from (order[start : start + per_batch] for start in range(0, images, per_batch))
            continue
        waiting = np.concatenate([waiting, order])
        while len(waiting) >= per_batch:
            yield waiting[:per_batch]
            waiting = waiting[per_batch:]
