"""Batched augmentation on tensors, from explicit streams: random crop, horizontal flip, brightness. Each image its own draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from forgetscope.data.inputs import as_pixels
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec


@dataclass(frozen=True)
class Draws:
    """The random part of the augmentation of many batches, each tensor [batches, images]."""

    top: Tensor
    left: Tensor
    flip: Tensor
    factor: Tensor

    def batch(self, i: int, images: int | None = None) -> Draws:
        """One batch's draws; a batch may hold fewer images than there are draws."""
        return Draws(self.top[i, :images], self.left[i, :images], self.flip[i, :images], self.factor[i, :images])


def draw(
    augmentation: AugmentationSpec, batches: int, images: int, streams: Streams, epoch: int, device: torch.device
) -> Draws:
    """One epoch's draws at once, made on the CPU so that every device sees the same numbers."""
    shape = (batches, images)
    corners = streams("crop", epoch).integers(2 * augmentation.crop + 1, size=(2, *shape))
    flips = streams("flip", epoch).random(shape) < (0.5 if augmentation.flip else 0.0)
    spread = augmentation.brightness
    factors = streams("brightness", epoch).uniform(1 - spread, 1 + spread, shape).astype(np.float32)
    top, left, flip, factor = (torch.from_numpy(a).to(device) for a in (corners[0], corners[1], flips, factors))
    return Draws(top, left, flip, factor)


def augment(images: Tensor, augmentation: AugmentationSpec, draws: Draws) -> Tensor:
    """uint8 [n, h, w, 3] -> float [n, h, w, 3] from 0 to 1."""
    if augmentation.crop:
        n, height, width, _ = images.shape
        padded = F.pad(images, (0, 0, *[augmentation.crop] * 4))
        windows = padded.unfold(1, height, 1).unfold(2, width, 1).permute(0, 1, 2, 4, 5, 3)
        images = windows[torch.arange(n, device=images.device), draws.top, draws.left]
    if augmentation.flip:
        images = torch.where(draws.flip[:, None, None, None], images.flip(2), images)
    pixels = as_pixels(images)
    if augmentation.brightness:
        pixels = (pixels * draws.factor[:, None, None, None]).clamp_(0, 1)
    return pixels
