"""Means and standard deviations over steps: correlations in Fisher's z, everything else as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.bootstrap import bca
from forgetscope.analysis.cache import Cache, content_of
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
    """BCa intervals of standard deviations; samples of the same size share their resamples."""

    cache: Cache
    resamples: int

    def intervals(self, samples: Sequence[Values]) -> list[Estimate]:
        """Of standard deviations (ddof 0). Equal samples have equal intervals, whatever else is asked for."""
        contents = [content_of(values, self.resamples) for values in samples]
        missing: dict[int, dict[str, Values]] = {}
        for content, values in zip(contents, samples, strict=True):
            if not self.cache.has("spread", content):
                missing.setdefault(len(values), {})[content] = values
        made: dict[str, Values] = {}
        for n, wanted in missing.items():
            if n < 3:
                made |= dict.fromkeys(wanted, np.full(2, np.nan))
                continue
            made |= dict(zip(wanted, bca(np.stack(list(wanted.values())), "sd", resamples=self.resamples), strict=True))
        found = [self._interval(content, made) for content in contents]
        return [Estimate(spread_of(v), low, high, len(v)) for v, (low, high) in zip(samples, found, strict=True)]

    def _interval(self, content: str, made: Mapping[str, Values]) -> tuple[float, float]:
        low, high = self.cache.get("spread", content, lambda: {"ends": made[content]})["ends"].tolist()
        return low, high
