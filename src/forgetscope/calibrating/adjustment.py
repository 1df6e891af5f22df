"""What a calibration comes to: a scale and an offset for the logit of each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forgetscope.errors import InputError

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Adjustment:
    """By head node: logits * scales + offsets. Finite, and no scale turns a logit round or away.

    >>> found = Adjustment.by_node(3, {0: 0.5})
    >>> found.of(np.array([[1.0, 2.0, 3.0]])).tolist(), found.is_identity
    ([[1.5, 2.0, 3.0]], False)
    """

    scales: Values  # [k]
    offsets: Values  # [k]

    def __post_init__(self) -> None:
        for name in ("scales", "offsets"):
            values = np.array(getattr(self, name), np.float64)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if self.scales.ndim != 1 or self.scales.shape != self.offsets.shape:
            raise InputError(
                f"scales {self.scales.shape} and offsets {self.offsets.shape} are not one of each for every class."
            )
        if not np.isfinite([self.scales, self.offsets]).all() or (self.scales <= 0).any():
            raise InputError(f"scales = {self.scales} and offsets = {self.offsets} are not all finite, with scales above 0.")

    @classmethod
    def by_node(cls, size: int, offsets: Mapping[int, float]) -> Self:
        """Of these nodes' logits, among so many; the others stay as they are."""
        found = np.zeros(size)
        for node, offset in offsets.items():
            found[node] = offset
        return cls(np.ones(size), found)

    def of(self, logits: NDArray[np.floating]) -> Values:
        """[n, k] in float64."""
        if logits.shape[-1] != len(self.scales):
            raise InputError(f"There are {logits.shape[-1]} logits of an image, and an adjustment of {len(self.scales)}.")
        found: Values = np.asarray(logits, np.float64) * self.scales + self.offsets
        return found

    @property
    def is_identity(self) -> bool:
        return bool((self.scales == 1).all() and (self.offsets == 0).all())


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """An adjustment, and what is known of it before it is applied.

    said: what it expects to gain and to cost, in sentences. numbers: what it was made from and expects, by name; NaN of
    what cannot be told."""

    adjustment: Adjustment
    said: str
    numbers: Mapping[str, float]


def demand_past(size: int, past: int) -> None:
    """The first `past` of a head's nodes are those of past classes."""
    if not 0 < past < size:
        raise InputError(f"Of {size} classes {past} are past: a calibration is between past classes and new ones.")
