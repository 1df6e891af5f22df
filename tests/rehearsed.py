"""Mean gradients of classes, and the coefficients from those over rehearsal images, which is how tests come by them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from forgetscope.measuring.coefficients import Coefficients, coefficients
from forgetscope.measuring.gradients import GradientSums


def class_mean_gradients(features: Tensor, logits: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Gradient of the mean loss over each class's images, [classes, k, d + 1]; NaN for a class without images."""
    sums = GradientSums(classes, logits.shape[1], features.shape[1])
    sums.add(features, logits, labels, labels)
    return sums.gradients / sums.counts[:, None, None]  # 0 / 0 = NaN


def from_rehearsal(
    full: Tensor, rehearsal: Tensor, new: Tensor, alpha: float, shares: Tensor, nodes: Tensor | None = None, **named: Any
) -> Coefficients:
    bias = rehearsal.double() - full.double()
    return coefficients(full=full, bias=bias, new=new, alpha=alpha, shares=shares, nodes=nodes, **named)
