"""Two-way analysis of variance, type III, with a covariance that allows other variances in every cell (HC3) or clusters.

The model with both factors and their interaction fits every cell's mean, so the tests are contrasts of cell means: there is no
design matrix, and HC3 is the sum over a cell of (e / (1 - 1/n))² / n².
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc, ncfdtrinc

from forgetscope.analysis.statistics.bootstrap import CONFIDENCE
from forgetscope.analysis.statistics.estimates import Estimate

Array = NDArray[np.float64]
Coding = Literal["sum", "treatment"]


@dataclass(frozen=True)
class Effect:
    """One test. NaN with a reason where it cannot be made."""

    f: float
    df1: int
    df2: int
    p: float
    partial_eta_squared: float
    reason: str = ""


def anova(
    values: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    *,
    coding: Coding = "sum",
    clusters: ArrayLike | None = None,
    names: tuple[str, str, str] = ("retention", "increment", "interaction"),
) -> dict[str, Effect]:
    """Wald F tests of type III, of the first factor, the second, and their interaction, by name; a factor with one level has
    none. Rows whose value is NaN are left out.

    coding: "sum" tests main effects, unweighted over the other factor's levels; "treatment", the paper's, tests the effect of
    one factor at the first level of the other. Interactions are the same. clusters: rows that share one are not independent,
    such as steps with the same sequence and seed; the covariance is then statsmodels' `cluster`, and df2 clusters - 1."""
    value = np.asarray(values, np.float64)
    known = ~np.isnan(value)
    levels_a, a = np.unique(np.asarray(first)[known], return_inverse=True)
    levels_b, b = np.unique(np.asarray(second)[known], return_inverse=True)
    groups = None if clusters is None else np.unique(np.asarray(clusters)[known], return_inverse=True)[1]
    value = value[known]
    shape = (len(levels_a), len(levels_b))
    cells = shape[0] * shape[1]
    cell = a * shape[1] + b
    counts = np.bincount(cell, minlength=cells)
    number = None if groups is None else int(groups.max(initial=-1)) + 1
    df2 = len(value) - cells if number is None else number - 1
    reason = _obstacle(counts, levels_a, levels_b, number)
    means, covariance = np.full(cells, np.nan), np.full((cells, cells), np.nan)
    if not reason:
        means = np.bincount(cell, weights=value, minlength=cells) / counts
        error = value - means[cell]
        covariance = _covariance(error, cell, counts, groups)
    contrasts = zip(names, _contrasts(shape, coding), strict=True)
    return {name: _test(contrast, means, covariance, df2, reason) for name, contrast in contrasts if len(contrast)}


def explained(f: float, df1: int, df2: float, n: int) -> Estimate:
    """How much an effect explains, lambda / (lambda + n), with the interval that F's noncentral distribution gives (Steiger
    2004); the value has F df1 for lambda. Of n values, whether independent or in clusters, which leave fewer df2."""
    tail = (1 - CONFIDENCE) / 2
    parts = f * df1, *(float(ncfdtrinc(df1, df2, p, f)) for p in (1 - tail, tail))
    value, low, high = (part / (part + n) for part in parts)
    return Estimate(value, low, high, n)


def holm(p: ArrayLike) -> Array:
    """p values adjusted so that the chance of any false rejection keeps its level (Holm 1979). NaN is no test."""
    value, known, order = _ordered(p)
    rank = np.arange(len(order))
    value[known[order]] = np.minimum(np.maximum.accumulate(value[known[order]] * (len(order) - rank)), 1)
    return value.reshape(np.shape(p))


def benjamini_hochberg(p: ArrayLike) -> Array:
    """p values adjusted so that the expected share of false rejections keeps its level (1995). NaN is no test."""
    value, known, order = _ordered(p)
    rank = np.arange(1, len(order) + 1)
    raised = (value[known[order]] * len(order) / rank)[::-1]
    value[known[order]] = np.minimum(np.minimum.accumulate(raised)[::-1], 1)
    return value.reshape(np.shape(p))


def _ordered(p: ArrayLike) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    value = np.array(p, np.float64).ravel()
    known = np.flatnonzero(~np.isnan(value))
    return value, known, np.argsort(value[known], kind="stable")


def _obstacle(
    counts: NDArray[np.int64], levels_a: NDArray[np.generic], levels_b: NDArray[np.generic], clusters: int | None
) -> str:
    smallest = int(counts.min(initial=2))
    if not len(counts):
        return "no values"
    if smallest < 2 - (clusters is not None):
        where = np.unravel_index(int(counts.argmin()), (len(levels_a), len(levels_b)))
        cell = f"({levels_a[where[0]]}, {levels_b[where[1]]})"
        return f"no value in cell {cell}" if smallest == 0 else f"one value in cell {cell}"
    return "fewer than two clusters" if clusters is not None and clusters < 2 else ""


def _covariance(error: Array, cell: NDArray[np.int64], counts: NDArray[np.int64], groups: NDArray[np.int64] | None) -> Array:
    """Of the cell means. HC3 (MacKinnon and White 1985), without groups: a row's leverage is one over the rows of its cell."""
    cells, n = len(counts), len(error)
    if groups is None:
        scaled = (error / (1 - 1 / counts[cell])) ** 2
        return np.diag(np.bincount(cell, weights=scaled, minlength=cells) / counts.astype(np.float64) ** 2)
    number = int(groups.max()) + 1
    sums = np.bincount(groups * cells + cell, weights=error, minlength=number * cells).reshape(number, cells) / counts
    correction = number / (number - 1) * (n - 1) / (n - cells) if n > cells else math.nan
    covariance: Array = sums.T @ sums * correction
    return covariance


def _contrasts(shape: tuple[int, int], coding: Coding) -> list[Array]:
    """[df1, cells] of every effect; df1 is 0 where a factor has one level."""
    differences = [np.eye(k)[1:] - np.eye(k)[:1] for k in shape]
    overall = [np.full((1, k), 1 / max(k, 1)) if coding == "sum" else np.eye(k)[:1] for k in shape]
    pairs = (differences[0], overall[1]), (overall[0], differences[1]), differences
    return [np.kron(*pair) for pair in pairs]


def _test(contrast: Array, means: Array, covariance: Array, df2: int, reason: str) -> Effect:
    df1 = len(contrast)
    if not reason:
        spread = contrast @ covariance @ contrast.T
        scale = np.sqrt(np.maximum(np.diag(spread), 0.0))  # rounding may leave it below
        if not (scale > 0).all() or np.linalg.matrix_rank(spread / np.outer(scale, scale), tol=1e-10, hermitian=True) < df1:
            reason = "no variation within cells" if not covariance.any() else "too little variation to tell the levels apart"
    if reason:
        return Effect(math.nan, df1, df2, math.nan, math.nan, reason)
    shift = contrast @ means
    f = float(shift @ np.linalg.solve(spread, shift)) / df1
    return Effect(f, df1, df2, float(fdtrc(df1, df2, f)), f * df1 / (f * df1 + df2))
