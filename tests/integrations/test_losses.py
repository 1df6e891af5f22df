"""Which losses are the plain cross-entropy; the loss of ER-ACE, image by image, has the gradients of ER-ACE's batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from forgetscope.integrations.losses import asymmetric_loss, own_loss

PAST, NEW = [0, 1], [2, 3]


@pytest.mark.parametrize(
    "own", [{"ignore_index": 0}, {"weight": torch.ones(4)}, {"reduction": "sum"}, {"label_smoothing": 0.1}], ids=str
)
def test_no_cross_entropy_with_a_setting_of_its_own_is_taken_for_the_plain_one(own: dict[str, Any]) -> None:
    loss = nn.CrossEntropyLoss(**own)
    assert own_loss(loss) is loss
    assert own_loss(nn.CrossEntropyLoss(ignore_index=-1)) is None  # no label is below 0


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_new_images_push_past_classes_only_where_they_are_replayed(share: float) -> None:
    logits = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    asymmetric_loss(PAST, NEW, lambda: share)(logits, torch.tensor([2, 3, 2, 3, 2, 3])).backward()
    assert logits.grad is not None
    assert bool(logits.grad[:, PAST].abs().sum() > 0) == (share > 0)
    assert bool(logits.grad[:, 4].abs().sum() > 0) == (share > 0)  # a node of later classes


def test_gradients_are_those_of_both_means_of_er_ace() -> None:
    """Over batches in which the memory holds each class alike: half of what is replayed is new."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(4, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    inputs = torch.randn(4, 3, dtype=torch.float64, generator=generator)  # an image per class
    labels = torch.arange(4)
    logits = inputs @ weight.T
    alone = F.cross_entropy(logits[2:][:, NEW], labels[2:] - 2)  # ER-ACE's batch of new images
    (expected,) = torch.autograd.grad((alone + F.cross_entropy(logits, labels)) / 2, weight, retain_graph=True)
    loss = asymmetric_loss(PAST, NEW, lambda: 0.5)
    of_past, of_new = loss(logits[:2], labels[:2]), loss(logits[2:], labels[2:])
    alpha = 0.25  # a half of the replayed, which are a half of the loss
    (found,) = torch.autograd.grad(alpha * of_past + (1 - alpha) * of_new, weight)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
