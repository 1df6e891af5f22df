"""What is kept of a past class besides its images: where its features lay under the network that learned it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Spread = Literal["variance", "covariance"]
FITTED_IMAGES = 50  # of a class that a forecast looks at, at most


@dataclass(frozen=True)
class Keepsake:
    """Of one class with n training images and d features; of the population, not of a sample: sums are divided by n.

    mean [d]; spread: the variances [d], or the upper triangle [d (d + 1) / 2] of the covariance matrix row by row, diagonal
    included, its numbers rounded to 8 significant bits. Both are None where a feature was not finite."""

    features_step: int  # number of the step whose network the features are of
    images: int
    training_accuracy: float  # of that network on these images, among the classes that it knew
    mean: NDArray[np.float32] | None
    spread: NDArray[np.float32] | None
    accuracy: float | None = None  # the same without each image's own pull on the head, where a forecast is wanted; and
    probability: float | None = None  # the mean probability, under that head, that features drawn from the keepsake get


@dataclass(frozen=True)
class Carried:
    """Where a past class's features are believed to lie under the network that a step leaves: as `Keepsake` has them."""

    mean: NDArray[np.float32]
    spread: NDArray[np.float32]
    error: float  # standard error of the class's predicted forgetting up to here


def keepsake(features: NDArray[np.float64], right: NDArray[np.bool_], kind: Spread, step: int) -> Keepsake:
    """features [n, d]; right [n]: which images are classified correctly; step: the number of the one that learned the class."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is left out below
        mean = features.mean(axis=0)
        centred = features - mean
        if kind == "variance":
            spread = np.square(centred).mean(axis=0)
        else:
            # einsum, not a product of matrices: the bits of that depend on the number of threads.
            spread = np.einsum("ni,nj->ij", centred, centred)[np.triu_indices(features.shape[1])] / len(features)
        found = mean.astype(np.float32), spread.astype(np.float32) if kind == "variance" else rounded(spread.astype(np.float32))
    finite = all(np.isfinite(part).all() for part in found)
    return Keepsake(step, len(features), float(right.mean()), *(found if finite else (None, None)))


def rounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """To 8 significant bits, those of bfloat16, ties to even: by at most 0.4 %, where some hundred images leave several percent
    unknown. What is left out are zeros, which take no room on disk: half of a covariance."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def spread_length(kind: Spread, features: int) -> int:
    """How many numbers say how features are spread."""
    return features if kind == "variance" else features * (features + 1) // 2


def variances(spread: NDArray[np.float32], kind: Spread, features: int) -> NDArray[np.float32]:
    """[features]: of a covariance, the diagonal, with which each row of its upper triangle begins."""
    begins = np.cumsum([0, *range(features, 1, -1)])
    return spread if kind == "variance" else spread[begins]
