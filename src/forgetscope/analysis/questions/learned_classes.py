"""What is found among the past classes that had been learned: accuracies, unevenness, and which coefficient ranks them.

Tables hold every class, as the paper's do; sentences do not conclude from classes that were barely learned
(`statistics.learned`). Where there are none, these numbers are those of the tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forgetscope.analysis.exhibits.exhibit import THREE
from forgetscope.analysis.inputs.measured_steps import MeasuredStep
from forgetscope.analysis.inputs.samples import Sample, Subset
from forgetscope.analysis.statistics.estimates import Estimate, fisher_z, in_rho, mean_estimate
from forgetscope.analysis.statistics.noise import ceiling_estimate, reliability_estimate, spread_estimate
from forgetscope.analysis.statistics.pooling import per_experiment
from forgetscope.analysis.statistics.rank_correlation import spearman
from forgetscope.measuring.forgetting import forgetting_half_gap, forgetting_range

Values = NDArray[np.float64]
FEW = 0.1  # share of past classes that were barely learned up to which something is concluded from the others


def conclusive(past: int, barely: int) -> bool:
    """Whether anything is concluded of so many past classes, of which so many were barely learned."""
    return past > 0 and barely <= FEW * past


@dataclass(frozen=True)
class LearnedClasses:
    """Of the steps with one number. Means over sequences of classes (and seeds), each over its steps; everything but `past`,
    `barely`, `accuracy` and `now` is of classes that were learned."""

    shared: bool  # whether steps share sequences of classes, which estimates then count
    past: int  # classes, counted in each step
    barely: int  # of them
    barely_ids: frozenset[int]  # classes that were barely learned in some step
    accuracy: Estimate  # when learned, of all past classes
    now: Estimate
    range: Estimate  # FG-R
    range_floor: float  # by noise of the test images alone
    half_gap: Estimate  # FG-HG
    half_gap_floor: float
    variance: Estimate  # of forgetting over classes, without the noise
    spread: Estimate
    reliability: Estimate
    ceiling: Estimate  # of rank correlations

    @property
    def conclusive(self) -> bool:
        """Whether anything is concluded at all."""
        return conclusive(self.past, self.barely)

    @property
    def uneven(self) -> bool:
        """Whether forgetting differs from class to class by more than the noise of test images can make it look."""
        return self.variance.low > 0 if self.variance.n > 1 else self.range.value > self.range_floor


@dataclass(frozen=True)
class Ranking:
    """How well SIC, CIC and NIC rank the classes of a step by forgetting, best first, and what may be said of it.

    best: the first one's interval lies above 0, and so does its paired difference to the next. alike: the former only, and the
    next one's interval lies above 0 too. unclear: the former only. none: not even that. too few: fewer than two experiments.
    Their n is that of experiments, each a sequence of classes and a seed."""

    order: tuple[str, ...]
    rho: dict[str, Estimate]
    difference: Estimate | None  # of the first two, in Fisher's z, over the steps in which both are known
    verdict: Literal["best", "alike", "unclear", "none", "too few"]
    shared: bool  # whether steps share experiments


def learned_classes(sample: Sample, number: int) -> LearnedClasses:
    steps, roots = _steps(sample, number), sample.roots(sample.mask(Subset(number)))

    def mean(values: ArrayLike) -> Estimate:
        return mean_estimate(per_experiment(values, roots))

    severity = [severity_of_learned(step) for step in steps]
    noise = np.array([step.clear_noise for step in steps]).reshape(-1, 4).T
    (floor, gap_floor), variance = (mean(part).value for part in noise[:2]), mean(noise[2])
    known = [step for step in steps if np.isfinite(step.clear_noise).all()]
    return LearnedClasses(
        shared=len(set(roots)) < len(roots),
        past=sum(len(step.class_ids) for step in steps),
        barely=sum(int(step.barely.sum()) for step in steps),
        barely_ids=frozenset(id for step in steps for id in step.class_ids[step.barely].tolist()),
        accuracy=mean([_mean(step.learned) for step in steps]),
        now=mean([_mean(step.now) for step in steps]),
        range=mean([extent for extent, _ in severity]),
        range_floor=floor,
        half_gap=mean([gap for _, gap in severity]),
        half_gap_floor=gap_floor,
        variance=variance,
        spread=spread_estimate(variance),
        reliability=reliability_estimate(*(per_experiment(part, roots) for part in noise[2:])),
        ceiling=ceiling_estimate(variance, [step.variances[~step.barely] for step in known]),
    )


def ranking(sample: Sample, number: int) -> Ranking | None:
    """None where no step has a ranking."""
    steps = _steps(sample, number)
    kept = [step.complete & ~step.barely for step in steps]
    found = [spearman(step.measures[: len(THREE), own], step.forgetting[own]) for step, own in zip(steps, kept, strict=True)]
    by_name = dict(zip(THREE, np.array(found).reshape(-1, len(THREE)).T, strict=True))
    counts = np.array([own.sum() for own in kept])
    return ranked(by_name, counts, sample.roots(sample.mask(Subset(number))))


def ranked(correlations: dict[str, Values], classes: NDArray[np.int64], roots: Sequence[str]) -> Ranking | None:
    """The same from correlations [S] by measure, how many classes each ranks, and of which experiments they are."""
    in_z = {name: fisher_z(values, classes) for name, values in correlations.items()}
    every = {name: in_rho(mean_estimate(per_experiment(z, roots))) for name, z in in_z.items()}
    rho = {name: estimate for name, estimate in every.items() if estimate.n}
    if not rho:
        return None
    order = tuple(sorted(rho, key=lambda name: -rho[name].value))
    first, *others = order
    shared = len(set(roots)) < len(roots)
    difference = mean_estimate(per_experiment(in_z[first] - in_z[others[0]], roots)) if others else None
    if rho[first].n < 2:
        return Ranking(order, rho, difference, "too few", shared)
    if not rho[first].low > 0:
        return Ranking(order, rho, difference, "none", shared)
    if difference is None or difference.low > 0:
        return Ranking(order, rho, difference, "best", shared)
    return Ranking(order, rho, difference, "alike" if rho[others[0]].low > 0 else "unclear", shared)


def _steps(sample: Sample, number: int) -> list[MeasuredStep]:
    return [sample.steps[i] for i in np.flatnonzero(sample.mask(Subset(number)))]


def severity_of_learned(step: MeasuredStep) -> tuple[float, float]:
    """FG-R and FG-HG of the classes that were learned."""
    forgetting = step.forgetting[~step.barely]
    return forgetting_range(forgetting), forgetting_half_gap(forgetting)


def _mean(values: Values) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan
