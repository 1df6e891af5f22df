"""Training throughput of a rehearsal step, data handling and augmentation included, against bare PyTorch loops.

    python benchmarks/training.py

A loop does nothing but forward, backward and optimiser step on one batch of ready-made float tensors: in channels-last layout
with the fused optimiser that we use ourselves, and as usually written, in the default layout with `torch.optim.SGD` as it is.
ResNet-32 on CIFAR-100 at 32 x 32 (`forgetscope data get cifar100`) and the demo's network on glyphs; batch 128, one thread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.experiment.preparation import training_set
from forgetscope.learning.networks import build_network
from forgetscope.learning.rsgd import Normalisation, make_optimiser, train_step
from forgetscope.randomness import Streams
from forgetscope.spec import TrainingSpec
from interleaved import Rounds

BATCH, CLASSES, KEPT = 128, 10, 40  # classes that are new, and as many past ones with 40 rehearsal images each
CPU = torch.device("cpu")


def spec_of(data: DataSet) -> TrainingSpec:
    # One learning rate and far more epochs than are run: no cosine, nothing ends.
    options = {"epochs": 10**6, "batch": BATCH, "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 5e-4}
    return TrainingSpec(**options, augmentation=data.augmentation)


def rehearsal_step(data: DataSet, network: str, images: int) -> tuple[Callable[[], object], int]:
    """One epoch of a second step per call, and its iterations; `images` of each new class."""
    of = [np.flatnonzero(data.train.labels == label) for label in range(2 * CLASSES)]
    past = training_set(data.train, {label: of[label][:KEPT] for label in range(CLASSES)}, 0, CPU)
    new = training_set(data.train, {label: of[label][:images] for label in range(CLASSES, 2 * CLASSES)}, CLASSES, CPU)
    normalise = Normalisation(torch.tensor(data.mean), torch.tensor(data.std))
    learner, spec = build_network(network, 2 * CLASSES, np.random.default_rng(0)), spec_of(data)
    epochs = train_step(learner, make_optimiser(learner, spec), new, past, normalise, spec, 0.5, Streams(0, 2))
    return lambda: next(epochs), -(-len(new.nodes) // (BATCH // 2))


def bare_loop(
    data: DataSet, network: str, iterations: int, layout: torch.memory_format, *, fused: bool | None
) -> Callable[[], object]:
    learner = build_network(network, 2 * CLASSES, np.random.default_rng(0)).to(memory_format=layout)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(learner.parameters(), 0.01, 0.9, weight_decay=5e-4, fused=fused)
    pixels = torch.from_numpy(np.array(data.train.images[:BATCH])).permute(0, 3, 1, 2)
    images = pixels.float().contiguous(memory_format=layout) / 255
    nodes = torch.arange(BATCH) % (2 * CLASSES)

    def run() -> None:
        learner.train()
        for _ in range(iterations):
            loss = F.cross_entropy(learner(images), nodes)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    return run


def compare(name: str, data: DataSet, network: str, images: int, rounds: int, wanted: float) -> None:
    step, iterations = rehearsal_step(data, network, images)
    last, default = torch.channels_last, torch.contiguous_format
    sides = {
        "step": step,
        "channels-last": bare_loop(data, network, iterations, last, fused=True),
        "usual": bare_loop(data, network, iterations, default, fused=None),
    }
    times = Rounds(sides, rounds)
    print(times.line(f"{name}: step / channels-last loop, images per second", "channels-last", "step", f">= {wanted}"))
    print(times.line(f"{name}: step / default-layout loop, images per second", "usual", "step", ">= 1.2"), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    compare("demo's network", load_data("glyphs"), "resnet8", images=200, rounds=11, wanted=0.85)
    compare("ResNet-32", load_data("cifar100"), "resnet32", images=45, rounds=5, wanted=0.95)


if __name__ == "__main__":
    main()
