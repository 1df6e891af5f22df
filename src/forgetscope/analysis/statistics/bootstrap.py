"""Bootstrap intervals: bias-corrected and accelerated (BCa; Efron 1987), as scipy defines them, a million resamples at a time.

A standard deviation needs only how often a resample holds each value. So samples of equal size share their resamples:
a matrix of counts times the values and their squares gives all of them, in memory that does not grow with their number.
"""

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from threadpoolctl import threadpool_limits

from forgetscope.errors import InputError
from forgetscope.randomness import Streams
from forgetscope.threads import available_cores

Array = NDArray[np.float64]
Counted = tuple[slice, Array]  # which resamples, and how often each holds each value: [rows, n]

CONFIDENCE = 0.95
RESAMPLES = 1_000_000
BLOCK = 1 << 27  # bootstrap values held at a time, 1 GB
CHUNK = 1 << 18  # drawn values at a time and thread; decides which stream draws what, so it is part of the result
ROWS = 1 << 11  # resamples whose sums are made at a time: they stay in the processor's cache
TIE = 1e-12  # a resample this close to the sample, in standard deviations, has its value: sums in another order are no other


def sd_bca(
    samples: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    indices: ArrayLike | None = None,
    threads: int | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Array:
    """[..., 2]: low and high ends for the population standard deviations (ddof 0) of samples [..., n].

    NaN, as in scipy and without a warning, where a sample is constant, has fewer than three values or holds NaN.
    Equal seeds give equal resamples, whatever the number of threads; all samples of a size share them.
    indices: [resamples, n], resamples that were drawn elsewhere. tick: called about as often as `ticks` says."""
    values = np.asarray(samples, np.float64)
    n = values.shape[-1]
    flat = values.reshape(math.prod(values.shape[:-1]), n)
    drawn = None if indices is None else np.asarray(indices, np.int64)
    if drawn is not None and (drawn.ndim != 2 or drawn.shape[1] != n):
        raise InputError(f"indices has the shape {drawn.shape}; samples of {n} values need [resamples, {n}].")
    count = resamples if drawn is None else len(drawn)
    ends = np.full((len(flat), 2), np.nan)
    if n >= 3:
        location = flat.mean(axis=1)
        scale = flat.std(axis=1)
        known = np.flatnonzero(np.isfinite(scale) & (np.ptp(flat, axis=1) > 0) & (scale > 1e-13 * np.abs(location)))
        # The statistic follows shift and scale: in standard units rounding is the same for all.
        standard = (flat[known] - location[known, None]) / scale[known, None]
        size = max(1, BLOCK // count)
        # BLAS' own threads and those of the pool would fight for the cores.
        with ThreadPoolExecutor(threads or available_cores()) as pool, threadpool_limits(1, user_api="blas"):
            for start in range(0, len(known), size):
                part = standard[start : start + size]
                distribution = _distribution(part, count, partial(_count, n, count, seed, drawn), pool, tick)
                found = pool.map(_ends, distribution, itertools.repeat(1.0), _jackknife(part))
                chosen = known[start : start + size]
                ends[chosen] = np.array(list(found)) * scale[chosen, None]
                del distribution, found  # before the next takes as much again
    return ends.reshape(*values.shape[:-1], 2)


def ticks(samples: int, n: int, resamples: int) -> int:
    """How much work `sd_bca` has with so many samples of n values, in calls of its `tick`."""
    return -(-samples // max(1, BLOCK // resamples)) * _chunks(n, resamples)


def cluster_bca(sums: ArrayLike, statistic: Callable[[Array], Array], *, resamples: int = 5_000) -> Array:
    """[..., 2]: BCa intervals for statistics of rows that come in clusters, such as the classes of one experiment.

    Whole clusters are drawn. sums: [clusters, k], what each cluster adds to the sums that the statistic is made of.
    statistic: from totals [many, k] to values [many, ...]; it may return NaN, and such resamples are left out. NaN below two
    clusters, and where the statistic never varies."""
    parts = np.asarray(sums, np.float64)
    n, total = len(parts), parts.sum(axis=0, keepdims=True)
    value = statistic(total)[0]
    ends = np.full((value.size, 2), np.nan)
    if n > 1:
        counted = (_count(n, resamples, 0, None, chunk)[1] for chunk in range(_chunks(n, resamples)))
        drawn = np.concatenate([counts @ parts for counts in counted])
        distributions, left_out = statistic(drawn).reshape(resamples, -1).T, statistic(total - parts).reshape(n, -1).T
        for column, (distribution, own, without) in enumerate(zip(distributions, value.ravel(), left_out, strict=True)):
            known = distribution[~np.isnan(distribution)]
            tie = TIE * float(np.abs(known).max(initial=1e-300))
            ends[column] = _ends(known, own, without, tie)
    return ends.reshape(*value.shape, 2)


def cluster_mean_bca(values: ArrayLike, clusters: ArrayLike, *, resamples: int = 100_000) -> Array:
    """[..., 2]: `cluster_bca` of means over values [rows, ...]: clusters count by their rows. Rows with NaN are left out."""
    value = np.asarray(values, np.float64)
    rows = value.reshape(len(value), -1)
    missing, groups = np.unique(np.isnan(rows), axis=1, return_inverse=True)
    ends = np.full((rows.shape[1], 2), np.nan)
    for group, pattern in enumerate(missing.T):
        columns = np.flatnonzero(groups == group)
        known = rows[~pattern][:, columns]
        _, label = np.unique(np.asarray(clusters)[~pattern], return_inverse=True)
        if len(label):
            middle = known.mean(axis=0)  # sums around it lose no digits
            sums = np.zeros((int(label.max()) + 1, len(columns) + 1))
            np.add.at(sums, label, np.column_stack([known - middle, np.ones(len(known))]))
            found = cluster_bca(sums, lambda total: total[:, :-1] / total[:, -1:], resamples=resamples)
            ends[columns] = found + middle[:, None]
    return ends.reshape(*value.shape[1:], 2)


def _distribution(
    standard: Array, resamples: int, count: Callable[[int], Counted], pool: ThreadPoolExecutor, tick: Callable[[], None]
) -> Array:
    """[samples, resamples]. count: of each chunk."""
    samples, n = standard.shape
    out = np.empty((samples, resamples))
    columns = np.concatenate([standard, standard**2]) / n

    def fill(chunk: int) -> None:
        rows, counts = count(chunk)
        for start in range(0, len(counts), ROWS):
            sums = columns @ counts[start : start + ROWS].T
            mean, square = sums[:samples], sums[samples:]
            np.subtract(square, np.square(mean, out=mean), out=square)
            np.sqrt(np.maximum(square, 0, out=square), out=out[:, rows][:, start : start + ROWS])

    for _ in pool.map(fill, range(_chunks(n, resamples))):
        tick()
    return out


def _chunks(n: int, resamples: int) -> int:
    return -(-resamples // max(1, CHUNK // n))


def _count(n: int, resamples: int, seed: int, drawn: NDArray[np.int64] | None, chunk: int) -> Counted:
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


def _jackknife(standard: Array) -> Array:
    """[samples, n]: the standard deviation without each value, for samples of mean 0 and standard deviation 1."""
    n = standard.shape[1]
    mean, square = -standard / (n - 1), (n - standard**2) / (n - 1)
    return np.asarray(np.sqrt(np.maximum(square - mean**2, 0)))


def _ends(distribution: Array, value: float, left_out: Array, tie: float = TIE) -> tuple[float, float]:
    """The percentiles of a bootstrap distribution that BCa chooses (Efron and Tibshirani 1993, 14.3 and 15.4)."""
    change = left_out.mean() - left_out  # U_i but for a factor that cancels
    squares = float(np.sum(change**2))
    below = np.count_nonzero(distribution < value - tie) + np.count_nonzero(distribution <= value + tie)
    share = below / (2 * max(1, len(distribution)))
    if not squares > (1e-12 * float(np.abs(left_out).max())) ** 2 or not 0 < share < 1:
        return np.nan, np.nan
    bias = ndtri(share)
    acceleration = float(np.sum(change**3)) / (6 * squares**1.5)
    tail = ndtri([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]) + bias
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
