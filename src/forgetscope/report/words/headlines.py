"""The headline of a benchmark: how uneven forgetting is, which classes suffer, what predicts it and from how early on.

Terminal, page and documents say these sentences. Everything is taken from an analysis' frames, and sentences and cards show the
same estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from forgetscope.analysis.exhibits.exhibit import MODEL, RHO_P, THREE
from forgetscope.analysis.inputs.samples import Sample, Subset
from forgetscope.analysis.inputs.training_shares import BEFORE, EARLY
from forgetscope.analysis.paper.comparisons import on_its_scale, per_experiment
from forgetscope.analysis.questions.example import Example, example
from forgetscope.analysis.questions.learned_classes import LearnedClasses, Ranking, learned_classes, ranking
from forgetscope.analysis.rows import Row, estimate_of, matching, records
from forgetscope.analysis.statistics.estimates import Estimate, in_rho, mean_estimate
from forgetscope.characters import counted, shortened
from forgetscope.report.words.captions import share_text
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.opening import opening, resting
from forgetscope.store import Store

if TYPE_CHECKING:
    from forgetscope.analysis.results import Analysis


NUMBER = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}
SHOWN = 5  # classes at either end
GROUP = "most forgotten quarter"  # whose early warning is told
SETTLED = 2  # probes before the end at which a ranking is as good as there, where one says that it is known since then


@dataclass(frozen=True)
class Card:
    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Headline:
    """Of one benchmark, policy and step number."""

    title: str  # benchmark, policy where it is not the usual one, and how many steps
    pooled: str  # behind it: that means are over several retentions, where they are
    secondary: bool  # of another policy than the usual one, where a store has both
    sentences: list[str]
    cards: list[Card]
    most: list[Row]  # classes with class_name, mean, mean_lo, mean_hi and n
    least: list[Row]
    caution: str  # how many past classes were barely learned, to be said before all else; empty where none was
    lead: str  # one sentence for a newcomer
    predicted: str  # one sentence on what predicted it, as far as that is known
    learned: Estimate  # accuracy of past classes when learned, mean over steps
    now: Estimate  # and now
    picture: Example | None  # the step that stands for it


def headlines(analysis: Analysis) -> list[Headline]:
    """One per benchmark, policy and step number; without sentences and cards where nothing can be said."""
    return [_headline(analysis, sample, step) for sample in analysis.collection.samples for step in sample.numbers]


def _headline(analysis: Analysis, sample: Sample, step: int) -> Headline:
    where = {"benchmark": sample.benchmark, "policy": sample.policy, "subset": str(step)}
    learned, picture, ranked = (
        learned_classes(sample, step),
        example(sample, step, Store(analysis.store)),
        ranking(sample, step),
    )
    most, least = _extremes(analysis.more.get("class_forgetting"), where, learned.barely_ids)
    parts = [*_accuracies(learned)]
    if learned.conclusive:
        row = noise_row(analysis, where)
        parts += [*_uneven(learned), *_noise(learned, row)]
        parts += _suffering(most, least, learned.shared) if learned.uneven else ()
        parts += _predicting(ranked, learned, simulated=sample.simulated is not None)
        parts += _in_tables() if learned.barely else _of_all_classes(analysis, sample, step, ranked)
    usual = any(other.policy == "uniform" for other in analysis.collection.samples)
    first = opening(learned, picture, ranked, simulated=sample.simulated is not None)
    return Headline(
        _title(sample, step),
        _pooled(sample, step),
        usual and sample.policy != "uniform",
        [sentence for sentence, _ in parts if sentence],
        [card for _, card in parts if card],
        most if learned.conclusive else [],
        least if learned.conclusive else [],
        first.caution,
        first.lead,
        first.predicted,
        learned.accuracy,
        learned.now,
        picture,
    )


def _title(sample: Sample, step: int) -> str:
    """What it is about, and whether that was made up."""
    made = " (simulated: nothing was trained)" if sample.simulated else ""
    return f"{sample.title}: {counted_steps(int((sample.number == step).sum()), step)}{made}"


def _pooled(sample: Sample, step: int) -> str:
    """That means are over several retentions, where they are: these differ in how much is forgotten."""
    levels = [share_text(level) for level in sample.retentions(step)]
    return f", retentions of {', '.join(levels[:-1])} and {levels[-1]} pooled" if len(levels) > 1 else ""


def _accuracies(learned: LearnedClasses) -> Iterator[tuple[str, Card | None]]:
    then, now = learned.accuracy, learned.now
    if not math.isnan(then.value):
        yield (
            "",  # the lead says so
            Card(
                "Accuracy when learned, now",
                f"{PLAIN.percent(then.value)}, {PLAIN.percent(now.value)}",
                f"of past classes, mean over steps; {resting(then.n, learned.shared)}",
            ),
        )


def counted_steps(count: int, number: int) -> str:
    """Such as `45 second steps`."""
    return f"{count:,} {NUMBER.get(number, f'{number}th')} {'step' if count == 1 else 'steps'}"


def _uneven(learned: LearnedClasses) -> Iterator[tuple[str, Card | None]]:
    if math.isnan(learned.range.value):
        return
    floors = (learned.range_floor, learned.half_gap_floor)
    noise, gap_noise = ("" if math.isnan(one) else f", {PLAIN.number(one)} by noise alone" for one in floors)
    yield (
        f"The most forgotten class of a step lost {PLAIN.estimate(learned.range)} more of its accuracy than the least "
        f"forgotten one (FG-R{noise}), and the more forgotten half {PLAIN.estimate(learned.half_gap)} more than the other "
        f"(FG-HG{gap_noise}).",
        Card(
            "Unevenness (FG-R)",
            PLAIN.number(learned.range.value),
            f"{_interval(learned.range)}most minus least forgotten class{noise}; {resting(learned.range.n, learned.shared)}",
        ),
    )


def _noise(learned: LearnedClasses, row: Row | None) -> Iterator[tuple[str, Card | None]]:
    if row is None or math.isnan(learned.range_floor):
        return
    images, counts = PLAIN.number(row["images"], 0), f", as far as {row['basis']} tell" if row["paired_n"] < row["n"] else ""
    found = (
        f"without it, forgetting differs from class to class by {PLAIN.estimate(learned.spread)} (standard deviation)"
        if learned.spread.value > 0
        else f"beyond it, no difference between classes was found (variance {PLAIN.estimate(learned.variance, 4)})"
    )
    some = learned.spread.value > 0
    share = f" Reliability, the share of the variance over classes that is not noise: {PLAIN.estimate(learned.reliability)}."
    reliable = share if some else ""
    yield (
        f"Had all past classes of a step been forgotten alike, the noise of {images} test images per class alone would have "
        f"shown FG-R {PLAIN.number(learned.range_floor)} and FG-HG {PLAIN.number(learned.half_gap_floor)}{counts}; {found}."
        f"{reliable}",
        Card(
            "True spread",
            PLAIN.number(learned.spread.value),
            f"{_interval(learned.spread)}of forgetting over classes, without noise"
            + (f"; reliability {PLAIN.number(learned.reliability.value)}" if some else ""),
        ),
    )


def noise_row(analysis: Analysis, where: dict[str, str]) -> Row | None:
    """How much is noise, over all partitions of a step number, where it can be said."""
    rows = _matching(analysis.more.get("noise"), where | {"rehearsal_pct": "", "class_pct": ""})
    return rows[0] if rows and rows[0]["n"] else None


def _suffering(most: list[Row], least: list[Row], shared: bool) -> Iterator[tuple[str, Card | None]]:
    if not most:
        return
    first, last = most[0], least[-1]
    names = shortened(first["class_name"]), shortened(last["class_name"])
    once = "In one sequence of classes" if shared else "In one step"
    over = "On average over steps" if first["n"] > 1 else once
    few = f" ({resting(first['n'], shared)})" if first["n"] == 2 else ""
    sentence = f"{over}, {names[0]} suffered most: it lost {_met(first)} of its accuracy{few}"
    yield (
        f"{sentence}, {names[1]} {_met(last)}, the least." if first is not last else f"{sentence}.",
        Card("Suffers most", first["class_name"], f"forgetting {_met(first)}; {resting(first['n'], shared)}"),
    )


def _met(row: Row) -> str:
    """A class's mean; with an interval from three steps on, below which t intervals say nothing."""
    return _told(row) if row["n"] > 2 else PLAIN.number(row["mean"])


def _predicting(ranked: Ranking | None, learned: LearnedClasses, *, simulated: bool) -> Iterator[tuple[str, Card | None]]:
    """One step says nothing about which measure ranks classes; and where nothing was trained, no card names one."""
    if ranked is None:
        return
    told = ", ".join(f"{name} {PLAIN.estimate(ranked.rho[name])}" for name in ranked.order)
    best = ranked.rho[ranked.order[0]]
    if ranked.verdict == "too few":
        one = "one sequence of classes" if ranked.shared else "one step"
        yield (
            f"Rank correlations with forgetting, of {one}: {told}. {one[0].upper()}{one[1:]} says nothing about which measure "
            "predicts it.",
            None,
        )
        return
    known = learned.ceiling.value > 0  # no true spread: nothing to reach
    ceiling = f" A predictor that knew the true forgetting would reach {PLAIN.estimate(learned.ceiling)}." if known else ""
    most = f", of {PLAIN.number(learned.ceiling.value)} that noise leaves" if known else ""
    label, n = "" if simulated else _leading(ranked), resting(best.n, ranked.shared)
    note = f"{_interval(best)}rank correlation with forgetting{most}; {n}"
    card = Card(label, PLAIN.number(best.value), note) if label else None
    yield f"How each ranks classes by forgetting: {told} (mean rank correlation).{ceiling}", card


def _leading(ranked: Ranking) -> str:
    """How a card calls what ranks classes best, as far as intervals bear it out; empty where nothing does."""
    if ranked.verdict in ("too few", "none"):
        return ""
    first, *others = ranked.order
    match ranked.verdict:
        case "best":
            return f"Best predictor: {first}"
        case "alike":
            return f"Predict alike: {first} and {others[0]}"
        case _:
            return f"Predicts it, if not clearly best: {first}"


def _of_all_classes(analysis: Analysis, sample: Sample, step: int, ranked: Ranking | None) -> Iterator[tuple[str, Card | None]]:
    """What is estimated from every class of several steps."""
    where = {"benchmark": sample.benchmark, "policy": sample.policy, "subset": str(step)}
    if ranked is not None and ranked.verdict != "too few":
        yield _given_others(sample, step, ranked.order), None
        yield from _joint(analysis, where)
    yield from _forecasts(analysis, where)
    if ranked is not None and ranked.verdict != "too few":
        yield from _early(analysis, where, sample, step, ranked)
    yield from _controlled(analysis, where)


def _in_tables() -> Iterator[tuple[str, Card | None]]:
    yield "What is estimated from all classes, such as partial correlations and the joint model, is in the tables only.", None


def _given_others(sample: Sample, step: int, order: tuple[str, ...]) -> str:
    """Partial correlations; the paper's table has the same means, with intervals that take every step as independent."""
    mask = sample.mask(Subset(step))
    given = {name: in_rho(mean_estimate(per_experiment(sample, mask, on_its_scale(sample, (name, RHO_P))))) for name in order}
    told = ", ".join(f"{name} {PLAIN.estimate(one)}" for name, one in given.items() if one.n)
    return f"Given the other two: {told}." if told else ""


def _joint(analysis: Analysis, where: dict[str, str]) -> Iterator[tuple[str, Card | None]]:
    joint = _rows(analysis.tables.get("SW-LOO_protocol_MAE"), where)
    model = joint.get((MODEL, "rho"))
    if model is not None and not math.isnan(model["mean"]):
        single = joint.get(("SIC", "rho"), {"mean": math.nan})["mean"]
        alone = "" if math.isnan(single) else f" (a model of SIC alone, with {PLAIN.number(single)})"
        error = joint[MODEL, "mae"]
        yield (
            f"All three together rank the classes of an unseen step with {PLAIN.number(model['mean'])}"
            f"{alone} and miss their forgetting by {PLAIN.number(error['mean'], 3)} on average "
            f"({counted(model['n'], 'step')}).",
            None,
        )
    weights = [row for row in _matching(analysis.tables.get("coefficients"), where) if not math.isnan(row["mean"])]
    if weights:
        told = "; ".join(_weights([row for row in weights if row["quantity"] == name]) for name in THREE)
        yield f"Their standardised weights in it, partition by partition (t intervals): {told}.", None


def _weights(rows: list[Row]) -> str:
    """Of one coefficient: the smallest and the largest over partitions."""
    smallest, *_, largest = (_told(row) for row in sorted((rows[0], *rows), key=lambda row: row["mean"]))
    name, above = rows[0]["quantity"], sum(row["mean_lo"] > 0 for row in rows)
    if len(rows) == 1:
        return f"{name} {smallest}"
    return f"{name} {smallest} to {largest}, with its whole interval above 0 in {above} of {len(rows)}"


def _controlled(analysis: Analysis, where: dict[str, str]) -> Iterator[tuple[str, Card | None]]:
    rows, told = _matching(analysis.tables.get("controlled_experiments"), {}), []
    for row, runs in zip(rows, analysis.collection.reruns, strict=False):
        if row["n"] and all(row[name] == value for name, value in where.items()):
            rising = int((runs.correlations()[0] > 0).sum())
            kept, new = share_text(row["rehearsal_pct"]), share_text(row["class_pct"])
            told.append(
                f"{PLAIN.number(row['mean'])} on average over the past classes of a step with {kept} kept and {new} new, "
                f"positive for {rising} of {row['n']} ({len(runs.runs)} runs)"
            )
    if told:
        yield f"With other new classes and nothing else changed, SIC of a class goes with its NIC by ρ {'; '.join(told)}.", None


def _forecasts(analysis: Analysis, where: dict[str, str]) -> Iterator[tuple[str, Card | None]]:
    for row in _matching(analysis.more.get("forecasts"), where | {"rehearsal_pct": "", "class_pct": ""}):
        beside = ", ".join(f"{name} {_told(row, name)}" for name in THREE)
        yield (
            f"Forecasts, which see no past image, rank with {_told(row, 'forecast')}, where with past images {beside} do "
            f"({counted(row['n'], 'step')}, of each {PLAIN.number(row['classes'], 1)} classes on average). They miss "
            f"forgetting by {_told(row, 'error')} on average, and "
            f"{_told(row, 'covered')} of the classes lie in their intervals once the noise of test images is added.",
            None,
        )


def _early(
    analysis: Analysis, where: dict[str, str], sample: Sample, step: int, ranked: Ranking
) -> Iterator[tuple[str, Card | None]]:
    probes, trained = sample.probes(step), sample.simulated is None
    rows = _rows(analysis.more.get("earliness"), where)
    starts = {name: rows[name, "rho"] for name in THREE if (name, "rho") in rows and _ranks(ranked, name)}
    settled = {name: row for name, row in starts.items() if row["probes"] <= probes - SETTLED}
    if settled:
        told = ", ".join(f"{name} {since(row['share'])}" for name, row in settled.items())
        moving = [name for name in starts if name not in settled]
        still = f"; {' and '.join(moving)} still {'change' if len(moving) > 1 else 'changes'} at the end" if moving else ""
        name, first = min(settled.items(), key=lambda item: -item[1]["final"])
        yield (
            f"From how early on, within 0.02 of their final strength: {told}{still}.",
            Card(
                f"{name} knows from",
                PLAIN.percent(first["share"]),
                f"{since(first['share'])}, within 0.02 of its final {PLAIN.number(first['final'])}",
            )
            if trained
            else None,
        )
    elif starts:
        yield f"None of them has settled before the end of training: {', '.join(starts)} still change there.", None
    flagged = _matching(analysis.more.get("early_warning"), where | {"group": GROUP, "predictor": MODEL})
    known = [row for row in flagged if not math.isnan(row["precision"])]
    if known:
        row = min(known, key=lambda row: abs(row["share"] - EARLY))
        when = moment(row["share"], probes)
        better = row["precision_lo"] > row["chance"]
        yield (
            f"{when[0].upper()}{when[1:]}, {_told(row, 'precision')} of the classes that would be flagged belong to the most "
            f"forgotten quarter of a step that the model has not seen; chance is {PLAIN.number(row['chance'])}.",
            Card(
                "Flagged early and right" if better else "Flagged early, not surely better than chance",
                PLAIN.percent(row["precision"]),
                f"{_interval(estimate_of(row, 'precision'))}{moment(row['share'])}; chance {PLAIN.percent(row['chance'])}; "
                f"{counted(row['n'], 'step')}",
            ),
        )


def _ranks(ranked: Ranking, name: str) -> bool:
    """Whether it ranks classes at the end at all: of anything else the end is noise, and nothing to be early about."""
    return name in ranked.rho and ranked.rho[name].n > 1 and ranked.rho[name].low > 0


def moment(share: float, probes: int | None = None) -> str:
    """Such as `after 25 % of training`. probes: of a step, to say also where there is none during training."""
    if share != BEFORE:
        return f"after {100 * share:.0f}\u202f% of training"
    return "at the probe before training" + (" (the store has none between it and the end)" if probes == 2 else "")


def since(share: float) -> str:
    """From when on something holds, as `from 12 % of training on`; a share of 0 is the probe before training."""
    if share == BEFORE:
        return "already before training"
    return "only at the end of training" if share == 1 else f"from {100 * share:.0f}\u202f% of training on"


def _extremes(frame: pd.DataFrame | None, where: dict[str, str], barely: frozenset[int]) -> tuple[list[Row], list[Row]]:
    """Of the classes that were learned in every step, those that suffer most and least; none is among both."""
    rows = [row for row in _matching(frame, where) if row["n"] and row["class_id"] not in barely]
    often = [row for row in rows if row["n"] > 1]  # once is no average, unless there is nothing else
    rows = often if len(often) > 1 else rows
    return rows[:SHOWN], rows[SHOWN:][-SHOWN:] or rows[-1:]


def _told(row: Row, of: str = "mean") -> str:
    return PLAIN.estimate(estimate_of(row, of))


def _interval(estimate: Estimate) -> str:
    interval = PLAIN.interval(estimate.low, estimate.high)
    return f"95\u202f%: {interval}; " if interval else ""


def _rows(frame: pd.DataFrame | None, where: dict[str, str]) -> dict[tuple[str, str], Row]:
    return {(row["quantity"], row["statistic"]): row for row in _matching(frame, where)}


def _matching(frame: pd.DataFrame | None, where: dict[str, str]) -> list[Row]:
    return [] if frame is None else records(matching(frame, **where))
