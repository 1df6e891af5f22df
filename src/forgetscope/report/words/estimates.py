"""An estimate in a table's cell."""

from __future__ import annotations

import math

from forgetscope.analysis.statistics.estimates import Estimate


def interval(estimate: Estimate, *, signed: bool = False, decimals: int = 2) -> str:
    """`0.51 (0.43, 0.59)`; a dash where there is nothing to say."""
    if math.isnan(estimate.value):
        return "–"
    sign = "+" if signed else ""
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (f"{end:{sign}.{decimals}f}".replace("-", "\u2212") for end in ends)
    return value if math.isnan(estimate.low) else f"{value} ({low}, {high})"
