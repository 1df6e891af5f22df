"""Policies and methods beside a baseline: tables, differences for a forest plot, every class in both, and what is concluded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from forgetscope.analysis.exhibits.tables import POLICIES, SIDE_BY_SIDE
from forgetscope.analysis.inputs.class_pairs import ClassPair
from forgetscope.analysis.questions.arms import EVENLY, OF_FORGETTING, ArmMeasure
from forgetscope.analysis.questions.leaderboard import Leaderboard
from forgetscope.analysis.questions.learned_classes import conclusive
from forgetscope.analysis.questions.policies import MEANS, QUANTITIES, PolicyComparison
from forgetscope.analysis.statistics.estimates import Estimate, mean_estimate
from forgetscope.report.exhibited import Shown
from forgetscope.report.pages.packing import number
from forgetscope.report.words.arms import arm_sentences, barely_learned, by_measure

FOREST = ("mean_forgetting", "accuracy", "new_accuracy", "worst_forgetting", "forgetting_range", "forgetting_half_gap")
POOLED = "all together (pooled)"
THERE = {"accuracy": "accuracy", "mean_forgetting": "mean FG"}  # of the baseline over the same pairs
UNLEARNED = "too many past classes were barely learned: when they were new, they were recognised no better than by guessing."
NOTHING = "nothing is concluded"  # instead of a verdict

Apart = Mapping[str, Sequence[PolicyComparison]]  # by what is kept


def policy_table(rows: Sequence[PolicyComparison], apart: Apart) -> Shown:
    """A row per step, quantity, what is kept, and policy; those of everything together last."""
    found = []
    for kept, step, row in _policy_rows(rows, apart):
        for name, title in MEANS.items():
            mean, difference = row.means[name], row.differences.get(name, mean_estimate(()))
            found.append(
                {
                    **{"subset": str(step), "quantity": title, "kept": kept, "policy": row.policy},
                    **{"mean": mean.value, "mean_lo": mean.low, "mean_hi": mean.high},
                    **{"difference": difference.value, "difference_lo": difference.low, "difference_hi": difference.high},
                    **{"n": row.pairs, "diverged": row.diverged},
                }
            )
    order = list(MEANS.values())
    found.sort(key=lambda row: (str(row["subset"]), order.index(str(row["quantity"]))))
    return Shown(replace(POLICIES, title=POLICIES.title.format(baseline=rows[0].baseline)), pd.DataFrame(found))


def _policy_rows(rows: Sequence[PolicyComparison], apart: Apart) -> list[tuple[str, int, PolicyComparison]]:
    groups = [*apart.items(), (POOLED, rows)] if len(apart) > 1 else [(next(iter(apart), ""), rows)]
    return [(kept, row.step, row) for kept, of in groups for row in of]


def compared_policies(rows: Sequence[PolicyComparison], apart: Apart) -> dict[str, Any]:
    every = [(kept, step, row) for kept, step, row in _policy_rows(rows, apart) if row.policy != row.baseline]
    return {
        "baseline": rows[0].baseline if rows else "",
        "quantities": {name: QUANTITIES[name] for name in FOREST},
        "rows": [
            _difference(row.policy, _where(kept, step), name, row.differences[name], row.means[name])
            for kept, step, row in every
            for name in FOREST
        ],
        "classes": [_class(row.policy, _where(kept, step), one) for kept, step, row in every for one in row.classes()],
    }


def side_by_side(boards: Sequence[Leaderboard]) -> Shown:
    """A row per setting, step and method."""
    found = []
    for board in boards:
        for arm in board.arms:
            own = by_measure(board.rows, arm, board.step)
            even, kept = own[EVENLY], own["bytes"].value
            found.append(
                {
                    **{"setting": board.setting, "step": board.step, "method": arm, "pairs": even.n, "diverged": even.diverged},
                    **{"matched": even.matched_difference, "from": even.matched_low, "to": even.matched_high},
                    "matched pairs": even.matched_n,
                    "verdict": "baseline" if arm == board.baseline else (even.verdict or "") if _learned(even) else NOTHING,
                    **{"accuracy": own["accuracy"].value, "mean FG": own["mean_forgetting"].value},
                    **{"spread": even.true_spread, "worst class": own["worst_forgetting"].value},
                    **{"bytes kept": kept if math.isnan(kept) else round(kept), "seconds": round(own["seconds"].value, 1)},
                    **{f"baseline’s {word}": own[name].baseline_value for name, word in THERE.items()},
                }
            )
    frame = pd.DataFrame(found)
    one = [name for name in ("setting", "step") if frame[name].nunique() == 1]
    about = ", ".join(f"{name} {frame[name].iloc[0]}" if name == "step" else str(frame[name].iloc[0]) for name in one)
    title = f"{SIDE_BY_SIDE.title}: {about}" if one else SIDE_BY_SIDE.title
    return Shown(replace(SIDE_BY_SIDE, title=title), frame.drop(columns=one).round(3))


def compared_boards(boards: Sequence[Leaderboard]) -> dict[str, Any]:
    several = len({board.setting for board in boards}) > 1
    rows, classes = [], []
    for board in boards:
        where = _where(board.setting if several else "", board.step)
        for arm in (arm for arm in board.arms if arm != board.baseline):
            own = by_measure(board.rows, arm, board.step)
            mean = {name: Estimate(own[name].value, float("nan"), float("nan"), own[name].n) for name in own}
            rows.append(_difference(arm, where, "matched", own[EVENLY].matched, mean[EVENLY]))
            rows += [_difference(arm, where, name, own[name].as_trained, mean[name]) for name in FOREST]
            classes += [_class(arm, where, one) for one in board.classes(arm)]
    titles = {"matched": "true variance at matched mean FG (evenness)"} | {name: OF_FORGETTING[name] for name in FOREST}
    names = dict.fromkeys(board.baseline for board in boards)
    return {"baseline": ", ".join(names), "quantities": titles, "rows": rows, "classes": classes}


def verdicts(boards: Sequence[Leaderboard]) -> list[str]:
    """What is concluded of each method but the baseline: nothing where most of what is compared was hardly learned."""
    said = []
    several = len({board.setting for board in boards}) > 1
    for board in boards:
        where = f"Step {board.step}"
        where += f", {board.setting}" if several else ""
        arms = [arm for arm in board.arms if arm != board.baseline]
        learned = [arm for arm in arms if _learned(by_measure(board.rows, arm, board.step)[EVENLY])]
        for own in (by_measure(board.rows, arm, board.step) for arm in learned):
            told = [*arm_sentences(own), barely_learned(own[EVENLY])]
            said += [f"{where}: {' '.join(filter(None, told))}"]
        if rest := "; ".join(arm for arm in arms if arm not in learned):
            said.append(f"{where}: {UNLEARNED} Nothing is concluded of {rest}.")
    return said


def _learned(row: ArmMeasure) -> bool:
    """Whether anything is said of the arm: as on a terminal."""
    return not row.n or conclusive(row.past_classes, row.barely_learned)


def _where(kept: str, step: int) -> str:
    return f"step {step}, {kept}" if kept else f"step {step}"


def _difference(arm: str, where: str, quantity: str, difference: Estimate, mean: Estimate) -> dict[str, Any]:
    low, high = (number(end) for end in (difference.low, difference.high))
    value = {"difference": number(difference.value), "low": low, "high": high, "n": difference.n, "mean": number(mean.value)}
    return {"arm": arm, "where": where, "quantity": quantity, **value}


def _class(arm: str, where: str, one: ClassPair) -> dict[str, Any]:
    ends = {"base": number(one.base, 4), "other": number(one.other, 4), "n": one.difference.n}
    interval = {"low": number(one.difference.low, 4), "high": number(one.difference.high, 4)}
    name = {"class_id": one.class_id, "class_name": one.class_name, "experiment": one.example[:8]}
    return {"arm": arm, "where": where, **name, **ends, **interval}
