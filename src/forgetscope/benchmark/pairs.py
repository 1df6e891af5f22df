"""Comparisons: the same pairs of class sequence and seed under several rehearsal policies, from common first steps.

Pair i has the run's seed + i, and its sequence_seed + i where that is set: it is what `forgetscope run` does with that seed,
and shares its steps. A sequence that the run spells out stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forgetscope.benchmark.plans import Chain, Plan, empty_plan
from forgetscope.data.library import DataFacts, data_facts
from forgetscope.errors import SpecError
from forgetscope.learning.plugins import source_digests
from forgetscope.scenario import sequence_of
from forgetscope.spec import RunSpec, nearest, step_specs

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
        check_comparison(self.run, self.policies, self.compared_with)
        check_pairs(self.pairs)

    @property
    def compared_with(self) -> str:
        return self.baseline or next(iter(self.policies), "")


def comparison_plan(
    run: RunSpec,
    policies: Sequence[str],
    pairs: int = PAIRS,
    name: str = "compare",
    data: DataFacts | None = None,
    sources: Mapping[str, str] | None = None,
) -> Plan:
    """Every policy on every pair. The run's own policy does not count."""
    data = data or data_facts(run.dataset, run.image_size)
    run = _member(run, policies[0], 0)
    about = {"kind": "compare", "name": name, "run": run.to_toml(), "policies": list(policies), "pairs": pairs}
    plan = empty_plan(about, run, data, sources or source_digests((*policies, run.network)))
    for number in range(pairs):
        for policy in policies:
            member = _member(run, policy, number)
            specs = step_specs(member, sequence_of(member, data.classes), data.augmentation, plan.sources)
            plan.chains.append(Chain(tuple(plan.add(None, 0, specs)), policy, number=number))
    return plan


def check_comparison(run: RunSpec, policies: Sequence[str], baseline: str) -> None:
    """What is wrong with a comparison, said before anything starts."""
    for policy in policies:
        _member(run, policy, 0)
    if len(policies) < 2 or len(set(policies)) < len(policies):
        raise SpecError(f"--policies {','.join(policies)}: name at least two policies, and none twice.")
    if baseline not in policies:
        raise SpecError(f"--baseline {baseline} is not among the policies.{nearest(baseline, policies)}")
    if (run.steps if run.sequence is None else len(run.sequence)) < 2:
        raise SpecError("A first step rehearses nothing, so that policies cannot differ. Use at least two steps.")


def check_pairs(pairs: int) -> None:
    if pairs < 1:
        raise SpecError(f"pairs = {pairs} is not valid: it should be greater than or equal to 1.")


def plan_name(title: str, kind: str) -> str:
    """What a plan is called that is made from a file, or a data set, of this name."""
    return re.sub(r"[^\w.-]", "-", title)[:40] + f"-{kind}"


def member_of(run: RunSpec, number: int) -> RunSpec:
    """The run on the pair with this number."""
    chosen = {"seed": run.seed + number}
    if run.sequence_seed is not None:
        chosen["sequence_seed"] = run.sequence_seed + number
    return RunSpec(**run.model_dump(exclude_unset=True) | chosen)


def _member(run: RunSpec, policy: str, number: int) -> RunSpec:
    """The same with this policy."""
    return member_of(RunSpec(**run.model_dump(exclude_unset=True) | {"policy": policy}), number)
