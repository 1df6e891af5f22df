"""Arms of a comparison against its baseline, in pairs: do they forget less, do they forget more evenly, and at what price?

Less is not more even: one constant on all past logits lowers mean forgetting, and its range, half gap and worst class with it.
So evenness is judged at matched mean forgetting: in each pair such a constant is set on the test images, so that the arm's mean
FG is the baseline's. That is a device of evaluation; no network has it.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.experiments import StepSummary, beyond_noise, summarise
from forgetscope.analysis.inputs.recognised import matching_offset
from forgetscope.analysis.questions.own_loss import SOURCES, measures_own, own_means
from forgetscope.analysis.questions.policies import FLOORS, planned_experiments
from forgetscope.analysis.statistics.estimates import Estimate, mean_estimate
from forgetscope.analysis.statistics.power import deviation, pairs_for, smallest_difference
from forgetscope.benchmark.plans import Chain
from forgetscope.store import Store, StoredCalibration, StoredStep, stored_calibration

Pair = TypeVar("Pair", bound=Hashable)
OF_FORGETTING = {
    "accuracy": "accuracy",
    "new_accuracy": "new classes",
    "accuracy_when_learned": "when learned",
    "mean_forgetting": "mean FG",
    "forgetting_range": "FG-R",
    "forgetting_half_gap": "FG-HG",
    "worst_forgetting": "worst class",
    "true_variance": "variance",
}
OF_COST = {"bytes": "bytes kept", "seconds": "seconds"}
MEASURES = OF_FORGETTING | OF_COST
OF_OWN_LOSS = {  # only where it was measured: what an arm's loss does, and what that changes in its own network
    **{f"method_{name}": f"{words}, own loss" for name, words in SOURCES.items()},
    **{f"changed_{name}": f"{words}, changed" for name, words in SOURCES.items()},
}
LESS, EVENLY = "mean_forgetting", "true_variance"  # what the verdict is about: as trained, and at matched mean FG
VERDICTS = {(True, True): "both", (True, False): "less", (False, True): "more evenly", (False, False): "neither"}
UNJUDGED = {True: "less; evenness not judged", False: "not less; evenness not judged"}  # no interval of the true variance
WORTHWHILE = {  # differences whose number of pairs `power` tells
    **{"accuracy": 0.01, "new_accuracy": 0.02, "mean_forgetting": 0.05, "forgetting_range": 0.10},
    **{"forgetting_half_gap": 0.05, "worst_forgetting": 0.10, "true_variance": 0.01},
}


@dataclass(frozen=True)
class ArmMeasure:
    """One measure of one arm at one step number, over the pairs in which it and the baseline came to their end.

    Differences are arm minus baseline within pairs, with 95 % t intervals; NaN of the baseline itself, and where they cannot be
    had. A pair is not matched where single test images are unknown, or where no constant reaches the baseline's mean FG.
    Pairs in which training diverged, in this step or before, are counted and in no number; where no other is left, n is 0."""

    arm: str
    step: int
    measure: str
    value: float  # mean over pairs
    difference: float
    low: float
    high: float
    n: int  # pairs
    diverged: int  # further pairs, in which the arm's training did
    noise_floor: float  # of FG-R and FG-HG: what equal forgetting would show
    true_spread: float  # of forgetting over classes, without the noise of test images
    matched_difference: float  # at matched mean FG
    matched_low: float
    matched_high: float
    verdict: str | None  # of the arm in this step, as in `VERDICTS` and `UNJUDGED`; None: too few pairs
    matched_n: int  # pairs that could be matched
    baseline: str
    baseline_value: float  # over the same pairs, so that value - baseline_value is the difference
    baseline_noise_floor: float
    baseline_true_spread: float
    baseline_diverged: int  # pairs that are lost because the baseline's training diverged
    past_classes: int  # of these pairs together,
    barely_learned: (
        int  # and how many were barely learned (`statistics.learned`), by the arm or the baseline, whichever has more
    )
    barely_pairs: int  # in so many of them

    @property
    def as_trained(self) -> Estimate:
        return Estimate(self.difference, self.low, self.high, self.n)

    @property
    def matched(self) -> Estimate:
        return Estimate(self.matched_difference, self.matched_low, self.matched_high, self.matched_n)


@dataclass(frozen=True)
class PairsNeeded:
    """How many pairs would show a difference of an arm in four of five comparisons, by the deviation within pairs so far.

    diverged and what follows: as of `ArmMeasure`."""

    arm: str
    step: int
    measure: str
    matched: bool  # at matched mean FG, or as trained
    sd: float  # of the difference within pairs
    n: int  # pairs so far
    smallest: float  # difference that these show
    difference: float
    pairs: int | None  # that this one takes; None: out of reach
    diverged: int
    past_classes: int
    barely_learned: int
    barely_pairs: int


class ArmStep(NamedTuple):
    """One arm's step of one pair."""

    step: StoredStep
    ancestors: Sequence[StoredStep]
    summary: StepSummary
    calibrated: StoredCalibration | None = None  # by which it predicts
    lent: bool = False  # its keepsakes are there for another arm

    @property
    def predicting(self) -> StoredStep | StoredCalibration:
        return self.calibrated or self.step


Sides = Mapping[int, ArmStep | None]  # of one arm in one pair, by step number; None: its training had diverged by then


def compare_arms(store: Store, chains: Mapping[str, Sequence[Chain]]) -> list[ArmMeasure]:
    """chains: of each arm its experiments, pair by pair; the first arm is the baseline. Rows of each step, arm and measure, of
    as much as the store has."""
    found = {name: {pair: _sides(store, chain) for pair, chain in enumerate(of)} for name, of in chains.items()}
    return measured(found, next(iter(chains)))


def measured(found: Mapping[str, Mapping[Pair, Sides]], baseline: str) -> list[ArmMeasure]:
    """Rows of the baseline are over all pairs that it has with another arm. No row where nothing is in pairs with it."""
    steps = max((number for of in found.values() for sides in of.values() for number in sides), default=0)
    rows = []
    for number in range(2, steps + 1):
        at = {name: {pair: sides[number] for pair, sides in of.items() if number in sides} for name, of in found.items()}
        of_others = {pair for name, of in at.items() if name != baseline for pair in of}
        base = {pair: side for pair, side in at[baseline].items() if pair in of_others}
        asked = any(side is not None and measures_own(side.step) for of in at.values() for side in of.values())
        for name, of in at.items():
            pairs = [(of[pair], side) for pair, side in base.items() if pair in of]
            if pairs:
                rows += _rows(name, baseline, number, pairs, own_loss=asked)
    return rows


def _sides(store: Store, chain: Chain) -> dict[int, ArmStep | None]:
    """By number, the steps of one experiment that are there; with its calibration, if it has one."""
    found: dict[int, ArmStep | None] = {}
    for experiment in planned_experiments(store, [chain]):
        for number, (step, summary) in enumerate(zip(experiment.steps[1:], experiment.summaries, strict=True), start=2):
            own = stored_calibration(store, step, chain.calibration) if chain.calibration else None
            found[number] = ArmStep(step, experiment.steps[: number - 1], summary, own, bool(chain.lent))
        if experiment.diverged is not None:
            found |= dict.fromkeys(range(max(2, experiment.diverged.number), len(chain.steps) + 1))
    return found


def _rows(
    arm: str, baseline: str, step: int, all_pairs: Sequence[tuple[ArmStep | None, ArmStep | None]], own_loss: bool
) -> list[ArmMeasure]:
    """own_loss: whether any arm has measured what its method's own loss does; a row of it where all these pairs know it."""
    pairs = [(mine, base) for mine, base in all_pairs if mine is not None and base is not None]
    compared = arm != baseline
    values = _values(pairs, own_loss)
    unknown = Estimate(math.nan, math.nan, math.nan, len(pairs))
    as_trained, at_matched = dict.fromkeys(values, unknown), dict.fromkeys(values, unknown)
    if compared:
        as_trained = {measure: mean_estimate(of[:, 0] - of[:, 1]) for measure, of in values.items()}
    matched = [_matched(mine, base) for mine, base in pairs] if compared else []
    if known := [i for i, summary in enumerate(matched) if summary is not None]:
        for measure in OF_FORGETTING:
            changes = [getattr(matched[i], measure) - values[measure][i, 1] for i in known]
            at_matched[measure] = mean_estimate(changes)
    (spread, usual_spread), floors = _noise(pairs)
    barely = [max(mine.summary.barely_learned, base.summary.barely_learned) for mine, base in pairs]
    common: dict[str, Any] = {
        **{"arm": arm, "baseline": baseline, "step": step, "n": len(pairs), "matched_n": len(known)},
        **{"diverged": sum(mine is None for mine, _ in all_pairs), "baseline_diverged": sum(b is None for _, b in all_pairs)},
        **{"true_spread": spread, "baseline_true_spread": usual_spread},
        "past_classes": sum(mine.summary.past_classes for mine, _ in pairs),
        **{"barely_learned": sum(barely), "barely_pairs": sum(number > 0 for number in barely)},
        "verdict": verdict_of(as_trained[LESS], at_matched[EVENLY]) if compared else None,
    }
    return [
        ArmMeasure(
            measure=measure,
            value=_mean(of[:, 0]),
            baseline_value=_mean(of[:, 1]),
            **dict(zip(("difference", "low", "high"), astuple(as_trained[measure])[:3], strict=True)),
            noise_floor=floors[0].get(measure, math.nan),
            baseline_noise_floor=floors[1].get(measure, math.nan),
            **dict(zip(("matched_difference", "matched_low", "matched_high"), astuple(at_matched[measure])[:3], strict=True)),
            **common,
        )
        for measure, of in values.items()
    ]


def _values(pairs: Sequence[tuple[ArmStep, ArmStep]], own_loss: bool) -> dict[str, NDArray[np.float64]]:
    """Of each measure [pairs, 2], of the arm and of the baseline."""
    wanted = (*MEASURES, *OF_OWN_LOSS) if own_loss and pairs else (*MEASURES,)
    found = {measure: np.array([[_value(side, measure) for side in pair] for pair in pairs]) for measure in wanted}
    return {name: of.reshape(-1, 2) for name, of in found.items() if name in MEASURES or np.isfinite(of).all()}


def _noise(pairs: Sequence[tuple[ArmStep, ArmStep]]) -> tuple[list[float], list[dict[str, float]]]:
    """Of the arm and of the baseline: the true spread, and what of each measure noise alone would show."""
    summaries = [[pair[side].summary for pair in pairs] for side in (0, 1)]
    spreads = [beyond_noise(of)["spread"].value if pairs else math.nan for of in summaries]
    floors = [
        {name: _mean(np.array([getattr(one, floor) for one in of])) for name, floor in FLOORS.items()} for of in summaries
    ]
    return spreads, floors


def _mean(values: NDArray[np.float64]) -> float:
    """Of all; NaN without any."""
    return float(values.mean()) if len(values) else math.nan


def verdict_of(mean_forgetting: Estimate, true_variance: Estimate) -> str | None:
    """By intervals of differences that lie below 0: of mean FG as trained, and of the true variance at matched mean FG. Where
    nothing differs, each is so by chance in one comparison of forty. None without an interval of mean FG; what is not judged
    for want of an interval of the true variance is told from what is not seen."""
    if math.isnan(mean_forgetting.high):
        return None
    if math.isnan(true_variance.high):
        return UNJUDGED[mean_forgetting.high < 0]
    return VERDICTS[mean_forgetting.high < 0, true_variance.high < 0]


def pairs_needed(rows: Sequence[ArmMeasure]) -> list[PairsNeeded]:
    """Of every difference that has an interval."""
    found = []
    for row in rows:
        for matched, estimate in ((False, row.as_trained), (True, row.matched)):
            if row.measure in WORTHWHILE and (sd := deviation(estimate)) > 0 and not (matched and row.measure == LESS):
                asked = WORTHWHILE[row.measure]
                needed = smallest_difference(sd, estimate.n), asked, pairs_for(asked, sd)
                learned = row.diverged, row.past_classes, row.barely_learned, row.barely_pairs
                found.append(PairsNeeded(row.arm, row.step, row.measure, matched, sd, estimate.n, *needed, *learned))
    return found


def _value(side: ArmStep, measure: str) -> float:
    if measure == "bytes":
        held_out = 0 if side.calibrated is None else side.calibrated.held_out_bytes
        return float(_bytes_kept(side.step, without_keepsakes=side.lent) + held_out)
    if measure == "seconds":
        timings = side.step.info["timings"]
        beside = sum(s for name, s in timings.items() if name not in ("seconds", "method_seconds"))
        calibrating = 0.0 if side.calibrated is None else side.calibrated.info["seconds"]
        return float(timings["seconds"] - beside + calibrating)
    if measure in OF_OWN_LOSS:
        return own_means(side.step, is_replay=side.step.setting.method[0] == "replay").get(measure, math.nan)
    return float(getattr(side.summary, measure))


def _bytes_kept(step: StoredStep, without_keepsakes: bool) -> int:
    """Of past classes: images as they are, logits and keepsakes alike. Steps of before there were methods record none of it."""
    if (recorded := step.info.get("kept")) is not None:
        return int(sum(number for name, number in recorded.items() if not (without_keepsakes and name == "keepsakes")))
    height, width = step.info["data"]["shape"]
    numbers = [part for one in step.keepsakes().values() if one is not None for part in (one.mean, one.spread)]
    images = int(step.past_classes("rehearsal_images")["rehearsal_images"].sum())
    return int(images * height * width * 3) + sum(part.nbytes for part in numbers if part is not None)


def _matched(mine: ArmStep, base: ArmStep) -> StepSummary | None:
    """The arm's step at the baseline's mean FG; None where it has none such."""
    offset = matching_offset(mine.predicting, base.summary.mean_forgetting)
    if math.isnan(offset):
        return None
    return summarise(mine.predicting, mine.ancestors, offset) if offset else mine.summary
