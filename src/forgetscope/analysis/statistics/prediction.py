"""How near predictions of forgetting, and their intervals, come to what test images show. On plain arrays."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forgetscope.analysis.statistics.estimates import Estimate, mean_estimate, share_estimate

REACH = 1.96  # standard errors to either side


def absolute_error(predicted: ArrayLike, shown: ArrayLike) -> float:
    """Mean over the classes of which both are known; NaN where there is none."""
    errors = _errors(predicted, shown)
    known = errors[np.isfinite(errors)]
    return float(np.abs(known).mean()) if len(known) else np.nan


def covered(predicted: ArrayLike, reach: ArrayLike, shown: ArrayLike, variances: ArrayLike) -> float:
    """The share of classes whose shown forgetting lies in the interval of its prediction, the noise of their test images added
    to it. reach: of the interval to either side. variances: of what is shown, by that noise alone.

    NaN where no class has all of them.

    >>> covered([0.2, 0.2], [0.1, 0.1], [0.25, 0.6], [0.01, 0.01])
    0.5
    """
    errors = _errors(predicted, shown)
    whole = np.sqrt(np.square(reach) + REACH**2 * np.asarray(variances, np.float64))
    known = np.isfinite(errors) & np.isfinite(whole)
    return float((np.abs(errors) <= whole)[known].mean()) if known.any() else np.nan


def coverage_estimate(shares: ArrayLike) -> Estimate:
    """The mean of shares, one per step, with a t interval within [0, 1]; where all of them are 1, or all 0, that of as many
    hits, because an interval of no width would be sure."""
    found = mean_estimate(shares)
    if found.n and found.value in (0.0, 1.0):
        return share_estimate(shares)
    return Estimate(found.value, float(np.maximum(0.0, found.low)), float(np.minimum(1.0, found.high)), found.n)


def _errors(predicted: ArrayLike, shown: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(predicted, np.float64) - np.asarray(shown, np.float64)
