"""Rehearsal policies compared step by step: siblings that share a parent and differ in nothing but the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from forgetscope.analysis.experiments import Experiment, StepSummary
from forgetscope.analysis.statistics import Estimate, mean_estimate
from forgetscope.store import StoredStep

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
    diverged: int  # further steps of this policy whose training diverged; they are in no pair


def compare_policies(found: Sequence[Experiment]) -> list[PolicyComparison]:
    """Every policy that has siblings with the baseline policy, the baseline first; empty where there are none."""
    found = [experiment for experiment in found if not experiment.simulated] or found  # never both in one mean
    siblings: dict[tuple[int, str], dict[str, StepSummary]] = {}
    diverged = {(e.diverged.id, len(e.chain), _policy(e.diverged)) for e in found if e.diverged is not None}
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
    counts = Counter((number, policy) for _, number, policy in diverged)
    return [_comparison(*key, pairs[key], counts[key]) for key in order]


def _policy(step: StoredStep) -> str:
    return step.spec.rehearsal.policy if step.spec.rehearsal else ""


def _comparison(step: int, policy: str, pairs: Sequence[tuple[StepSummary, StepSummary]], diverged: int) -> PolicyComparison:
    values = {name: [(getattr(mine, name), getattr(base, name)) for mine, base in pairs] for name in QUANTITIES}
    return PolicyComparison(
        step=step,
        policy=policy,
        means={name: mean_estimate([mine for mine, _ in both]) for name, both in values.items()},
        differences={name: mean_estimate([mine - base for mine, base in both]) for name, both in values.items()},
        diverged=diverged,
    )
