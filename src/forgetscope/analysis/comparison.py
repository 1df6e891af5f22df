"""Rehearsal policies compared step by step: siblings that share a parent and differ in nothing but the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forgetscope.analysis.experiments import Experiment, StepSummary
from forgetscope.analysis.statistics import Estimate, mean_estimate

BASELINE = "uniform"
QUANTITIES = {
    "accuracy": "accuracy, all classes",
    "new_accuracy": "accuracy, new classes",
    "mean_forgetting": "mean FG",
    "forgetting_range": "FG-R",
    "forgetting_half_gap": "FG-HG",
}


@dataclass(frozen=True)
class PolicyComparison:
    """One policy at one step number: each quantity's mean over pairs with the baseline, and the mean paired difference."""

    step: int
    policy: str
    means: dict[str, Estimate]
    differences: dict[str, Estimate]  # policy minus baseline, within pairs


def compare_policies(found: Sequence[Experiment]) -> list[PolicyComparison]:
    """Every policy that has siblings with the baseline policy, the baseline first; empty where there are none."""
    siblings: dict[tuple[int, str], dict[str, StepSummary]] = {}
    for experiment in found:
        for step, summary in zip(experiment.steps[1:], experiment.summaries, strict=True):
            if step.spec.rehearsal is not None:
                plain = step.spec.rehearsal.model_copy(update={"policy": "", "policy_source": None})
                rest = step.spec.model_copy(update={"rehearsal": plain})
                key = (step.spec.step, f"{step.parent} {rest.model_dump_json()}")
                siblings.setdefault(key, {})[step.spec.rehearsal.policy] = summary
    pairs: dict[tuple[int, str], list[tuple[StepSummary, StepSummary]]] = {}
    for (number, _), by_policy in siblings.items():
        if BASELINE in by_policy and len(by_policy) > 1:
            for policy, summary in by_policy.items():
                pairs.setdefault((number, policy), []).append((summary, by_policy[BASELINE]))
    order = sorted(pairs, key=lambda key: (key[0], key[1] != BASELINE, key[1]))
    return [_comparison(number, policy, pairs[number, policy]) for number, policy in order]


def _comparison(step: int, policy: str, pairs: Sequence[tuple[StepSummary, StepSummary]]) -> PolicyComparison:
    values = {name: [(getattr(mine, name), getattr(base, name)) for mine, base in pairs] for name in QUANTITIES}
    return PolicyComparison(
        step=step,
        policy=policy,
        means={name: mean_estimate([mine for mine, _ in both]) for name, both in values.items()},
        differences={name: mean_estimate([mine - base for mine, base in both]) for name, both in values.items()},
    )
