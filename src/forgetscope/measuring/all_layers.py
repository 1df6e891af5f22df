"""The coefficients over all trainable parameters, the lemma's F, by one backward pass per image.

SIC, CIC and ALL-NIC have every parameter in place of the last layer's. NIC restricts the last layer to the parameters that
compute class c's own logit; in all layers these are row c of the head and everything before the head, which all classes share.

Memory: one vector of all parameters per past class, in the network's own precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from forgetscope.measuring.coefficients import Coefficients, Products, divisors, norms, terms
from forgetscope.measuring.gradients import Loss, summed_loss

Logits = Callable[[Tensor], Tensor]
Batch = tuple[Tensor, Tensor]  # the network's input, labels [n] = head nodes


@dataclass(frozen=True)
class AllLayers:
    """One probe of P past classes; each [P] in float64 on the CPU."""

    terms: Coefficients
    gradient_norm: Tensor  # norm of f_c
    bias_norm: Tensor  # norm of b_c
    loss_full: Tensor  # mean loss on D_c
    loss_rehearsal: Tensor  # mean loss on R_c
    rounding: Tensor  # the error in the norm of f_c: where the norm is not above it, the terms are NaN


@dataclass(frozen=True)
class GradientSum:
    """Of the losses of some images over all parameters, one float64 vector on the CPU: the head's parameters last."""

    gradient: Tensor
    length: float  # sum of the norms of the batches' gradients
    loss: float
    images: int
    logits: Tensor  # [k], or 0 without images

    def __add__(self, other: GradientSum) -> GradientSum:
        gradient, length, loss = self.gradient + other.gradient, self.length + other.length, self.loss + other.loss
        return GradientSum(gradient, length, loss, self.images + other.images, self.logits + other.logits)


class Parameters:
    """The trainable parameters of a network, those of its head last: weights row by row, then biases."""

    def __init__(self, network: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
        own = [parameter for parameter in (weight, bias) if parameter is not None]
        shared = [p for p in network.parameters() if p.requires_grad and all(p is not mine for mine in own)]
        self.all = [*shared, *own]
        self.shared = sum(parameter.numel() for parameter in shared)
        self.size = self.shared + sum(parameter.numel() for parameter in own)
        self.dtype = weight.dtype
        self._nodes, self._width = weight.shape
        self._biased = bias is not None

    def within(self, vector: Tensor, node: int) -> Tensor:
        """Of a vector over all parameters, those through which the logit of this node is computed."""
        weights = self.shared + node * self._width
        parts = [vector[: self.shared], vector[weights : weights + self._width]]
        if self._biased:
            parts.append(vector[self.shared + self._nodes * self._width + node].reshape(1))
        return torch.cat(parts)


def gradient_sum(run: Logits, parameters: Sequence[Tensor], batches: Iterable[Batch], loss: Loss | None = None) -> GradientSum:
    """What autograd gives for the sum of the losses. Nobody's `.grad` is touched; the network's mode is the caller's.

    The gradient with respect to the logits is given in closed form: that of cross_entropy cancels for well-learned images.
    """
    total = torch.zeros(sum(parameter.numel() for parameter in parameters), dtype=torch.float64)
    length, summed, images, sums = 0.0, 0.0, 0, torch.zeros(())
    for inputs, labels in batches:
        with torch.enable_grad():
            logits = run(inputs)
            value, residual = summed_loss(logits, labels.to(logits.device), loss)
            given = residual.to(logits.dtype)
            parts = torch.autograd.grad(logits, parameters, given, allow_unused=True, materialize_grads=True)
        flat = torch.cat([part.reshape(-1) for part in parts]).double().cpu()
        total += flat
        length += float(flat.norm())
        summed += value
        sums = sums + logits.detach().double().sum(dim=0).cpu()
        images += len(labels)
    return GradientSum(total, length, summed, images, sums)


def interference_in_all_layers(
    run: Logits,
    parameters: Parameters,
    past: Iterator[tuple[Iterable[Batch], Iterable[Batch]]],
    new: Iterable[Batch],
    alpha: float,
    shares: Tensor,
    nodes: Sequence[int],
    loss: Loss | None = None,
) -> AllLayers:
    """run gives logits. past: per past class its images that are not rehearsed, and those that are; shares [P] = p_c; nodes
    [P]: in the head."""
    count = len(nodes)
    full = torch.empty(count, parameters.size, dtype=parameters.dtype)  # f_c
    everyone = torch.zeros(parameters.size, dtype=torch.float64)  # sum of p_y b_y
    own, bias_norm, loss_full, loss_rehearsal, rounding = torch.zeros(5, count, dtype=torch.float64)
    for c, (rest, rehearsed) in enumerate(past):
        kept = gradient_sum(run, parameters.all, rehearsed, loss)
        every = kept + gradient_sum(run, parameters.all, rest, loss)
        f = every.gradient / every.images
        b = kept.gradient / max(kept.images, 1) - f  # without a rehearsed image its share is 0
        own[c], bias_norm[c] = b @ f, b.norm()
        everyone += shares[c] * b
        full[c] = f
        loss_full[c], loss_rehearsal[c] = every.loss / every.images, kept.loss / (kept.images or torch.nan)
        rounding[c] = torch.finfo(parameters.dtype).eps * every.length / every.images  # each batch is rounded by this much
    added = gradient_sum(run, parameters.all, new, loss)
    g = added.gradient / added.images
    others, with_new, within, length, length_within, gradient_norm = torch.zeros(6, count, dtype=torch.float64)
    for c, node in enumerate(nodes):
        f = full[c].double()
        others[c] = everyone @ f - shares[c] * own[c]
        with_new[c] = g @ f
        part = parameters.within(f, node)
        within[c] = parameters.within(g, node) @ part
        gradient_norm[c] = norms(f)
        length[c], length_within[c] = (divisors(vector[None], rounding[c])[0] for vector in (f, part))
    products = Products(own, others, with_new, within, length, length_within)
    return AllLayers(terms(products, alpha, shares), gradient_norm, bias_norm, loss_full, loss_rehearsal, rounding)
