"""Losses of rehearsal methods as functions of logits and labels that are means over images, which is what can be measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Loss = Callable[[Tensor, Tensor], Tensor]


def own_loss(loss: Loss | None) -> Loss | None:
    """None for the plain cross-entropy, which has a closed form.

    >>> own_loss(nn.CrossEntropyLoss()) is own_loss(F.cross_entropy) is None
    True
    >>> own_loss(nn.CrossEntropyLoss(label_smoothing=0.1))
    CrossEntropyLoss()
    """
    return None if loss is F.cross_entropy or _is_plain(loss) else loss


def _is_plain(loss: Loss | None) -> bool:
    if type(loss) is not nn.CrossEntropyLoss:
        return False
    ignores = loss.ignore_index >= 0  # no label is below 0
    return loss.weight is None and not ignores and not loss.label_smoothing and loss.reduction == "mean"


def asymmetric_loss(past: Iterable[int], new: Iterable[int], replayed: Callable[[], float]) -> Loss:
    """The loss of ER-ACE: images of new classes compete with new classes alone, replayed ones with all.

    Its two means, over new images and over replayed ones, count the same. Of a memory that already holds new classes, these are
    replayed too: `replayed` is their share of it now. `new` are the nodes that a new image competes with otherwise; exact where
    each batch holds all of them. Past images have the plain cross-entropy.

    >>> logits, labels = torch.tensor([[2.0, 0.0, 1.0], [2.0, 0.0, 1.0]]), torch.tensor([0, 1])
    >>> loss = asymmetric_loss(past=[0], new=[1, 2], replayed=lambda: 0.0)
    >>> bool(loss(logits[1:], labels[1:]) == F.cross_entropy(logits[1:, 1:], labels[1:] - 1))
    True
    >>> bool(loss(logits[:1], labels[:1]) == F.cross_entropy(logits[:1], labels[:1]))
    True
    """
    before, among = sorted(set(past)), sorted(set(new))

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        full = F.cross_entropy(logits, labels, reduction="none")
        kept = torch.full_like(logits[0], -torch.inf).index_fill(0, torch.tensor(among, device=logits.device), 0.0)
        is_new = torch.isin(labels, torch.tensor(before, device=labels.device), invert=True)
        targets = torch.where(is_new, labels, torch.tensor(among[0], device=labels.device))  # of past images: not looked at
        alone = F.cross_entropy(logits + kept, targets, reduction="none")
        share = replayed() / (1 + replayed())
        return torch.where(is_new, share * full + (1 - share) * alone, full).mean()

    return loss


def weighed_alike(labels: Tensor, replayed: Tensor) -> Tensor:
    """The labels of two batches whose means count the same in a loss, as one batch: each as often as it takes.

    >>> weighed_alike(torch.tensor([2, 3, 2, 3]), torch.tensor([0, 1]))
    tensor([2, 3, 2, 3, 0, 1, 0, 1])
    """
    length = math.lcm(len(labels), len(replayed))
    return torch.cat([labels.repeat(length // len(labels)), replayed.to(labels.device).repeat(length // len(replayed))])
