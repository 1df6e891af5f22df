"""Estimates with intervals. Validated against scipy and by hand in the tests."""

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri, stdtrit

from forgetscope.analysis.statistics import bootstrap
from forgetscope.analysis.statistics.bootstrap import CONFIDENCE
from forgetscope.errors import InputError

PERFECT = 1 - 1e-10  # but for rounding; a single tie among 200 classes leaves 1 - 4e-7


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval and the number of samples behind it. NaN where it cannot be had."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        """`0.512 (0.430, 0.587), n = 40`; as many digits as the interval's width deserves."""
        return "".join(self._parts())

    def _repr_html_(self) -> str:
        value, rest = self._parts()
        return f"<b>{value}</b>{rest}"

    def _parts(self) -> tuple[str, str]:
        width = self.high - self.low
        digits = max(0, min(12, 2 - math.floor(math.log10(width)))) if math.isfinite(width) and width > 0 else 3
        value = "–" if math.isnan(self.value) else f"{self.value:z.{digits}f}"
        interval = "" if not width > 0 else f" ({self.low:z.{digits}f}, {self.high:z.{digits}f})"
        return value.replace("-", "−"), f"{interval}, n = {self.n}".replace("-", "−")


def mean_estimate(values: ArrayLike) -> Estimate:
    """Plain mean with a Student t interval; NaN values are left out."""
    known = known_values(values)
    value, margin = float(known.mean()) if len(known) else math.nan, float(t_margin(known))
    return Estimate(value, value - margin, value + margin, len(known))


def t_margin(known: NDArray[np.float64]) -> NDArray[np.float64]:
    """[...]: how far the t intervals of means over [..., n] reach to either side; NaN below two values."""
    n = known.shape[-1]
    reach = t_quantile(n - 1) * known.std(axis=-1, ddof=1) / math.sqrt(n) if n > 1 else np.full(known.shape[:-1], np.nan)
    return np.asarray(reach)


def share_estimate(hits: ArrayLike, trials: int | None = None) -> Estimate:
    """The share of hits (1; 0 is a miss, NaN neither) with its exact binomial interval (Clopper and Pearson 1934), which does
    not collapse where all or none are hits. trials: how many of them are independent, where that is fewer; then it is
    approximate, and they are its n.

    >>> print(share_estimate([0, 0, 0]))
    0.000 (0.000, 0.708), n = 3
    """
    known = known_values(hits)
    n, value = len(known), float(known.mean()) if len(known) else math.nan
    counted = n if trials is None else trials
    hit, tail = value * counted, (1 - CONFIDENCE) / 2
    low = float(betaincinv(hit, counted - hit + 1, tail)) if hit > 0 else 0.0
    high = float(betaincinv(hit + 1, counted - hit, 1 - tail)) if hit < counted else 1.0
    return Estimate(value, low, high, counted) if n else Estimate(math.nan, math.nan, math.nan, 0)


def correlation_estimate(correlations: ArrayLike, classes: int | Sequence[int]) -> Estimate:
    """Fisher-z mean tanh(mean(atanh rho)) with a t interval in z, mapped back; NaN values are left out.

    classes: how many classes each correlation ranks. A perfect correlation of n ranks has an infinite z. It is taken as
    1 - 6 / (n^3 - n), half-way to the next value that n untied ranks can reach, so that it neither swamps nor spoils a mean.
    """
    return in_rho(mean_estimate(fisher_z(correlations, classes)))


def fisher_z(correlations: ArrayLike, classes: ArrayLike) -> NDArray[np.float64]:
    """atanh rho, with perfect correlations of n ranks taken as 1 - 6 / (n^3 - n); the only place where this is done. Others
    stay as they are, also those that ties, or controlled variables, bring nearer to 1 than that."""
    rho = np.asarray(correlations, np.float64)
    n = np.maximum(np.broadcast_to(np.asarray(classes, np.float64), rho.shape), 2)
    limit = 1 - 6 / (n**3 - n)
    z: NDArray[np.float64] = np.arctanh(np.where(np.abs(rho) > PERFECT, np.sign(rho) * limit, rho))
    return z


def in_rho(in_z: Estimate) -> Estimate:
    """An estimate in Fisher's z as a correlation."""
    return Estimate(math.tanh(in_z.value), math.tanh(in_z.low), math.tanh(in_z.high), in_z.n)


def sd_estimates(
    samples: Sequence[ArrayLike],
    *,
    resamples: int = bootstrap.RESAMPLES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Estimate]:
    """Population standard deviations (ddof 0) with BCa intervals; NaN values are left out.

    All samples at once, as those of equal size share their resamples: a hundred cost little more than one."""
    known = [known_values(sample) for sample in samples]
    ends = np.full((len(known), 2), np.nan)
    alike: dict[int, list[int]] = {}
    for i, sample in enumerate(known):
        alike.setdefault(len(sample), []).append(i)
    alike.pop(0, None)
    done, total = itertools.count(1), sum(bootstrap.ticks(len(chosen), n, resamples) for n, chosen in alike.items())
    for chosen in alike.values():
        stacked = np.stack([known[i] for i in chosen])
        ends[chosen] = bootstrap.sd_bca(stacked, resamples=resamples, tick=lambda: progress(next(done), total))
    values = [float(sample.std()) if len(sample) else math.nan for sample in known]
    return [
        Estimate(value, float(low), float(high), len(sample))
        for value, (low, high), sample in zip(values, ends, known, strict=True)
    ]


def needed_samples(values: ArrayLike, half_width: float) -> int | None:
    """The least n for which the t interval of a mean is expected to reach no further than `half_width` to either side.

    Judged by the sample standard deviation of these values; None if there are fewer than two. For correlations give z values
    and a half-width in z: near rho it is about (half-width in rho) / (1 - rho²)."""
    known = known_values(values)
    if len(known) < 2:
        return None
    if not half_width > 0:
        raise InputError(f"An interval cannot have a half-width of {half_width:g}. Ask for one above 0.")
    sd = float(known.std(ddof=1))

    def reach(n: int) -> float:
        return t_quantile(n - 1) * sd / math.sqrt(n)

    enough = 2
    while reach(enough) > half_width:
        enough *= 2
    return enough // 2 + 1 + bisect.bisect_left(range(enough // 2 + 1, enough), True, key=lambda n: reach(n) <= half_width)


def t_quantile(freedom: float) -> float:
    """Of Student's t, for intervals. As scipy.stats has it, which takes most of a second to import."""
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def normal_quantile() -> float:
    """Likewise of the normal distribution."""
    return float(ndtri((1 + CONFIDENCE) / 2))


def known_values(values: ArrayLike) -> NDArray[np.float64]:
    """Without those that are NaN."""
    array = np.asarray(values, np.float64)
    return array[~np.isnan(array)]
