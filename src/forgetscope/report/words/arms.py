"""What a comparison says of an arm, in one sentence and its price."""

import math
from collections.abc import Mapping, Sequence

from forgetscope.analysis.questions.arms import EVENLY, LESS, UNJUDGED, ArmMeasure, PairsNeeded
from forgetscope.analysis.questions.learned_classes import conclusive
from forgetscope.analysis.questions.own_loss import SOURCES
from forgetscope.analysis.questions.policies import PolicyComparison
from forgetscope.characters import counted
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.opening import NOT_LEARNED
from forgetscope.report.words.own_loss import takes_away
from forgetscope.report.words.units import size_text

FORGETS = {
    "both": "less than {0} and more evenly",
    "less": "less than {0}, but not more evenly as far as can be told",
    "more evenly": "more evenly than {0}, but not less as far as can be told",
    "neither": "neither less nor more evenly than {0} as far as can be told",
    UNJUDGED[True]: "less than {0}; whether more evenly is not judged",
    UNJUDGED[False]: "not less than {0} as far as can be told; whether more evenly is not judged",
}


def by_measure(rows: Sequence[ArmMeasure], arm: str, step: int) -> dict[str, ArmMeasure]:
    return {row.measure: row for row in rows if (row.arm, row.step) == (arm, step)}


def arm_sentence(mine: Mapping[str, ArmMeasure]) -> str:
    """Whether it forgets less or more evenly than the baseline, and what that costs. By measure, at the same step."""
    less, evenly = mine[LESS], mine[EVENLY]
    lost = diverged(less)
    if not less.n:
        return f"{lost}, so that no pair is left to compare {less.arm} with {less.baseline}."
    if not conclusive(less.past_classes, less.barely_learned):
        return _nothing(mine)
    among = f"{lost}. Of {_others(less.n)} alone: " if lost else ""
    if less.verdict is None:
        why = f"mean FG is not known in two of {less.n} pairs, and nothing can be said" if less.n > 1 else ""
        return f"{among}{less.arm}: {why or 'of one pair nothing can be said. Run more: --pairs'}."
    because = f"mean FG {PLAIN.estimate(less.as_trained, 3, signed=True)}"
    if math.isnan(evenly.matched_high):
        because += f"; {_unmatched(evenly)}"
    else:
        pairs = f" of {evenly.matched_n} pairs" if evenly.matched_n < evenly.n else ""
        because += f", at matched mean FG{pairs} true variance {PLAIN.estimate(evenly.matched, 3, signed=True)}"
    worse = ["more"] * (less.low > 0) + ["less evenly"] * (evenly.matched_low > 0)
    said = f"{less.arm} forgets {FORGETS[less.verdict].format(less.baseline)}" + (
        f"; it forgets {' and '.join(worse)}" if worse else ""
    )
    return f"{among}{said} ({because}). Price: {_price(mine)}."


def diverged(row: ArmMeasure) -> str:
    """In how many pairs training did, of the arm and of the baseline; nothing where it did in none."""
    told = {row.arm: row.diverged, row.baseline: row.baseline_diverged}
    return ", ".join(f"{arm} diverged in {counted(number, 'pair')}" for arm, number in told.items() if number)


def barely_learned(row: ArmMeasure | PairsNeeded | PolicyComparison) -> str:
    """How many past classes were barely learned, in how many pairs, and what that means; nothing where none was."""
    if not row.barely_learned:
        return ""
    said = counted(row.barely_learned, "past class", "was/were", row.past_classes)
    where = f"in {counted(row.barely_pairs, 'pair', of=row.pairs if isinstance(row, PolicyComparison) else row.n)}"
    few = conclusive(row.past_classes, row.barely_learned)
    meant = f"They are in all these means{'; conclude nothing from them' if few else ''}."
    return f"{said} barely learned, {where}: {NOT_LEARNED}. {meant}"


def barely_learned_beside(rows: Sequence[PolicyComparison]) -> list[str]:
    """The same of policies: a sentence for each step and policy but the baseline in which any were."""
    found = []
    for row in (row for row in rows if row.policy != row.baseline and row.barely_learned):
        none = "" if conclusive(row.past_classes, row.barely_learned) else f" Nothing is concluded of {row.policy}."
        found.append(f"Step {row.step}, {row.policy} and {row.baseline}: {barely_learned(row)}{none}")
    return found


def _nothing(mine: Mapping[str, ArmMeasure]) -> str:
    """Instead of a verdict, where too many past classes were barely learned."""
    less, learned = mine[LESS], mine["accuracy_when_learned"]
    lost = f"{diverged(less)}. " if diverged(less) else ""
    then = f"{PLAIN.percent(learned.value)}, of {less.baseline} {PLAIN.percent(learned.baseline_value)}"
    return (
        f"{lost}{less.arm}: nothing is concluded of whether it forgets less or more evenly than {less.baseline} (accuracy of "
        f"past classes when learned: {then})."
    )


def _others(n: int) -> str:
    return "the other pair" if n == 1 else f"the other {n} pairs"


def _unmatched(evenly: ArmMeasure) -> str:
    """Why evenness is not judged."""
    if evenly.matched_n > 1:
        return "the true variance of forgetting is not known in two pairs, which evenness takes"
    only = f"in {evenly.matched_n} of {evenly.n} pairs only" if evenly.matched_n else "in no pair"
    return f"mean FG could be matched {only}, and evenness takes two"


def arm_sentences(mine: Mapping[str, ArmMeasure]) -> list[str]:
    """The same, and where it was measured, which source of interference the arm's own loss takes away in its own network."""
    changed = {name: f"changed_{name}" for name in SOURCES}
    if any(name not in mine or mine[name].baseline_value for name in changed.values()):
        return [arm_sentence(mine)]  # not known, or the baseline is not replay
    if not any(mine[name].value for name in changed.values()):
        return [arm_sentence(mine)]  # and this arm is replay, too
    differences = {name: mine[measure].as_trained for name, measure in changed.items()}
    return [arm_sentence(mine), takes_away(mine[LESS].arm, differences)]


def _price(mine: Mapping[str, ArmMeasure]) -> str:
    parts = [f"accuracy {PLAIN.estimate(mine['accuracy'].as_trained, 3, signed=True)}"]
    kept, seconds = mine["bytes"], mine["seconds"]
    own, usual = (size_text(round(number)) for number in (kept.value, kept.baseline_value))
    parts.append(f"as many bytes ({own})" if kept.value == kept.baseline_value else f"{own} instead of {usual}")
    if seconds.baseline_value > 0:
        parts.append(f"{PLAIN.number(seconds.value / seconds.baseline_value)} times the time")
    return ", ".join(parts)


def extension(planned: int, pairs: int) -> str:
    """Of a comparison to which pairs were added when results of the first could be known."""
    first, added = counted(planned, "pair", "was/were"), counted(pairs - planned, "pair", "was/were")
    return f"An extension: {first} planned before the first step, {added} added later"
