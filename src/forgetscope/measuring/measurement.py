"""One probe: a function of a network and the images to measure on, which leaves no trace in either.

It works on any module with `features(images) -> [n, d]` and a linear `head`. Evaluation mode, no augmentation; weights,
BatchNorm statistics, gradients, modes and random streams are as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from forgetscope.errors import InputError
from forgetscope.measuring.all_layers import AllLayers, Batch, Parameters, interference_in_all_layers
from forgetscope.measuring.coefficients import (
    Coefficients,
    coefficients,
    new_interference,
    norms,
    past_interference,
    released_nic,
)
from forgetscope.measuring.folding import Features, folded
from forgetscope.measuring.gradients import GradientSums, rounding_error

CHUNK = 1000  # images whose features are kept at a time; a GPU is waited for once per chunk


@dataclass(frozen=True)
class Measurement:
    """One probe. P past classes in the order of `ProbeData.past_nodes`, N new ones in that of `new_nodes`; on the CPU.

    >>> import torch, forgetscope as fs
    >>> images, labels, head = torch.eye(4), torch.arange(4) // 2, torch.nn.Linear(4, 4)
    >>> probe = fs.Probe(images, labels, torch.tensor([0, 2]), images, labels + 2)
    >>> measured = probe.measure(head, features=torch.nn.Identity(), head=head)
    >>> bool(torch.allclose(measured.pairs[:, 2:].sum(dim=1), measured.terms.nic))
    True
    """

    terms: Coefficients
    pairs: Tensor  # [P, P + N]: term of each source; past sources add up to SIC and CIC, new sources to NIC
    gradient_norm: Tensor  # [P] norm of f_c
    bias_norm: Tensor  # [P] norm of b_c
    loss_full: Tensor  # [P] mean loss on D_c
    loss_rehearsal: Tensor  # [P] mean loss on R_c
    rounding: Tensor  # [P] bound for the error in the norm of f_c: where the norm is not above it, the terms are NaN
    new_logits: Tensor  # [P] mean logit of each past class over the new images; at the first probe this is LOG-SIM
    released_nic: Tensor  # [P] NIC's term with the entry that the released scripts read in second steps


class ProbeData:
    """What to measure on, as `forgetscope.Probe` describes it."""

    def __init__(
        self,
        past_images: Tensor,
        past_labels: Tensor,
        rehearsed: Tensor,
        new_images: Tensor,
        new_labels: Tensor,
        alpha: float = 0.5,
        *,
        prepare: Callable[[Tensor], Tensor] | None = None,
        batch: int | None = None,
    ) -> None:
        if not 0 < alpha < 1:
            raise InputError(f"alpha = {alpha} is not between 0 and 1: it is the share of rehearsal images in a batch.")
        past_labels, new_labels = past_labels.cpu(), new_labels.cpu()
        self.past_nodes = torch.unique(past_labels)
        self.new_nodes = torch.unique(new_labels)
        both = self.past_nodes[torch.isin(self.past_nodes, self.new_nodes)]
        if len(both):
            raise InputError(f"Classes {both.tolist()} are both past and new. Give each class's images to one of the two.")
        mask = torch.zeros(len(past_labels), dtype=torch.bool)
        mask[rehearsed.cpu()] = True
        rehearsal_counts = (past_labels[mask][:, None] == self.past_nodes).sum(dim=0).double()
        empty = self.past_nodes[rehearsal_counts == 0]
        if len(empty):
            raise InputError(
                f"Past classes {empty.tolist()} have no rehearsal image. Mark at least one of each in `rehearsed`."
            )
        self.alpha = alpha
        self.shares = rehearsal_counts / rehearsal_counts.sum()  # p_c
        # Where each image counts: past classes without what is rehearsed, past classes' rehearsed images, new classes.
        past = len(self.past_nodes)
        past_groups = torch.searchsorted(self.past_nodes, past_labels) + past * mask
        new_groups = torch.searchsorted(self.new_nodes, new_labels) + 2 * past
        self.parts = ((past_images, past_labels, past_groups), (new_images, new_labels, new_groups))
        self._prepare = prepare
        self._batch = batch or _batch_for(past_images)

    def check_nodes(self, head: nn.Linear) -> None:
        nodes, highest = head.out_features, int(torch.cat([self.past_nodes, self.new_nodes]).max())
        if highest >= nodes:
            raise InputError(
                f"Label {highest} needs a head with {highest + 1} nodes; it has {nodes}. Grow the head before measuring."
            )

    def batches_of(self, group: int) -> Iterator[Batch]:
        """Of a past class: group c is what is not rehearsed of the c-th, P + c what is."""
        images, labels, groups = self.parts[0]
        positions = torch.nonzero(groups == group)[:, 0]
        return self.batches(images[positions.to(images.device)], labels[positions])

    def batches(self, images: Tensor, labels: Tensor) -> Iterator[Batch]:
        return zip(self.inputs(images), torch.split(labels, self._batch), strict=True)

    def inputs(self, images: Tensor) -> Iterator[Tensor]:
        for batch in torch.split(images, self._batch):
            yield batch if self._prepare is None else self._prepare(batch)


@torch.no_grad()
def measure(
    network: nn.Module, data: ProbeData, *, features: Features | None = None, head: nn.Linear | None = None
) -> Measurement:
    """The terms in the last layer, now. `features` and `head` name them where the module calls them otherwise."""
    features, head = _find(network, features, head)
    data.check_nodes(head)
    with _evaluating(network):
        return _combine(_gradient_sums(folded(features), head, data), data)


@torch.no_grad()
def measure_all_layers(network: nn.Module, data: ProbeData, *, head: nn.Linear | None = None) -> AllLayers:
    """The terms over all trainable parameters, now; costs a backward pass over every image."""
    head = _find_head(network, head)
    data.check_nodes(head)
    past, (new_images, new_labels, _) = len(data.past_nodes), data.parts[1]
    with _evaluating(network):
        return interference_in_all_layers(
            network,
            Parameters(network, head),
            ((data.batches_of(c), data.batches_of(past + c)) for c in range(past)),
            data.batches(new_images, new_labels),
            data.alpha,
            data.shares,
            data.past_nodes.tolist(),
        )


def _gradient_sums(features: Features, head: nn.Linear, data: ProbeData) -> GradientSums:
    sums = GradientSums(2 * len(data.past_nodes) + len(data.new_nodes), head.out_features, head.in_features)
    for images, labels, groups in data.parts:
        for start in range(0, len(labels), CHUNK):
            chunk = slice(start, start + CHUNK)
            outputs = torch.cat([features(inputs) for inputs in data.inputs(images[chunk])])
            # The head is applied here, so that one pass gives features and logits; then on to the CPU, for float64.
            sums.add(outputs.cpu(), head(outputs).cpu(), labels[chunk], groups[chunk])
    return sums


def _combine(sums: GradientSums, data: ProbeData) -> Measurement:
    """Uses the sums up: at 200 classes each of these gradients is 20 MB, and copies would cost more than the arithmetic."""
    past = len(data.past_nodes)
    rest, kept, new = slice(0, past), slice(past, 2 * past), slice(2 * past, None)
    counts, kept_counts, new_counts = sums.counts[rest] + sums.counts[kept], sums.counts[kept], sums.counts[new]
    new_images = new_counts.sum()
    mean_new = sums.gradients[new].sum(dim=0) / new_images
    full = sums.gradients[rest].add_(sums.gradients[kept]).div_(counts[:, None, None])  # f_c
    bias = sums.gradients[kept].div_(kept_counts[:, None, None]).sub_(full)  # b_c
    by_class = sums.gradients[new].div_(new_counts[:, None, None])
    rounding = rounding_error(sums.lengths[rest] + sums.lengths[kept])
    from_past = past_interference(full, bias, data.alpha, data.shares, rounding)
    from_new = new_interference(full, by_class, new_counts / new_images, data.alpha, data.past_nodes, rounding)
    return Measurement(
        terms=coefficients(full, bias, mean_new, data.alpha, data.shares, data.past_nodes, rounding),
        pairs=torch.cat([from_past, from_new], dim=1),
        gradient_norm=norms(full.flatten(1)),
        bias_norm=norms(bias.flatten(1)),
        loss_full=(sums.losses[rest] + sums.losses[kept]) / counts,
        loss_rehearsal=sums.losses[kept] / kept_counts,
        rounding=rounding,
        new_logits=sums.logits[new].sum(dim=0)[data.past_nodes] / new_images,
        released_nic=released_nic(full, mean_new, data.alpha, data.past_nodes, rounding),
    )


def _batch_for(images: Tensor) -> int:
    """Small batches stay in a CPU's cache: 64 images of 32 x 32 pixels, in proportion for others; large ones fill a GPU."""
    return min(max(64 * 3072 // images[0].numel(), 16), 500) if images.device.type == "cpu" else 500


def _find(network: nn.Module, features: Features | None, head: nn.Linear | None) -> tuple[Features, nn.Linear]:
    features = features or getattr(network, "features", None)
    if not callable(features):
        kind = type(network).__name__
        raise InputError(f"{kind} has no method features(images). Add one, or pass measure(network, features=...).")
    return features, _find_head(network, head)


def _find_head(network: nn.Module, head: nn.Linear | None) -> nn.Linear:
    found = head or getattr(network, "head", None)
    if not isinstance(found, nn.Linear):
        raise InputError(
            f"{type(network).__name__}.head is {type(found).__name__}, not a torch.nn.Linear. "
            "Pass the last layer: measure(network, head=...)."
        )
    return found


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode for the block; then each module's own mode again: some may have been frozen on purpose."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()  # a train-mode probe would move the BatchNorm statistics of the run that it observes
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
