"""Which past classes are at risk while a step trains: rank, trend and cause.

A class's rank is that of the mean of its ranks by SIC and by NIC, the sums so far, as far as they are known: NIC ranks classes
early in training and SIC later (docs/beyond.md). Without past images SIC and NIC are unknown: there it is that of its forecast,
and where there is none, of the estimate of NIC. Rank 1 is the most at risk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forgetscope.characters import visible
from forgetscope.measuring.quantities import COEFFICIENTS, ESTIMATES, FORECAST

Values = NDArray[np.float64]

RANKED_BY = ("sic", "nic")
NAMED = 2  # classes that a cause names
UNKNOWN = "unknown without alpha, or without images"
NOTHING = "nothing interferes with it so far"


@dataclass(frozen=True)
class ClassAtRisk:
    """One past class. moved: by how many ranks it has come closer to the top since the probe before; None at the first.

    cause: what it is above others by, with its value; why: the same in plain words."""

    label: int
    name: str
    rank: int
    moved: int | None
    cause: str
    why: str
    sic: float
    cic: float
    nic: float
    forecast: float = math.nan  # predicted forgetting, where that is what it is ranked by


def measured_at_risk(
    terms: Values,
    totals: Values,
    pairs: Values | None,
    labels: Sequence[int],
    sources: Sequence[int],
    names: Mapping[int, str],
    most: int,
) -> tuple[ClassAtRisk, ...]:
    """The first is the most at risk. terms [probes, quantities, P]: of each probe, in whatever unit: no rank depends on it;
    totals [coefficients, P]: their sums, to be shown; pairs [P, sources]. labels: of the past classes in the order of these;
    sources: those, then the new classes."""
    coefficients = terms[:, : len(COEFFICIENTS)]
    now = _ranks(coefficients.sum(axis=0))
    before = _ranks(coefficients[:-1].sum(axis=0)) if len(terms) > 1 else None
    pairs = np.full((len(labels), len(sources)), np.nan) if pairs is None else pairs
    called = [names.get(label, str(label)) for label in sources]
    rows = []
    for c in np.argsort(now, kind="stable")[:most].tolist():
        sic, cic, nic = (float(totals[COEFFICIENTS.index(name), c]) for name in ("sic", "cic", "nic"))
        moved = None if before is None else int(before[c] - now[c])
        cause, why = _cause(totals, pairs[c], c, len(labels), called)
        rows.append(ClassAtRisk(labels[c], called[c], int(now[c]), moved, cause, why, sic, cic, nic))
    return tuple(rows)


def predicted_at_risk(
    raw: Values, forecasts: Values, labels: Sequence[int], names: Mapping[int, str], most: int
) -> tuple[ClassAtRisk, ...]:
    """forecasts [probes, forecast, P], in the order of labels; raw: before they were weighted, which no rank depends on."""
    now = _predicted_ranks(raw)
    before = _predicted_ranks(raw[:-1]) if len(raw) > 1 else None
    rows = []
    for c in np.argsort(now, kind="stable")[:most].tolist():
        moved = None if before is None else int(before[c] - now[c])
        called, found = names.get(labels[c], str(labels[c])), dict(zip(FORECAST, forecasts[-1, :, c].tolist(), strict=True))
        found |= dict(zip(ESTIMATES, forecasts[:, 3:, c].sum(axis=0).tolist(), strict=True))
        cause = _predicted_cause(found)
        unknown = (math.nan, math.nan, math.nan)
        rows.append(ClassAtRisk(labels[c], called, int(now[c]), moved, cause, cause, *unknown, found["forecast"]))
    return tuple(rows)


def trend(moved: int | None) -> str:
    return "" if moved is None else f"up {moved}" if moved > 0 else f"down {-moved}" if moved < 0 else "same"


def _predicted_ranks(forecasts: Values) -> NDArray[np.int64]:
    """[P] from 1: by the forecast, then those without by the estimate of NIC; a class of which nothing is known is last."""
    forecast, nic = forecasts[-1, 0], forecasts[:, -1].sum(axis=0)
    order = np.lexsort((np.nan_to_num(-nic, nan=np.inf), np.nan_to_num(-forecast, nan=np.inf)))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks


def _predicted_cause(found: Mapping[str, float]) -> str:
    """What is predicted, and the largest of the estimates in words: it says where from, and is no measurement."""
    sources = {"sic_estimate": "own memory", "cic_estimate": "other classes' memory", "nic_estimate": "new classes"}
    known = {name: found[name] for name in sources if np.isfinite(found[name])}
    worst = max(known, key=lambda name: known[name], default=None)
    estimate = ""
    if worst is not None and known[worst] > 0:
        estimate = f"{sources[worst]} ({worst.removesuffix('_estimate').upper()} estimate {known[worst]:.3g})"
    if not np.isfinite(found["forecast"]):
        return f"no forecast; most from {estimate}" if estimate else "no forecast, and nothing else is known"
    low, high = found["forecast_low"], found["forecast_high"]
    interval = f" ({low:.2f} to {high:.2f})" if np.isfinite(low) else ""
    return f"predicted forgetting {found['forecast']:.2f}{interval}{'; most from ' if estimate else ''}{estimate}"


def _ranks(totals: Values) -> NDArray[np.int64]:
    """[P] from 1, by the mean of the shares of classes that are above by each; a class of which nothing is known is last."""
    places = []
    for name in RANKED_BY:
        values = totals[COEFFICIENTS.index(name)]
        above = (values[None, :] > values[:, None]).sum(axis=1) / max(int(np.isfinite(values).sum()), 1)
        places.append(np.where(np.isfinite(values), above, np.nan))
    stacked = np.stack(places)
    known = np.isfinite(stacked)
    mean = np.where(known.any(axis=0), np.where(known, stacked, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1), np.inf)
    ranks = np.empty(len(mean), np.int64)
    order = np.argsort(mean.round(9), kind="stable")  # of equal ones, not the last digit of a sum but the order of the classes
    ranks[order] = np.arange(1, len(mean) + 1)
    return ranks


def _cause(totals: Values, pairs: Values, own: int, past: int, called: Sequence[str]) -> tuple[str, str]:
    """Of the three sources the one by which the class is highest among the past classes; for two, which classes. With its
    value, and in plain words.

    Not the largest: NIC is that for nearly every class, and does not tell why one is above another."""
    of_all = {name: totals[COEFFICIENTS.index(name)] for name in ("sic", "cic", "nic")}
    known = {name: float(values[own]) for name, values in of_all.items() if np.isfinite(values[own])}
    if not known:
        return UNKNOWN, UNKNOWN
    positive = {name: value for name, value in known.items() if value > 0}
    if not positive:
        return NOTHING, NOTHING
    worst = min(positive, key=lambda name: (int((of_all[name] > positive[name]).sum()), -positive[name]))
    if worst == "sic":
        return f"own memory (SIC {known[worst]:.3g})", "its own memory is unlike it"
    of = [at for at in (range(past, len(called)) if worst == "nic" else range(past)) if at != own and pairs[at] > 0]
    named = [visible(called[at]) for at in sorted(of, key=lambda at: -pairs[at])[:NAMED]]
    what = "new classes" if worst == "nic" else "other classes' memory"
    which = f": {', '.join(named)}" if named else ""
    return f"{what} ({worst.upper()} {known[worst]:.3g}){which}", _in_words(worst, named)


def _in_words(worst: str, named: Sequence[str]) -> str:
    several = len(named) != 1
    if worst == "nic":
        who = f"the new class{'es' if several else ''} {' and '.join(named)}" if named else "the new classes"
        return f"{who} push{'' if several else 'es'} it down"
    return f"the memory of {' and '.join(named) or 'other classes'} pulls against it"
