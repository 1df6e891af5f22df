"""Which past classes are at risk while a step trains: rank, trend and cause.

A class's rank is that of the mean of its ranks by SIC and by NIC, the sums so far, as far as they are known: NIC ranks classes
early in training and SIC later (docs/beyond.md). Without past images SIC and NIC are unknown: there it is that of its forecast,
and where there is none, of the estimate of NIC. Rank 1 is the most at risk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from forgetscope.characters import visible
from forgetscope.measuring.measurement import html_of
from forgetscope.measuring.quantities import COEFFICIENTS, ESTIMATES, FORECAST
from forgetscope.measuring.sums import Sums

if TYPE_CHECKING:
    import pandas as pd

RANKED_BY = ("sic", "nic")
NAMED = 2  # classes that a cause names


@dataclass(frozen=True)
class ClassAtRisk:
    """One past class. moved: by how many ranks it has come closer to the top since the probe before; None at the first."""

    label: int
    name: str
    rank: int
    moved: int | None
    cause: str
    sic: float
    cic: float
    nic: float
    forecast: float = math.nan  # predicted forgetting, where that is what it is ranked by


@dataclass(frozen=True)
class AtRisk:
    """The classes most at risk, the first first. of: how many past classes there are. predicted: without their images."""

    rows: tuple[ClassAtRisk, ...]
    of: int = 0
    predicted: bool = False

    def __iter__(self) -> Iterator[ClassAtRisk]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> pd.DataFrame:
        import pandas as pd

        columns = ("name", "rank", "moved", *(("forecast",) if self.predicted else ("sic", "cic", "nic")), "cause")
        index = pd.Index([row.label for row in self.rows], name="label")
        return pd.DataFrame({name: [getattr(row, name) for row in self.rows] for name in columns}, index=index)

    def __repr__(self) -> str:
        if not self.rows:
            return "No past class is known to be at risk: nothing was measured."
        width = max(len(visible(row.name)) for row in self.rows)
        lines = [f"{row.rank:>3}. {visible(row.name):<{width}}  {_trend(row.moved):<8}  {row.cause}" for row in self.rows]
        how = ", as predicted without their images" if self.predicted else ""
        return "\n".join([f"Most at risk of {self.of} past classes{how}:", *lines])

    def _repr_html_(self) -> str:
        return html_of((f"Most at risk of {self.of} past classes:",), self.to_frame() if self.rows else None)


def at_risk(
    raw: Sums, sums: Sums, labels: Sequence[int], sources: Sequence[int], names: Mapping[int, str], most: int
) -> AtRisk:
    """raw: before they were weighted by alpha, which no rank depends on. labels: of the past classes in the order of the sums;
    sources: those, then of the new classes."""
    totals, now = sums.totals.numpy(), _ranks(raw.totals.numpy())
    before = _ranks(torch.stack(raw.values[:-1]).sum(dim=0).numpy()) if len(raw) > 1 else None
    pairs = np.full((len(labels), len(sources)), np.nan) if sums.pairs is None else sums.pairs.numpy()
    called = [names.get(label, str(label)) for label in sources]
    rows = []
    for c in np.argsort(now, kind="stable")[:most].tolist():
        sic, cic, nic = (float(totals[COEFFICIENTS.index(name), c]) for name in ("sic", "cic", "nic"))
        moved = None if before is None else int(before[c] - now[c])
        cause = _cause(totals, pairs[c], c, len(labels), called)
        rows.append(ClassAtRisk(labels[c], called[c], int(now[c]), moved, cause, sic, cic, nic))
    return AtRisk(tuple(rows), len(labels))


def predicted_at_risk(
    raw: NDArray[np.float64], forecasts: NDArray[np.float64], labels: Sequence[int], names: Mapping[int, str], most: int
) -> AtRisk:
    """forecasts [probes, forecast, P], in the order of labels; raw: before they were weighted, which no rank depends on."""
    now = _predicted_ranks(raw)
    before = _predicted_ranks(raw[:-1]) if len(raw) > 1 else None
    rows = []
    for c in np.argsort(now, kind="stable")[:most].tolist():
        moved = None if before is None else int(before[c] - now[c])
        called, found = names.get(labels[c], str(labels[c])), dict(zip(FORECAST, forecasts[-1, :, c].tolist(), strict=True))
        found |= dict(zip(ESTIMATES, forecasts[:, 3:, c].sum(axis=0).tolist(), strict=True))
        cause = _predicted_cause(found)
        rows.append(ClassAtRisk(labels[c], called, int(now[c]), moved, cause, math.nan, math.nan, math.nan, found["forecast"]))
    return AtRisk(tuple(rows), len(labels), predicted=True)


def _predicted_ranks(forecasts: NDArray[np.float64]) -> NDArray[np.int64]:
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


def _ranks(totals: NDArray[np.float64]) -> NDArray[np.int64]:
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
    ranks[np.argsort(mean, kind="stable")] = np.arange(1, len(mean) + 1)
    return ranks


def _cause(totals: NDArray[np.float64], pairs: NDArray[np.float64], own: int, past: int, called: Sequence[str]) -> str:
    """Of the three sources the one by which the class is highest among the past classes, in words; for two, which classes.

    Not the largest: NIC is that for nearly every class, and does not tell why one is above another."""
    of_all = {name: totals[COEFFICIENTS.index(name)] for name in ("sic", "cic", "nic")}
    known = {name: float(values[own]) for name, values in of_all.items() if np.isfinite(values[own])}
    if not known:
        return "unknown without alpha, or without images"
    positive = {name: value for name, value in known.items() if value > 0}
    if not positive:
        return "nothing interferes with it so far"
    worst = min(positive, key=lambda name: (int((of_all[name] > positive[name]).sum()), -positive[name]))
    if worst == "sic":
        return f"own memory (SIC {known[worst]:.3g})"
    of = [at for at in (range(past, len(called)) if worst == "nic" else range(past)) if at != own and pairs[at] > 0]
    named = sorted(of, key=lambda at: -pairs[at])[:NAMED]
    what = "new classes" if worst == "nic" else "other classes' memory"
    which = f": {', '.join(visible(called[at]) for at in named)}" if named else ""
    return f"{what} ({worst.upper()} {known[worst]:.3g}){which}"


def _trend(moved: int | None) -> str:
    return "" if moved is None else f"up {moved}" if moved > 0 else f"down {-moved}" if moved < 0 else "same"
