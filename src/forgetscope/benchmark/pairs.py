"""The same pairs of class sequence and seed under several rehearsal policies, or under variants of one option of the run.

Pair i has the run's seed + i, and its sequence_seed + i where that is set: it is what `forgetscope run` does with that seed,
and shares its steps. A sequence that the run spells out stays as it is.

What can change from the second step on starts from the baseline's own first step, so the difference is not noise from step one.
What a first step is made of (its network, its images) cannot; such a variant has first steps of its own, with the same seeds.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from forgetscope.benchmark.plans import Plan, Sources, empty_plan
from forgetscope.data.library import DataFacts
from forgetscope.errors import SpecError
from forgetscope.options import demand, demand_at_least, nearest, parse_setting, toml_value
from forgetscope.spec import RunSpec, as_released

PAIRS = 5
FIXED = ("dataset", "image_size", "increment", "steps", "sequence_seed", "sequence", "seed")  # what a pair is
FROM_THE_START = (  # what a first step is made of
    *("network", "initialisation", "initial_weights", "normalisation"),
    *("validation", "first_batch", "script_behaviour"),
)


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
        demand_at_least(1, pairs=self.pairs)

    @property
    def compared_with(self) -> str:
        return self.baseline or next(iter(self.policies), "")


def comparison_plan(spec: Comparison, data: DataFacts | None = None, sources: Sources = None) -> Plan:
    """Every policy on every pair."""
    run, policies = member_of(spec.run, 0, policy=spec.policies[0]), list(spec.policies)
    name = spec.name or plan_name(run.dataset, "compare")
    about = {"kind": "compare", "name": name, "run": run.to_toml(), "policies": policies, "pairs": spec.pairs}
    plan = empty_plan(about, run, (*policies, run.network), data, sources)
    for number in range(spec.pairs):
        for policy in policies:
            plan.add_chain(plan.specs_of(member_of(run, number, policy=policy)), policy, number=number)
    return plan


class Variant(NamedTuple):
    """`option` is None for the baseline, which is the run as it is."""

    name: str
    option: str | None = None
    value: object = None

    @property
    def common_parent(self) -> bool:
        """Whether its second steps start from the baseline's first steps."""
        return self.option not in FROM_THE_START


BASELINE = Variant("as it is")


@dataclass(frozen=True)
class Variants:
    """A run and other values of its options, as `key=value`, on so many pairs.

    vary: by default `script_behaviours` of the run. name: by default after the data set.

    >>> import forgetscope as fs
    >>> [run.validation for run in fs.Variants(fs.RunSpec(), ["validation=0.1"]).runs]
    [0.0, 0.1]
    """

    run: RunSpec
    vary: Sequence[str] = ()
    pairs: int = PAIRS
    name: str | None = None

    def __post_init__(self) -> None:
        demand("run", self.run, RunSpec, "a run, such as fs.RunSpec(epochs=2)")
        demand("vary", self.vary, Iterable, 'a list, such as ["validation=0.1"]')
        demand_at_least(1, pairs=self.pairs)
        _ = self.runs  # or an error

    @property
    def variants(self) -> list[Variant]:
        return [parse_variant(setting, self.run) for setting in self.vary or script_behaviours(self.run)]

    @property
    def runs(self) -> tuple[RunSpec, ...]:
        """As it is, and with each change."""
        return (self.run, *(changed(self.run, variant) for variant in self.variants))


def script_behaviours(run: RunSpec) -> list[str]:
    """What the paper's released scripts do otherwise than this run, one by one, then all together: variants of it.

    Left out is what changes nothing by itself: `released_nic`, measured beside NIC; `retained_of` without a hold-out; rounding
    where there is no brightness to round. The scripts have a projection in ResNet-18 only; here it is tried in every network
    that has one, and CIFAR-10's normalisation on Tiny-ImageNet, where they use it.

    >>> import forgetscope as fs
    >>> script_behaviours(fs.RunSpec(sampling="reshuffled-short", initialisation="fan-out"))
    ['validation=0.1', 'initial_weights=unseeded', 'brightness_rounded=true', 'network=resnet8-projected', \
'script_behaviour=released']
    """
    released = as_released({**run.given, "script_behaviour": "released"})
    if ":" not in run.network and not run.network.endswith("-projected"):
        released["network"] = f"{run.network}-projected"
    without_effect = {"released_nic": True, "retained_of": not run.validation, "brightness_rounded": run.brightness == 0}
    found = [
        f"{name}={value if isinstance(value, str) else toml_value(value)}"
        for name, value in released.items()
        if getattr(run, name) != value and not without_effect.get(name)
    ]
    if not found:
        raise SpecError("The run does all that the released scripts do. Name what to change, such as --vary sampling=iid.")
    together = changed(run, Variant("", "script_behaviour", "released"))  # what the run gives beside it wins
    return [*found, *["script_behaviour=released"] * any(getattr(together, name) != getattr(run, name) for name in released)]


def parse_variant(setting: str, run: RunSpec) -> Variant:
    """`key=value` from the command line, checked against the run that it changes."""
    option, value = parse_setting(setting, "--vary", "sampling=reshuffled-short")
    known = [name for name in RunSpec.model_fields if name not in FIXED]
    if option not in known:
        reason = "is what a pair has in common" if option in FIXED else "is no option of a run"
        raise SpecError(f"--vary {setting}: {option} {reason}.{nearest(option, known)}")
    variant = Variant(setting, option, value)
    if changed(run, variant) == run:
        raise SpecError(f"--vary {setting}: that is what the run has already. Give another value.")
    return variant


def variants_plan(spec: Variants, data: DataFacts | None = None, sources: Sources = None) -> Plan:
    """The run as it is and each variant, on every pair; `chains` in this order, pair by pair."""
    run, variants, name = spec.run, spec.variants, spec.name or plan_name(spec.run.dataset, "variants")
    about = {"kind": "variants", "name": name, "run": run.to_toml(), "vary": [v.name for v in variants], "pairs": spec.pairs}
    plan = empty_plan(about, run, (code for r in spec.runs for code in (r.policy, r.network)), data, sources)
    for number in range(spec.pairs):
        base = member_of(run, number)
        for variant in (BASELINE, *variants):
            member = base if variant.option is None else changed(base, variant)
            specs = plan.specs_of(member)
            if variant.common_parent:
                specs[:1] = plan.specs_of(base)[:1]
            plan.add_chain(specs, member.policy, number=number, variant=variant.name)
    return plan


def chains_by_variant(plan: Plan) -> dict[str, list[Sequence[str]]]:
    """Of each variant of such a plan, the baseline first, the steps of its experiments, pair by pair."""
    found: dict[str, list[Sequence[str]]] = {}
    for chain in plan.chains:
        found.setdefault(str(chain.variant), []).append(chain.steps)
    return found


def changed(run: RunSpec, variant: Variant) -> RunSpec:
    return RunSpec(**run.given | {str(variant.option): variant.value})


def plan_name(title: str, kind: str) -> str:
    """What a plan is called that is made from a file, or a data set, of this name."""
    return re.sub(r"[^\w.-]", "-", title)[:40] + f"-{kind}"


def member_of(run: RunSpec, number: int, **options: Any) -> RunSpec:
    """The run on the pair with this number, with these options."""
    chosen = {**options, "seed": run.seed + number}
    if run.sequence_seed is not None:
        chosen["sequence_seed"] = run.sequence_seed + number
    return RunSpec(**run.model_dump(exclude_unset=True) | chosen)
