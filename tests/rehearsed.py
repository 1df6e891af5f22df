"""Mean gradients of classes, and the coefficients from those over rehearsal images, which is how tests come by them; and the
same by a literal, slow transcription of the paper's definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from forgetscope.measuring.coefficients import Coefficients, coefficients
from forgetscope.measuring.gradients import GradientSums

Array = NDArray[np.float64]


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


def literal_interference(v: Array, gradient: Array) -> float:
    """Interf_c^(S)(v) = - <v, grad> / ||grad||."""
    return float(-np.dot(v, gradient) / np.sqrt(np.sum(gradient**2)))


def literal_coefficients(full: Array, rehearsal: Array, new: Array, alpha: float, p: Array) -> dict[str, list[float]]:
    past = len(full)
    bias = [rehearsal[y].ravel() - full[y].ravel() for y in range(past)]
    result: dict[str, list[float]] = {"sic": [], "cic": [], "nic": [], "all_nic": []}
    for c in range(past):
        own = full[c].ravel()
        result["sic"].append(alpha * p[c] * literal_interference(bias[c], own))
        result["cic"].append(sum(alpha * p[y] * literal_interference(bias[y], own) for y in range(past) if y != c))
        result["nic"].append((1 - alpha) * literal_interference(new[c], full[c][c]))  # row c: its weights and its bias
        result["all_nic"].append((1 - alpha) * literal_interference(new.ravel(), own))
    return result
