"""Rank correlations of many problems at once: [..., classes], padded with NaN where a step has fewer classes.

Each problem uses the classes for which all of its variables are known, as scipy and pingouin do with complete rows.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

CHUNK = 1 << 15  # values at a time: temporaries stay in the cache, and memory is bounded
COLLINEAR = 1e-10  # share of a rank variance that counts as none; the smallest true one for 200 classes is 1e-6


def average_ranks(values: ArrayLike) -> Array:
    """Ranks from 1 along the last axis, ties share their average; NaN stays NaN and counts for nothing."""
    x = np.asarray(values, np.float64)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    order = np.argsort(rows, axis=1)
    ordered = np.take_along_axis(rows, order, axis=1)
    if not (ordered[:, 1:] > ordered[:, :-1]).all() or np.isnan(ordered[:, -1:]).any():
        return pd.DataFrame(rows).rank(axis=1).to_numpy().reshape(x.shape)
    ranks = np.empty(rows.shape)  # without ties and gaps several times faster than pandas
    np.put_along_axis(ranks, order, np.arange(1.0, rows.shape[1] + 1)[None], axis=1)
    return ranks.reshape(x.shape)


def rank_correlations(*variables: ArrayLike) -> Array:
    """[..., variables, variables]: Spearman's correlations over the classes for which every variable is known.

    Each variable is [..., classes]; leading dimensions broadcast. NaN below three classes, and in the row and column of a
    variable that is constant: there is no ranking to agree with."""
    arrays = [np.asarray(v, np.float64) for v in variables]
    *lead, classes = np.broadcast_shapes(*(a.shape for a in arrays))
    arrays = [a.reshape((1,) * (len(lead) + 1 - a.ndim) + a.shape) for a in arrays]
    found = np.empty((*lead, len(arrays), len(arrays)))
    if not lead:
        return _correlations(arrays)
    size = max(1, CHUNK // max(1, classes * math.prod(lead[1:])))
    for start in range(0, lead[0], size):
        part = slice(start, start + size)
        found[part] = _correlations([a[part] if a.shape[0] > 1 else a for a in arrays])
    return found


def spearman(x: ArrayLike, y: ArrayLike) -> Array:
    """[...]: rank correlation of x and y, both [..., classes], over the pairs in which both are known.

    NaN below three pairs, and where one of the two is constant.

    >>> float(spearman([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 40.0, 30.0]).round(2))
    0.8
    """
    correlation: Array = rank_correlations(x, y)[..., 0, 1]
    return correlation


def shared_spearman(shown: ArrayLike, *rivals: ArrayLike) -> tuple[list[float], int]:
    """Rank correlations of several [classes] with one, over the classes of which all of them are known that know any; and how
    many these are.

    >>> shared_spearman([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, np.nan], [1.0, 2.0, 4.0, 3.0], [np.nan] * 4)
    ([1.0, 1.0, nan], 3)
    """
    known = [np.isfinite(np.asarray(one, np.float64)) for one in (shown, *rivals)]
    shared = np.logical_and.reduce([one for one in known if one.any()] or known)
    found = [spearman(np.where(shared, one, np.nan), np.where(shared, shown, np.nan)) for one in rivals]
    return [float(one) for one in found], int(shared.sum())


def untied_spearman(one: Array, other: Array) -> Array:
    """[...]: `spearman` from ranks [..., classes] that are all known and without ties; exact, as whole numbers are."""
    n = one.shape[-1]
    dot = np.einsum("...k,...k->...", one, other)
    correlation: Array = (n * dot - (n * (n + 1) / 2) ** 2) / (n**2 * (n**2 - 1) / 12)
    return correlation


def partial_spearman(x: ArrayLike, y: ArrayLike, controls: Sequence[ArrayLike]) -> Array:
    """[...]: partial correlation of the ranks of x and y given the ranks of the controls, over complete rows.

    NaN below 3 + len(controls) rows, where a variable is constant, or where the controls determine the ranks of x or y:
    nothing is left to correlate. Controls of equal ranks count as one."""
    correlations = rank_correlations(x, y, *controls)
    known = np.logical_and.reduce(np.broadcast_arrays(*[~np.isnan(np.asarray(v, np.float64)) for v in (x, y, *controls)]))
    enough = known.sum(axis=-1) >= 3 + len(controls)
    return np.where(enough, partial_correlation(correlations, 0, 1, range(2, 2 + len(controls))), np.nan)


def partial_correlation(correlations: ArrayLike, x: int, y: int, controls: Sequence[int]) -> Array:
    """[...]: of variables x and y given the controls, from correlation matrices [..., variables, variables].

    One ranking serves many questions: rank_correlations once, then this for each choice of controls. A control that the ones
    before it determine changes nothing. It cannot know how many rows stand behind a matrix; fewer than 3 + len(controls) mean
    nothing."""
    order = [x, y, *controls]
    rest = np.asarray(correlations, np.float64)[..., order, :][..., :, order].copy()
    for c in range(2, len(order)):  # regress everything on one control after the other
        column, pivot = rest[..., :, c].copy(), rest[..., c, c].copy()
        pivot = np.where(pivot <= COLLINEAR, np.inf, pivot)
        rest -= column[..., :, None] * (column / pivot[..., None])[..., None, :]
    vx, vy = rest[..., 0, 0], rest[..., 1, 1]
    left = (vx > COLLINEAR) & (vy > COLLINEAR)
    scale = np.sqrt(np.where(left, vx, np.nan) * np.where(left, vy, np.nan))
    partial: Array = np.clip(rest[..., 0, 1] / scale, -1, 1)
    return partial


def _correlations(arrays: Sequence[Array]) -> Array:
    missing = [np.isnan(a) for a in arrays]
    incomplete = np.logical_or.reduce(np.broadcast_arrays(*missing))
    ranked = [_ranks_of_complete(a, m, incomplete) for a, m in zip(arrays, missing, strict=True)]
    n: Array = np.asarray(np.sum(~incomplete, axis=-1, dtype=np.float64))
    sums = [r.sum(axis=-1) for r in ranked]
    # Twice a rank is a whole number, and so is n * sum(ab) - sum(a) * sum(b): exact, whatever the order of the classes.
    products = np.empty((*n.shape, len(arrays), len(arrays)))
    for i, j in itertools.combinations_with_replacement(range(len(arrays)), 2):
        dot = np.einsum("...k,...k->...", ranked[i], ranked[j])
        products[..., i, j] = products[..., j, i] = n * dot - sums[i] * sums[j]
    variances = np.diagonal(products, axis1=-2, axis2=-1)
    variances = np.where((variances > 0) & (n[..., None] >= 3), variances, np.nan)
    correlations: Array = products / np.sqrt(variances[..., :, None] * variances[..., None, :])
    return correlations


def _ranks_of_complete(values: Array, missing: NDArray[np.bool_], incomplete: NDArray[np.bool_]) -> Array:
    """Doubled ranks [..., classes] among the complete rows, 0 elsewhere.

    Each distinct row is ranked once before it is broadcast; again only for problems in which another variable is missing."""
    ranks = np.broadcast_to(average_ranks(values), incomplete.shape)
    others = (incomplete & ~missing).any(axis=-1)
    if others.any():
        ranks = ranks.copy()
        ranks[others] = average_ranks(np.where(incomplete[others], np.nan, np.broadcast_to(values, incomplete.shape)[others]))
    return np.where(incomplete, 0.0, 2 * ranks)
