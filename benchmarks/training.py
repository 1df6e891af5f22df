"""Training throughput of a rehearsal step, data handling and augmentation included, against bare PyTorch loops.

    python benchmarks/training.py

A loop does nothing but forward, backward and optimiser step on one batch of ready-made float tensors. The channels-last loop
has all that we use in training: layout, fused optimiser, operations in place. The default-layout loop is as usual: the
default layout, `torch.optim.SGD` as it is, `relu(f(x) + x)`. ResNet-32 on CIFAR-100 (`forgetscope data get cifar100`) and the
demo's network on glyphs; batch 128, one thread, each side in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.data.preprocessing import Normalisation
from forgetscope.experiment.preparation import training_set
from forgetscope.learning import networks
from forgetscope.learning.networks import build_network
from forgetscope.learning.rsgd import make_optimiser, train_step
from forgetscope.randomness import Streams
from forgetscope.spec import TrainingSpec
from forgetscope.threads import keep_memory
from interleaved import Remote, Rounds, serve

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
    normalise = Normalisation.of(data)
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


NETWORKS = {"resnet8": ("glyphs", 200), "resnet32": ("cifar100", 26)}  # data set, images of each new class
SIDES = ("step", "channels-last", "usual")


def side(network: str, name: str) -> Callable[[], object]:
    dataset, images = NETWORKS[network]
    data = load_data(dataset)
    step, iterations = rehearsal_step(data, network, images)
    if name == "step":
        keep_memory()  # as the command line does
        return step
    if name == "channels-last":
        return bare_loop(data, network, iterations, torch.channels_last, fused=True)
    networks._Block.forward = usual_block  # type: ignore[method-assign]
    return bare_loop(data, network, iterations, torch.contiguous_format, fused=None)


def usual_block(block: networks._Block, x: torch.Tensor) -> torch.Tensor:
    return F.relu(block.second(F.relu(block.first(x))) + block._shortcut(x))


def compare(title: str, network: str, rounds: int, wanted: float) -> None:
    times = Rounds({name: Remote(__file__, network, name) for name in SIDES}, rounds)
    print(times.line(f"{title}: step / channels-last loop, images per second", "channels-last", "step", f">= {wanted}"))
    print(times.line(f"{title}: step / default-layout loop, images per second", "usual", "step", ">= 1.2"), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        serve(side(*sys.argv[1:]))
        return
    compare("demo's network", "resnet8", rounds=11, wanted=0.85)
    compare("ResNet-32", "resnet32", rounds=9, wanted=0.95)


if __name__ == "__main__":
    main()
