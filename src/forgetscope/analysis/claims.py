"""The paper's claims, asked of a store: each confirmed, contested or undecided, with the numbers.

A claim about a difference is confirmed where its 95 % interval lies on the claimed side, contested where it lies on the other,
undecided where it holds both. Its verdict is confirmed if every benchmark and step confirms it, contested if any contests it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from forgetscope.analysis.associations import ASSOCIATIONS
from forgetscope.analysis.contrasts import (
    between_samples,
    between_steps,
    comparable,
    neighbours,
    within_steps,
)
from forgetscope.analysis.differences import welch
from forgetscope.analysis.joint import JointModels
from forgetscope.analysis.measured import probes_within
from forgetscope.analysis.paper import MODEL, PAPER_ORDER, THREE
from forgetscope.analysis.pooling import mean_of
from forgetscope.analysis.samples import Collection, Name, Sample, Subset
from forgetscope.analysis.statistics import Estimate, fisher_z, mean_estimate
from forgetscope.analysis.tabulation import matching, records

Verdict = Literal["confirmed", "contested", "undecided"]
Row = dict[str, Any]

SUBSTANTIAL = 0.5  # FG-R: the most forgotten class loses half of its accuracy more than the least forgotten one
STABLE = 0.03  # a change of FG-HG that counts as none
NEAR = 0.05  # a difference of correlations that counts as none
SELDOM = 0.5  # share of steps below which something is the exception
SIGNIFICANT = 0.05
EARLY = 0.25  # share of training that the paper calls early

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


def answers(collection: Collection, joint: JointModels, tables: Mapping[str, pd.DataFrame]) -> list[Answer]:
    """Every claim wherever it can be asked. tables: the paper's, whose ANOVAs some claims are about."""
    found: list[Answer] = []
    for sample in collection.samples:
        for number in sample.numbers:
            subset = Subset(number)
            found += _in_a_step(sample, subset)
            found += _weights(sample, number, joint)
        for earlier, later in neighbours(sample):
            found += _between_steps(sample, earlier, later)
    for sample, against in comparable(collection):
        found += _between_data_sets(sample, against)
    found += _controlled(collection)
    found += _effects(collection, tables)
    return [answer for answer in found if not math.isnan(answer.estimate.value)]


def claim_frames(found: Iterable[Answer]) -> dict[str, pd.DataFrame]:
    """One row per claim, and one per claim and place."""
    detail, groups = [], dict[str, list[Answer]]()
    for answer in found:
        groups.setdefault(answer.claim, []).append(answer)
        estimate, sample = answer.estimate, answer.sample
        row = (answer.claim, sample.benchmark, sample.policy, answer.subset, answer.verdict, answer.what)
        numbers = (estimate.value, estimate.low, estimate.high, estimate.n, sample.simulated is not None)
        detail.append(dict(zip(DETAIL, (*row, *numbers), strict=True)))
    summary = [_summary(claim, members) for claim, members in groups.items()]
    return {
        "claims": pd.DataFrame(summary, columns=list(SUMMARY)),
        "claims_in_detail": pd.DataFrame(detail, columns=list(DETAIL)),
    }


def _summary(claim: str, members: list[Answer]) -> Row:
    counts = {word: sum(answer.verdict == word for answer in members) for word in ("confirmed", "contested", "undecided")}
    verdict = "contested" if counts["contested"] else "undecided" if counts["undecided"] else "confirmed"
    numbers = "; ".join(f"{a.sample.benchmark} step {a.subset}: {a.what} {_numbers(a.estimate)}" for a in members)
    sentence = f"{claim}: {verdict} ({numbers})."
    return {"claim": claim, "verdict": verdict, "sentence": sentence, "asked": len(members), **counts}


def _numbers(estimate: Estimate) -> str:
    interval = "" if math.isnan(estimate.low) else f" ({estimate.low:.2f} to {estimate.high:.2f})"
    return f"{estimate.value:.2f}{interval}, n = {estimate.n}"


def above(estimate: Estimate, limit: float = 0.0) -> Verdict:
    if estimate.low > limit:
        return "confirmed"
    return "contested" if estimate.high < limit else "undecided"


def below(estimate: Estimate, limit: float = 0.0) -> Verdict:
    if estimate.high < limit:
        return "confirmed"
    return "contested" if estimate.low > limit else "undecided"


def near(estimate: Estimate, margin: float) -> Verdict:
    if estimate.low > -margin and estimate.high < margin:
        return "confirmed"
    return "contested" if estimate.low > margin or estimate.high < -margin else "undecided"


def _in_a_step(sample: Sample, subset: Subset) -> Iterator[Answer]:
    mask, ranked = sample.mask(subset), sample.ranked

    def mean(name: Name) -> Estimate:
        return mean_of(name[1], sample.values[name][mask], ranked[mask])

    def told(claim: str, what: str, estimate: Estimate, verdict: Callable[..., Verdict], *limit: float) -> Answer:
        return Answer(claim, sample, str(subset), what, estimate, verdict(estimate, *limit))

    def more(claim: str, name: Name, than: Name, unit: str = "difference in z") -> Answer:
        return told(claim, unit, within_steps(sample, subset, name, than), above)

    rho, rho_p = "rho", "rho_p"
    range_ = mean(("FG-R", "value"))
    yield told("Imbalanced forgetting is substantial (mean FG-R above one half)", "FG-R", range_, above, SUBSTANTIAL)
    improved, by = improvement(sample, subset)
    yield told(
        "The least forgotten class seldom improves", f"share of steps (mean FG there {by.value:.2f})", improved, below, SELDOM
    )
    for other in ("NIC", "CIC"):
        yield more(f"SIC ranks past classes better than {other}", ("SIC", rho), (other, rho))
        yield more(f"SIC ranks past classes better than {other}, given the others", ("SIC", rho_p), (other, rho_p))
    yield more("NIC ranks past classes better than CIC", ("NIC", rho), ("CIC", rho))
    yield more("NIC loses strength when the others are controlled for", ("NIC", rho), ("NIC", rho_p))
    yield more("What NIC shares is shared with SIC rather than with CIC", ("NIC", "rho_p_CIC"), ("NIC", "rho_p_SIC"))
    yield told("CIC adds something that the others do not hold", "rho_p", mean(("CIC", rho_p)), above)
    yield more("NIC is better than ALL-NIC", ("NIC", rho), ("ALL-NIC", rho))
    yield more("NIC is better than ALL-NIC, given SIC and CIC", ("NIC", rho_p), ("ALL-NIC", rho_p))
    yield more("NIC goes with SIC more than ALL-NIC does", ("SIC-NIC", rho), ("ALL-NIC-SIC", rho))
    yield more("NIC is better than LOG-SIM", ("NIC", rho), ("LOG-SIM", rho))
    yield told("NIC goes with SIC", "rho", mean(("SIC-NIC", rho)), above)
    yield told("SIC and CIC have no consistent relation", "rho", mean(("SIC-CIC", rho)), near, NEAR)
    if (MODEL, rho) in sample.values:
        yield more("All coefficients together rank better than SIC alone", (MODEL, rho), ("SIC", rho))
        yield more("All coefficients together rank better than LOG-SIM", (MODEL, rho), ("LOG-SIM", rho))
        error = "difference of errors"
        yield more("All coefficients together predict closer than SIC alone", ("SIC_model", "mae"), (MODEL, "mae"), error)
    yield from _early(sample, subset)
    yield from _trends(sample, subset)


def improvement(sample: Sample, subset: Subset) -> tuple[Estimate, Estimate]:
    """The share of steps whose least forgotten class improved, and its mean forgetting there."""
    steps = [sample.steps[i] for i in np.flatnonzero(sample.mask(subset))]
    least = np.array([np.nanmin(s.forgetting) if np.isfinite(s.forgetting).any() else np.nan for s in steps])
    share = np.where(np.isnan(least), np.nan, (least < 0).astype(float))
    return mean_estimate(share), mean_estimate(least[least < 0])


def _early(sample: Sample, subset: Subset) -> Iterator[Answer]:
    """The first quarter of training against all of it."""
    steps = [i for i in np.flatnonzero(sample.mask(subset)) if len(sample.steps[i].course)]
    if not steps:
        return
    names = [(a.quantity, a.statistic) for a in ASSOCIATIONS]
    for quantity in THREE:
        column = names.index((quantity, "rho"))
        early = [sample.steps[i].course[probes_within(EARLY, len(sample.steps[i].course)) - 1, column] for i in steps]
        difference = mean_estimate(np.array(early, np.float64) - sample.values[quantity, "rho"][steps])
        claim = f"A quarter of training is enough for {quantity}"
        yield Answer(claim, sample, str(subset), "change of rho", difference, above(difference, -NEAR))
    column = names.index(("NIC", "rho_p"))
    early = [sample.steps[i].course[probes_within(EARLY, len(sample.steps[i].course)) - 1, column] for i in steps]
    ranked = sample.ranked[steps]
    late = fisher_z(sample.values["NIC", "rho_p"][steps], ranked)
    difference = mean_estimate(fisher_z(np.array(early, np.float64), ranked) - late)
    claim = "What NIC alone tells shrinks as training goes on"
    yield Answer(claim, sample, str(subset), "early minus late, in z", difference, above(difference))


def _trends(sample: Sample, subset: Subset) -> Iterator[Answer]:
    """The lowest against the highest level of each factor."""
    mask, values = sample.mask(subset), sample.values["FG-R", "value"]
    for claim, levels, own in (
        ("Less rehearsal makes forgetting more uneven", sample.retentions(subset.step)[::-1], sample.retention),
        ("More new classes make forgetting more uneven", sample.increments(subset.step), sample.increment),
    ):
        if len(levels) > 1:
            parts = [values[mask & np.array([level == chosen for level in own])] for chosen in (levels[-1], levels[0])]
            difference = welch(*parts).estimate
            yield Answer(claim, sample, str(subset), "difference of FG-R", difference, above(difference))


def _between_steps(sample: Sample, earlier: Subset, later: Subset) -> Iterator[Answer]:
    which = f"{later} against {earlier}"

    def asked(claim: str, name: Name, verdict: Callable[..., Verdict], *limit: float) -> Answer:
        found = between_steps(sample, earlier, later, name).estimate
        unit = "difference in z" if name[1].startswith("rho") else "difference"
        return Answer(claim, sample, which, unit, found, verdict(found, *limit))

    yield asked("FG-R grows from step to step", ("FG-R", "value"), above)
    yield asked("FG-HG stays the same from step to step", ("FG-HG", "value"), near, STABLE)
    for name in ("SIC", "NIC"):
        yield asked(f"{name} ranks less well from step to step", (name, "rho"), below)
    yield asked("NIC goes less with SIC from step to step", ("SIC-NIC", "rho"), below)
    yield asked("LOG-SIM ranks less well from step to step", ("LOG-SIM", "rho"), below)
    if (MODEL, "rho") in sample.values:
        yield asked("All coefficients together rank less well from step to step", (MODEL, "rho"), below)


def _between_data_sets(sample: Sample, against: Sample) -> Iterator[Answer]:
    """Only of the paper's two: that one is the harder."""
    if (against.dataset, sample.dataset) != PAPER_ORDER:
        return
    for number in sample.numbers:
        if number not in against.numbers:
            continue
        subset = Subset(number)
        for claim, name, verdict in (
            ("FG-R is larger on the harder data set", ("FG-R", "value"), above),
            ("FG-HG is larger on the harder data set", ("FG-HG", "value"), above),
            ("SIC ranks less well on the harder data set", ("SIC", "rho"), below),
            ("NIC ranks less well on the harder data set", ("NIC", "rho"), below),
            ("CIC ranks better on the harder data set", ("CIC", "rho"), above),
            ("NIC goes less with SIC on the harder data set", ("SIC-NIC", "rho"), below),
            ("All coefficients together rank less well on the harder data set", (MODEL, "rho"), below),
        ):
            if name in sample.values and name in against.values:
                found = between_samples(sample, against, subset, name).estimate
                unit = "difference in z" if name[1].startswith("rho") else "difference"
                yield Answer(claim, sample, str(number), unit, found, verdict(found))


def _weights(sample: Sample, number: int, joint: JointModels) -> Iterator[Answer]:
    found = [joint.weights(sample, cell)[0] for cell in sample.partitions(number)]
    for name in THREE:
        weights = np.array([weights[name] for weights in found if name in weights])
        if len(weights):
            positive = int((weights > 0).sum())
            verdict: Verdict = "confirmed" if positive == len(weights) else "contested"
            estimate = Estimate(float(weights.min()), math.nan, math.nan, len(weights))
            what = f"{positive} of {len(weights)} weights are positive, the smallest is"
            yield Answer(f"{name} has a positive weight in every partition", sample, str(number), what, estimate, verdict)


def _effects(collection: Collection, tables: Mapping[str, pd.DataFrame]) -> Iterator[Answer]:
    """Retention against increment: which explains more of a quantity."""
    asked = {
        "anova_SIC": "Retention decides how well SIC ranks more than the increment does",
        "anova_CIC": "Retention decides how well CIC ranks more than the increment does",
        "anova_NIC": "Retention decides how well NIC ranks more than the increment does",
        "anova_all_coefficients": "Retention decides how well all coefficients together rank more than the increment does",
    }
    for label, claim in asked.items():
        for sample in collection.samples:
            for number in sample.numbers:
                where = {"benchmark": sample.benchmark, "policy": sample.policy, "subset": str(number), "response": "rho"}
                rows = {row["factor"]: row for row in records(matching(tables[label], **where))}
                if not rows or any(math.isnan(row["eta2p"]) for row in rows.values()):
                    continue
                first, second = rows["rehearsal"], rows["classes"]
                verdict: Verdict = "undecided"
                if min(first["p"], second["p"]) < SIGNIFICANT:
                    verdict = "confirmed" if first["eta2p"] > second["eta2p"] else "contested"
                what = f"partial eta squared {second['eta2p']:.2f} of increment, of retention"
                estimate = Estimate(first["eta2p"], math.nan, math.nan, first["n"])
                yield Answer(claim, sample, str(number), what, estimate, verdict)


def _controlled(collection: Collection) -> Iterator[Answer]:
    samples = {(sample.benchmark, sample.policy): sample for sample in collection.samples}
    for runs in collection.reruns:
        rho, counts = runs.correlations()
        estimate = mean_of("rho", rho, counts)
        cell = runs.cell
        where = f"{cell.step} ({cell.retention} %, {cell.increment} %)"
        sample = samples[runs.benchmark, runs.policy]
        yield Answer("With other new classes, SIC of a class rises with NIC", sample, where, "rho", estimate, above(estimate))
