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
from forgetscope.measuring.coefficients import Coefficients, coefficients, new_interference, past_interference
from forgetscope.measuring.gradients import add_gradient_sums

Inputs = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Measurement:
    """One probe. P past classes in the order of `Probe.past_nodes`, N new ones in that of `Probe.new_nodes`; on the CPU."""

    terms: Coefficients
    pairs: Tensor  # [P, P + N]: term of each source; past sources add up to SIC and CIC, new sources to NIC
    gradient_norm: Tensor  # [P] norm of f_c
    bias_norm: Tensor  # [P] norm of b_c
    loss_full: Tensor  # [P] mean loss on D_c
    loss_rehearsal: Tensor  # [P] mean loss on R_c
    new_logits: Tensor  # [P] mean logit of each past class over the new images; at the first probe this is LOG-SIM


class Probe:
    """Holds what to measure on and the sum of what was measured; call `measure` before training and after each epoch.

    past: all training images of the past classes, [n, ...], their labels (= head nodes), and which of them are rehearsed (a
    mask or positions). new: the same without the rehearsal. alpha: the share of rehearsal images in a batch. `prepare` turns a
    slice of the images into the network's input (a cast, a normalisation, a transfer to the device).
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
        prepare: Inputs | None = None,
        batch: int = 500,
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
        self._counts = _count(past_labels, self.past_nodes)
        self._rehearsal_counts = _count(past_labels[mask], self.past_nodes)
        empty = self.past_nodes[self._rehearsal_counts == 0]
        if len(empty):
            raise InputError(
                f"Past classes {empty.tolist()} have no rehearsal image. Mark at least one of each in `rehearsed`."
            )
        self._new_counts = _count(new_labels, self.new_nodes)
        self.alpha = alpha
        self.shares = self._rehearsal_counts / self._rehearsal_counts.sum()  # p_c
        self._parts = (
            (past_images, past_labels, mask),
            (new_images, new_labels, torch.zeros(len(new_labels), dtype=torch.bool)),
        )
        self._prepare = prepare
        self._batch = batch
        self._total: Coefficients | None = None
        self._log_sim: Tensor | None = None

    @torch.no_grad()
    def measure(self, network: nn.Module, *, features: Inputs | None = None, head: nn.Linear | None = None) -> Measurement:
        """Measure now and add to the totals. `features` and `head` name them where the module calls them otherwise."""
        features, head = _find(network, features, head)
        with _evaluating(network):
            measurement = self._measure(features, head)
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

    def _measure(self, features: Inputs, head: nn.Linear) -> Measurement:
        nodes, shape = head.out_features, (head.out_features, head.in_features + 1)
        highest = int(torch.cat([self.past_nodes, self.new_nodes]).max())
        if highest >= nodes:
            raise InputError(
                f"Label {highest} needs a head with {highest + 1} nodes; it has {nodes}. Grow the head before measuring."
            )
        sums = torch.zeros(nodes, *shape, dtype=torch.float64)
        rehearsal_sums = torch.zeros(nodes, *shape, dtype=torch.float64)
        losses = torch.zeros(2, nodes, dtype=torch.float64)
        logit_sum = torch.zeros(nodes, dtype=torch.float64)
        is_new = torch.zeros(nodes, dtype=torch.bool)
        is_new[self.new_nodes] = True
        for inputs, labels, rehearsed in self._batches():
            # The head is applied here, so that one pass gives features and logits; then on to the CPU, for float64.
            outputs = features(inputs)
            logits, outputs = head(outputs).cpu(), outputs.cpu()
            add_gradient_sums(sums, outputs, logits, labels)
            loss = nn.functional.cross_entropy(logits.double(), labels, reduction="none")
            losses[0].index_add_(0, labels, loss)
            if bool(rehearsed.any()):
                add_gradient_sums(rehearsal_sums, outputs[rehearsed], logits[rehearsed], labels[rehearsed])
                losses[1].index_add_(0, labels[rehearsed], loss[rehearsed])
            logit_sum += logits[is_new[labels]].double().sum(dim=0)
        return self._combine(sums, rehearsal_sums, losses, logit_sum)

    def _combine(self, sums: Tensor, rehearsal_sums: Tensor, losses: Tensor, logit_sum: Tensor) -> Measurement:
        past, new_images = self.past_nodes, self._new_counts.sum()
        full = sums[past] / self._counts[:, None, None]
        rehearsal = rehearsal_sums[past] / self._rehearsal_counts[:, None, None]
        new_sums = sums[self.new_nodes]
        new_by_class = new_sums / self._new_counts[:, None, None]
        terms = coefficients(full, rehearsal, new_sums.sum(dim=0) / new_images, self.alpha, self.shares, past)
        pairs = torch.cat(
            [
                past_interference(full, rehearsal, self.alpha, self.shares),
                new_interference(full, new_by_class, self._new_counts / new_images, self.alpha, past),
            ],
            dim=1,
        )
        return Measurement(
            terms=terms,
            pairs=pairs,
            gradient_norm=full.flatten(1).norm(dim=1),
            bias_norm=(rehearsal - full).flatten(1).norm(dim=1),
            loss_full=losses[0][past] / self._counts,
            loss_rehearsal=losses[1][past] / self._rehearsal_counts,
            new_logits=logit_sum[past] / new_images,
        )

    def _batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for images, labels, rehearsed in self._parts:
            for start in range(0, len(labels), self._batch):
                part = slice(start, start + self._batch)
                batch = images[part]
                yield batch if self._prepare is None else self._prepare(batch), labels[part], rehearsed[part]


def _count(labels: Tensor, nodes: Tensor) -> Tensor:
    return (labels[:, None] == nodes).sum(dim=0).double()


def _find(network: nn.Module, features: Inputs | None, head: nn.Linear | None) -> tuple[Inputs, nn.Linear]:
    features = features or getattr(network, "features", None)
    head = head or getattr(network, "head", None)
    kind = type(network).__name__
    if not callable(features):
        raise InputError(f"{kind} has no method features(images). Add one, or pass measure(network, features=...).")
    if not isinstance(head, nn.Linear):
        raise InputError(
            f"{kind}.head is {type(head).__name__}, not a torch.nn.Linear. Pass the last layer: measure(network, head=...)."
        )
    return features, head


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
