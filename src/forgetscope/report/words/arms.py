"""What a comparison says of an arm, in one sentence and its price."""

import math
from collections.abc import Mapping, Sequence

from forgetscope.analysis.questions.arms import EVENLY, LESS, ArmMeasure
from forgetscope.analysis.questions.leaderboard import Leaderboard
from forgetscope.analysis.questions.own_loss import SOURCES
from forgetscope.characters import counted
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.own_loss import takes_away
from forgetscope.report.words.units import size_text

FORGETS = {
    "both": "less than {0} and more evenly",
    "less": "less than {0}, but not more evenly as far as can be told",
    "more evenly": "more evenly than {0}, but not less as far as can be told",
    "neither": "neither less nor more evenly than {0} as far as can be told",
}


def by_measure(rows: Sequence[ArmMeasure], arm: str, step: int) -> dict[str, ArmMeasure]:
    return {row.measure: row for row in rows if (row.arm, row.step) == (arm, step)}


def arm_sentence(mine: Mapping[str, ArmMeasure], base: Mapping[str, ArmMeasure]) -> str:
    """Whether it forgets less or more evenly than the baseline, and what that costs. Both by measure, at the same step."""
    less, evenly = mine[LESS], mine[EVENLY]
    if less.verdict is None:
        return f"{less.arm}: of one pair nothing can be said. Run more: --pairs."
    because = f"mean FG {PLAIN.estimate(less.as_trained, 3, signed=True)}"
    if math.isnan(evenly.matched_high):
        because += "; evenness is not judged: mean FG could not be matched in two pairs"
    else:
        pairs = f" of {evenly.matched_n} pairs" if evenly.matched_n < evenly.n else ""
        because += f", at matched mean FG{pairs} true variance {PLAIN.estimate(evenly.matched, 3, signed=True)}"
    worse = ["more"] * (less.low > 0) + ["less evenly"] * (evenly.matched_low > 0)
    said = f"{less.arm} forgets {FORGETS[less.verdict].format(base[LESS].arm)}" + (
        f"; it forgets {' and '.join(worse)}" if worse else ""
    )
    return f"{said} ({because}). Price: {_price(mine, base)}."


def arm_sentences(mine: Mapping[str, ArmMeasure], base: Mapping[str, ArmMeasure]) -> list[str]:
    """The same, and where it was measured, which source of interference the arm's own loss takes away in its own network."""
    changed = {name: f"changed_{name}" for name in SOURCES}
    if any(name not in side or (side is base and base[name].value) for side in (mine, base) for name in changed.values()):
        return [arm_sentence(mine, base)]  # not known, or the baseline is not replay
    if not any(mine[name].value for name in changed.values()):
        return [arm_sentence(mine, base)]  # and this arm is replay, too
    differences = {name: mine[measure].as_trained for name, measure in changed.items()}
    return [arm_sentence(mine, base), takes_away(mine[LESS].arm, differences)]


def leaderboard_sentences(boards: Sequence[Leaderboard]) -> list[str]:
    """For each method but the baseline, with its step."""
    return [
        f"Step {board.step}: {' '.join(arm_sentences(by_measure(board.rows, arm, board.step), base))}"
        for board in boards
        if (base := by_measure(board.rows, board.baseline, board.step))
        for arm in board.arms
        if arm != board.baseline
    ]


def _price(mine: Mapping[str, ArmMeasure], base: Mapping[str, ArmMeasure]) -> str:
    parts = [f"accuracy {PLAIN.estimate(mine['accuracy'].as_trained, 3, signed=True)}"]
    own, usual = (size_text(round(side["bytes"].value)) for side in (mine, base))
    parts.append(f"as many bytes ({own})" if mine["bytes"].value == base["bytes"].value else f"{own} instead of {usual}")
    if base["seconds"].value > 0:
        parts.append(f"{PLAIN.number(mine['seconds'].value / base['seconds'].value)} times the time")
    return ", ".join(parts)


def extension(planned: int, pairs: int) -> str:
    """Of a comparison to which pairs were added when results of the first could be known."""
    first, added = counted(planned, "pair", "was/were"), counted(pairs - planned, "pair", "was/were")
    return f"An extension: {first} planned before the first step, {added} added later"
