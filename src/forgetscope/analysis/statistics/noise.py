"""How much of forgetting, as test images show it, is noise of the test images: on plain arrays, a value per past class.

A class's test images were seen when it was learned and now, and each was recognised or not. With n of them, a share a
recognised then, b now and k both times, FG = 1 - b / a, and by the delta method for the ratio of two means over the same images

    var FG = (b (1 - b) - 2 r (k - a b) + r² a (1 - a)) / ((n - 1) a²),      r = b / a

Where single images are unknown, k = a b: both are taken as independent. Recognised images tend to be recognised again, so that
this overstates the noise. `docs/noise.md` derives and validates all of it.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.statistics.estimates import Estimate, fisher_z, known_values, mean_estimate, t_quantile
from forgetscope.analysis.statistics.rank_correlation import average_ranks, untied_spearman
from forgetscope.randomness import Streams

Values = NDArray[np.float64]

DRAWS = 2000


class Recognised(NamedTuple):
    """Of the test images of each of P past classes."""

    images: Values  # [P]: how many
    learned: Values  # [P]: share recognised when the class was learned
    now: Values  # [P]: and now
    both: Values  # [P]: and both times


class Noise(NamedTuple):
    """Of one step."""

    range_floor: float  # FG-R if all of its past classes had been forgotten alike
    half_gap_floor: float  # FG-HG likewise
    variance: float  # of forgetting over classes, without the noise of test images; an estimate, which may be negative
    observed: float  # of forgetting over classes, as it is


def sampling_variances(found: Recognised) -> Values:
    """[P]: of FG, by the delta method. NaN for a class that was never learned, or of fewer than two test images."""
    return _variances(found, found.now, found.both - found.learned * found.now)


def noise_of_step(found: Recognised) -> Noise:
    """NaN where fewer than two classes have a forgetting."""
    variances = sampling_variances(found)
    known = np.isfinite(variances)
    if known.sum() < 2:
        return Noise(*(math.nan,) * 4)
    found = Recognised(*(column[known] for column in found))
    forgetting = 1 - found.now / found.learned
    observed = float(forgetting.var(ddof=1))
    return Noise(*_floors(equal_variances(found)), observed - float(variances[known].mean()), observed)


def equal_variances(found: Recognised) -> Values:
    """[P]: of FG, had every class lost the mean forgetting. Initial accuracies stay as they are, and so does the correlation
    between recognising an image then and now, which is taken as the same in all classes: one class has too few images."""
    learned = found.learned
    now = np.clip(learned * np.mean(found.now / learned), 0, 1)
    together = (found.images * (found.both - learned * found.now)).sum()
    alone = (found.images * _deviation(learned) * _deviation(found.now)).sum()
    tied = (together / alone if alone > 0 else 0.0) * _deviation(learned) * _deviation(now)
    lowest, highest = np.maximum(0, learned + now - 1), np.minimum(learned, now)  # what the share of both can be
    return _variances(found, now, np.clip(tied, lowest - learned * now, highest - learned * now))


def _variances(found: Recognised, now: Values, covariance: Values) -> Values:
    learned = np.where(found.learned > 0, found.learned, np.nan)
    images = np.where(found.images > 1, found.images, np.nan)
    r = now / learned
    spread = now * (1 - now) - 2 * r * covariance + r**2 * learned * (1 - learned)
    variances: Values = np.maximum(spread, 0) / ((images - 1) * learned**2)
    return variances


def _deviation(share: Values) -> Values:
    deviation: Values = np.sqrt(share * (1 - share))
    return deviation


def _floors(variances: Values) -> tuple[float, float]:
    """Means of FG-R and FG-HG over draws of normal noise alone."""
    drawn = np.sort(np.sqrt(variances) * _normals(len(variances))[0], axis=1)
    half = len(variances) // 2
    gaps = drawn[:, half:].mean(axis=1) - drawn[:, :half].mean(axis=1)
    return float((drawn[:, -1] - drawn[:, 0]).mean()), float(gaps.mean())


def spread_estimate(variance: Estimate) -> Estimate:
    """The true spread: the root of a mean variance. Below 0 nothing was found beyond the noise, and it is 0."""
    value, low, high = (end if math.isnan(end) else math.sqrt(max(0.0, end)) for end in astuple(variance)[:3])
    return Estimate(value, low, high, variance.n)


def reliability_estimate(variances: Values, observed: Values) -> Estimate:
    """The mean of variances without noise over the mean of those with it, [steps] each, with a t interval by linearisation.

    1: forgetting of classes differs by what happened to them alone; 0: by the noise of test images alone. Neither value nor
    interval is cut to what a true one can be: a cut interval may not hold its own value."""
    known = np.isfinite(variances) & np.isfinite(observed)
    n, whole = int(known.sum()), float(observed[known].mean()) if known.any() else math.nan
    if not whole > 0:
        return Estimate(math.nan, math.nan, math.nan, n)
    ratio = float(variances[known].mean()) / whole
    rest = variances[known] - ratio * observed[known]
    margin = t_quantile(n - 1) * float(rest.std(ddof=1)) / (math.sqrt(n) * whole) if n > 1 else math.nan
    return Estimate(ratio, ratio - margin, ratio + margin, n)


def ceiling_estimate(variance: Estimate, noises: Sequence[Values]) -> Estimate:
    """`rank_ceiling` at a mean variance and at the ends of its interval."""
    value, low, high = (rank_ceiling(end, noises) for end in astuple(variance)[:3])
    return Estimate(value, low, high, variance.n)


def rank_ceiling(variance: float, noises: Sequence[Values]) -> float:
    """The mean rank correlation (in Fisher's z) that a predictor would reach which knows the true forgetting of every class.

    variance: of true forgetting over the classes of a step, taken as normal. noises: of each step the sampling variances [P].
    0 where there is no variance: nothing is there to be ranked. NaN where no step has three classes."""
    # Draws are shared out, so that steps are taken in an order of their own: theirs in the store must not matter.
    known = sorted((kept for noise in noises if len(kept := known_values(noise)) > 2), key=lambda noise: tuple(noise))
    if not known or math.isnan(variance):
        return math.nan
    if variance <= 0:
        return 0.0
    each = -(-DRAWS // len(known))
    lengths, z = np.array([len(noise) for noise in known]), np.empty((len(known), each))
    for classes in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == classes)
        rows = (alike[:, None] * each + np.arange(each)) % DRAWS
        true, strays = (normals[rows] for normals in _normals(classes))  # [steps, each, classes]
        true *= math.sqrt(variance)
        strays *= np.sqrt([known[i] for i in alike])[:, None]
        z[alike] = fisher_z(untied_spearman(_ranks(classes)[rows], average_ranks(true + strays)), classes)
    return math.tanh(mean_estimate(z).value)


@lru_cache(maxsize=64)
def _normals(classes: int) -> Values:
    """[2, DRAWS, classes]: the same in every call, so that equal stores have equal results."""
    return Streams(0, classes)("noise").standard_normal((2, DRAWS, classes))


@lru_cache(maxsize=64)
def _ranks(classes: int) -> Values:
    """[DRAWS, classes]: of the first half of these, whatever they are multiplied with."""
    return average_ranks(_normals(classes)[0])
