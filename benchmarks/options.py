"""What torch.compile and bfloat16 gain over eager float32, and what compiling costs before it starts to pay.

    python benchmarks/options.py

Bare loops in channels-last layout on one batch of real CIFAR-100 images (`forgetscope data get cifar100`) through ResNet-32:
training at batch 128 with each option, and evaluation at batch 500 compiled or not. One thread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.learning.networks import build_network
from interleaved import Rounds, seconds

CLASSES, ROUNDS = 20, 5


def batch_of(data: DataSet, count: int) -> torch.Tensor:
    pixels = torch.from_numpy(np.array(data.train.images[:count])).permute(0, 3, 1, 2).float() / 255
    return pixels.contiguous(memory_format=torch.channels_last)


def trains(data: DataSet, *, compiled: bool = False, bfloat16: bool = False) -> Callable[[], object]:
    network = build_network("resnet32", CLASSES, np.random.default_rng(0)).train()
    optimiser = torch.optim.SGD(network.parameters(), 0.01, 0.9, weight_decay=5e-4, fused=True)
    forward = torch.compile(network) if compiled else network
    images, nodes = batch_of(data, 128), torch.arange(128) % CLASSES

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = forward(images).float()
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(logits, nodes).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return run


def evaluates(data: DataSet, *, compiled: bool = False) -> Callable[[], object]:
    network = build_network("resnet32", CLASSES, np.random.default_rng(0)).eval()
    forward, images = torch.compile(network) if compiled else network, batch_of(data, 500)

    @torch.no_grad()
    def run() -> None:
        forward(images)

    return run


def main() -> None:
    torch.set_num_threads(1)
    data = load_data("cifar100")
    sides = {
        "training": trains(data),
        "training, compiled": trains(data, compiled=True),
        "training, bfloat16": trains(data, bfloat16=True),
        "evaluation": evaluates(data),
        "evaluation, compiled": evaluates(data, compiled=True),
    }
    starts = {name: seconds(run) for name, run in sides.items()}
    times = Rounds(sides, ROUNDS)
    for name in ("training, compiled", "training, bfloat16", "evaluation, compiled"):
        plain = name.partition(",")[0]
        cost = starts[name] / times.times[plain][0]
        gain = times.ratio(plain, name)
        print(f"{name} / eager, images per second: {gain:.2f}; its first batch cost {cost:.0f} eager batches", flush=True)


if __name__ == "__main__":
    main()
