"""Which classes a network had learned at all when it is asked what it forgot of them: on plain arrays, a value per past class.

Forgetting divides by the accuracy when learned. Where that is not clearly above guessing, a few test images decide the
quotient: it can be -26, or complete, and says nothing about forgetting. Such a class was **barely learned**.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forgetscope.analysis.statistics.estimates import normal_quantile

Values = NDArray[np.float64]


def barely_learned(learned: ArrayLike, images: ArrayLike, known: ArrayLike) -> NDArray[np.bool_]:
    """[P]: whether the lower limit of Wilson's 95 % interval of the accuracy when learned is not above that of guessing.

    learned: share of the class's test images recognised at the end of the step that introduced it; where that, or how many
    images there are, is unknown, nothing is said. known: how many classes the network told apart then; guessing recognises one
    in so many. One that knew a single class could not be wrong, and has learned it unless it never was right."""
    share, classes = np.asarray(learned, np.float64), np.asarray(known, np.float64)
    guessing = np.where(classes > 1, 1 / np.maximum(classes, 1), 0.0)
    limit = wilson_low(share, images)
    return np.asarray(np.isfinite(limit) & ((limit <= guessing) | (share == 0)))


def wilson_low(share: ArrayLike, trials: ArrayLike) -> Values:
    """The lower end of Wilson's 95 % interval for a share of so many trials (Wilson 1927); NaN without trials."""
    p, n = np.asarray(share, np.float64), np.asarray(trials, np.float64)
    n, z = np.where(n > 0, n, np.nan), normal_quantile()
    centre = p + z**2 / (2 * n)
    reach = z * np.sqrt(np.maximum(0, p * (1 - p) / n + z**2 / (4 * n**2)))
    low: Values = np.maximum(0, (centre - reach) / (1 + z**2 / n))
    return low


def classes_known(introduced: ArrayLike, by: ArrayLike) -> Values:
    """[P]: of the classes of a head, by the step that introduced each, how many it had by the end of these steps."""
    steps = np.sort(np.asarray(introduced, np.int64))
    return np.searchsorted(steps, np.asarray(by, np.int64), side="right").astype(np.float64)
