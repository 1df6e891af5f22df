"""Variants of a run compared with it in pairs: how unevenly they forget, and how well the coefficients rank the classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forgetscope.analysis.experiments import MEASURES, Experiment, StepSummary, beyond_noise
from forgetscope.analysis.questions.policies import planned_experiments
from forgetscope.analysis.statistics.estimates import Estimate, correlation_estimate, mean_estimate
from forgetscope.analysis.statistics.t_tests import Difference, paired, paired_correlations
from forgetscope.benchmark.plans import Chain
from forgetscope.store import Store

FORGETTING = {
    "accuracy": "accuracy",
    "mean_forgetting": "mean FG",
    "forgetting_range": "FG-R",
    "range_floor": "FG-R by noise alone",
    "forgetting_half_gap": "FG-HG",
    "half_gap_floor": "FG-HG by noise alone",
}


@dataclass(frozen=True)
class VariantComparison:
    """One variant at one step number, over the pairs in which it and the baseline came to their end.

    Differences are variant minus baseline within pairs; those of correlations are in Fisher's z."""

    step: int
    variant: str
    common_parent: bool  # whether second steps start from the baseline's first steps
    pairs: int
    diverged: int  # further steps of this variant whose training diverged
    means: dict[str, Estimate]  # of forgetting, of `BEYOND_NOISE`, and the rank correlation of each measure with forgetting
    differences: dict[str, Difference]


def compare_variants(store: Store, chains: Mapping[str, Sequence[Chain]]) -> list[VariantComparison]:
    """chains: of each variant its experiments, pair by pair; the first variant is the baseline."""
    baseline, found = next(iter(chains)), {name: planned_experiments(store, of) for name, of in chains.items()}
    rows = []
    for number in sorted({summary.step for experiment in found[baseline] for summary in experiment.summaries}):
        base = _by_seed(found[baseline], number)
        for name, experiments in found.items():
            mine = _by_seed(experiments, number)
            seeds = [seed for seed in base if seed in mine]
            if seeds:
                parents = [{chain.steps[number - 2] for chain in chains[which]} for which in (baseline, name)]
                diverged = sum(e.diverged is not None and e.diverged.spec.step == number for e in experiments)
                both = [mine[seed] for seed in seeds], [base[seed] for seed in seeds]
                rows.append(_row(number, name, parents[0] == parents[1], *both, diverged))
    return rows


def _by_seed(experiments: Sequence[Experiment], number: int) -> dict[int, StepSummary]:
    """The summary of the step with this number; the seed tells the pair."""
    return {e.chain[0].spec.seed: s for e in experiments for s in e.summaries if s.step == number}


def _row(
    step: int, name: str, common: bool, mine: Sequence[StepSummary], base: Sequence[StepSummary], diverged: int
) -> VariantComparison:
    means = beyond_noise(mine)
    differences: dict[str, Difference] = {}
    for quantity in FORGETTING:
        values, others = ([getattr(summary, quantity) for summary in side] for side in (mine, base))
        means[quantity], differences[quantity] = mean_estimate(values), paired(values, others)
    classes = [summary.ranked_classes for summary in mine]
    for measure in MEASURES:
        values, others = ([summary.correlations[measure] for summary in side] for side in (mine, base))
        means[measure] = correlation_estimate(values, classes)
        differences[measure] = paired_correlations(values, others, classes)
    return VariantComparison(step, name, common, len(mine), diverged, means, differences)
