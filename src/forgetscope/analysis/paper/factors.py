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
    found = anova(
        values,
        _numbers([sample.retention[i] for i in chosen]),
        _numbers([sample.increment[i] for i in chosen]),
        coding=coding,
        clusters=[sample.root[i] for i in chosen] if sample.paired else None,
        names=(FACTORS[0], FACTORS[1]),
    )
    effects = {effect.name: effect for effect in found.effects}
    names = dict(zip(FACTORS, (FACTORS[0], FACTORS[1], f"{FACTORS[0]}:{FACTORS[1]}"), strict=True))
    nothing = Effect("", math.nan, 0, 0, math.nan, math.nan, "a factor has one level")
    return {factor: effects.get(name, nothing) for factor, name in names.items()}


def _numbers(levels: Sequence[str]) -> Values:
    """The lowest level is the reference of treatment coding, so levels are ordered as numbers; budgets follow percentages."""
    return np.array([1e6 * counted + size for counted, size in map(size_of_level, levels)])
