"""How well a score finds the most forgotten classes: precision among the first k, and the area under the ROC curve."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forgetscope.analysis.statistics.rank_correlation import average_ranks
from forgetscope.errors import InputError

Array = NDArray[np.float64]


def precision_at_k(scores: ArrayLike, forgetting: ArrayLike, k: int) -> Array:
    """[...]: share of the k most forgotten classes among the k with the highest scores, both [..., classes].

    Ties at either edge are broken at random, and this is the expected value: k places shared by m classes count k / m for each.
    NaN where fewer than k classes have both; k of k classes is 1."""
    _check(k)
    score, lost = _complete(scores, forgetting)
    chosen, wanted = _share_of_first(score, k), _share_of_first(lost, k)
    known = np.sum(~np.isnan(score), axis=-1)
    return np.where(known >= k, np.sum(chosen * wanted, axis=-1) / k, np.nan)


def roc_auc(scores: ArrayLike, positive: ArrayLike) -> Array:
    """[...]: chance that a positive class scores above another one, ties counted half; both [..., classes].

    positive: 1 or 0, NaN where unknown. NaN without a class of either kind."""
    score, label = _complete(scores, positive)
    ranks = average_ranks(score)
    is_positive = label > 0
    positives = is_positive.sum(axis=-1)
    negatives = np.sum(~np.isnan(label), axis=-1) - positives
    wins = np.sum(np.where(is_positive, ranks, 0.0), axis=-1) - positives * (positives + 1) / 2
    pairs = (positives * negatives).astype(np.float64)
    area: Array = wins / np.where(pairs > 0, pairs, np.nan)
    return area


def most_forgotten(forgetting: ArrayLike, k: int) -> Array:
    """[..., classes]: 1 for the k most forgotten classes and 0 for others; ties at the edge belong to the most forgotten.

    NaN where forgetting is unknown."""
    _check(k)
    lost = np.asarray(forgetting, np.float64)
    known = ~np.isnan(lost)
    ordered = -np.sort(np.where(known, -lost, np.inf), axis=-1)
    edge = ordered[..., min(k, lost.shape[-1]) - 1 : min(k, lost.shape[-1])]
    return np.where(known, (lost >= edge).astype(np.float64), np.nan)


def _check(k: int) -> None:
    if k < 1:
        raise InputError(f"The first {k} classes are none. Ask for k = 1 or more.")


def _complete(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array]:
    a, b = np.broadcast_arrays(np.asarray(first, np.float64), np.asarray(second, np.float64))
    unknown = np.isnan(a) | np.isnan(b)
    return np.where(unknown, np.nan, a), np.where(unknown, np.nan, b)


def _share_of_first(values: Array, k: int) -> Array:
    """[..., classes]: the chance of each class to be among the k highest if ties are broken at random; 0 where unknown."""
    known = ~np.isnan(values)
    filled = np.where(known, values, -np.inf)
    edge = -np.sort(-filled, axis=-1)[..., min(k, values.shape[-1]) - 1, None]
    above = filled > edge
    tied = filled == edge
    left = k - above.sum(axis=-1, keepdims=True)
    share = np.where(tied, np.minimum(left / np.maximum(tied.sum(axis=-1, keepdims=True), 1), 1), above)
    return np.where(known, share, 0.0)
