"""What retention and increment do to a quantity: a two-way ANOVA per subset, clustered by experiment where steps share one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.inputs.samples import Mask, Sample, size_of_level
from forgetscope.analysis.statistics.anova import Coding, Effect, anova

Values = NDArray[np.float64]

FACTORS = ("rehearsal", "classes", "interaction")


def two_way(sample: Sample, mask: Mask, values: Values, coding: Coding) -> dict[str, Effect]:
    """By factor, of values [S of the mask]. A factor with one level has no effect to test."""
    chosen = np.flatnonzero(mask)
    cells = [sample.cells[i] for i in chosen]
    effects = anova(
        values,
        _numbers([cell.retention for cell in cells]),
        _numbers([cell.increment for cell in cells]),
        coding=coding,
        clusters=[sample.root[i] for i in chosen] if sample.paired else None,
        names=FACTORS,
    )
    nothing = Effect(math.nan, 0, 0, math.nan, math.nan, "a factor has one level")
    return {factor: effects.get(factor, nothing) for factor in FACTORS}


def _numbers(levels: Sequence[str]) -> Values:
    """The lowest level is the reference of treatment coding, so levels are ordered as numbers; budgets follow percentages."""
    return np.array([1e6 * counted + size for counted, size in map(size_of_level, levels)])
