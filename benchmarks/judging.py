"""How good predictors of forgetting are, step by step and over experiments: a part of `forecast.py`. On plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.statistics import prediction
from forgetscope.analysis.statistics.detection import most_forgotten, precision_at_k, roc_auc
from forgetscope.analysis.statistics.estimates import Estimate, fisher_z, in_rho, mean_estimate
from forgetscope.analysis.statistics.noise import ceiling_estimate
from forgetscope.analysis.statistics.prediction import absolute_error
from forgetscope.analysis.statistics.rank_correlation import spearman

Values = NDArray[np.float64]
QUARTER = 0.25


@dataclass(frozen=True)
class Judged:
    """One step: what was predicted of its P past classes after each share of training, and what test images show."""

    partition: tuple[str, str, str, int]  # data set, policy, retention in per cent, number of the step
    experiment: str  # steps of the same class sequence and seed have it in common
    forgetting: Values  # [P], when the step ends
    variances: Values  # [P]: of that, by the noise of test images
    true_variance: float  # of forgetting over classes, without that noise; may be negative
    so_far: Values  # [shares, P]: forgetting at that moment
    so_far_variances: Values  # [shares, P]
    scores: Mapping[str, Values]  # by predictor, [shares, P]
    halves: Mapping[str, Values]  # of predictors with an interval: how far it reaches to either side [shares, P]


def correlation(step: Judged, predictor: str, share: int) -> float:
    """In Fisher's z, with the forgetting that the step ends with."""
    score = step.scores[predictor][share]
    known = int((np.isfinite(score) & np.isfinite(step.forgetting)).sum())
    return float(fisher_z(spearman(score, step.forgetting), known))


def precision(step: Judged, predictor: str, share: int) -> float:
    """Share of the most forgotten quarter among the quarter with the highest scores."""
    return float(precision_at_k(step.scores[predictor][share], step.forgetting, _quarter(step)))


def area(step: Judged, predictor: str, share: int) -> float:
    """Under the ROC curve, for the most forgotten quarter."""
    return float(roc_auc(step.scores[predictor][share], most_forgotten(step.forgetting, _quarter(step))))


def bias(step: Judged, predictor: str, share: int) -> float:
    return float(np.nanmean(_errors(step, predictor, share)))


def absolute(step: Judged, predictor: str, share: int) -> float:
    return absolute_error(step.scores[predictor][share], step.so_far[share])


def squared(step: Judged, predictor: str, share: int) -> float:
    return float(np.nanmean(_errors(step, predictor, share) ** 2))


def squared_without_noise(step: Judged, predictor: str, share: int) -> float:
    """Of the true forgetting, on average: an unbiased estimate, which may be negative."""
    return float(np.nanmean(_errors(step, predictor, share) ** 2 - step.so_far_variances[share]))


def covered(step: Judged, predictor: str, share: int) -> float:
    """The share of classes whose measured forgetting lies in the interval, the noise of their test images added to it."""
    of = (step.scores[predictor][share], step.halves[predictor][share], step.so_far[share], step.so_far_variances[share])
    return prediction.covered(*of)


Measure = Callable[[Judged, str, int], float]


def over_experiments(steps: Sequence[Judged], values: Sequence[float] | Values) -> Estimate:
    """The mean with a t interval. What several steps of one experiment say is averaged first: they are no independent draws."""
    by_experiment: dict[str, list[float]] = {}
    for step, value in zip(steps, values, strict=True):
        by_experiment.setdefault(step.experiment, []).append(float(value))
    return mean_estimate([float(np.mean(own)) for own in by_experiment.values()])


def estimated(steps: Sequence[Judged], measure: Measure, predictor: str, share: int) -> Estimate:
    """Of one predictor. Correlations are averaged in Fisher's z, errors as squares; intervals of shares are cut to [0, 1]."""
    found = over_experiments(steps, [measure(step, predictor, share) for step in steps])
    if measure is correlation:
        return in_rho(found)
    if measure in (squared, squared_without_noise):
        return Estimate(*(float(np.sqrt(max(0.0, end))) for end in (found.value, found.low, found.high)), found.n)
    if measure in (precision, area, covered):
        return Estimate(found.value, max(0.0, found.low), min(1.0, found.high), found.n)
    return found


def difference(steps: Sequence[Judged], one: str, other: str, share: int) -> Estimate:
    """How much better one ranks than another, in Fisher's z, within steps."""
    return over_experiments(steps, [correlation(step, one, share) - correlation(step, other, share) for step in steps])


def ceiling(steps: Sequence[Judged]) -> Estimate:
    """The rank correlation that a predictor would reach which knows the true forgetting."""
    return ceiling_estimate(over_experiments(steps, [step.true_variance for step in steps]), [step.variances for step in steps])


def _quarter(step: Judged) -> int:
    return max(1, round(QUARTER * len(step.forgetting)))


def _errors(step: Judged, predictor: str, share: int) -> Values:
    errors: Values = step.scores[predictor][share] - step.so_far[share]
    return errors
