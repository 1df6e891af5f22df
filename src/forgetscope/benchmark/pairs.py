"""Comparisons in pairs of class sequence and seed: of rehearsal policies, of arms, of variants of one option of the run."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from forgetscope.benchmark.arms import Arms, add_arms, arm_text, changed, check_arms, check_option, member_of, with_again
from forgetscope.benchmark.plans import Plan, Sources, empty_plan
from forgetscope.data.library import DataFacts
from forgetscope.errors import SpecError
from forgetscope.options import demand, demand_at_least, nearest, parse_setting, toml_value
from forgetscope.spec import RunSpec, as_released

PAIRS = 5


@dataclass(frozen=True)
class Comparison:
    """Rehearsal policies to compare, or arms that differ in whatever options, on so many pairs of class sequence and seed.

    policies: the run's own does not count. arms: by name, their options in place of the run's; instead of policies. baseline:
    by default the first. name: of the plan; by default after the data set. again: whether the baseline is run once more with
    other draws, as an arm called `again`; by default with arms, and with policies not. Asked for, it makes arms of policies.

    >>> import forgetscope as fs
    >>> fs.Comparison(fs.RunSpec(epochs=2), ["uniform", "herding"], pairs=3).compared_with
    'uniform'
    >>> list(fs.Comparison(fs.RunSpec(), arms={"plain": {}, "few": {"retention": 0.04}}).all_arms)
    ['plain', 'again', 'few']
    """

    run: RunSpec
    policies: Sequence[str] = ()
    baseline: str | None = None
    pairs: int = PAIRS
    name: str | None = None
    arms: Arms | None = None
    again: bool | None = None

    def __post_init__(self) -> None:
        demand("run", self.run, RunSpec, "a run, such as fs.RunSpec(epochs=2)")
        demand("policies", self.policies, Iterable, 'a list of names, such as ["uniform", "herding"]')
        demand_at_least(1, pairs=self.pairs)
        if self.arms is not None:
            self._check_form(self.arms)
        else:
            self._check_policies()
        if self.in_arms:
            check_arms(self.run, self._own_arms, self.compared_with, self.again is not False)

    def _check_form(self, arms: Arms) -> None:
        form = 'a dictionary by name, such as {"plain": {}, "few": {"retention": 0.04}}'
        demand("arms", arms, Mapping, form)
        for options in arms.values():
            demand("arms", options, Mapping, form)
        if self.policies:
            raise SpecError(
                f"--policies {','.join(self.policies)} beside --arm: make arms of them, as in 'NAME: policy=herding'."
            )

    def _check_policies(self) -> None:
        run, policies, baseline = self.run, self.policies, self.compared_with
        for policy in policies:
            member_of(run, 0, policy=policy)
        if len(policies) < 2 or len(set(policies)) < len(policies):
            raise SpecError(f"--policies {','.join(policies)}: name at least two policies, and none twice.")
        if baseline not in policies:
            raise SpecError(f"--baseline {baseline} is not among the policies.{nearest(baseline, policies)}")
        if (run.steps if run.sequence is None else len(run.sequence)) < 2:
            raise SpecError("A first step rehearses nothing, so that policies cannot differ. Use at least two steps.")

    @property
    def in_arms(self) -> bool:
        """Whether arms are compared, and not policies alone."""
        return self.arms is not None or bool(self.again)

    @property
    def compared_with(self) -> str:
        return self.baseline or next(iter(self.policies if self.arms is None else self.arms), "")

    @property
    def _own_arms(self) -> Arms:
        return {policy: {"policy": policy} for policy in self.policies} if self.arms is None else self.arms

    @cached_property
    def all_arms(self) -> Arms:
        """The baseline first, then `again`, then the others."""
        if self.again is False:
            return {self.compared_with: self._own_arms[self.compared_with], **self._own_arms}
        return with_again(self.run, self._own_arms, self.compared_with)

    @property
    def runs(self) -> tuple[RunSpec, ...]:
        """The run under each arm; of policies, which change neither data nor network, the run itself."""
        return tuple(changed(self.run, options) for options in self.all_arms.values()) if self.in_arms else (self.run,)


def comparison_plan(spec: Comparison, data: DataFacts | None = None, sources: Sources = None) -> Plan:
    """Every policy, or every arm, on every pair."""
    if spec.in_arms:
        return _arms_plan(spec, data, sources)
    run, policies = member_of(spec.run, 0, policy=spec.policies[0]), list(spec.policies)
    name = spec.name or plan_name(run.dataset, "compare")
    about = {"kind": "compare", "name": name, "run": run.to_toml(), "policies": policies, "pairs": spec.pairs}
    plan = empty_plan(about, run, (*policies, *run.code), data, sources)
    for number in range(spec.pairs):
        for policy in policies:
            member = member_of(run, number, policy=policy)
            plan.add_chain(plan.specs_of(member), member, number=number)
    return plan


def _arms_plan(spec: Comparison, data: DataFacts | None, sources: Sources) -> Plan:
    """The record has what the run sets and no more: an arm may set what follows from another option."""
    run, name = spec.run, spec.name or plan_name(spec.run.dataset, "compare")
    given = "".join(f"{option} = {toml_value(value)}\n" for option, value in run.given.items() if value is not None)
    arms = [arm_text(arm, options) for arm, options in spec.all_arms.items()]
    about = {"kind": "arms", "name": name, "run": given, "arms": arms, "pairs": spec.pairs}
    plan = empty_plan(about, run, (code for r in spec.runs for code in r.code), data, sources)
    add_arms(plan, run, spec.all_arms, spec.compared_with, spec.pairs)
    return plan


class Variant(NamedTuple):
    """`option` is None for the baseline, which is the run as it is."""

    name: str
    option: str | None = None
    value: object = None

    @property
    def options(self) -> dict[str, object]:
        return {} if self.option is None else {self.option: self.value}


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
        return (self.run, *(changed(self.run, variant.options) for variant in self.variants))


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
    together = changed(run, {"script_behaviour": "released"})  # what the run gives beside it wins
    return [*found, *["script_behaviour=released"] * any(getattr(together, name) != getattr(run, name) for name in released)]


def parse_variant(setting: str, run: RunSpec) -> Variant:
    """`key=value` from the command line, checked against the run that it changes."""
    option, value = parse_setting(setting, "--vary", "sampling=reshuffled-short")
    check_option(f"--vary {setting}", option)
    variant = Variant(setting, option, value)
    if changed(run, variant.options) == run:
        raise SpecError(f"--vary {setting}: that is what the run has already. Give another value.")
    return variant


def variants_plan(spec: Variants, data: DataFacts | None = None, sources: Sources = None) -> Plan:
    """The run as it is and each variant, on every pair; `chains` in this order, pair by pair."""
    run, variants, name = spec.run, spec.variants, spec.name or plan_name(spec.run.dataset, "variants")
    about = {"kind": "variants", "name": name, "run": run.to_toml(), "vary": [v.name for v in variants], "pairs": spec.pairs}
    plan = empty_plan(about, run, (code for r in spec.runs for code in r.code), data, sources)
    add_arms(plan, run, {variant.name: variant.options for variant in (BASELINE, *variants)}, BASELINE.name, spec.pairs)
    return plan


def plan_name(title: str, kind: str) -> str:
    """What a plan is called that is made from a file, or a data set, of this name."""
    return re.sub(r"[^\w.-]", "-", title)[:40] + f"-{kind}"
