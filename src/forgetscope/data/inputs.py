"""From stored images to a network's input, for training, measuring and testing alike."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from forgetscope.data.images import DataSet


def as_pixels(images: Tensor) -> Tensor:
    """uint8 [n, h, w, 3] -> float [n, h, w, 3] from 0 to 1; what is float already stays as it is."""
    return images.float() / 255 if images.dtype == torch.uint8 else images


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation [3] of the data set's training pixels, range 0 to 1, on the training device."""

    mean: Tensor
    std: Tensor
    channels_last: bool = True

    @classmethod
    def of(cls, data: DataSet, device: torch.device | str = "cpu", channels_last: bool = True) -> Normalisation:
        return cls(torch.tensor(data.mean, device=device), torch.tensor(data.std, device=device), channels_last)

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 [n, h, w, 3], or float from 0 to 1 -> standardised [n, 3, h, w], in memory with the channels last or first."""
        inputs = ((as_pixels(images) - self.mean) / self.std).permute(0, 3, 1, 2)
        return inputs if self.channels_last else inputs.contiguous()
