"""The probe: measures interference in a network during training without leaving a trace in it.

It works on any module with `features(images) -> [n, d]` and a linear `head`, in any training loop. Evaluation mode, no
augmentation; weights, BatchNorm statistics, gradients, modes and random streams are as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from forgetscope.errors import InputError
from forgetscope.measuring.all_layers import AllLayers, Batch, Parameters, measure_all_layers
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
    """One probe. P past classes in the order of `Probe.past_nodes`, N new ones in that of `Probe.new_nodes`; on the CPU."""

    terms: Coefficients
    pairs: Tensor  # [P, P + N]: term of each source; past sources add up to SIC and CIC, new sources to NIC
    gradient_norm: Tensor  # [P] norm of f_c
    bias_norm: Tensor  # [P] norm of b_c
    loss_full: Tensor  # [P] mean loss on D_c
    loss_rehearsal: Tensor  # [P] mean loss on R_c
    rounding: Tensor  # [P] bound for the error in the norm of f_c: where the norm is not above it, the terms are NaN
    new_logits: Tensor  # [P] mean logit of each past class over the new images; at the first probe this is LOG-SIM
    released_nic: Tensor  # [P] NIC's term with the entry that the released scripts read in second steps


class Probe:
    """Holds what to measure on and the sum of what was measured; call `measure` before training and after each epoch.

    past: all training images of the past classes, [n, ...], their labels (= head nodes), and which of them are rehearsed (a
    mask or positions). new: the same without the rehearsal. alpha: the share of rehearsal images in a batch. `prepare` turns a
    slice of the images into the network's input (a cast, a normalisation, a transfer to the device); `batch` images go through
    the network at a time, by default as many as suit the images' device.
    """

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
        self._parts = ((past_images, past_labels, past_groups), (new_images, new_labels, new_groups))
        self._prepare = prepare
        self._batch = batch or _batch_for(past_images)
        self._total: Coefficients | None = None
        self._log_sim: Tensor | None = None

    @torch.no_grad()
    def measure(self, network: nn.Module, *, features: Features | None = None, head: nn.Linear | None = None) -> Measurement:
        """Measure now and add to the totals. `features` and `head` name them where the module calls them otherwise."""
        features, head = _find(network, features, head)
        with _evaluating(network):
            measurement = self._combine(self._sums(folded(features), head))
        terms, total = measurement.terms, self._total
        self._total = (
            terms
            if total is None
            else Coefficients(
                total.sic + terms.sic, total.cic + terms.cic, total.nic + terms.nic, total.all_nic + terms.all_nic
            )
        )
        if self._log_sim is None:
            self._log_sim = measurement.new_logits
        return measurement

    @torch.no_grad()
    def measure_all_layers(self, network: nn.Module, *, head: nn.Linear | None = None) -> AllLayers:
        """The terms over all trainable parameters, now; costs a backward pass over every image. Not added to the totals."""
        head = _find_head(network, head)
        self._check_nodes(head)
        (past_images, past_labels, groups), (new_images, new_labels, _) = self._parts
        past = len(self.past_nodes)

        def of_group(group: int) -> Iterator[Batch]:
            positions = torch.nonzero(groups == group)[:, 0]
            return self._batches(past_images[positions.to(past_images.device)], past_labels[positions])

        with _evaluating(network):
            return measure_all_layers(
                network,
                Parameters(network, head),
                ((of_group(c), of_group(past + c)) for c in range(past)),
                self._batches(new_images, new_labels),
                self.alpha,
                self.shares,
                self.past_nodes.tolist(),
            )

    @property
    def coefficients(self) -> Coefficients:
        """SIC, CIC, NIC and ALL-NIC over the probes so far, in the order of `past_nodes`."""
        if self._total is None:
            raise InputError("Nothing has been measured yet. Call probe.measure(network) first.")
        return self._total

    @property
    def log_sim(self) -> Tensor:
        """LOG-SIM: the mean logit of each past class over the new images at the first probe."""
        if self._log_sim is None:
            raise InputError("Nothing has been measured yet. Call probe.measure(network) first.")
        return self._log_sim

    def _sums(self, features: Features, head: nn.Linear) -> GradientSums:
        self._check_nodes(head)
        sums = GradientSums(2 * len(self.past_nodes) + len(self.new_nodes), head.out_features, head.in_features)
        for images, labels, groups in self._parts:
            for start in range(0, len(labels), CHUNK):
                chunk = slice(start, start + CHUNK)
                outputs = torch.cat([features(inputs) for inputs in self._inputs(images[chunk])])
                # The head is applied here, so that one pass gives features and logits; then on to the CPU, for float64.
                sums.add(outputs.cpu(), head(outputs).cpu(), labels[chunk], groups[chunk])
        return sums

    def _combine(self, sums: GradientSums) -> Measurement:
        """Uses the sums up: at 200 classes each of these gradients is 20 MB, and copies would cost more than the arithmetic."""
        past = len(self.past_nodes)
        rest, kept, new = slice(0, past), slice(past, 2 * past), slice(2 * past, None)
        counts, kept_counts, new_counts = sums.counts[rest] + sums.counts[kept], sums.counts[kept], sums.counts[new]
        new_images = new_counts.sum()
        mean_new = sums.gradients[new].sum(dim=0) / new_images
        full = sums.gradients[rest].add_(sums.gradients[kept]).div_(counts[:, None, None])  # f_c
        bias = sums.gradients[kept].div_(kept_counts[:, None, None]).sub_(full)  # b_c
        by_class = sums.gradients[new].div_(new_counts[:, None, None])
        rounding = rounding_error(sums.lengths[rest] + sums.lengths[kept])
        from_past = past_interference(full, bias, self.alpha, self.shares, rounding)
        from_new = new_interference(full, by_class, new_counts / new_images, self.alpha, self.past_nodes, rounding)
        return Measurement(
            terms=coefficients(full, bias, mean_new, self.alpha, self.shares, self.past_nodes, rounding),
            pairs=torch.cat([from_past, from_new], dim=1),
            gradient_norm=norms(full.flatten(1)),
            bias_norm=norms(bias.flatten(1)),
            loss_full=(sums.losses[rest] + sums.losses[kept]) / counts,
            loss_rehearsal=sums.losses[kept] / kept_counts,
            rounding=rounding,
            new_logits=sums.logits[new].sum(dim=0)[self.past_nodes] / new_images,
            released_nic=released_nic(full, mean_new, self.alpha, self.past_nodes, rounding),
        )

    def _check_nodes(self, head: nn.Linear) -> None:
        nodes, highest = head.out_features, int(torch.cat([self.past_nodes, self.new_nodes]).max())
        if highest >= nodes:
            raise InputError(
                f"Label {highest} needs a head with {highest + 1} nodes; it has {nodes}. Grow the head before measuring."
            )

    def _batches(self, images: Tensor, labels: Tensor) -> Iterator[Batch]:
        return zip(self._inputs(images), torch.split(labels, self._batch), strict=True)

    def _inputs(self, images: Tensor) -> Iterator[Tensor]:
        for batch in torch.split(images, self._batch):
            yield batch if self._prepare is None else self._prepare(batch)


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
