"""The headline of a benchmark: how uneven forgetting is, which classes suffer, what predicts it and from how early on.

Terminal, page and documents say these sentences. Everything is taken from an analysis' frames, and sentences and cards show the
same estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from forgetscope.analysis.exhibits.exhibit import MODEL, THREE
from forgetscope.analysis.inputs.samples import Sample
from forgetscope.analysis.inputs.training_shares import BEFORE, EARLY
from forgetscope.analysis.questions.example import Example, example
from forgetscope.analysis.questions.learned_classes import Ranking, learned_classes, ranking
from forgetscope.analysis.rows import Row, estimate_of, matching, records
from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.characters import counted
from forgetscope.report.words.captions import share_text
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.opening import opening
from forgetscope.store import Store

if TYPE_CHECKING:
    from forgetscope.analysis.results import Analysis


NUMBER = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}
SHOWN = 5  # classes at either end
GROUP = "most forgotten quarter"  # whose early warning is told


@dataclass(frozen=True)
class Card:
    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Headline:
    """Of one benchmark, policy and step number."""

    title: str  # benchmark, policy where it is not the usual one, and how many steps
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
    most, least = _extremes(analysis.more.get("class_forgetting"), where)
    ranked = ranking(sample, step)
    parts = [
        *_uneven(analysis, where),
        *_noise(analysis, where),
        *_suffering(most, least),
        *_predicting(analysis, where, ranked),
        *_forecasts(analysis, where),
        *_early(analysis, where, sample.probes(step), ranked),
        *_controlled(analysis, where),
    ]
    made = " (simulated: nothing was trained)" if sample.simulated else ""
    usual = any(other.policy == "uniform" for other in analysis.collection.samples)
    learned, picture = learned_classes(sample, step), example(sample, step, Store(analysis.store))
    first = opening(learned, picture, ranked)
    return Headline(
        f"{sample.title}: {counted_steps(int((sample.number == step).sum()), step)}{made}",
        usual and sample.policy != "uniform",
        [sentence for sentence, _ in parts],
        [card for _, card in parts if card],
        most,
        least,
        first.caution,
        first.lead,
        first.predicted,
        learned.accuracy,
        learned.now,
        picture,
    )


def counted_steps(count: int, number: int) -> str:
    """Such as `45 second steps`."""
    return f"{count:,} {NUMBER.get(number, f'{number}th')} {'step' if count == 1 else 'steps'}"


def _uneven(analysis: Analysis, where: dict[str, str]) -> Iterator[tuple[str, Card | None]]:
    rows = _rows(analysis.tables.get("FG-R_FG-HSG_overall"), where)
    spread, gap = rows.get(("FG-R", "value")), rows.get(("FG-HG", "value"))
    if spread is None or gap is None or math.isnan(spread["mean"]):
        return
    row = noise_row(analysis, where)
    floor = f", {PLAIN.number(row['FG-R_floor'])} by noise alone" if row else ""
    yield (
        f"The most forgotten class of a step lost {_told(spread)} more of its accuracy than the least forgotten one, and "
        f"the more forgotten half {_told(gap)} more than the other.",
        Card(
            "Unevenness (FG-R)",
            PLAIN.number(spread["mean"]),
            f"{_interval(spread)}most minus least forgotten class{floor}; n = {spread['n']}",
        ),
    )


def _noise(analysis: Analysis, where: dict[str, str]) -> Iterator[tuple[str, Card | None]]:
    row = noise_row(analysis, where)
    if row is None:
        return
    images, counts = PLAIN.number(row["images"], 0), f", as far as {row['basis']} tell" if row["paired_n"] < row["n"] else ""
    found = (
        f"without it, forgetting differs from class to class by {_told(row, 'spread')} (standard deviation)"
        if row["spread"] > 0
        else f"beyond it, no difference between classes was found (variance {PLAIN.estimate(estimate_of(row, 'variance'), 4)})"
    )
    yield (
        f"Had all past classes of a step been forgotten alike, the noise of {images} test images per class alone would have "
        f"shown FG-R {PLAIN.number(row['FG-R_floor'])} and FG-HG {PLAIN.number(row['FG-HG_floor'])}{counts}; {found}. "
        f"Reliability, the share of the variance over classes that is not noise: {_told(row, 'reliability')}.",
        Card(
            "True spread",
            PLAIN.number(row["spread"]),
            f"{_interval(row, 'spread')}of forgetting over classes, without noise; "
            f"reliability {PLAIN.number(row['reliability'])}",
        ),
    )


def noise_row(analysis: Analysis, where: dict[str, str]) -> Row | None:
    """How much is noise, over all partitions of a step number, where it can be said."""
    rows = _matching(analysis.more.get("noise"), where | {"rehearsal_pct": "", "class_pct": ""})
    return rows[0] if rows and rows[0]["n"] else None


def _suffering(most: list[Row], least: list[Row]) -> Iterator[tuple[str, Card | None]]:
    if not most:
        return
    first, last = most[0], least[-1]
    sentence = f"On average over steps, {first['class_name']} suffered most: it lost {_met(first)} of its accuracy"
    yield (
        f"{sentence}, {last['class_name']} {_met(last)}, the least." if first is not last else f"{sentence}.",
        Card("Suffers most", first["class_name"], f"forgetting {_met(first)}; n = {first['n']}"),
    )


def _met(row: Row) -> str:
    """A class's mean; with an interval from three steps on, below which t intervals say nothing."""
    return _told(row) if row["n"] > 2 else PLAIN.number(row["mean"])


def _predicting(analysis: Analysis, where: dict[str, str], ranked: Ranking | None) -> Iterator[tuple[str, Card | None]]:
    rows = _rows(analysis.tables.get("spearman_individual_coefficients"), where)
    known = {name: rows[name, "rho"] for name in THREE if (name, "rho") in rows and not math.isnan(rows[name, "rho"]["mean"])}
    if not known:
        return
    order = sorted(known, key=lambda name: -known[name]["mean"])
    told = ", ".join(f"{name} {_told(known[name])}" for name in order)
    row = noise_row(analysis, where)
    ceiling = "" if row is None else f" A predictor that knew the true forgetting would reach {_told(row, 'ceiling')}."
    most = "" if row is None else f", of {PLAIN.number(row['ceiling'])} that noise leaves"
    card = None
    if ranked is not None and (label := _leading(ranked)) and (first := known.get(ranked.order[0])):
        note = f"{_interval(first)}rank correlation with forgetting{most}; n = {first['n']}"
        card = Card(label, PLAIN.number(first["mean"]), note)
    yield f"How each ranks classes by forgetting: {told} (mean rank correlation).{ceiling}", card
    given = [rows[name, "rho_p"] for name in order]
    if not all(math.isnan(row["mean"]) for row in given):
        told = ", ".join(f"{row['quantity']} {_told(row)}" for row in given)
        yield f"Given the other two: {told}.", None
    joint = _rows(analysis.tables.get("SW-LOO_protocol_MAE"), where)
    model = joint.get((MODEL, "rho"))
    if model is not None and not math.isnan(model["mean"]):
        alone, error = joint["SIC", "rho"], joint[MODEL, "mae"]
        yield (
            f"All three together rank the classes of an unseen step with {PLAIN.number(model['mean'])} (SIC alone "
            f"{PLAIN.number(alone['mean'])}) and miss their forgetting by {PLAIN.number(error['mean'], 3)} on average "
            f"(n = {model['n']}).",
            None,
        )
    weights = [row for row in _matching(analysis.tables.get("coefficients"), where) if not math.isnan(row["mean"])]
    if weights:
        told = "; ".join(_weights([row for row in weights if row["quantity"] == name]) for name in THREE)
        yield f"Their standardised weights in it, partition by partition (t intervals): {told}.", None


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
            f"({counted(row['n'], 'step')}). They miss forgetting by {_told(row, 'error')} on average, and "
            f"{_told(row, 'covered')} of the classes lie in their intervals once the noise of test images is added.",
            None,
        )


def _early(analysis: Analysis, where: dict[str, str], probes: int, ranked: Ranking | None) -> Iterator[tuple[str, Card | None]]:
    rows = _rows(analysis.more.get("earliness"), where)
    starts = {name: rows[name, "rho"] for name in THREE if (name, "rho") in rows and _ranks(ranked, name)}
    if starts:
        told = ", ".join(f"{name} {since(row['share'])}" for name, row in starts.items())
        name, first = min(starts.items(), key=lambda item: -item[1]["final"])
        note = f"{since(first['share'])}, within 0.02 of its final {PLAIN.number(first['final'])}"
        yield (
            f"From how early on, within 0.02 of their final strength: {told}.",
            Card(f"{name} knows from", PLAIN.percent(first["share"]), note) if first["share"] < 1 else None,
        )
    flagged = _matching(analysis.more.get("early_warning"), where | {"group": GROUP, "predictor": MODEL})
    known = [row for row in flagged if not math.isnan(row["precision"])]
    if known:
        row = min(known, key=lambda row: abs(row["share"] - EARLY))
        when = moment(row["share"], probes)
        yield (
            f"{when[0].upper()}{when[1:]}, {_told(row, 'precision')} of the classes that would be flagged belong to the most "
            "forgotten quarter of a step that the model has not seen; chance is 0.25.",
            Card(
                "Flagged early and right",
                PLAIN.percent(row["precision"]),
                f"{_interval(row, 'precision')}{moment(row['share'])}; n = {row['n']}",
            ),
        )


def _ranks(ranked: Ranking | None, name: str) -> bool:
    """Whether it ranks classes at the end at all: of anything else the end is noise, and nothing to be early about."""
    return ranked is not None and name in ranked.rho and ranked.rho[name].n > 1 and ranked.rho[name].low > 0


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


def _extremes(frame: pd.DataFrame | None, where: dict[str, str]) -> tuple[list[Row], list[Row]]:
    rows = [row for row in _matching(frame, where) if row["n"]]
    often = [row for row in rows if row["n"] > 1]  # once is no average, unless there is nothing else
    rows = often if len(often) > 1 else rows
    return rows[:SHOWN], rows[SHOWN:][-SHOWN:] or rows[-1:]


def _told(row: Row, of: str = "mean") -> str:
    return PLAIN.estimate(estimate_of(row, of))


def _interval(row: Row, of: str = "mean") -> str:
    interval = PLAIN.interval(row[f"{of}_lo"], row[f"{of}_hi"])
    return f"95\u202f%: {interval}; " if interval else ""


def _rows(frame: pd.DataFrame | None, where: dict[str, str]) -> dict[tuple[str, str], Row]:
    return {(row["quantity"], row["statistic"]): row for row in _matching(frame, where)}


def _matching(frame: pd.DataFrame | None, where: dict[str, str]) -> list[Row]:
    return [] if frame is None else records(matching(frame, **where))
