"""What comes first of a benchmark: one sentence that a newcomer understands, and one on what predicted it.

Nothing is concluded from classes that were barely learned, and no coefficient is named as the best one that its interval and
its difference to the next do not bear out."""

import math
from dataclasses import dataclass

from forgetscope.analysis.questions.example import Example, PastClass
from forgetscope.analysis.questions.learned_classes import LearnedClasses, Ranking
from forgetscope.characters import counted, shortened
from forgetscope.report.words.notation import PLAIN

MEANING = {
    "SIC": "how far a class's own few stored images mislead training",
    "CIC": "how far the stored images of other past classes work against it",
    "NIC": "how far the new classes push its output down",
}
NOT_LEARNED = "when they were new, the network recognised them no better than by guessing, so their forgetting says nothing"


@dataclass(frozen=True)
class Opening:
    caution: str  # to be said first; empty where all past classes were learned
    lead: str
    predicted: str


def opening(learned: LearnedClasses, picture: Example | None, ranking: Ranking | None, *, simulated: bool = False) -> Opening:
    """simulated: nothing was trained, so that nothing was found."""
    caution = barely_sentence(learned.barely, learned.past, learned.conclusive)
    if not learned.conclusive:
        return Opening(caution, _unlearned(learned), "Nothing is concluded about what predicts it.")
    lead = _lead(learned, picture)
    if simulated:
        return Opening(caution, f"Simulated: {lead[0].lower()}{lead[1:]}", put_in(ranking))
    return Opening(caution, lead, predicted(ranking, learned.ceiling.value))


def put_in(ranking: Ranking | None) -> str:
    """Instead of what predicted it, where that was drawn: no coefficient is ahead of another by what was found."""
    if ranking is None:
        return "As put in, no coefficient ranks classes: no simulated step has three past classes."
    told = ", ".join(f"{name} {PLAIN.estimate(one)}" for name, one in sorted(ranking.rho.items()))
    n = resting(ranking.rho[ranking.order[0]].n, ranking.shared)
    return f"As put in: rank correlations with simulated forgetting are {told} ({n}); this is no finding."


def resting(n: int, shared: bool) -> str:
    """What an estimate rests on, such as `n = 8`. shared: steps share sequences of classes, and these are counted."""
    return f"n = {n}" + (" sequences of classes" if shared else "")


def barely_sentence(barely: int, past: int, conclusive: bool) -> str:
    """How many past classes were barely learned; nothing where none was."""
    if not barely:
        return ""
    whom = "them" if conclusive else "these steps"
    said = counted(barely, "past class", "was/were", past)
    return f"{said} barely learned: {NOT_LEARNED}, and nothing is concluded from {whom}."


def change(forgetting: float, of: str = "") -> str:
    """Such as `lost 61 %`, `lost 61 % of their accuracy` or `lost nothing`."""
    percent = round(100 * abs(forgetting))
    if percent == 0:
        return f"lost none {of}".rstrip() if of else "lost nothing"
    return f"{'lost' if forgetting > 0 else 'gained'} {PLAIN.percent(percent / 100)} {of}".rstrip()


def predicted(ranking: Ranking | None, ceiling: float = math.nan) -> str:
    """What ranks classes by forgetting, as far as its interval and its difference to the next bear out."""
    if ranking is None:
        return "What predicts it cannot be said: no step has three past classes to be ranked."
    first, *others = ranking.order
    told = {name: f"{name} {PLAIN.estimate(ranking.rho[name])}" for name in ranking.order}
    n, every = resting(ranking.rho[first].n, ranking.shared), ", ".join(told.values())
    if ranking.verdict == "too few":
        one = "one sequence of classes" if ranking.shared else "one step"
        return f"What predicts it cannot be said from {one} (rank correlations with forgetting: {every})."
    if ranking.verdict == "none":
        why = "intervals include 0" if all(not one.high < 0 for one in ranking.rho.values()) else "no interval lies above 0"
        return f"None of the coefficients predicts it: {every} ({why}, {n})."
    most = "" if not ceiling > 0 else f", of {PLAIN.number(ceiling)} that noise leaves"
    gap = "" if ranking.difference is None else PLAIN.estimate(ranking.difference)
    rest = "".join(f", {told[name]}" for name in others)
    said = f"{first}, {MEANING[first]}"
    values = f"mean rank correlation with forgetting{most}: {told[first]}{rest}; {n}"
    match ranking.verdict:
        case "best":
            ahead = f"; ahead of {others[0]} by {gap} in Fisher's z" if others else ""
            return f"What predicted it best is {said} ({values}{ahead})."
        case "alike":
            second = others[0]
            return (
                f"{first} and {second} predict it alike: {MEANING[first]}, and {MEANING[second]} ({values}; their difference "
                f"in Fisher's z, {gap}, includes 0)."
            )
        case _:
            return (
                f"What predicted it is {said}, though not clearly better than {others[0]} ({values}; their difference in "
                f"Fisher's z, {gap}, includes 0)."
            )


def _lead(learned: LearnedClasses, picture: Example | None) -> str:
    then, now = (PLAIN.percent(one.value) for one in (learned.accuracy, learned.now))
    if learned.now.value < learned.accuracy.value and then != now:
        said = f"Learning new classes took accuracy on past ones from {then} to {now} on average"
    else:
        said = (
            f"Learning new classes left accuracy on past ones at {now} on average, where it was {then} when they were learned"
        )
    shown = _learned_in(picture)
    if picture is None or len(shown) < 2:
        return f"{said}; whether evenly cannot be said of fewer than two past classes."
    most, least, where = shown[0], shown[-1], f"in the step shown, which learned {counted(picture.new_classes, 'new class')}"
    names = shortened(most.name), shortened(least.name)
    apart = f"{PLAIN.number(100 * picture.range, 0)} points apart"
    noise = f"where noise of the test images alone would show {PLAIN.number(100 * picture.floor, 0)}"
    if not learned.uneven:
        return (
            f"{said}, and evenly as far as can be told: {where}, the most and the least forgotten class, {names[0]} and "
            f"{names[1]}, are {apart}, {noise}."
        )
    return (
        f"{said}; {where}, the network {change(most.forgetting, f'of what it knew of {names[0]}')}, but "
        f"{change(least.forgetting, f'of {names[1]}')}: {apart}, {noise}."
    )


def _learned_in(picture: Example | None) -> list[PastClass]:
    every = () if picture is None else picture.classes
    return [one for one in every if not one.barely_learned and not math.isnan(one.forgetting)]


def _unlearned(learned: LearnedClasses) -> str:
    then, now = (PLAIN.percent(one.value) for one in (learned.accuracy, learned.now))
    if not learned.past or math.isnan(learned.accuracy.value):
        return "Nothing can be said about forgetting: no accuracy of a past class when it was learned is known."
    return (
        f"When they were new, past classes were recognised {then} of the time, now {now}: too little was learned to say what "
        "was forgotten."
    )
