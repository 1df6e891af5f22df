"""How a store came about: the plans that were run into it, and its policies in pairs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.index import glance
from forgetscope.analysis.inputs.samples import kept_of
from forgetscope.analysis.questions.leaderboard import Leaderboard, leaderboards
from forgetscope.analysis.questions.policies import PolicyComparison, compare_policies
from forgetscope.analysis.results import Analysis
from forgetscope.benchmark.records import recorded_plans, rerun_only
from forgetscope.errors import StoreError
from forgetscope.outputs import Progress, unheard
from forgetscope.store import Store, StoredStep


@dataclass(frozen=True)
class Provenance:
    plans: Sequence[dict[str, Any]]
    unplanned: Sequence[Sequence[StoredStep]]  # experiments that belong to no plan, as chains of steps
    policies: Sequence[PolicyComparison]
    apart: Mapping[str, Sequence[PolicyComparison]] = field(default_factory=dict)  # the same by what is kept
    boards: Sequence[Leaderboard] = ()  # of stores with several methods, or with calibrations
    note: str = ""  # why policies are not compared, where a store has more than one; and what could not be read


def provenance_of(analysis: Analysis, progress: Progress = unheard) -> Provenance:
    store = Store.existing(analysis.store)
    there = store.ids()
    problems: list[StoreError] = []
    plans = [
        plan for plan in recorded_plans(store, problems.append) if any(id in there for id in _own(plan))
    ]  # an estimate records its plan too
    again = rerun_only(plans)
    found = [one for one in glance(store, progress, problems.append) if one.id not in again]
    left_out = " ".join(f"Left out: {problem}" for problem in problems)
    planned = {id for plan in plans for id in _own(plan)}
    unplanned = [one.chain for one in found if one.id not in planned and not one.simulated]
    several = (
        len({one.chain[-1].setting.method + one.chain[-1].setting.policy for one in found}) > 1
        or (store.path / "calibrated").is_dir()
    )
    boards = leaderboards(store, lambda problem: None) if several else []
    if len({sample.policy for sample in analysis.collection.samples}) < 2:
        return Provenance(plans, unplanned, [], {}, boards, left_out)
    rows, apart = compare_policies(found), _by_kept(found)
    unpaired = 'No two policies were run from a common first step, so there are no pairs; design = "paired" makes them.'
    return Provenance(plans, unplanned, rows, apart, boards, " ".join(filter(None, ("" if rows else unpaired, left_out))))


def _by_kept(found: Sequence[Experiment]) -> dict[str, list[PolicyComparison]]:
    """Policies compared among experiments that keep as much, by how much that is and how many classes are new, where that
    differs; what has no pairs is left out."""
    groups: dict[tuple[float, int, str], list[Experiment]] = {}
    for one in (one for one in found if len(one.chain) > 1):
        second = one.chain[1]
        kept = second.setting.options.get("retention")
        said = f"{100 * kept:g}\u202f% kept" if kept is not None else f"{kept_of(second.setting.options)} kept"
        groups.setdefault((kept or 0.0, len(second.new_classes), said), []).append(one)
    several = len({new for _, new, _ in groups}) > 1
    compared = {
        f"{said}, {new} new classes" if several else said: compare_policies(of) for (_, new, said), of in sorted(groups.items())
    }
    return {said: rows for said, rows in compared.items() if rows}


def _own(plan: Mapping[str, Any]) -> Iterator[str]:
    return (id for chain in plan["chains"] for id in chain["steps"])
