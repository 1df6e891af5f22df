"""The past classes of two steps of a pair side by side: how much each lost in either."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from forgetscope.analysis.inputs.recognised import barely_learned_in
from forgetscope.analysis.statistics.estimates import Estimate, mean_estimate
from forgetscope.store import StoredTables


@dataclass(frozen=True)
class ClassPair:
    """Means over the pairs in which the class was a past one on both sides and had been learned; see `statistics.learned`."""

    class_id: int
    class_name: str
    base: float  # its forgetting in the step to compare with
    other: float
    difference: Estimate  # other minus base, within pairs
    example: str  # the step to compare with of the first such pair


def class_pairs(pairs: Iterable[tuple[StoredTables, StoredTables, str]]) -> list[ClassPair]:
    """pairs: one side, what it is compared with, and the id of that. What was forgotten most in that comes first."""
    found: dict[int, list[tuple[float, float, str]]] = {}
    names: dict[int, str] = {}
    for mine, base, id in pairs:
        sides = []
        for step in (mine, base):
            rows, barely = step.table("classes", ["class_id", "class_name", "forgetting"]), barely_learned_in(step)
            names |= dict(zip(rows["class_id"].to_pylist(), rows["class_name"].to_pylist(), strict=True))
            lost = dict(zip(rows["class_id"].to_pylist(), rows["forgetting"].to_numpy().tolist(), strict=True))
            sides.append({one: lost[one] for one, hardly in barely.items() if not hardly and np.isfinite(lost[one])})
        for one in sides[0].keys() & sides[1].keys():
            found.setdefault(one, []).append((sides[0][one], sides[1][one], id))
    made = []
    for one, of in found.items():
        now, was = (np.array([values[side] for values in of]) for side in (0, 1))
        made.append(ClassPair(one, names[one], float(was.mean()), float(now.mean()), mean_estimate(now - was), of[0][2]))
    return sorted(made, key=lambda pair: (-pair.base, pair.class_id))
