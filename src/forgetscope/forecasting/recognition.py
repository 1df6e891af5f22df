"""Which network keepsakes are of: what it makes of a few fixed inputs, asked again where the next step begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forgetscope.errors import InputError
from forgetscope.forecasting.features import Featured

INPUTS = 8
MOST_AXES, MOST_PIXELS = 8, 2**24  # of an input
MARK = {"mark", "mark_shape"}  # in a state
CLOSE = 0.1  # of the features' root mean square: other number formats stay within it, other networks nowhere near
OTHER = (
    "The network is not the one that the keepsakes are of: it makes other features of the same inputs. A step must begin with "
    "the network as the step before left it, but for its head"
)


@dataclass(frozen=True)
class Mark:
    """What a network makes of a few inputs: noise, or zeros and ones where it eats whole numbers.

    shape: of an input. values: the root mean square of their features, then a projection of the features of each."""

    shape: tuple[int, ...]
    values: tuple[float, ...]

    def is_of(self, net: Featured) -> bool | None:
        """Whether this is that of such a network, whose head does not matter; None if it cannot be told."""
        now = mark_of(net, self.shape)
        return None if now is None else self.agrees(now)

    def agrees(self, other: Mark) -> bool:
        """Whether both may be of one network; marks by inputs of different shapes do not tell."""
        one, two = (torch.tensor(mark.values, dtype=torch.float64) for mark in (self, other))
        return self.shape != other.shape or bool(((one - two).abs() <= CLOSE * max(self.values[0], other.values[0])).all())

    def numbers(self) -> dict[str, list[float]]:
        """As a record of a step has it."""
        return {"shape": [*self.shape], "values": [*self.values]}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Sequence[float]] | None) -> Mark | None:
        return None if numbers is None else cls(tuple(map(int, numbers["shape"])), tuple(numbers["values"]))

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "mark": torch.tensor(self.values, dtype=torch.float64),
            "mark_shape": torch.tensor(self.shape, dtype=torch.long),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> Mark | None:
        """None where there is none; anything that is no mark is refused."""
        if not set(state) >= MARK:
            return None
        values, shape = state["mark"], state["mark_shape"]
        if values.shape != (INPUTS + 1,) or not bool(values.isfinite().all()) or shape.ndim != 1 or len(shape) > MOST_AXES:
            raise InputError(
                f"mark is {tuple(values.shape)} and mark_shape {tuple(shape.shape)}: not what a network made of inputs."
            )
        if shape.is_floating_point() or not bool((shape > 0).all()) or float(shape.double().prod()) > MOST_PIXELS:
            raise InputError(f"mark_shape is {shape.tolist()[:9]}, which is no shape of an input.")
        return cls(tuple(shape.tolist()), tuple(values.double().tolist()))


def mark_of(net: Featured, shape: Sequence[int] | None = None) -> Mark | None:
    """Of a network as it is now; None where it cannot take such inputs, or makes nothing finite of them."""
    shape = tuple(net.few.shape[1:] if shape is None else shape)
    try:
        features = net.features(_inputs(shape, net.few))
    except Exception:  # anything: a network may look at what its inputs are
        return None
    if not bool(features.isfinite().all()):
        return None
    width = features.shape[1]
    directions = torch.randn(INPUTS, width, generator=torch.Generator().manual_seed(width), dtype=torch.float64)
    found = (features * directions).sum(dim=1) / width**0.5
    return Mark(shape, (float(features.square().mean().sqrt()), *found.tolist()))


def _inputs(shape: tuple[int, ...], few: Tensor) -> Tensor:
    draws = torch.Generator().manual_seed(0)
    if few.is_floating_point() or few.is_complex():
        return torch.randn(INPUTS, *shape, generator=draws).to(few)
    return torch.randint(2, (INPUTS, *shape), generator=draws).to(few)
