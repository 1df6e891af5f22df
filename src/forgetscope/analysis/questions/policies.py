"""Rehearsal policies compared in pairs: experiments that share their first step and differ in nothing but the policy."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forgetscope.analysis.experiments import (
    BEYOND_NOISE,
    Experiment,
    StepSummary,
    beyond_noise,
    policy_names,
    recordings,
    summarise,
)
from forgetscope.analysis.inputs.class_pairs import ClassPair, class_pairs
from forgetscope.analysis.statistics.estimates import Estimate, mean_estimate
from forgetscope.analysis.statistics.pooling import per_experiment
from forgetscope.benchmark.plans import Chain
from forgetscope.store import POLICY, PROBING, Store, StoredStep, counting, has_calibrations, stored_calibration

BASELINE = "uniform"
QUANTITIES = {
    "accuracy": "accuracy, all classes",
    "new_accuracy": "accuracy, new classes",
    "mean_forgetting": "mean FG",
    "forgetting_range": "FG-R",
    "forgetting_half_gap": "FG-HG",
    "worst_forgetting": "FG, worst class",
    "true_variance": "FG, true variance",
    "range_floor": "FG-R, by noise",
    "half_gap_floor": "FG-HG, by noise",
}
MEANS = {**QUANTITIES, **BEYOND_NOISE}
FLOORS = {"forgetting_range": "range_floor", "forgetting_half_gap": "half_gap_floor"}  # what noise alone would show of each


Side = tuple[StepSummary, StoredStep]


@dataclass(frozen=True)
class PolicyComparison:
    """One policy at one step number: each quantity's mean over pairs with the baseline, and the mean paired difference.

    Second steps of a pair have a common parent; later ones build on their own policy's second steps."""

    step: int
    policy: str
    baseline: str
    pairs: int
    means: dict[str, Estimate]  # and those of `BEYOND_NOISE`
    differences: dict[str, Estimate]  # policy minus baseline, within pairs
    past_classes: int  # of all pairs
    barely_learned: int  # of them, by the policy or the baseline, whichever has more
    barely_pairs: int  # in so many of them
    diverged: int  # further steps of this policy whose training diverged; they are in no pair
    steps: tuple[tuple[StoredStep, StoredStep], ...] = field(default=(), compare=False, repr=False)  # with the baseline's

    def classes(self) -> list[ClassPair]:
        return class_pairs((mine, base, base.id) for mine, base in self.steps)


def compare_policies(found: Iterable[Experiment], baseline: str = BASELINE) -> list[PolicyComparison]:
    """Every policy that forms pairs with the baseline policy, the baseline first; empty where there are none."""
    found = list(found)
    found = [experiment for experiment in found if not experiment.simulated] or found  # never both in one mean
    names = policy_names(found)
    if len(names) < 2:
        return []
    counts = counting(recordings(found), apart=False)  # what is compared does not depend on probes
    siblings: dict[tuple[int, tuple[object, ...]], dict[str, Side]] = {}  # under the first step that they share
    diverged: dict[str, tuple[int, str]] = {}
    for experiment in found:
        policies = {step.setting.policy for step in experiment.chain[1:]}
        if len(policies) != 1:
            continue
        policy = names[policies.pop()]
        if experiment.diverged is not None:
            diverged[counts[experiment.diverged.id]] = (len(experiment.chain), policy)
        rest: tuple[object, ...] = tuple(step.id for step in experiment.steps[:1])
        for step, summary in zip(experiment.steps[1:], experiment.summaries, strict=True):
            rest += (step.info["spec"]["seed"], tuple(step.info["spec"]["classes"]), step.setting.but_for(*POLICY, *PROBING))
            if counts[step.id] == step.id:
                siblings.setdefault((summary.step, rest), {})[policy] = (summary, step)
    pairs: dict[tuple[int, str], list[tuple[Side, Side, str]]] = {}
    for (number, (root, *_)), by_policy in siblings.items():
        if baseline in by_policy and len(by_policy) > 1:
            for policy, side in by_policy.items():
                pairs.setdefault((number, policy), []).append((side, by_policy[baseline], str(root)))
    order = sorted(pairs, key=lambda key: (key[0], key[1] != baseline, key[1]))
    lost = Counter(diverged.values())
    return [_comparison(*key, baseline, pairs[key], lost[key]) for key in order]


def planned_experiments(store: Store, chains: Iterable[Chain]) -> list[Experiment]:
    """Of these experiments as much as the store has. The summaries of one with a calibration are of what it then predicts."""
    found = []
    for chain in chains:
        asked = [chain.calibration] if chain.calibration else []
        there = [id in store and has_calibrations(store, id, asked if i else []) for i, id in enumerate(chain.steps)]
        until = there.index(False) if False in there else len(chain.steps)
        if until:
            steps = [store.step(id) for id in chain.steps[:until]]
            found.append(Experiment(steps, _calibrated_summaries(store, steps, chain.calibration), chain.calibration))
    return found


def _calibrated_summaries(store: Store, steps: Sequence[StoredStep], calibration: str | None) -> list[StepSummary] | None:
    if calibration is None:
        return None
    made = (stored_calibration(store, step, calibration) for step in steps[1:])
    return [summarise(one, steps[:number]) for number, one in enumerate(made, start=1) if one.there]


def _comparison(
    step: int, policy: str, baseline: str, sides: Sequence[tuple[Side, Side, str]], diverged: int
) -> PolicyComparison:
    """sides: with the first step of each pair. Pairs that share it, with more or less kept, count as one in intervals."""
    pairs, roots = [(mine, base) for (mine, _), (base, _), _ in sides], [root for *_, root in sides]
    barely = [max(mine.barely_learned, base.barely_learned) for mine, base in pairs]
    values = {name: [(getattr(mine, name), getattr(base, name)) for mine, base in pairs] for name in QUANTITIES}
    return PolicyComparison(
        step=step,
        policy=policy,
        baseline=baseline,
        pairs=len(pairs),
        means={name: mean_estimate(per_experiment([mine for mine, _ in both], roots)) for name, both in values.items()}
        | beyond_noise([mine for mine, _ in pairs], roots),
        differences={
            name: mean_estimate(per_experiment([mine - base for mine, base in both], roots)) for name, both in values.items()
        },
        past_classes=sum(mine.past_classes for mine, _ in pairs),
        barely_learned=sum(barely),
        barely_pairs=sum(number > 0 for number in barely),
        diverged=diverged,
        steps=tuple((mine, base) for (_, mine), (_, base), _ in sides),
    )
