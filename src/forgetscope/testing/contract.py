"""What every contract has in common: how a broken one is told, and that nothing global moves."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from forgetscope.errors import SpecError


class BrokenContract(AssertionError):
    """Says what was promised, what was found, and what to do."""

    __module__ = "forgetscope.testing"  # where users find it


def demand_same(before: dict[str, Tensor], after: dict[str, Tensor], what: str, remedy: str) -> None:
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    if changed:
        raise BrokenContract(f"{what} {', '.join(changed[:3])}. {remedy}".strip())


@contextmanager
def told_as_broken() -> Iterator[None]:
    """What runs refuse is a broken contract here."""
    try:
        yield
    except SpecError as error:
        raise BrokenContract(str(error)) from None


@contextmanager
def leaving_alone(who: str, remedy: str, *, besides: tuple[str, ...] = ()) -> Iterator[None]:
    """No global generator moves in the block, besides these."""
    before = _generators()
    yield
    for whose, state in _generators().items():
        if state != before[whose] and whose not in besides:
            raise BrokenContract(f"{who} moved {whose} global generator. {remedy}")


def _generators() -> dict[str, object]:
    _, keys, *rest = np.random.get_state()
    return {
        "torch's": torch.get_rng_state().tolist(),
        "NumPy's": (np.asarray(keys).tolist(), *rest),
        "Python's": random.getstate(),
    }
