"""Last-layer gradients of groups of images in closed form, from one forward pass.

For a linear head the gradient of the mean cross-entropy over n images is (softmax - onehot)^T [features, 1] / n: a matrix
with one row per head node, whose last column belongs to the bias. No backward pass, no per-image gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


class GradientSums:
    """Sums over the images of each group, in float64 on the CPU; its size does not depend on how many images were added."""

    def __init__(self, groups: int, nodes: int, width: int) -> None:
        self.gradients = torch.zeros(groups, nodes, width + 1, dtype=torch.float64)  # row = head node, last column = bias
        self.lengths = torch.zeros(groups, dtype=torch.float64)  # norms of the single images' gradients
        self.losses = torch.zeros(groups, dtype=torch.float64)
        self.logits = torch.zeros(groups, nodes, dtype=torch.float64)
        self.counts = torch.zeros(groups, dtype=torch.float64)

    def add(self, features: Tensor, logits: Tensor, labels: Tensor, groups: Tensor) -> None:
        """features [n, d], logits [n, k], labels [n] = head nodes, groups [n]: where each image counts."""
        logits = logits.double()
        total = torch.logsumexp(logits, dim=1)
        residual = _residual(torch.exp(logits - total[:, None]), labels)
        inputs = torch.cat([features.double(), torch.ones_like(residual[:, :1])], dim=1)
        order = torch.argsort(groups, stable=True)
        present, counts = torch.unique_consecutive(groups[order], return_counts=True)
        start = 0
        for group, count in zip(present.tolist(), counts.tolist(), strict=True):
            images = order[start : start + count]
            self.gradients[group].addmm_(residual[images].T, inputs[images])
            start += count
        loss = total - logits[torch.arange(len(labels)), labels]
        self.lengths.index_add_(0, groups, residual.norm(dim=1) * inputs.norm(dim=1))  # an outer product's norm
        self.losses.index_add_(0, groups, loss)
        self.logits.index_add_(0, groups, logits)
        self.counts.index_add_(0, groups, torch.ones_like(loss))


def rounding_error(lengths: Tensor) -> Tensor:
    """A bound for the rounding error in the norm of a mean gradient; `lengths` are the sums of its images' gradient norms.

    A sum of n terms is wrong by at most n eps times the sum of their sizes (Higham 2002, section 4.2), a mean by eps times it.
    """
    return torch.finfo(lengths.dtype).eps * lengths


def loss_residual(logits: Tensor, labels: Tensor) -> Tensor:
    """softmax - onehot [n, k] in float64: the gradient of each image's cross-entropy with respect to its logits.

    The true class's entry is minus the sum of the others: p - 1 would cancel for well-learned images.
    """
    return _residual(torch.softmax(logits.double(), dim=1), labels)


def _residual(probabilities: Tensor, labels: Tensor) -> Tensor:
    """In place."""
    rows = torch.arange(len(labels), device=labels.device)
    probabilities[rows, labels] = 0
    probabilities[rows, labels] = -probabilities.sum(dim=1)
    return probabilities
