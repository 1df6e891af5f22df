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

LEFT_OUT = {
    "diverged": ("diverged step", "diverged steps"),
    "no_value": ("step without a ranking", "steps without a ranking"),
    "undefined": ("class never learned", "classes never learned"),
    "unmeasured": ("class not measured", "classes not measured"),
}
NUMBER = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


@dataclass(frozen=True)
class Passage:
    """What is said about one subject: paragraphs of sentences. A title alone says it all."""

    title: str
    paragraphs: tuple[tuple[str, ...], ...] = ()


def passages(analysis: Analysis) -> list[Passage]:
    """What predicts, how well, from how early on, how sure; then the paper's claims, and what is missing."""
    return [*_samples(analysis), *_left_out(analysis), *_claims(analysis), *_missing(analysis)]


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
        made = " (simulated: nothing was trained)" if sample.simulated else ""
        steps = [_counted(int((sample.number == n).sum()), f"{_nth(n)} step", f"{_nth(n)} steps") for n in sample.numbers]
        paragraphs = []
        for number in sample.numbers:
            said = list(_sentences(analysis, {"benchmark": sample.benchmark, "policy": sample.policy, "subset": str(number)}))
            if said:
                paragraphs.append((f"{_nth(number).capitalize()} steps: {said[0]}", *said[1:]))
        yield Passage(f"{sample.title}{made}: {', '.join(steps)}", tuple(paragraphs))


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
        sure = "" if math.isnan(known[order[0]]["mean_lo"]) else ", 95 % interval"
        yield f"{told} rank the classes by forgetting (mean rho{sure})."
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


def _left_out(analysis: Analysis) -> Iterator[Passage]:
    frame = analysis.more.get("left_out")
    for row in records(frame) if frame is not None else ():
        told = [_counted(int(row[name]), *words) for name, words in LEFT_OUT.items() if row[name]]
        if told:
            policy = "" if row["policy"] == "uniform" else f", {row['policy']}"
            yield Passage(f"Left out of {row['benchmark']}{policy}, step {row['subset']}: {', '.join(told)}.")


def _claims(analysis: Analysis) -> Iterator[Passage]:
    frame = analysis.more.get("claims")
    if frame is None or frame.empty:
        return
    counts = frame["verdict"].value_counts()
    told = ", ".join(f"{int(counts.get(word, 0))} {word}" for word in ("confirmed", "contested", "undecided"))
    frame = analysis.more.get("claims_in_detail", pd.DataFrame({"verdict": [], "claim": []}))
    detail = matching(frame, verdict="contested")
    contested = {str(claim): records(rows) for claim, rows in detail.groupby("claim", sort=False)}
    said = ["Each is judged by its own 95 % interval; with so many, some come out wrong by chance."]
    said += [f"Contested: {claim} ({'; '.join(map(_place, rows))})." for claim, rows in contested.items()]
    title = f"The paper's claims, each where it can be asked: {told} (all are listed under claims)."
    yield Passage(title, tuple((sentence,) for sentence in said))


def _place(row: dict[str, Any]) -> str:
    policy = "" if row["policy"] == "uniform" else f", {row['policy']}"
    interval = "" if math.isnan(row["low"]) else f" ({row['low']:.2f} to {row['high']:.2f})"
    return f"{row['benchmark']}{policy} step {row['subset']}: {row['what']} {row['value']:.2f}{interval}"


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


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _nth(number: int) -> str:
    return NUMBER.get(number, f"{number}th")
