"""The coefficients from mean gradients over rehearsal images, which is how tests come by them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from forgetscope.measuring.coefficients import Coefficients, coefficients


def from_rehearsal(full: Tensor, rehearsal: Tensor, *others: Any, **named: Any) -> Coefficients:
    return coefficients(full, rehearsal.double() - full.double(), *others, **named)
