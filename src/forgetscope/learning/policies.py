"""Rehearsal policies: which training images of past classes are kept. All are class-balanced.

Chosen images keep their order of selection, so that a quota that shrinks later keeps the first of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from forgetscope.randomness import Streams
from forgetscope.spec import PolicyName, RehearsalSpec

Indices = NDArray[np.int64]
Policy = Callable[[Indices, int, np.random.Generator], Indices]


def uniform(images: Indices, quota: int, rng: np.random.Generator) -> Indices:
    """Without replacement, every image equally likely: the paper's policy."""
    return rng.permutation(images)[:quota]


POLICIES: dict[PolicyName, Policy] = {"uniform": uniform}


def quota(images: int, retention: float) -> int:
    """How many of a class's images are kept: the rounded share, at least one."""
    return max(1, math.floor(retention * images + 0.5))


def rehearsal_set(
    spec: RehearsalSpec,
    learned: Mapping[int, Indices],
    kept: Mapping[int, Indices],
    class_sizes: Mapping[int, int],
    streams: Streams,
) -> dict[int, Indices]:
    """The rehearsal set of a step, per class in order of selection; older classes first, as their head nodes are.

    learned: all training images of the classes that the parent learned. kept: for older classes, what the parent rehearsed,
    which is all of them that is left. class_sizes: training images that each class had.
    """
    policy = POLICIES[spec.policy]
    chosen = {label: images[: quota(class_sizes[label], spec.retention)] for label, images in kept.items()}
    for label, images in learned.items():
        # A stream per class: which images of a class are kept does not depend on which other classes there are.
        chosen[label] = policy(images, quota(class_sizes[label], spec.retention), streams("policy", label))
    return chosen
