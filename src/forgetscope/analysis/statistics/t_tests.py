"""Student's t tests of two sets of measurements: independent (Welch) or in pairs; correlations are compared in Fisher's z."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from forgetscope.analysis.statistics.estimates import Estimate, fisher_z, known_values, t_quantile
from forgetscope.errors import InputError


@dataclass(frozen=True)
class Difference:
    """First minus second: the difference of means with its 95 % interval, and the two-sided t test that it is 0.

    NaN where there are too few values, or where nothing varies."""

    estimate: Estimate  # n: values of both samples, or pairs
    t: float
    df: float
    p: float
    scale: str = ""  # "z" if the difference is one of Fisher-transformed correlations


def welch(first: ArrayLike, second: ArrayLike) -> Difference:
    """Of two independent samples that may differ in variance; NaN values are left out."""
    a, b = known_values(first), known_values(second)
    if len(a) < 2 or len(b) < 2:
        return _unknown(a.mean() - b.mean() if len(a) and len(b) else math.nan, len(a) + len(b))
    parts = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    error = math.sqrt(sum(parts))
    if not error > 0:
        return _unknown(a.mean() - b.mean(), len(a) + len(b))
    df = sum(parts) ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    return _difference(float(a.mean() - b.mean()), error, df, len(a) + len(b))


def paired(first: ArrayLike, second: ArrayLike) -> Difference:
    """Of two measurements of the same things, in the same order; pairs with a NaN are left out."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape:
        raise InputError(f"Pairs need as many values on both sides; there are {a.size} and {b.size}.")
    change = known_values(a - b)
    n = len(change)
    error = float(change.std(ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    if not error > 0:
        return _unknown(change.mean() if n else math.nan, n)
    return _difference(float(change.mean()), error, n - 1, n)


def paired_correlations(first: ArrayLike, second: ArrayLike, classes: ArrayLike) -> Difference:
    """`paired` in Fisher's z; classes: how many classes each correlation ranks, for clipping."""
    return replace(paired(fisher_z(first, classes), fisher_z(second, classes)), scale="z")


def _difference(value: float, error: float, df: float, n: int) -> Difference:
    margin = t_quantile(df) * error
    t = value / error
    return Difference(Estimate(value, value - margin, value + margin, n), t, df, 2 * float(stdtr(df, -abs(t))))


def _unknown(value: float, n: int) -> Difference:
    return Difference(Estimate(float(value), math.nan, math.nan, n), math.nan, math.nan, math.nan)
