"""How many images of each past class are kept.

A balanced quota depends on class sizes and budget only: equal sizes, equal quotas. `neyman` divides what these give to the
classes of one step otherwise, and changes no sum.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from forgetscope.characters import counted
from forgetscope.choices import named_method
from forgetscope.errors import SpecError
from forgetscope.measuring.keepsakes import spread_length
from forgetscope.spec import RehearsalSpec

NUMBER = 4  # bytes of a stored logit, and of a number of a keepsake


@dataclass(frozen=True)
class Prices:
    """Bytes of what is kept of past classes. `images`: of one image of each class as it is, with the logits that are stored of
    it; `besides`: of a class, however many its images are: its keepsake, and where a forecast carries that to."""

    images: Mapping[int, int]
    besides: int

    @classmethod
    def of(
        cls,
        spec: RehearsalSpec,
        shape: tuple[int, int],
        introduced: Mapping[int, int],
        *,
        features: int | None,
        stores_logits: bool,
    ) -> Prices:
        """shape: height and width of images; introduced: the step of each past class, when which had ended logits were stored
        of the classes that there were then; features: that the head takes. None: not known, and keepsakes are left out."""
        image, numbers = shape[0] * shape[1] * 3, 0
        steps = sorted(introduced.values())
        seen = {label: bisect_right(steps, step) for label, step in introduced.items()}
        if spec.keepsake is not None and features is not None:
            numbers = (features + spread_length(spec.keepsake, features)) * (2 if spec.forecast else 1)
        return cls({label: image + NUMBER * stores_logits * n for label, n in seen.items()}, NUMBER * numbers)

    @property
    def least(self) -> int:
        """With one image of each class."""
        return sum(self.images.values()) + self.besides * len(self.images)


def quotas(
    spec: RehearsalSpec, class_sizes: Mapping[int, int], whole: Mapping[int, int] | None = None, prices: Prices | None = None
) -> dict[int, int]:
    """Balanced ones, per past class in the order of head nodes, as `class_sizes` has them. whole: with what is set aside for
    validation. prices: which `memory_bytes` needs."""
    if spec.memory is not None:
        return _divided(spec.memory, class_sizes)
    if spec.memory_bytes is not None and prices is not None:
        return _paid(spec.memory_bytes, class_sizes, prices)
    if spec.retention is None:
        raise SpecError("A step with rehearsal needs retention, memory or memory_bytes.")
    of = class_sizes if spec.retained_of is None or whole is None else whole
    return {label: min(size, retained(of[label], spec.retention)) for label, size in class_sizes.items()}


def retained(images: int, retention: float) -> int:
    """The rounded share, at least one."""
    return max(1, math.floor(retention * images + 0.5))


def stores_logits(spec: RehearsalSpec) -> bool:
    """Whether its method does, if it is one of ours; of a user's own its class alone tells."""
    return spec.method is not None and named_method(spec.method)[0] == "dark-logits"


def demand_room(memory_bytes: int, prices: Prices, which: str = "", ending: str = "") -> None:
    """An error unless there is room for an image of each class. which, ending: what else is said of the classes, and of it."""
    if memory_bytes < prices.least:
        classes = counted(len(prices.images), "past class")
        raise SpecError(
            f"memory_bytes = {memory_bytes} is too little for {classes}{which}: one image of each, and what is kept besides, "
            f"is {prices.least} bytes. Use at least {prices.least}.{ending}"
        )


def neyman(
    balanced: Mapping[int, int], introduced: Mapping[int, int], weights: Mapping[int, float], most: Mapping[int, int]
) -> dict[int, int]:
    """The classes of each step share what balanced quotas give to them together, in proportion to weights.

    introduced: the step of each class; most: images that there are. With the number of a class's images times the root of
    their variance as weight, this is the allocation that Neyman (1934) found; classes whose other images are gone, and whose
    budget shrinks, have as weight what they had."""
    found = dict(balanced)
    for step in set(introduced.values()):
        mine = [label for label in balanced if introduced[label] == step]
        there = [most[label] for label in mine]
        total = min(sum(balanced[label] for label in mine), sum(there))
        found |= zip(mine, allocated(total, [weights[label] for label in mine], there), strict=True)
    return found


def allocated(total: int, weights: Sequence[float], most: Sequence[int]) -> list[int]:
    """Whole numbers that add up to the total, in proportion to weights by largest remainders, of equal ones the first; none
    above `most`, and none below 2 if that is possible, else 1. Alike if all weights are 0, or one is not finite.

    >>> allocated(10, [3.0, 1.0, 0.0], [100, 100, 100]), allocated(10, [3.0, 1.0, 1.0], [5, 100, 100])
    ([6, 2, 2], [5, 3, 2])
    """
    least = [min(2, n) for n in most]
    if sum(least) > total:
        least = [min(1, n) for n in most]
    if not sum(least) <= total <= sum(most):
        raise ValueError(f"{total} cannot be divided among classes of {list(most)}")
    known = all(map(math.isfinite, weights))
    exact = _shares(total, [Fraction(weight if known else 0) for weight in weights], least, most)
    found = [math.floor(share) for share in exact]
    for i in sorted(range(len(exact)), key=lambda i: found[i] - exact[i])[: total - sum(found)]:
        found[i] += 1
    return found


def _shares(total: int, weights: Sequence[Fraction], least: Sequence[int], most: Sequence[int]) -> list[Fraction]:
    """In proportion to weights within bounds. What is out of them on the side where more is amiss stays at its bound, and the
    others share the rest; so until nothing is."""
    fixed = dict[int, Fraction]()
    while True:
        free = [i for i in range(len(weights)) if i not in fixed]
        rest, whole = total - sum(fixed.values()), sum(weights[i] for i in free)
        shares = {i: rest * (weights[i] / whole if whole else Fraction(1, len(free))) for i in free}
        low = {i: Fraction(least[i]) for i, share in shares.items() if share < least[i]}
        high = {i: Fraction(most[i]) for i, share in shares.items() if share > most[i]}
        if not low and not high:
            return [fixed.get(i, shares.get(i, Fraction(0))) for i in range(len(weights))]
        missing, over = sum(low[i] - shares[i] for i in low), sum(shares[i] - high[i] for i in high)
        fixed |= low if missing >= over else high


def _divided(memory: int, class_sizes: Mapping[int, int]) -> dict[int, int]:
    """floor(M / classes) each, the remainder to the lowest head nodes; a class never gets more than it has."""
    each, rest = divmod(memory, len(class_sizes))
    if each == 0:
        raise SpecError(
            f"memory = {counted(memory, 'image')} cannot hold one of each of {counted(len(class_sizes), 'past class')}. "
            f"Use at least {len(class_sizes)}."
        )
    return {label: min(size, each + (node < rest)) for node, (label, size) in enumerate(class_sizes.items())}


def _paid(memory_bytes: int, class_sizes: Mapping[int, int], prices: Prices) -> dict[int, int]:
    """As a memory of so many images is divided, of as many as there is room for."""
    demand_room(memory_bytes, prices)
    room = memory_bytes - prices.besides * len(class_sizes)

    def price(images: int) -> int:
        return sum(count * prices.images[label] for label, count in _divided(images, class_sizes).items())

    counts = range(len(class_sizes), len(class_sizes) * max(class_sizes.values()) + 1)
    return _divided(counts[bisect_right(counts, room, key=price) - 1], class_sizes)
