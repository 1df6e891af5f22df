"""Last-layer gradients of every class in closed form, from one forward pass.

For a linear head the gradient of the mean cross-entropy over n images is (softmax - onehot)^T [features, 1] / n: a matrix
with one row per head node, whose last column belongs to the bias. No backward pass, no per-image gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


def class_mean_gradients(features: Tensor, logits: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Gradient of the mean loss over each class's images, [classes, k, d + 1]; NaN for a class without images.

    features [n, d], logits [n, k], labels [n]; row = head node, last column = bias. Computed in float64.
    """
    sums = torch.zeros(classes, logits.shape[1], features.shape[1] + 1, dtype=torch.float64, device=logits.device)
    add_gradient_sums(sums, features, logits, labels)
    counts = torch.bincount(labels, minlength=classes)
    return sums / counts[:, None, None]  # 0 / 0 = NaN


def add_gradient_sums(sums: Tensor, features: Tensor, logits: Tensor, labels: Tensor) -> None:
    """Add each image's gradient to its class's entry of sums [classes, k, d + 1], in place."""
    residual = loss_residual(logits, labels)
    inputs = torch.cat([features.to(sums.dtype), torch.ones_like(residual[:, :1])], dim=1)
    order = torch.argsort(labels, stable=True)
    present, counts = torch.unique_consecutive(labels[order], return_counts=True)
    start = 0
    for label, count in zip(present.tolist(), counts.tolist(), strict=True):
        images = order[start : start + count]
        sums[label] += residual[images].T @ inputs[images]
        start += count


def loss_residual(logits: Tensor, labels: Tensor) -> Tensor:
    """softmax - onehot [n, k] in float64: the gradient of each image's cross-entropy with respect to its logits.

    The true class's entry is minus the sum of the others: p - 1 would cancel for well-learned images.
    """
    probabilities = torch.softmax(logits.double(), dim=1)
    rows = torch.arange(len(labels), device=labels.device)
    probabilities[rows, labels] = 0
    probabilities[rows, labels] = -probabilities.sum(dim=1)
    return probabilities
