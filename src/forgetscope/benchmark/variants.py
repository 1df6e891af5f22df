"""Variants of a run: one option changed, everything else the same, on the same pairs of class sequence and seed.

What can change from the second step on starts from the baseline's own first step, so the difference is not noise from step one.
What a first step is made of (its network, its images) cannot; such a variant has first steps of its own, with the same seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forgetscope.benchmark.pairs import PAIRS, check_pairs, member_of, plan_name
from forgetscope.benchmark.plans import Plan, empty_plan
from forgetscope.data.library import DataFacts
from forgetscope.errors import SpecError
from forgetscope.options import demand, nearest, parse_setting
from forgetscope.spec import RunSpec

FIXED = ("dataset", "image_size", "increment", "steps", "sequence_seed", "sequence", "seed")  # what a pair is
FROM_THE_START = ("network", "validation", "first_batch")  # what a first step is made of


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

    vary: by default what the paper's released scripts do otherwise than its text. name: by default after the data set.

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
        check_pairs(self.pairs)
        _ = self.runs  # or an error

    @property
    def variants(self) -> list[Variant]:
        scripts = ("sampling=reshuffled-short", "validation=0.1", f"network={self.run.network}-projected")
        return [parse_variant(setting, self.run) for setting in self.vary or scripts]

    @property
    def runs(self) -> tuple[RunSpec, ...]:
        """As it is, and with each change."""
        return (self.run, *(changed(self.run, variant) for variant in self.variants))


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


def variants_plan(spec: Variants, data: DataFacts | None = None, sources: Mapping[str, str] | None = None) -> Plan:
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
    """The run with the variant's value."""
    return RunSpec(**run.model_dump(exclude_unset=True) | {str(variant.option): variant.value})
