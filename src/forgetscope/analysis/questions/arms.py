"""Arms of a comparison against its baseline, in pairs: do they forget less, do they forget more evenly, and at what price?

Less is not more even: one constant on all past logits lowers mean forgetting, and its range, half gap and worst class with it.
So evenness is judged at matched mean forgetting: in each pair such a constant is set on the test images, so that the arm's mean
FG is the baseline's. That is a device of evaluation; no network has it.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple, TypeVar

import numpy as np

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
WORTHWHILE = {  # differences whose number of pairs `power` tells
    **{"accuracy": 0.01, "new_accuracy": 0.02, "mean_forgetting": 0.05, "forgetting_range": 0.10},
    **{"forgetting_half_gap": 0.05, "worst_forgetting": 0.10, "true_variance": 0.01},
}


@dataclass(frozen=True)
class ArmMeasure:
    """One measure of one arm at one step number, over the pairs in which it and the baseline came to their end.

    Differences are arm minus baseline within pairs, with 95 % t intervals; NaN of the baseline itself, and where they cannot be
    had. A pair is not matched where single test images are unknown, or where no constant reaches the baseline's mean FG."""

    arm: str
    step: int
    measure: str
    value: float  # mean over pairs
    difference: float
    low: float
    high: float
    n: int  # pairs
    noise_floor: float  # of FG-R and FG-HG: what equal forgetting would show
    true_spread: float  # of forgetting over classes, without the noise of test images
    matched_difference: float  # at matched mean FG
    matched_low: float
    matched_high: float
    verdict: str | None  # of the arm in this step: forgets "less", "more evenly", "both" or "neither"; None: too few pairs
    matched_n: int  # pairs that could be matched

    @property
    def as_trained(self) -> Estimate:
        return Estimate(self.difference, self.low, self.high, self.n)

    @property
    def matched(self) -> Estimate:
        return Estimate(self.matched_difference, self.matched_low, self.matched_high, self.matched_n)


@dataclass(frozen=True)
class PairsNeeded:
    """How many pairs would show a difference of an arm in four of five comparisons, by the deviation within pairs so far."""

    arm: str
    step: int
    measure: str
    matched: bool  # at matched mean FG, or as trained
    sd: float  # of the difference within pairs
    n: int  # pairs so far
    smallest: float  # difference that these show
    difference: float
    pairs: int | None  # that this one takes; None: out of reach


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


def compare_arms(store: Store, chains: Mapping[str, Sequence[Chain]]) -> list[ArmMeasure]:
    """chains: of each arm its experiments, pair by pair; the first arm is the baseline. Rows of each step, arm and measure, of
    as much as the store has."""
    found = {name: {pair: _sides(store, chain) for pair, chain in enumerate(of)} for name, of in chains.items()}
    return measured(found, next(iter(chains)))


def measured(found: Mapping[str, Mapping[Pair, Mapping[int, ArmStep]]], baseline: str) -> list[ArmMeasure]:
    """found: of each arm, by pair and number, its steps. No row where nothing is in pairs with the baseline."""
    steps = max((number for of in found.values() for sides in of.values() for number in sides), default=0)
    rows = []
    for number in range(2, steps + 1):
        base = {pair: sides[number] for pair, sides in found[baseline].items() if number in sides}
        asked = any(measures_own(of[number].step) for sides in found.values() for of in sides.values() if number in of)
        for name, of_pair in found.items():
            mine = {pair: sides[number] for pair, sides in of_pair.items() if number in sides}
            pairs = [(mine[pair], base[pair]) for pair in base if pair in mine]
            if pairs:
                rows += _rows(name, number, pairs, compared=name != baseline, own_loss=asked)
    return rows if {row.arm for row in rows} - {baseline} else []


def _sides(store: Store, chain: Chain) -> dict[int, ArmStep]:
    """By number, the steps of one experiment that are there; with its calibration, if it has one."""
    found: dict[int, ArmStep] = {}
    for experiment in planned_experiments(store, [chain]):
        for number, (step, summary) in enumerate(zip(experiment.steps[1:], experiment.summaries, strict=True), start=2):
            own = stored_calibration(store, step, chain.calibration) if chain.calibration else None
            found[number] = ArmStep(step, experiment.steps[: number - 1], summary, own, bool(chain.lent))
    return found


def _rows(arm: str, step: int, pairs: Sequence[tuple[ArmStep, ArmStep]], compared: bool, own_loss: bool) -> list[ArmMeasure]:
    """own_loss: whether any arm has measured what its method's own loss does; a row of it where all these pairs know it."""
    spread = beyond_noise([mine.summary for mine, _ in pairs])["spread"].value
    matched = [_matched(mine, base) for mine, base in pairs] if compared else []
    unknown = Estimate(math.nan, math.nan, math.nan, len(pairs))
    wanted = (*MEASURES, *OF_OWN_LOSS) if own_loss else (*MEASURES,)
    values = {measure: np.array([[_value(side, measure) for side in pair] for pair in pairs]) for measure in wanted}
    values = {measure: of for measure, of in values.items() if measure in MEASURES or np.isfinite(of).all()}
    as_trained, at_matched = dict.fromkeys(values, unknown), dict.fromkeys(values, unknown)
    if compared:
        as_trained = {measure: mean_estimate(of[:, 0] - of[:, 1]) for measure, of in values.items()}
    if known := [i for i, summary in enumerate(matched) if summary is not None]:
        for measure in OF_FORGETTING:
            changes = [getattr(matched[i], measure) - values[measure][i, 1] for i in known]
            at_matched[measure] = mean_estimate(changes)
    verdict = verdict_of(as_trained[LESS], at_matched[EVENLY]) if compared else None
    floors = {measure: float(np.mean([getattr(mine.summary, floor) for mine, _ in pairs])) for measure, floor in FLOORS.items()}
    return [
        ArmMeasure(
            arm=arm,
            step=step,
            measure=measure,
            value=float(values[measure][:, 0].mean()),
            **dict(zip(("difference", "low", "high"), astuple(as_trained[measure])[:3], strict=True)),
            n=len(pairs),
            noise_floor=floors.get(measure, math.nan),
            true_spread=spread,
            **dict(zip(("matched_difference", "matched_low", "matched_high"), astuple(at_matched[measure])[:3], strict=True)),
            verdict=verdict,
            matched_n=len(known),
        )
        for measure in values
    ]


def verdict_of(mean_forgetting: Estimate, true_variance: Estimate) -> str | None:
    """By intervals of differences that lie below 0: of mean FG as trained, and of the true variance at matched mean FG. Where
    nothing differs, each is so by chance in one comparison of forty. None without an interval of mean FG."""
    if math.isnan(mean_forgetting.high):
        return None
    return VERDICTS[mean_forgetting.high < 0, true_variance.high < 0]


def pairs_needed(rows: Sequence[ArmMeasure]) -> list[PairsNeeded]:
    """Of every difference that has an interval."""
    found = []
    for row in rows:
        for matched, estimate in ((False, row.as_trained), (True, row.matched)):
            if row.measure in WORTHWHILE and (sd := deviation(estimate)) > 0 and not (matched and row.measure == LESS):
                asked = WORTHWHILE[row.measure]
                needed = smallest_difference(sd, estimate.n), asked, pairs_for(asked, sd)
                found.append(PairsNeeded(row.arm, row.step, row.measure, matched, sd, estimate.n, *needed))
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
