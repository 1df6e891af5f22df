"""Verdicts on claims.

A claim is confirmed where the 95 % interval of its number lies on the claimed side, contested where it lies on the other, and
undecided where it holds both, or has no width: values that are all alike by chance prove nothing. That something is the same is
confirmed where the interval lies inside a stated margin, never by a test that finds nothing. Over several places a claim is
confirmed if all of them confirm it, contested if any contests it.
Intervals are not corrected for the number of claims.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from forgetscope.analysis.inputs.samples import Sample
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics.estimates import Estimate

Verdict = Literal["confirmed", "contested", "undecided"]

SUMMARY = ("claim", "verdict", "asked", "confirmed", "contested", "undecided")
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
    return _known(estimate, estimate.low > limit, estimate.high < limit)


def below(estimate: Estimate, limit: float = 0.0) -> Verdict:
    return _known(estimate, estimate.high < limit, estimate.low > limit)


def near(estimate: Estimate, margin: float) -> Verdict:
    inside = estimate.low > -margin and estimate.high < margin
    return _known(estimate, inside, estimate.low > margin or estimate.high < -margin)


def together(verdicts: Collection[Verdict]) -> Verdict:
    """Over several places."""
    return _decided(all(verdict == "confirmed" for verdict in verdicts), "contested" in verdicts)


def enough(early: Estimate, late: Estimate, change: Estimate, margin: float) -> Verdict:
    """Whether what is known early is what is known late. Undecided where late nothing is known; contested where late is of the
    other sign, as then neither is what is claimed; else early must be known too, and less by at most the margin."""
    if above(late) != "confirmed":
        return "contested" if above(late) == "contested" else "undecided"
    verdict = above(change, -margin)
    return "undecided" if verdict == "confirmed" and above(early) != "confirmed" else verdict


def _known(estimate: Estimate, confirmed: bool, contested: bool) -> Verdict:
    return _decided(confirmed, contested) if estimate.low < estimate.high else "undecided"


def _decided(confirmed: bool, contested: bool) -> Verdict:
    return "confirmed" if confirmed else "contested" if contested else "undecided"


def claim_frames(found: Iterable[Answer]) -> dict[str, pd.DataFrame]:
    """One row per claim, and one per claim and place; the report words the sentences of the first."""
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
    return {"claim": claim, "verdict": verdict, "asked": len(members), **counts}
