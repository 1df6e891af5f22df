"""One class's training images as the parent's network sees them: what a rehearsal policy chooses from."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from forgetscope.data.preprocessing import as_pixels, augment, draw
from forgetscope.measuring.gradients import loss_residual
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec

BATCH = 500


@dataclass(frozen=True)
class Candidates:
    """Nothing is computed before a policy asks for it. Evaluation mode; values in float64 on the CPU; n images, k nodes.

    history [n]: what training left of each image, 2 x lost predictions + 1 if the last prediction was correct.

    >>> from forgetscope.testing import make_candidates
    >>> candidates = make_candidates(10)
    >>> candidates.features.shape, candidates.logits.shape, candidates.gradient_products.shape
    ((10, 64), (10, 4), (10, 10))
    """

    images: Tensor  # uint8 [n, h, w, 3], on the network's device
    node: int  # the class's head node
    history: NDArray[np.int64]
    network: nn.Module
    normalise: Callable[[Tensor], Tensor]
    augmentation: AugmentationSpec
    streams: Streams

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def features(self) -> NDArray[np.float64]:
        """[n, d]"""
        return self._forward(lambda inputs: self.network.features(inputs), self.images)  # type: ignore[operator]

    @cached_property
    def logits(self) -> NDArray[np.float64]:
        """[n, k]"""
        return self._forward(self.network, self.images)

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """[n, k]"""
        return torch.softmax(torch.from_numpy(self.logits), dim=1).numpy()

    @cached_property
    def gradient_products(self) -> NDArray[np.float64]:
        """Inner products [n, n] of the images' last-layer gradients, weights and biases.

        An image's gradient is the outer product of its loss residual r and [features, 1], so no gradient is ever formed:
        <g_i, g_j> = <r_i, r_j> (<h_i, h_j> + 1).
        """
        residuals = self._residuals
        products: NDArray[np.float64] = (residuals @ residuals.T) * (self.features @ self.features.T + 1)
        return products

    @cached_property
    def gradient_spread(self) -> float:
        """Root of the mean squared distance of the images' last-layer gradients from their mean."""
        residuals, inputs = self._residuals, np.hstack([self.features, np.ones((len(self), 1))])
        # einsum, not a product of matrices: the bits of that depend on the number of threads.
        mean = np.einsum("nk,nd->kd", residuals, inputs) / len(self)
        squares = np.square(residuals).sum(axis=1) * np.square(inputs).sum(axis=1)
        return float(np.sqrt(np.maximum(squares.mean() - np.square(mean).sum(), 0.0)))

    @property
    def lost_predictions(self) -> NDArray[np.int64]:
        """How often each image's correct prediction was lost during training [n]."""
        return self.history // 2

    @property
    def learned(self) -> NDArray[np.bool_]:
        """Which images were predicted correctly at least once during training [n]."""
        return self.history > 0

    def augmented_predictions(self, times: int) -> NDArray[np.int64]:
        """Predicted nodes [times, n] of differently augmented copies."""
        draws = draw(self.augmentation, times, len(self), self.streams, self.node, self.images.device)
        copies = (augment(self.images, self.augmentation, draws.batch(i)) for i in range(times))
        return np.stack([self._forward(self.network, copy).argmax(axis=1) for copy in copies])

    @cached_property
    def _residuals(self) -> NDArray[np.float64]:
        """[n, k]"""
        residuals: NDArray[np.float64] = loss_residual(
            torch.from_numpy(self.logits), torch.full((len(self),), self.node)
        ).numpy()
        return residuals

    @torch.no_grad()
    def _forward(self, function: Callable[[Tensor], Tensor], images: Tensor) -> NDArray[np.float64]:
        self.network.eval()
        parts = [function(self.normalise(part)).cpu().double() for part in torch.split(as_pixels(images), BATCH)]
        return torch.cat(parts).numpy()
