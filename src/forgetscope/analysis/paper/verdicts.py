"""Verdicts on claims, and how they are told.

A claim is confirmed where the 95 % interval of its number lies on the claimed side, contested where it lies on the other, and
undecided where it holds both. Over several places it is confirmed if all of them confirm it, contested if any contests it.
Intervals are not corrected for the number of claims.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from forgetscope.analysis.inputs.samples import Sample
from forgetscope.analysis.statistics.estimates import Estimate

Verdict = Literal["confirmed", "contested", "undecided"]
Row = dict[str, Any]

SUMMARY = ("claim", "verdict", "sentence", "asked", "confirmed", "contested", "undecided")
DETAIL = ("claim", "benchmark", "policy", "subset", "verdict", "what", "value", "low", "high", "n", "simulated")


@dataclass(frozen=True)
class Answer:
    """One claim in one place."""

    claim: str
    sample: Sample
    subset: str
    what: str  # the number that is given
    estimate: Estimate
    verdict: Verdict


def above(estimate: Estimate, limit: float = 0.0) -> Verdict:
    return _decided(estimate.low > limit, estimate.high < limit)


def below(estimate: Estimate, limit: float = 0.0) -> Verdict:
    return _decided(estimate.high < limit, estimate.low > limit)


def near(estimate: Estimate, margin: float) -> Verdict:
    inside = estimate.low > -margin and estimate.high < margin
    return _decided(inside, estimate.low > margin or estimate.high < -margin)


def together(verdicts: Collection[Verdict]) -> Verdict:
    """Over several places."""
    return _decided(all(verdict == "confirmed" for verdict in verdicts), "contested" in verdicts)


def _decided(confirmed: bool, contested: bool) -> Verdict:
    return "confirmed" if confirmed else "contested" if contested else "undecided"


def claim_frames(found: Iterable[Answer]) -> dict[str, pd.DataFrame]:
    """One row per claim, and one per claim and place."""
    detail, groups = [], dict[str, list[Answer]]()
    for answer in found:
        groups.setdefault(answer.claim, []).append(answer)
        estimate, sample = answer.estimate, answer.sample
        row = (answer.claim, sample.benchmark, sample.policy, answer.subset, answer.verdict, answer.what)
        detail.append((*row, estimate.value, estimate.low, estimate.high, estimate.n, sample.simulated is not None))
    summary = [_summary(claim, members) for claim, members in groups.items()]
    return {
        "claims": pd.DataFrame(summary, columns=list(SUMMARY)),
        "claims_in_detail": pd.DataFrame(detail, columns=list(DETAIL)),
    }


def _summary(claim: str, members: list[Answer]) -> Row:
    counts = {word: sum(answer.verdict == word for answer in members) for word in ("confirmed", "contested", "undecided")}
    verdict = together([answer.verdict for answer in members])
    sentence = f"{claim}: {verdict} ({'; '.join(map(_place, members))})."
    return {"claim": claim, "verdict": verdict, "sentence": sentence, "asked": len(members), **counts}


def _place(answer: Answer) -> str:
    estimate = answer.estimate
    interval = "" if math.isnan(estimate.low) else f" ({estimate.low:z.2f}, {estimate.high:z.2f})"
    numbers = f"{estimate.value:z.2f}{interval}, n = {estimate.n}".replace("-", "\u2212")
    return f"{answer.sample.title} step {answer.subset}: {answer.what} {numbers}"
