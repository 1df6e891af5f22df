"""How good forecasts were: of forgetting, beside the coefficients of the same steps, and of these coefficients themselves."""

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.exhibits.exhibit import THREE
from forgetscope.analysis.inputs.measured_steps import MeasuredStep
from forgetscope.analysis.inputs.samples import Collected, GridCell, Sample, Subset
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics.estimates import Estimate, fisher_z, in_rho, mean_estimate
from forgetscope.analysis.statistics.pooling import per_experiment
from forgetscope.analysis.statistics.prediction import absolute_error, coverage_estimate, covered
from forgetscope.analysis.statistics.rank_correlation import shared_spearman, spearman

Values = NDArray[np.float64]

ESTIMATED = ("forecast", "SIC", "CIC", "NIC", "error", "covered", "SIC_estimate", "CIC_estimate", "NIC_estimate")
COLUMNS = (
    *("benchmark", "policy", "subset", "rehearsal_pct", "class_pct"),
    *(f"{name}{end}" for name in ESTIMATED for end in ("", "_lo", "_hi")),
    *("classes", "n", "simulated"),
)


def forecasts(collection: Collected) -> pd.DataFrame:
    """Per benchmark, policy and step number, over all partitions and in each, of the steps that have forecasts: mean rank
    correlations with forgetting, of forecasts and of the coefficients, over the classes of which all of them are known, and how
    many these are in a step; mean absolute error; the share of classes within their
    interval, once the noise of test images is added; and mean rank correlations of estimated coefficients with the exact ones.
    Means over experiments, each over its steps. Simulated steps have none."""
    rows = []
    for sample in collection.samples:
        for number in sample.numbers:
            parts: list[Subset | GridCell] = [Subset(number), *sample.partitions(number)]
            rows += [row for part in parts if (row := _row(sample, part)) is not None]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(sample: Sample, part: Subset | GridCell) -> Row | None:
    mask = sample.mask(part) & np.array([np.isfinite(step.forecast[0]).any() for step in sample.steps], bool)
    if not mask.any():
        return None
    chosen, roots = [sample.steps[i] for i in np.flatnonzero(mask)], sample.roots(mask)
    shared = [shared_spearman(step.forgetting, step.forecast[0], *step.measures[: len(THREE)]) for step in chosen]
    classes = [count for _, count in shared]
    ranked = zip(("forecast", *THREE), zip(*(found for found, _ in shared), strict=True), strict=True)
    found = {
        **{name: _mean_rho(values, classes, roots) for name, values in ranked},
        "error": mean_estimate(per_experiment([absolute_error(one.forecast[0], one.forgetting) for one in chosen], roots)),
        "covered": coverage_estimate(per_experiment([_covered(step) for step in chosen], roots)),
    }
    for i, name in enumerate(THREE):
        found[f"{name}_estimate"] = _correlated([(step.forecast[3 + i], step.measures[i]) for step in chosen], roots)
    ends = {
        f"{name}{end}": value
        for name in ESTIMATED
        for end, value in zip(("", "_lo", "_hi"), astuple(found[name])[:3], strict=True)
    }
    return {
        **{"rehearsal_pct": "", "class_pct": "", **sample.where(part)},
        **ends,
        "classes": float(np.mean(classes)),
        "n": found["error"].n,
    }


def _mean_rho(correlations: Sequence[float], classes: Sequence[int], roots: Sequence[str]) -> Estimate:
    return in_rho(mean_estimate(per_experiment(fisher_z(correlations, classes), roots)))


def _correlated(pairs: Sequence[tuple[Values, Values]], roots: Sequence[str]) -> Estimate:
    """The mean rank correlation of two quantities over steps."""
    classes = [int((np.isfinite(one) & np.isfinite(other)).sum()) for one, other in pairs]
    return _mean_rho([float(spearman(one, other)) for one, other in pairs], classes, roots)


def _covered(step: MeasuredStep) -> float:
    forecast, low = step.forecast[:2]
    return covered(forecast, forecast - low, step.forgetting, step.variances)  # the upper end stops at 1
