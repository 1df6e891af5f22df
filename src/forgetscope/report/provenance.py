"""How a store came about: the plans that were run into it, and its policies in pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forgetscope.analysis.comparison import PolicyComparison, compare_policies
from forgetscope.analysis.index import glance
from forgetscope.analysis.results import Analysis
from forgetscope.benchmark.records import recorded_plans, recorded_reruns
from forgetscope.errors import DamagedStep
from forgetscope.store import Store, StoredStep


@dataclass(frozen=True)
class Provenance:
    plans: Sequence[dict[str, Any]]
    unplanned: Sequence[Sequence[StoredStep]]  # experiments that belong to no plan, as chains of steps
    policies: Sequence[PolicyComparison]
    note: str = ""  # why policies are not compared, where a store has more than one


def provenance_of(analysis: Analysis, progress: Callable[[str, int, int], None] = lambda what, done, total: None) -> Provenance:
    store = Store.existing(analysis.store)
    there = store.ids()
    plans = [
        plan for plan in recorded_plans(store) if any(id in there for id in _own(plan))
    ]  # an estimate records its plan too
    again = {other for plan in plans for picked in recorded_reruns(plan) for other in picked.others}
    try:
        found = [one for one in glance(store, progress) if one.id not in again]
    except DamagedStep as error:
        return Provenance(plans, [], [], f"Policies and experiments without a plan are not listed. {error}")
    planned = {id for plan in plans for id in _own(plan)}
    unplanned = [one.chain for one in found if one.id not in planned and not one.simulated]
    if len({sample.policy for sample in analysis.collection.samples}) < 2:
        return Provenance(plans, unplanned, [])
    rows = compare_policies(found)
    unpaired = 'No two policies were run from a common first step, so there are no pairs; design = "paired" makes them.'
    return Provenance(plans, unplanned, rows, "" if rows else unpaired)


def _own(plan: Mapping[str, Any]) -> Iterator[str]:
    return (id for chain in plan["chains"] for id in chain["steps"])
