"""Beeswarms: where to put equal discs so that each shows its value and none covers another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

SHRINK = 0.9  # how much smaller the next size is that is tried


def offsets(heights: Values, diameter: float) -> Values:
    """How far to the side of the middle line each disc lies, in the unit of the heights.

    From the lowest disc up, each goes to the free place that is nearest to the middle; of two, to the left one."""
    placed = np.zeros(len(heights))
    order = np.argsort(heights, kind="stable")
    for position, i in enumerate(order):
        below = order[:position]
        near = below[heights[i] - heights[below] < diameter]
        reach = np.sqrt(np.maximum(0.0, diameter**2 - (heights[i] - heights[near]) ** 2))
        places = np.concatenate([[0.0], placed[near] - reach, placed[near] + reach])
        taken = np.abs(places[:, None] - placed[near]) < reach - 1e-9 * diameter
        free = places[~taken.any(axis=1)]  # never empty: beyond the outermost disc there is room
        placed[i] = free[np.lexsort((free, np.abs(free).round(9)))[0]]
    return placed


def fitted(swarms: Sequence[Values], width: float, largest: float) -> tuple[float, list[Values]]:
    """The largest diameter up to `largest` with which every swarm fits into a lane of this width; and the offsets."""
    diameter = largest
    while True:
        found = [offsets(heights, diameter) for heights in swarms]
        if all(2 * np.abs(placed).max(initial=0.0) + diameter <= width for placed in found):
            return diameter, found
        diameter *= SHRINK
