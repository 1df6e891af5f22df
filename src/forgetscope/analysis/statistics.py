"""Estimates with intervals. Validated against scipy and by hand in the tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from forgetscope.analysis import ranks

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval and the number of samples behind it. NaN where it cannot be had."""

    value: float
    low: float
    high: float
    n: int


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Rank correlation over the pairs in which both are known; average ranks for ties.

    NaN below three pairs, and where one of the two is constant: there is no ranking to agree with."""
    return float(ranks.spearman(x, y))


def mean_estimate(values: ArrayLike) -> Estimate:
    """Plain mean with a Student t interval; NaN values are left out."""
    known = _known(values)
    value = float(known.mean()) if len(known) else math.nan
    margin = _margin(known)
    return Estimate(value, value - margin, value + margin, len(known))


def correlation_estimate(correlations: ArrayLike, classes: int | Sequence[int]) -> Estimate:
    """Fisher-z mean tanh(mean(atanh rho)) with a t interval in z, mapped back; NaN values are left out.

    classes: how many classes each correlation ranks. A perfect correlation of n ranks has an infinite z. It is taken as
    1 - 6 / (n^3 - n), half-way to the next value that n untied ranks can reach, so that it neither swamps nor spoils a mean.
    """
    rho = np.asarray(correlations, np.float64)
    n = np.broadcast_to(np.asarray(classes, np.float64), rho.shape)
    limit = 1 - 6 / (n**3 - n)
    z = np.arctanh(np.clip(rho, -limit, limit))
    in_z = mean_estimate(z)
    return Estimate(math.tanh(in_z.value), math.tanh(in_z.low), math.tanh(in_z.high), in_z.n)


def _margin(known: NDArray[np.float64]) -> float:
    if len(known) < 2:
        return math.nan
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, len(known) - 1) * stats.sem(known))


def _known(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    return array[~np.isnan(array)]
