"""What an analysis shows, in a few words and numbers. Everything is taken from its frames; nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from forgetscope.analysis.tabulation import matching, records

if TYPE_CHECKING:
    from forgetscope.analysis.results import Analysis

NUMBER = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


@dataclass(frozen=True)
class Passage:
    """What is said about one subject: paragraphs of sentences. A title alone says it all."""

    title: str
    paragraphs: tuple[tuple[str, ...], ...] = ()


def passages(analysis: Analysis) -> list[Passage]:
    """What predicts, how well, from how early on, how sure; then the paper's claims, and what is missing."""
    return [*_samples(analysis), *_claims(analysis), *_missing(analysis)]


def reading_lines(analysis: Analysis) -> list[str]:
    """The same for a terminal."""
    lines = []
    for passage in passages(analysis):
        lines.append(passage.title)
        for first, *others in passage.paragraphs:
            lines += [f"  {first}", *(f"    {sentence}" for sentence in others)]
    return lines


def _samples(analysis: Analysis) -> Iterator[Passage]:
    for sample in analysis.collection.samples:
        name = sample.benchmark + ("" if sample.policy == "uniform" else f", {sample.policy}")
        made = " (simulated: nothing was trained)" if sample.simulated else ""
        steps = [f"{int((sample.number == n).sum())} {_nth(n)} steps" for n in sample.numbers]
        paragraphs = []
        for number in sample.numbers:
            said = list(_sentences(analysis, {"benchmark": sample.benchmark, "policy": sample.policy, "subset": str(number)}))
            if said:
                paragraphs.append((f"{_nth(number).capitalize()} steps: {said[0]}", *said[1:]))
        yield Passage(f"{name}{made}: {', '.join(steps)}", tuple(paragraphs))


def _sentences(analysis: Analysis, where: dict[str, str]) -> Iterator[str]:
    severity = _rows(analysis.tables.get("FG-R_FG-HSG_overall"), where)
    ranges = severity.get(("FG-R", "value"))
    if ranges is not None and not math.isnan(ranges["mean"]):
        gaps = severity["FG-HG", "value"]
        yield f"forgetting differs by {_estimate(ranges)} between classes (FG-R), by {_estimate(gaps)} between halves (FG-HG)."
    found = _rows(analysis.tables.get("spearman_individual_coefficients"), where)
    known = {name: row for (name, statistic), row in found.items() if statistic == "rho" and not math.isnan(row["mean"])}
    if known:
        order = sorted(known, key=lambda name: -known[name]["mean"])
        told = ", ".join(f"{name} {_estimate(known[name])}" for name in order)
        yield f"{told} rank the classes by forgetting (mean rho, 95 % interval)."
        given = {name: found[name, "rho_p"] for name in order}
        if not all(math.isnan(row["mean"]) for row in given.values()):
            yield f"Given the other two: {', '.join(f'{name} {_estimate(row)}' for name, row in given.items())}."
    joint = _rows(analysis.tables.get("SW-LOO_protocol_MAE"), where)
    model = joint.get(("all_coefficients", "rho"))
    if model is not None and not math.isnan(model["mean"]):
        alone, error = joint["SIC", "rho"], joint["all_coefficients", "mae"]
        yield (
            f"All three together rank the classes of an unseen step with {model['mean']:.2f} (SIC alone {alone['mean']:.2f}) "
            f"and miss their forgetting by {error['mean']:.3f} on average."
        )
    early = _rows(analysis.more.get("earliness"), where)
    starts = {name: early[name, "rho"]["share"] for name in ("SIC", "CIC", "NIC") if (name, "rho") in early}
    if starts:
        told = ", ".join(f"{name} from {100 * share:.0f} %" for name, share in starts.items())
        yield f"Within 0.02 of that strength: {told} of training on."
    yield from _warning(analysis, where)


def _warning(analysis: Analysis, where: dict[str, str]) -> Iterator[str]:
    frame = analysis.more.get("early_warning")
    if frame is None or frame.empty:
        return
    rows = matching(frame, **where)
    rows = rows[(rows["predictor"] == "all_coefficients") & (rows["group"] == "most forgotten quarter")]
    told = [
        f"{100 * row['share']:.0f} %: {row['precision']:.2f} of them, AUC {row['auc']:.2f}"
        for row in records(rows)
        if not math.isnan(row["precision"])
    ]
    if told:
        yield f"The most forgotten quarter of an unseen step is found after a share of training of {'; '.join(told)}."


def _claims(analysis: Analysis) -> Iterator[Passage]:
    frame = analysis.more.get("claims")
    if frame is None or frame.empty:
        return
    counts = frame["verdict"].value_counts()
    told = ", ".join(f"{int(counts.get(word, 0))} {word}" for word in ("confirmed", "contested", "undecided"))
    contested = tuple((text,) for text in frame[frame["verdict"] == "contested"]["sentence"].tolist())
    yield Passage(f"The paper's claims, each where it can be asked: {told} (all are listed under claims).", contested)


def _missing(analysis: Analysis) -> Iterator[Passage]:
    frame = analysis.more.get("missing")
    if frame is not None:
        yield from (Passage(f"Missing: {text}") for text in frame["what"].tolist())


def _rows(frame: pd.DataFrame | None, where: dict[str, str]) -> dict[tuple[str, str], dict[str, Any]]:
    if frame is None or frame.empty:
        return {}
    rows = matching(frame, **where)
    return {(row["quantity"], row["statistic"]): row for row in records(rows)}


def _estimate(row: dict[str, Any]) -> str:
    interval = "" if math.isnan(row["mean_lo"]) else f" ({row['mean_lo']:.2f} to {row['mean_hi']:.2f})"
    return f"{row['mean']:.2f}{interval}"


def _nth(number: int) -> str:
    return NUMBER.get(number, f"{number}th")
