"""How many pairs a difference takes: the power of the paired two-sided t test at 5 %, by the noncentral t distribution."""

import bisect
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr

from forgetscope.analysis.statistics.estimates import Estimate, t_quantile

POWER = 0.8
MOST = 100_000  # pairs; more are no answer
NODES, FURTHEST = 400, 8.0  # of the sum that stands for an integral, in standard normal deviates
FAR = 40.0  # beyond the limit, in standard errors: the chance is 1


def paired_power(difference: float, sd: float, n: int) -> float:
    """The chance that n pairs show a true difference whose deviation within pairs is sd; NaN below two pairs.

    >>> round(paired_power(0.1, 0.16, 20), 2)
    0.76
    """
    if n < 2 or not sd > 0:
        return math.nan
    limit, shift = t_quantile(n - 1), abs(difference) / sd * math.sqrt(n)
    if shift > limit + FAR:
        return 1.0
    scale, weights = _scales(n - 1)  # scipy's distribution is NaN at scattered places, which would mislead a search
    return float(weights @ (ndtr(shift - limit * scale) + ndtr(-shift - limit * scale)))  # of either sign


@lru_cache(maxsize=256)
def _scales(freedom: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimated over true standard deviation, at nodes of its distribution, and their weights: given it, t is normal."""
    normal = np.linspace(-FURTHEST, FURTHEST, NODES)  # in whose quantiles all is smooth: equal steps are exact to rounding
    weights = np.exp(-(normal**2) / 2)
    return np.sqrt(chdtri(freedom, ndtr(-normal)) / freedom), weights / weights.sum()


def pairs_for(difference: float, sd: float) -> int | None:
    """The least number of pairs that show it in four of five comparisons; None where so many are out of reach.

    >>> pairs_for(0.1, 0.16)
    23
    """
    if not sd > 0 or not abs(difference) > 0:
        return None
    candidates = range(2, MOST)
    found = bisect.bisect_left(candidates, True, key=lambda n: paired_power(difference, sd, n) >= POWER)
    return candidates[found] if found < len(candidates) else None


def smallest_difference(sd: float, n: int) -> float:
    """What n pairs show in four of five comparisons; NaN below two.

    >>> round(smallest_difference(0.16, 23), 2)
    0.1
    """
    if n < 2 or not sd > 0:
        return math.nan
    low, high = 0.0, sd * (t_quantile(n - 1) + FAR) / math.sqrt(n)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if paired_power(middle, sd, n) >= POWER else (middle, high)
    return high


def deviation(difference: Estimate) -> float:
    """Of single differences, from the t interval of their mean."""
    if difference.n < 2:
        return math.nan
    return (difference.high - difference.low) / 2 * math.sqrt(difference.n) / t_quantile(difference.n - 1)
