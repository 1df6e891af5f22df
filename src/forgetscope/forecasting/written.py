"""Offsets that stand in the bias of somebody's head for a while: put there, found there, and taken back to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from forgetscope.errors import InputError
from forgetscope.measuring.heads import LastLayer, unwrapped
from forgetscope.measuring.watching import kind_of

_WRITTEN: WeakKeyDictionary[nn.Module, tuple[Tensor, Tensor]] = WeakKeyDictionary()  # the bias, and what it was left with
TAKE_BACK = "Take them back first: found.take_back(network)."


class WrittenOffsets:
    """By head node, in the bias of this last layer."""

    def __init__(self, last: LastLayer, name: str, offsets: Mapping[int, float]) -> None:
        if last.bias is None:
            raise InputError(
                f"{kind_of(last.head)}, the last layer of {name}, has no bias to write offsets into. Add them to its output: "
                "found.of(logits)."
            )
        self._head, self._bias, self._before = last.head, last.bias, last.bias.detach().clone()
        moved = self._before.to(torch.float64, copy=True)
        for node, offset in offsets.items():
            moved[node] += offset
        with torch.no_grad():
            self._bias.copy_(moved)
        _WRITTEN[self._head] = self._bias, self._bias.detach().clone()

    def take_back(self, network: nn.Module) -> None:
        if not any(module is self._head for module in unwrapped(network).modules()):
            raise InputError(f"The head of {kind_of(unwrapped(network))} is not the one that the offsets were written into.")
        if not _stand_in(self._head):
            raise InputError(
                "The bias of the head is not what it was when the offsets were written: it was trained on, or loaded. There is "
                "nothing to take back; load the head as it was trained."
            )
        with torch.no_grad():
            self._bias.copy_(self._before)
        del _WRITTEN[self._head]


def demand_as_trained(network: nn.Module) -> None:
    """That no offsets stand in its head: whatever is measured, kept or predicted is of the network as it was trained."""
    inner = unwrapped(network)  # of what is no module, others say so
    if isinstance(inner, nn.Module) and any(_stand_in(module) for module in inner.modules()):
        raise InputError(f"Offsets are written into the head of {kind_of(inner)}. {TAKE_BACK}")


def _stand_in(head: nn.Module) -> bool:
    """Not any more in a bias that was trained on or loaded since."""
    bias, left = _WRITTEN.get(head, (None, None))
    return bias is not None and left is not None and torch.equal(bias.detach(), left.to(bias.device))
