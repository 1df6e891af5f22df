"""What augmentation costs within a training iteration of ResNet-32 at 32 x 32, batch 128, on one CPU thread.

    python benchmarks/augmentation.py

Prints the share of an iteration that random crop, flip and brightness take; the images are random, which changes no time.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch
from torch.nn import functional as F

from forgetscope.data.preprocessing import Normalisation, augment, draw
from forgetscope.learning.networks import build_network
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec

BATCH, ROUNDS, ITERATIONS = 128, 5, 4


def main() -> None:
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    spec = AugmentationSpec(crop=4, flip=True, brightness=63 / 255)
    images = torch.from_numpy(np.random.default_rng(0).integers(256, size=(BATCH, 32, 32, 3), dtype=np.uint8))
    labels = torch.arange(BATCH) % 20
    network = build_network("resnet32", 20, np.random.default_rng(0))
    optimiser = torch.optim.SGD(network.parameters(), 0.1, 0.9, weight_decay=5e-4, fused=True)
    normalise = Normalisation(torch.full((3,), 0.5), torch.full((3,), 0.25))
    shares = []
    for round in range(ROUNDS + 1):
        started = time.perf_counter()
        draws = draw(spec, ITERATIONS, BATCH, Streams(0, 2), round, cpu)
        augmenting = time.perf_counter() - started
        whole = time.perf_counter()
        for i in range(ITERATIONS):
            started = time.perf_counter()
            pixels = augment(images, spec, draws.batch(i))
            augmenting += time.perf_counter() - started
            optimiser.zero_grad()
            F.cross_entropy(network(normalise(pixels)), labels).backward()
            optimiser.step()
        if round:  # the first warms up
            shares.append(augmenting / (time.perf_counter() - whole))
    print(f"augmentation / training iteration of ResNet-32: {100 * statistics.median(shares):.2f} % (median of {ROUNDS})")


if __name__ == "__main__":
    main()
