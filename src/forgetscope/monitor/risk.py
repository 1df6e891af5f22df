"""Which past classes are at risk while a step trains, as a monitor tells it: `forgetscope.underway.risk` of its sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from forgetscope.characters import visible
from forgetscope.measuring.measurement import html_of
from forgetscope.measuring.sums import Sums
from forgetscope.underway.risk import ClassAtRisk, measured_at_risk, predicted_at_risk, trend

if TYPE_CHECKING:
    import pandas as pd


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
        lines = [f"{row.rank:>3}. {visible(row.name):<{width}}  {trend(row.moved):<8}  {row.cause}" for row in self.rows]
        how = ", as predicted without their images" if self.predicted else ""
        return "\n".join([f"Most at risk of {self.of} past classes{how}:", *lines])

    def _repr_html_(self) -> str:
        return html_of((f"Most at risk of {self.of} past classes:",), self.to_frame() if self.rows else None)


def at_risk(
    raw: Sums, sums: Sums, labels: Sequence[int], sources: Sequence[int], names: Mapping[int, str], most: int
) -> AtRisk:
    """raw: before they were weighted by alpha, which no rank depends on. labels: of the past classes in the order of the sums;
    sources: those, then of the new classes."""
    terms, pairs = torch.stack(raw.values).numpy(), None if sums.pairs is None else sums.pairs.numpy()
    return AtRisk(measured_at_risk(terms, sums.totals.numpy(), pairs, labels, sources, names, most), len(labels))


def at_risk_by_forecast(
    raw: NDArray[np.float64], forecasts: NDArray[np.float64], labels: Sequence[int], names: Mapping[int, str], most: int
) -> AtRisk:
    """forecasts [probes, forecast, P], in the order of labels; raw: before they were weighted, which no rank depends on."""
    return AtRisk(predicted_at_risk(raw, forecasts, labels, names, most), len(labels), predicted=True)
