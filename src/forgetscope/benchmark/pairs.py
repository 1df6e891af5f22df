"""Comparisons: the same pairs of class sequence and seed under several rehearsal policies, from common first steps.

Pair i has the run's seed + i, and its sequence_seed + i where that is set: it is what `forgetscope run` does with that seed,
and shares its steps. A sequence that the run spells out stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forgetscope.benchmark.plans import Plan, empty_plan
from forgetscope.data.library import DataFacts
from forgetscope.errors import SpecError
from forgetscope.options import demand, nearest
from forgetscope.spec import RunSpec

PAIRS = 5


@dataclass(frozen=True)
class Comparison:
    """Rehearsal policies to compare, on so many pairs of class sequence and seed; the run's own policy does not count.

    baseline: by default the first. name: of the plan; by default after the data set.

    >>> import forgetscope as fs
    >>> fs.Comparison(fs.RunSpec(epochs=2), ["uniform", "herding"], pairs=3).compared_with
    'uniform'
    """

    run: RunSpec
    policies: Sequence[str]
    baseline: str | None = None
    pairs: int = PAIRS
    name: str | None = None

    def __post_init__(self) -> None:
        demand("run", self.run, RunSpec, "a run, such as fs.RunSpec(epochs=2)")
        demand("policies", self.policies, Iterable, 'a list of names, such as ["uniform", "herding"]')
        run, policies, baseline = self.run, self.policies, self.compared_with
        for policy in policies:
            member_of(run, 0, policy=policy)
        if len(policies) < 2 or len(set(policies)) < len(policies):
            raise SpecError(f"--policies {','.join(policies)}: name at least two policies, and none twice.")
        if baseline not in policies:
            raise SpecError(f"--baseline {baseline} is not among the policies.{nearest(baseline, policies)}")
        if (run.steps if run.sequence is None else len(run.sequence)) < 2:
            raise SpecError("A first step rehearses nothing, so that policies cannot differ. Use at least two steps.")
        check_pairs(self.pairs)

    @property
    def compared_with(self) -> str:
        return self.baseline or next(iter(self.policies), "")


def comparison_plan(spec: Comparison, data: DataFacts | None = None, sources: Mapping[str, str] | None = None) -> Plan:
    """Every policy on every pair."""
    run, policies = member_of(spec.run, 0, policy=spec.policies[0]), list(spec.policies)
    name = spec.name or plan_name(run.dataset, "compare")
    about = {"kind": "compare", "name": name, "run": run.to_toml(), "policies": policies, "pairs": spec.pairs}
    plan = empty_plan(about, run, (*policies, run.network), data, sources)
    for number in range(spec.pairs):
        for policy in policies:
            plan.add_chain(plan.specs_of(member_of(run, number, policy=policy)), policy, number=number)
    return plan


def check_pairs(pairs: int) -> None:
    if pairs < 1:
        raise SpecError(f"pairs = {pairs} is not valid: it should be greater than or equal to 1.")


def plan_name(title: str, kind: str) -> str:
    """What a plan is called that is made from a file, or a data set, of this name."""
    return re.sub(r"[^\w.-]", "-", title)[:40] + f"-{kind}"


def member_of(run: RunSpec, number: int, **options: Any) -> RunSpec:
    """The run on the pair with this number, with these options."""
    chosen = {**options, "seed": run.seed + number}
    if run.sequence_seed is not None:
        chosen["sequence_seed"] = run.sequence_seed + number
    return RunSpec(**run.model_dump(exclude_unset=True) | chosen)
