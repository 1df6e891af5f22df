"""Means and standard deviations over steps: correlations in Fisher's z, everything else as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.cache import Cache
from forgetscope.analysis.statistics import Estimate, correlation_estimate, mean_estimate

Values = NDArray[np.float64]


def mean_of(statistic: str, values: Values, ranked: NDArray[np.int64]) -> Estimate:
    """With its t interval. ranked: how many classes (or runs) each correlation ranks."""
    if statistic.startswith("rho"):
        return correlation_estimate(values, ranked.tolist())
    return mean_estimate(values)


def spread_of(known: Values) -> float:
    """The population standard deviation, of untransformed values."""
    return float(known.std()) if len(known) else math.nan


def means_along(correlations: Values, ranked: NDArray[np.int64]) -> dict[str, Values]:
    """Of correlations [S, columns]: each column's mean with interval, standard deviation and number."""
    found = [correlation_estimate(column, ranked.tolist()) for column in correlations.T]
    spreads = [spread_of(column[~np.isnan(column)]) for column in correlations.T]
    return {
        "mean": np.array([e.value for e in found]),
        "mean_lo": np.array([e.low for e in found]),
        "mean_hi": np.array([e.high for e in found]),
        "sd": np.array(spreads),
        "n": np.array([e.n for e in found]),
    }


@dataclass(frozen=True)
class Spreads:
    """Intervals of standard deviations."""

    cache: Cache
    resamples: int

    def intervals(self, samples: Sequence[Values]) -> list[Estimate]:
        return [Estimate(spread_of(values), math.nan, math.nan, len(values)) for values in samples]
