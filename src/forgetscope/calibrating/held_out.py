"""Evening from images of past classes that are kept and that training has never seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from forgetscope.calibrating.adjustment import Values, demand_past
from forgetscope.calibrating.evening import STRENGTH, Evening, Level, evened
from forgetscope.errors import InputError


@dataclass(frozen=True, eq=False)
class HeldOutForesight:
    """logits [n, k] and nodes [n] of held-out images, those of past classes being the first P; learned: by past node."""

    logits: Values
    nodes: NDArray[np.int64]
    past: int
    learned: Mapping[int, float]

    @property
    def size(self) -> int:
        size: int = self.logits.shape[1]
        return size

    def forgetting(self, offsets: Mapping[int, float] | None = None) -> dict[int, float]:
        """1 - mean own probability / what was learned."""
        own = self._own(offsets)
        return {node: 1 - float(own[self._images[node]].mean()) / learned for node, learned in self.learned.items()}

    def new(self, offsets: Mapping[int, float] | None = None) -> float:
        images = self.nodes >= self.past
        return float(self._probabilities(offsets)[images, self.past :].sum(axis=1).mean()) if images.any() else np.nan

    def errors(self, counted: Mapping[int, float]) -> dict[int, float]:
        """Of each predicted forgetting: that of a mean over few images, and that of a share of `counted` ones."""
        own, found = self._own(None), {}
        for node, learned in self.learned.items():
            mine = own[self._images[node]]
            of_now = mine.var(ddof=1) / len(mine) if len(mine) > 1 else mine.mean() * (1 - mine.mean())
            share = (learned * counted[node] + 1) / (counted[node] + 2)  # Laplace's: all of few images are not all of them
            of_then = share * (1 - share) / counted[node]
            found[node] = float(np.sqrt(of_now + (mine.mean() / learned) ** 2 * of_then) / learned)
        return found

    def _own(self, offsets: Mapping[int, float] | None) -> Values:
        """[n]: each image's probability of its class."""
        found: Values = self._probabilities(offsets)[np.arange(len(self.nodes)), self.nodes]
        return found

    def _probabilities(self, offsets: Mapping[int, float] | None) -> Values:
        factors = np.ones(self.size)
        for node, offset in (offsets or {}).items():
            factors[node] = np.exp(offset)
        odds = self._odds * factors
        found: Values = odds / odds.sum(axis=1, keepdims=True)
        return found

    @cached_property
    def _odds(self) -> Values:
        found: Values = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        return found

    @cached_property
    def _images(self) -> dict[int, NDArray[np.intp]]:
        return {node: np.flatnonzero(self.nodes == node) for node in range(self.past)}


def evening_from_held_out(
    logits: NDArray[np.floating],
    nodes: NDArray[np.integer],
    learned: NDArray[np.floating],
    *,
    counted: NDArray[np.integer] | None = None,
    strength: float = STRENGTH,
    shrinkage: float | None = None,
    level: Level = "forgetting",
) -> Evening:
    """logits [n, k], nodes [n]: of held-out images of past classes, and of new ones, now. learned [P]: accuracy of each past
    class when it was learned, NaN where it is not known, counted on so many images, by default on as many as are held out.

    Predicted forgetting is 1 - mean own probability / learned, with the sampling errors of both. A class without held-out
    images, or never recognised, moves with the others. The other options: as of `evened`.

    >>> rng = np.random.default_rng(0)
    >>> nodes = np.arange(80) % 4  # classes 0 and 1 are past
    >>> logits = 2.0 * np.eye(4)[nodes] + rng.normal(size=(80, 4)) - np.array([1, 0, 0, 0])  # class 0 has lost
    >>> found = evening_from_held_out(logits, nodes, np.array([0.8, 0.8]), strength=1, shrinkage=1)
    >>> bool(found.offsets[0] > 0 > found.offsets[1]), found.after.round(2).tolist()
    (True, [0.29, 0.29])
    """
    values, labels, then = np.asarray(logits, np.float64), np.asarray(nodes, np.int64), np.asarray(learned, np.float64)
    if values.ndim != 2 or labels.shape != values.shape[:1] or then.ndim != 1:
        raise InputError(f"Logits {values.shape}, nodes {labels.shape}, learned {then.shape} are not [n, k], [n] and [P].")
    demand_past(values.shape[1], len(then))
    if len(labels) and not 0 <= labels.min() <= labels.max() < values.shape[1]:
        raise InputError(f"Nodes from {labels.min()} to {labels.max()} are not all among the {values.shape[1]} of the head.")
    if not np.isfinite(values).all():
        raise InputError("Logits of held-out images are not finite. Look whether the loss of the training became NaN.")
    here = np.bincount(labels, minlength=values.shape[1])
    known = {node: float(one) for node, one in enumerate(then) if here[node] and np.isfinite(one) and one > 0}
    found = HeldOutForesight(values, labels, len(then), known)
    errors = found.errors(dict(enumerate((here if counted is None else counted).tolist())))
    of_all = {node: errors.get(node, np.nan) for node in range(len(then))}
    return evened(found, of_all, strength=strength, shrinkage=shrinkage, level=level)
