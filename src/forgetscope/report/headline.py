"""The headline of a benchmark: how uneven forgetting is, which classes suffer, what predicts it and from how early on.

Everything is taken from an analysis; sentences and cards show the same estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from forgetscope.analysis.paper import MODEL, THREE
from forgetscope.analysis.results import Analysis
from forgetscope.analysis.samples import Sample
from forgetscope.analysis.tabulation import matching, records

Row = dict[str, Any]
Names = Mapping[tuple[str, int], str]

NUMBER = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}
SHOWN = 5  # classes at either end
SHARE, GROUP = 0.25, "most forgotten quarter"  # of the early warning that a card shows


@dataclass(frozen=True)
class Card:
    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Headline:
    """Of one benchmark, policy and step number."""

    title: str
    secondary: bool  # of another policy than the usual one, where a store has both
    sentences: list[str]
    cards: list[Card]
    most: list[Row]  # classes with name, mean, mean_lo, mean_hi and n
    least: list[Row]


def headlines(analysis: Analysis, names: Names) -> list[Headline]:
    """One per benchmark, policy and step number that has anything to say."""
    found = (_headline(analysis, sample, step, names) for sample in analysis.collection.samples for step in sample.numbers)
    return [headline for headline in found if headline.cards]


def _headline(analysis: Analysis, sample: Sample, step: int, names: Names) -> Headline:
    where = {"benchmark": sample.benchmark, "policy": sample.policy, "subset": str(step)}
    most, least = _extremes(analysis.more["class_forgetting"], where, names)
    parts = [*_uneven(analysis, where), *_suffering(most, least), *_predicting(analysis, where), *_early(analysis, where)]
    policy = "" if sample.policy == "uniform" else f", {sample.policy}"
    count = int((sample.number == step).sum())
    title = f"{sample.benchmark}{policy}: {count} {NUMBER.get(step, f'{step}th')} {'step' if count == 1 else 'steps'}"
    usual = any(other.policy == "uniform" for other in analysis.collection.samples)
    return Headline(
        title,
        usual and sample.policy != "uniform",
        [s for s, _ in parts if s],
        [card for _, card in parts if card],
        most,
        least,
    )


def _uneven(analysis: Analysis, where: dict[str, str]) -> Iterator[tuple[str, Card | None]]:
    rows = _rows(analysis.tables["FG-R_FG-HSG_overall"], where)
    spread, gap = rows.get(("FG-R", "value")), rows.get(("FG-HG", "value"))
    if spread is None or gap is None or math.isnan(spread["mean"]):
        return
    yield (
        f"The most forgotten class of a step lost {estimate(spread)} more of its accuracy than the least forgotten one, and "
        f"the more forgotten half {estimate(gap)} more than the other.",
        Card(
            "Unevenness (FG-R)",
            decimal(spread["mean"]),
            f"{_interval(spread)}most minus least forgotten class; n = {spread['n']}",
        ),
    )


def _suffering(most: list[Row], least: list[Row]) -> Iterator[tuple[str, Card | None]]:
    if not most:
        return
    first, last = most[0], least[-1]
    sentence = f"On average over steps, {first['name']} suffered most: it lost {_met(first)} of its accuracy"
    yield (
        f"{sentence}, {last['name']} {_met(last)}, the least." if first is not last else f"{sentence}.",
        Card("Suffers most", first["name"], f"forgetting {_met(first)}; n = {first['n']}"),
    )


def _met(row: Row) -> str:
    """A class's mean; with an interval from three steps on, below which t intervals say nothing."""
    return estimate(row) if row["n"] > 2 else decimal(row["mean"])


def _predicting(analysis: Analysis, where: dict[str, str]) -> Iterator[tuple[str, Card | None]]:
    rows = _rows(analysis.tables["spearman_individual_coefficients"], where)
    known = {name: rows[name, "rho"] for name in THREE if (name, "rho") in rows and not math.isnan(rows[name, "rho"]["mean"])}
    if not known:
        return
    order = sorted(known, key=lambda name: -known[name]["mean"])
    best = known[order[0]]
    told = ", ".join(f"{name} {estimate(known[name])}" for name in order)
    yield (
        f"What predicts it: {told} (mean rank correlation with forgetting).",
        Card(
            f"Best predictor: {order[0]}",
            decimal(best["mean"]),
            f"{_interval(best)}rank correlation with forgetting; n = {best['n']}",
        ),
    )
    model = _rows(analysis.tables["SW-LOO_protocol"], where).get((MODEL, "rho"))
    if model is not None and not math.isnan(model["mean"]):
        yield f"All three together rank the classes of an unseen step with {decimal(model['mean'])} (n = {model['n']}).", None


def _early(analysis: Analysis, where: dict[str, str]) -> Iterator[tuple[str, Card | None]]:
    rows = _rows(analysis.more["earliness"], where)
    starts = {name: rows[name, "rho"] for name in THREE if (name, "rho") in rows}
    if starts:
        told = ", ".join(f"{name} from {percent(row['share'])}" for name, row in starts.items())
        name, first = min(starts.items(), key=lambda item: -item[1]["final"])
        yield (
            f"From how early on: {told} of training, within 0.02 of their final strength.",
            Card(
                f"{name} knows from",
                percent(first["share"]),
                f"of training on, within 0.02 of its final {decimal(first['final'])}",
            ),
        )
    warned = matching(analysis.more["early_warning"], **where, share=SHARE, group=GROUP)
    for row in records(warned):
        if row["predictor"] == MODEL and not math.isnan(row["precision"]):
            shown = {"mean": row["precision"], "mean_lo": row["precision_lo"], "mean_hi": row["precision_hi"]}
            yield (
                f"After a quarter of training, {estimate(shown)} of the classes that would be flagged belong to the most "
                "forgotten quarter of a step that the model has not seen; chance is 0.25.",
                Card(
                    "Flagged early and right",
                    percent(row["precision"]),
                    f"{_interval(shown)}after 25\u202f% of training; n = {row['n']}",
                ),
            )


def _extremes(frame: pd.DataFrame, where: dict[str, str], names: Names) -> tuple[list[Row], list[Row]]:
    rows = [row for row in records(matching(frame, **where)) if row["n"]]
    often = [row for row in rows if row["n"] > 1]  # once is no average, unless there is nothing else
    rows = often if len(often) > 1 else rows
    rows = [row | {"name": names.get((where["benchmark"], row["class_id"]), f"class {row['class_id']}")} for row in rows]
    return rows[:SHOWN], rows[SHOWN:][-SHOWN:] or rows[-1:]


def estimate(row: Row) -> str:
    return (
        f"{decimal(row['mean'])} ({decimal(row['mean_lo'])} to {decimal(row['mean_hi'])})"
        if _known(row)
        else decimal(row["mean"])
    )


def decimal(value: float) -> str:
    return f"{value:.2f}".replace("-", "\u2212")


def percent(share: float) -> str:
    return f"{100 * share:.0f}\u202f%"


def _interval(row: Row) -> str:
    return f"95\u202f%: {decimal(row['mean_lo'])} to {decimal(row['mean_hi'])}; " if _known(row) else ""


def _known(row: Row) -> bool:
    return not math.isnan(row["mean_lo"])


def _rows(frame: pd.DataFrame, where: dict[str, str]) -> dict[tuple[str, str], Row]:
    return {(row["quantity"], row["statistic"]): row for row in records(matching(frame, **where))}
