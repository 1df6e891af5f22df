"""Last-layer gradients of groups of images in closed form, from one forward pass.

For a linear head the gradient of the mean cross-entropy over n images is (softmax - onehot)^T [features, 1] / n: a matrix
with one row per head node, whose last column belongs to the bias. No backward pass, no per-image gradient. Of another loss the
derivative with respect to the logits takes the place of softmax - onehot.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from forgetscope.characters import counted
from forgetscope.errors import InputError

Loss = Callable[[Tensor, Tensor], Tensor]  # logits [n, k], labels [n] -> the mean over images, or one loss per image [n]


class GradientSums:
    """Sums over the images of each group, in float64 on the CPU; its size does not depend on how many images were added.

    biased: whether the head has biases; their column is 0 otherwise. loss: None is the cross-entropy."""

    eps = torch.finfo(torch.float64).eps  # of the arithmetic in which gradients were summed
    within: Tensor | None = None  # [P, s]: which parameters make up L_c, where these are not row c

    def __init__(
        self,
        groups: int,
        nodes: int,
        width: int,
        *,
        biased: bool = True,
        loss: Loss | None = None,
        outputs: int | None = None,  # of the network, where these are not the rows
    ) -> None:
        self._biased, self._loss = biased, loss
        self.gradients = torch.zeros(groups, nodes, width + 1, dtype=torch.float64)  # row = head node, last column = bias
        self.lengths = torch.zeros(groups, dtype=torch.float64)  # norms of the single images' gradients
        self.losses = torch.zeros(groups, dtype=torch.float64)
        self.logits = torch.zeros(groups, outputs or nodes, dtype=torch.float64)
        self.counts = torch.zeros(groups, dtype=torch.float64)

    def add(self, features: Tensor, logits: Tensor, labels: Tensor, groups: Tensor) -> None:
        """features [n, d], logits [n, k], labels [n] = head nodes, groups [n]: where each image counts."""
        self.make_room(groups)
        logits = logits.double()
        if self._loss is None:
            total = torch.logsumexp(logits, dim=1)
            residual = _residual(torch.exp(logits - total[:, None]), labels)
        else:
            _, residual = summed_loss(logits, labels, self._loss)
        inputs = torch.cat([features.double(), torch.full_like(residual[:, :1], float(self._biased))], dim=1)
        self.add_gradients(residual, inputs, groups)
        if self._loss is None:
            self.losses.index_add_(0, groups, total - logits[torch.arange(len(labels)), labels])
        else:
            for group in torch.unique(groups).tolist():
                mine = groups == group
                self.losses[group] += summed_loss(logits[mine], labels[mine], self._loss)[0]
        self.logits.index_add_(0, groups, logits)
        self.counts.index_add_(0, groups, torch.ones(len(labels), dtype=torch.float64))

    def add_gradients(self, residual: Tensor, inputs: Tensor, groups: Tensor) -> None:
        """Of each image, the outer product of residual [n, k] and inputs [n, d + 1]."""
        order = torch.argsort(groups, stable=True)
        present, counts = torch.unique_consecutive(groups[order], return_counts=True)
        start = 0
        for group, count in zip(present.tolist(), counts.tolist(), strict=True):
            images = order[start : start + count]
            self.gradients[group].addmm_(residual[images].T, inputs[images])
            start += count
        self.lengths.index_add_(0, groups, residual.norm(dim=1) * inputs.norm(dim=1))  # an outer product's norm

    def make_room(self, groups: Tensor) -> None:
        """For groups that were not foreseen."""
        missing = int(groups.max()) + 1 - len(self.counts)
        if missing > 0:
            self.arrange([*range(len(self.counts)), *[None] * missing])

    def arrange(self, order: Sequence[int | None]) -> None:
        """Take the groups into this order; None is a group without images."""
        given = [(at, group) for at, group in enumerate(order) if group is not None]
        to, source = torch.tensor(given, dtype=torch.long).reshape(-1, 2).T
        for name in ("gradients", "lengths", "losses", "logits", "counts"):
            array: Tensor = getattr(self, name)
            setattr(self, name, array.new_zeros(len(order), *array.shape[1:]).index_copy_(0, to, array[source]))


def rounding_error(lengths: Tensor, eps: float = torch.finfo(torch.float64).eps) -> Tensor:
    """A bound for the rounding error in the norm of a mean gradient; `lengths` are the sums of its images' gradient norms.

    A sum of n terms is wrong by at most n eps times the sum of their sizes (Higham 2002, section 4.2), a mean by eps times it.
    """
    return eps * lengths


def summed_loss(logits: Tensor, labels: Tensor, loss: Loss | None) -> tuple[float, Tensor]:
    """The sum of some images' losses, and its derivative with respect to their logits [n, k], in float64."""
    values = logits.detach().double()
    if loss is None:
        total = (torch.logsumexp(values, dim=1) - values.gather(1, labels[:, None])[:, 0]).sum()
        return float(total), loss_residual(values, labels)
    with torch.enable_grad():
        total = loss(values.requires_grad_(), labels).mean() * len(labels)
        (residual,) = torch.autograd.grad(total, values, allow_unused=True, materialize_grads=True)
    return float(total.detach()), residual


def checked_loss(loss: Loss | None, labels: Tensor, nodes: int, device: torch.device) -> Loss | None:
    """A loss that takes float64, tried on made-up logits of these labels, all that occur; None if it is the cross-entropy.

    Of some images it must be the mean of theirs: only then has a class a loss of its own."""
    if loss is None:
        return None
    told = "Give a function of logits [n, k] and labels [n] that returns the mean over images, such as nn.CrossEntropyLoss()."
    labels = labels.to(device)
    waves = torch.arange(len(labels) * nodes, dtype=torch.float64, device=device).sin().view(len(labels), nodes)
    logits = 2 * waves

    def in_single_precision(values: Tensor, of: Tensor) -> Tensor:
        return loss(values.float(), of).double()  # weights in float32, for example, meet no float64

    try:
        try:
            own, together = loss, loss(logits, labels).mean()
        except (RuntimeError, TypeError):
            own, together = in_single_precision, in_single_precision(logits, labels).mean()
        _, residual = summed_loss(logits, labels, own)
        singly = [summed_loss(logits[i : i + 1], labels[i : i + 1], own) for i in range(len(labels))]
        larger = {size: summed_loss(size * waves, labels, own)[1] for size in (2, 30, 100)}  # one that clamps differs there
    except Exception as error:  # anything: this is a user's code
        raise InputError(f"loss {loss!r:.60} failed ({type(error).__name__}: {str(error)[:200]}). {told}") from error
    alone = sum(value for value, _ in singly) / len(singly)
    derived = torch.cat([part for _, part in singly])
    if not (math.isclose(together, alone, rel_tol=1e-5, abs_tol=1e-7) and torch.allclose(derived, residual, 1e-5, 1e-7)):
        images = f"{counted(len(labels), 'image')}, one per class"
        raise InputError(
            f"loss {loss!r:.60} is {together:.4g} of {images}, and the mean of their own losses is {alone:.4g}, or their "
            f"derivatives differ. {told}"
        )
    plain = (torch.allclose(found, loss_residual(size * waves, labels), 5e-6 * size, 1e-7) for size, found in larger.items())
    return None if all(plain) else own


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
