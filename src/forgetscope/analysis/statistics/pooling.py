"""Means and standard deviations over steps: correlations in Fisher's z, everything else as it is."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forgetscope.analysis.inputs.cache import Cache, content_of
from forgetscope.analysis.statistics.estimates import (
    Estimate,
    correlation_estimate,
    fisher_z,
    mean_estimate,
    sd_estimates,
    t_margin,
)

Values = NDArray[np.float64]


def per_experiment(values: ArrayLike, roots: Sequence[str]) -> Values:
    """[E]: of the known values [S], one mean per sequence of classes and seed, by its first step. Steps that share it, as those
    of a paired design do, are not independent: an interval rests on E values, not on S."""
    return np.array(list(by_experiment(values, roots).values()), np.float64)


def by_experiment(values: ArrayLike, roots: Sequence[str]) -> dict[str, float]:
    """The same, by first step."""
    groups: dict[str, list[float]] = {}
    for value, root in zip(np.asarray(values, np.float64).tolist(), roots, strict=True):
        if not math.isnan(value):
            groups.setdefault(root, []).append(value)
    return {root: float(np.mean(found)) for root, found in groups.items()}


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
    names = ("mean", "mean_lo", "mean_hi", "sd", "n")
    found = {name: np.full(correlations.shape[1], 0 if name == "n" else np.nan) for name in names}
    missing, groups = np.unique(np.isnan(correlations), axis=1, return_inverse=True)
    for group, pattern in enumerate(missing.T):  # columns of the same steps together
        columns, n = np.flatnonzero(groups == group), int((~pattern).sum())
        if n:
            known = np.ascontiguousarray(correlations[~pattern][:, columns].T)
            z = fisher_z(known, ranked[~pattern])
            mean, margin = z.mean(axis=1), t_margin(z)
            for name, ends in zip(names, (mean, mean - margin, mean + margin), strict=False):
                found[name][columns] = [math.tanh(end) for end in ends.tolist()]
            found["sd"][columns], found["n"][columns] = known.std(axis=1), n
    return found


@dataclass(frozen=True)
class Spreads:
    """BCa intervals of standard deviations; samples of the same size share their resamples."""

    cache: Cache
    resamples: int
    progress: Callable[[str, int, int], None]

    def intervals(self, samples: Sequence[Values]) -> list[Estimate]:
        """Of standard deviations (ddof 0). Equal samples have equal intervals, whatever else is asked for."""
        contents = [content_of(values, self.resamples) for values in samples]
        missing = {c: values for c, values in zip(contents, samples, strict=True) if not self.cache.has("spread", c)}
        progress = partial(self.progress, "blocks of resamples")
        estimates = sd_estimates(list(missing.values()), resamples=self.resamples, progress=progress)
        made = dict(zip(missing, estimates, strict=True))
        return [self._interval(content, len(values), made) for content, values in zip(contents, samples, strict=True)]

    def _interval(self, content: str, n: int, made: Mapping[str, Estimate]) -> Estimate:
        found = self.cache.get("spread", content, lambda: {"estimate": np.array(astuple(made[content])[:3])})
        value, low, high = found["estimate"].tolist()
        return Estimate(value, low, high, n)
