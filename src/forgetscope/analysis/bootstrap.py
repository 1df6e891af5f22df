"""Bootstrap intervals: bias-corrected and accelerated (BCa; Efron 1987), as scipy defines them, a million resamples at a time.

A mean and a standard deviation need only how often a resample holds each value. So samples of equal size share their resamples:
a matrix of counts times the values and their squares gives all of them, in memory that does not grow with their number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from forgetscope.errors import InputError
from forgetscope.randomness import Streams
from forgetscope.threads import available_cores

Array = NDArray[np.float64]
Statistic = Literal["mean", "sd"]

CONFIDENCE = 0.95
RESAMPLES = 1_000_000
BLOCK = 1 << 26  # bootstrap values held at a time, 512 MB
CHUNK = 1 << 18  # drawn values at a time and thread; decides which stream draws what, so it is part of the result
ALONE = 1 << 18  # multiplications up to which OpenBLAS uses one thread
TIE = 1e-12  # a resample this close to the sample, in standard deviations, has its value: sums in another order are no other


def bca(
    samples: ArrayLike,
    statistic: Statistic,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    indices: ArrayLike | None = None,
    threads: int | None = None,
) -> Array:
    """[..., 2]: low and high ends for the means or population standard deviations (ddof 0) of samples [..., n].

    NaN, as in scipy and without a warning, where a sample is constant, has fewer than two values (for a standard deviation:
    three) or holds NaN. Equal seeds give equal resamples, whatever the number of threads; all samples of a size share them.
    indices: [resamples, n], resamples that were drawn elsewhere."""
    values = np.asarray(samples, np.float64)
    n = values.shape[-1]
    flat = values.reshape(math.prod(values.shape[:-1]), n)
    drawn = None if indices is None else np.asarray(indices, np.int64)
    if drawn is not None and (drawn.ndim != 2 or drawn.shape[1] != n):
        raise InputError(f"indices has the shape {drawn.shape}; samples of {n} values need [resamples, {n}].")
    count = resamples if drawn is None else len(drawn)
    ends = np.full((len(flat), 2), np.nan)
    if n >= (2 if statistic == "mean" else 3):
        location = flat.mean(axis=1)
        scale = flat.std(axis=1)
        known = np.flatnonzero(np.isfinite(scale) & (np.ptp(flat, axis=1) > 0) & (scale > 1e-13 * np.abs(location)))
        # Both statistics follow shift and scale: in standard units rounding is the same for all.
        standard = (flat[known] - location[known, None]) / scale[known, None]
        size = max(1, BLOCK // count)
        with ThreadPoolExecutor(threads or available_cores()) as pool:
            for start in range(0, len(known), size):
                part = standard[start : start + size]
                distribution = _distribution(part, statistic, count, seed, drawn, pool)
                value = np.zeros(len(part)) if statistic == "mean" else np.ones(len(part))
                left_out = _jackknife(part, statistic)
                found = pool.map(_ends, distribution, value, left_out, itertools.repeat(confidence))
                chosen = known[start : start + size]
                shift = location[chosen] if statistic == "mean" else np.zeros(len(part))
                ends[chosen] = np.array(list(found)) * scale[chosen, None] + shift[:, None]
                del distribution, found  # before the next takes as much again
    return ends.reshape(*values.shape[:-1], 2)


def cluster_bca(
    statistic: Callable[[NDArray[np.int64]], float],
    clusters: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = 5_000,
    seed: int = 0,
) -> tuple[float, float]:
    """BCa interval for a statistic of pooled rows that come in clusters, such as the classes of one experiment.

    Whole clusters are drawn. statistic: gets the numbers of the rows, some of them repeated. It may return NaN: such resamples
    are left out. NaN below two clusters, and where the statistic never varies."""
    _, label = np.unique(np.asarray(clusters), return_inverse=True)
    rows = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1]) if len(label) else []
    n = len(rows)
    if n < 2:
        return np.nan, np.nan
    draws = Streams(seed, 0)("bootstrap", n).integers(0, n, (resamples, n))
    distribution = np.array([statistic(np.concatenate([rows[i] for i in draw])) for draw in draws])
    left_out = np.array([statistic(np.concatenate(rows[:i] + rows[i + 1 :])) for i in range(n)])
    low, high = _ends(distribution[~np.isnan(distribution)], statistic(np.arange(len(label))), left_out, confidence)
    return low, high


def cluster_mean_bca(
    values: ArrayLike,
    clusters: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = 100_000,
    seed: int = 0,
) -> tuple[float, float]:
    """`cluster_bca` of the mean over all rows: clusters count by their rows. Rows that are NaN are left out."""
    value = np.asarray(values, np.float64)
    known = ~np.isnan(value)
    _, label = np.unique(np.asarray(clusters)[known], return_inverse=True)
    sizes = np.bincount(label).astype(np.float64)
    n = len(sizes)
    if n < 2:
        return np.nan, np.nan
    value = value[known] - value[known].mean()
    sums = np.bincount(label, weights=value)
    parts = [counts @ np.stack([sums, sizes], axis=1) for _, counts in _counts(n, resamples, seed, None)]
    total, size = np.concatenate(parts).T
    left_out = (sums.sum() - sums) / (sizes.sum() - sizes)
    middle = np.asarray(values, np.float64)[known].mean()
    low, high = _ends(total / size, 0.0, left_out, confidence, tie=TIE * max(float(np.abs(value).max()), 1e-300))
    return low + middle, high + middle


def _distribution(
    standard: Array, statistic: Statistic, resamples: int, seed: int, drawn: NDArray[np.int64] | None, pool: ThreadPoolExecutor
) -> Array:
    """[samples, resamples]."""
    samples, n = standard.shape
    out = np.empty((samples, resamples))
    both = np.concatenate([standard, standard**2]) if statistic == "sd" else standard
    columns = np.ascontiguousarray(both.T / n)

    def fill(chunk: int) -> None:
        rows, counts = _count(n, resamples, seed, drawn, chunk)
        sums = _product(counts, columns)
        if statistic == "sd":
            first, second = sums[:, :samples], sums[:, samples:]
            sums = np.sqrt(np.maximum(second - first**2, 0))
        out[:, rows] = sums.T

    list(pool.map(fill, range(_chunks(n, resamples))))
    return out


def _product(counts: Array, columns: Array) -> Array:
    """counts @ columns, in pieces that BLAS does by itself: its threads and those of the pool would fight for the cores."""
    out = np.empty((len(counts), columns.shape[1]))
    for start in range(0, columns.shape[1], 32):
        part = columns[:, start : start + 32]
        rows = max(1, ALONE // part.size)
        whole = len(counts) // rows * rows
        stacked = counts[:whole].reshape(-1, rows, counts.shape[1]) @ part
        out[:whole, start : start + 32] = stacked.reshape(whole, part.shape[1])
        out[whole:, start : start + 32] = counts[whole:] @ part
    return out


def _chunks(n: int, resamples: int) -> int:
    return -(-resamples // max(1, CHUNK // n))


def _count(n: int, resamples: int, seed: int, drawn: NDArray[np.int64] | None, chunk: int) -> tuple[slice, Array]:
    """Which resamples belong to a chunk, and how often each holds each value: [rows, n]."""
    size = max(1, CHUNK // n)
    rows = slice(chunk * size, min((chunk + 1) * size, resamples))
    count = rows.stop - rows.start
    if drawn is None:
        # another stream for each size and chunk
        draws = Streams(seed, n)("bootstrap", chunk).integers(0, n, (count, n), dtype=np.uint16 if n <= 1 << 16 else np.uint32)
        picked = draws.astype(np.int64)
    else:
        picked = drawn[rows].copy()
    picked += np.arange(count)[:, None] * n
    return rows, np.bincount(picked.ravel(), minlength=count * n).reshape(count, n).astype(np.float64)


def _counts(n: int, resamples: int, seed: int, drawn: NDArray[np.int64] | None) -> Iterable[tuple[slice, Array]]:
    return (_count(n, resamples, seed, drawn, chunk) for chunk in range(_chunks(n, resamples)))


def _jackknife(standard: Array, statistic: Statistic) -> Array:
    """[samples, n]: the statistic without each value, for samples of mean 0 and standard deviation 1."""
    n = standard.shape[1]
    first: Array = -standard / (n - 1)
    if statistic == "mean":
        return first
    second: Array = (n - standard**2) / (n - 1)
    spread: Array = np.sqrt(np.maximum(second - first**2, 0))
    return spread


def _ends(distribution: Array, value: float, left_out: Array, confidence: float, tie: float = TIE) -> tuple[float, float]:
    """The percentiles of a bootstrap distribution that BCa chooses (Efron and Tibshirani 1993, 14.3 and 15.4)."""
    change = left_out.mean() - left_out  # U_i but for a factor that cancels
    squares = float(np.sum(change**2))
    below = np.count_nonzero(distribution < value - tie) + np.count_nonzero(distribution <= value + tie)
    share = below / (2 * max(1, len(distribution)))
    if not squares > (1e-12 * float(np.abs(left_out).max())) ** 2 or not 0 < share < 1:
        return np.nan, np.nan
    bias = ndtri(share)
    acceleration = float(np.sum(change**3)) / (6 * squares**1.5)
    tail = ndtri([(1 - confidence) / 2, (1 + confidence) / 2]) + bias
    level = ndtr(bias + tail / (1 - acceleration * tail))
    return _quantile(distribution, level[0]), _quantile(distribution, level[1])


def _quantile(values: Array, level: float) -> float:
    """`np.quantile`, several times faster for many values: a sample of them says where to look."""
    position = level * (len(values) - 1)
    index = min(int(position), len(values) - 2) if len(values) > 1 else 0
    inside, below = values, 0
    if len(values) >= 1 << 16:
        sample = np.sort(values[:: len(values) >> 12])
        middle, margin = level * len(sample), 5 * np.sqrt(level * (1 - level) * len(sample)) + 5
        low = sample[int(middle - margin)] if middle >= margin else -np.inf
        high = sample[int(middle + margin)] if middle + margin < len(sample) else np.inf
        below = int(np.count_nonzero(values < low))
        inside = values[(values >= low) & (values <= high)]
        if not 0 <= index - below < len(inside) - 1:  # a sample can mislead
            inside, below = values, 0
    ordered = np.partition(inside, [index - below, min(index - below + 1, len(inside) - 1)])
    low, high = ordered[index - below], ordered[min(index - below + 1, len(inside) - 1)]
    return float(low + (high - low) * (position - index))
