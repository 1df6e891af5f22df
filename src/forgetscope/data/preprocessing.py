"""From stored images to a network's input, for training, measuring and testing alike: augmentation, then normalisation.

Augmentation is batched and from explicit streams: random crop, horizontal flip, brightness. Each image has its own draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from forgetscope.data.images import DataSet
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec

# As widely copied. The deviations are means of those of single images; over all pixels they are 0.2470, 0.2435 and 0.2616.
CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


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
    return Draws(*(torch.from_numpy(drawn).to(device) for drawn in (*corners, flips, factors)))


def augment(images: Tensor, augmentation: AugmentationSpec, draws: Draws) -> Tensor:
    """uint8 [n, h, w, 3] -> float [n, h, w, 3] from 0 to 1. Brightness that is rounded is rounded down, as Pillow does."""
    if augmentation.crop:
        n, height, width, _ = images.shape
        padded = F.pad(images, (0, 0, *[augmentation.crop] * 4))
        windows = padded.unfold(1, height, 1).unfold(2, width, 1).permute(0, 1, 2, 4, 5, 3)
        images = windows[torch.arange(n, device=images.device), draws.top, draws.left]
    if augmentation.flip:
        images = torch.where(draws.flip[:, None, None, None], images.flip(2), images)
    pixels = as_pixels(images)
    if augmentation.brightness_rounded:
        return (images * draws.factor[:, None, None, None]).floor_().clamp_(0, 255) / 255
    if augmentation.brightness:
        pixels = (pixels * draws.factor[:, None, None, None]).clamp_(0, 1)
    return pixels


def as_pixels(images: Tensor) -> Tensor:
    """uint8 [n, h, w, 3] -> float [n, h, w, 3] from 0 to 1; what is float already stays as it is."""
    return images.float() / 255 if images.dtype == torch.uint8 else images


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation [3] of pixels, range 0 to 1, on the training device: of the data set's own, or others."""

    mean: Tensor
    std: Tensor
    channels_last: bool = True

    @classmethod
    def of(
        cls, data: DataSet, device: torch.device | str = "cpu", channels_last: bool = True, by: Literal["cifar10"] | None = None
    ) -> Normalisation:
        mean, std = (data.mean, data.std) if by is None else CIFAR10
        return cls(torch.tensor(mean, device=device), torch.tensor(std, device=device), channels_last)

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 [n, h, w, 3], or float from 0 to 1 -> standardised [n, 3, h, w], in memory with the channels last or first."""
        inputs = ((as_pixels(images) - self.mean) / self.std).permute(0, 3, 1, 2)
        return inputs if self.channels_last else inputs.contiguous()
