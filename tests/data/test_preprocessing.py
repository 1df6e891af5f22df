"""Batched augmentation against a slow reference that treats one image after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from forgetscope.data.preprocessing import augment, draw
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec

CPU = torch.device("cpu")


def reference(image: np.ndarray, spec: AugmentationSpec, top: int, left: int, flip: bool, factor: float) -> np.ndarray:
    height, width, _ = image.shape
    padded = np.zeros((height + 2 * spec.crop, width + 2 * spec.crop, 3), np.uint8)
    padded[spec.crop : spec.crop + height, spec.crop : spec.crop + width] = image
    cropped = padded[top : top + height, left : left + width]
    if flip:
        cropped = cropped[:, ::-1]
    return np.clip(cropped.astype(np.float32) / 255 * np.float32(factor), 0, 1)


@pytest.mark.parametrize(
    "spec",
    [
        AugmentationSpec(),
        AugmentationSpec(crop=2),
        AugmentationSpec(flip=True),
        AugmentationSpec(brightness=63 / 255),
        AugmentationSpec(crop=1, flip=True, brightness=0.5),
    ],
)
def test_each_image_is_treated_as_the_reference_does(spec: AugmentationSpec) -> None:
    images = np.random.default_rng(0).integers(256, size=(16, 6, 5, 3), dtype=np.uint8)
    draws = draw(spec, 2, 16, Streams(0, 1), 0, CPU).batch(1)
    result = augment(torch.from_numpy(images), spec, draws).numpy()
    for i, image in enumerate(images):
        chosen = (int(draws.top[i]), int(draws.left[i]), bool(draws.flip[i]), float(draws.factor[i]))
        np.testing.assert_allclose(result[i], reference(image, spec, *chosen), atol=1e-6)


def test_draws_cover_their_range_and_differ_between_images_and_epochs() -> None:
    spec = AugmentationSpec(crop=2, flip=True, brightness=0.25)
    draws = draw(spec, 40, 50, Streams(0, 1), 0, CPU)
    assert torch.unique(draws.top).tolist() == torch.unique(draws.left).tolist() == [0, 1, 2, 3, 4]
    assert abs(float(draws.flip.double().mean()) - 0.5) < 5 * 0.5 / 2000**0.5
    assert float(draws.factor.min()) >= 0.75
    assert float(draws.factor.max()) <= 1.25
    assert not torch.equal(draws.factor, draw(spec, 40, 50, Streams(0, 1), 1, CPU).factor)
    assert not torch.equal(draws.top, draws.left)
