"""What a method's updates do to the last layer, by the images that do it: of each past class, and of new classes.

A method gives one number for a batch, and autograd its derivative with respect to the batch's logits [n, k]: an image's row of
it, times the image's features, is that image's part of the batch's gradient. Batches have as many new images, and images of the
memory stream, as in training. They are drawn from shuffled passes over both until all have been there; an image that came up
several times counts by its mean, and new data and memory stream by their number in a batch. So where an image's part does not
depend on which others are drawn with it, this is exactly the expected gradient of a batch. Where it does, it is an unbiased
estimate for batches drawn without replacement.

Not augmented and in evaluation mode, as all that a probe looks at; features and logits are those of the probe's own pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from forgetscope.measuring.gradients import GradientSums
from forgetscope.measuring.probe_data import ProbeData

BatchLoss = Callable[
    [Tensor, Tensor, Tensor, Tensor], Tensor
]  # as training asks for it: logits, nodes, new and memory positions


@dataclass(frozen=True)
class MethodBatches:
    """The batches that a method trains on. Images are counted as a probe has them: past ones, then new ones."""

    loss: BatchLoss  # of logits and nodes, and of positions: in the new data, then in the memory stream
    memory: Tensor  # int64 [M]: which images the memory stream has; may be none
    new_per_batch: int
    memory_per_batch: int
    rng: np.random.Generator  # for their order; nothing else is drawn


class KeptOutputs(GradientSums):
    """Sums over the images of each group, and what the network made of some of the images."""

    def __init__(self, *given: Any, wanted: Tensor, **named: Any) -> None:
        super().__init__(*given, **named)
        self._wanted, self._seen = wanted, 0  # [images]
        self._parts: list[tuple[Tensor, ...]] = []

    def add(self, features: Tensor, logits: Tensor, labels: Tensor, groups: Tensor) -> None:
        super().add(features, logits, labels, groups)
        mine = self._wanted[self._seen : self._seen + len(labels)]
        self._seen += len(labels)
        self._parts.append((features[mine], logits[mine], labels[mine]))

    def kept(self) -> tuple[Tensor, Tensor, Tensor]:
        """Features, logits and labels of those that are wanted, in their order."""
        features, logits, labels = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
        return features, logits, labels


def wanted_images(data: ProbeData, batches: MethodBatches) -> Tensor:
    """[images]: those that the method trains on."""
    wanted = torch.zeros(sum(data.counts), dtype=torch.bool)
    wanted[data.counts[0] :] = True
    wanted[batches.memory] = True
    return wanted


def method_gradients(sums: KeptOutputs, data: ProbeData, batches: MethodBatches, *, biased: bool) -> tuple[Tensor, Tensor]:
    """u_c [P, k, d + 1] and u_new [k, d + 1], as `method_coefficients` takes them."""
    features, logits, labels = sums.kept()
    rows = torch.cumsum(wanted_images(data, batches), dim=0) - 1  # of each image among those that are kept
    new, memory = rows[data.counts[0] :], rows[batches.memory]
    drawn = [*_drawn(batches, len(new))]
    of_new, of_memory = (
        batch / (len(part) * torch.bincount(torch.cat(positions), minlength=len(part)).double())
        for part, positions, batch in zip(
            (new, memory), zip(*drawn, strict=True), (batches.new_per_batch, batches.memory_per_batch), strict=True
        )
    )  # what each time counts that an image comes up
    loss = _taking_doubles(batches.loss, logits, labels, (new, memory), drawn[0])
    residual = torch.zeros(logits.shape, dtype=torch.float64)
    for some, kept in drawn:
        images = torch.cat([new[some], memory[kept]])
        found = _derivative(loss, logits[images].double(), labels[images], some, kept)
        residual.index_add_(0, images, found * torch.cat([of_new[some], of_memory[kept]])[:, None])
    past = len(data.past_nodes)
    sources = GradientSums(past + 1, logits.shape[1], features.shape[1], biased=biased)
    is_past = labels[:, None] == data.past_nodes
    groups = torch.where(is_past.any(dim=1), is_past.to(torch.uint8).argmax(dim=1), past)
    inputs = torch.cat([features.double(), torch.full((len(features), 1), float(biased), dtype=torch.float64)], dim=1)
    sources.add_gradients(residual, inputs, groups)
    return sources.gradients[:past], sources.gradients[past]


def _drawn(batches: MethodBatches, images: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Positions in the new data and in the memory stream, of as many batches as it takes until all have been there."""
    parts = ((images, batches.new_per_batch), (len(batches.memory), batches.memory_per_batch if len(batches.memory) else 0))
    count = max(-(-size // batch) for size, batch in parts if batch)
    orders = []
    for size, batch in parts:
        passes = [batches.rng.permutation(size) for _ in range(-(-count * batch // size) if size else 0)]
        order = np.concatenate([np.empty(0, np.int64), *passes])[: count * batch]
        orders.append(torch.from_numpy(order).view(count, batch))
    yield from zip(*orders, strict=True)


def _derivative(loss: BatchLoss, logits: Tensor, labels: Tensor, some: Tensor, kept: Tensor) -> Tensor:
    """Of a batch's loss with respect to its logits [n, k]."""
    with torch.enable_grad():
        found = loss(logits.requires_grad_(), labels, some, kept)
        (gradient,) = torch.autograd.grad(found, logits, allow_unused=True, materialize_grads=True)
    return gradient


def _taking_doubles(
    loss: BatchLoss, logits: Tensor, labels: Tensor, parts: tuple[Tensor, Tensor], batch: tuple[Tensor, Tensor]
) -> BatchLoss:
    """The loss, which gets what it gets in training if it fails for numbers of 64 bits: weights of 32 bits meet none."""
    images = torch.cat([part[positions] for part, positions in zip(parts, batch, strict=True)])
    try:
        _derivative(loss, logits[images].double(), labels[images], *batch)
    except (RuntimeError, TypeError):
        return lambda values, nodes, some, kept: loss(values.float(), nodes, some, kept).double()
    return loss
