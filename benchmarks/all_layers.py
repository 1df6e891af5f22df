"""What a probe of all layers costs, and one of the last layer, against an epoch of training on the same classes.

    python benchmarks/all_layers.py

10 past and 10 new classes, ResNet-8, one thread, in turns within one process: glyphs, and CIFAR-100 at 16 x 16
(`forgetscope data get cifar100`).
"""

from __future__ import annotations

import numpy as np
import torch

from forgetscope.data.library import load_data
from forgetscope.learning.networks import build_network
from forgetscope.threads import keep_memory
from interleaved import Rounds
from probe import CLASSES, sides_of
from training import rehearsal_step

NETWORK, ROUNDS = "resnet8", 5


def compare(title: str, dataset: str, images: int) -> None:
    data = load_data(dataset, 16)
    epoch, _ = rehearsal_step(data, NETWORK, images)
    probe, sides = sides_of(data, NETWORK, images)
    network = build_network(NETWORK, 2 * CLASSES, np.random.default_rng(0))
    sides = {"epoch": epoch, "last": sides["probe"], "all": lambda: probe.measure_all_layers(network)}
    times = Rounds(sides, ROUNDS)
    for name, words in (("all", "all layers"), ("last", "the last layer")):
        print(times.line(f"{title}: a probe of {words} / an epoch, seconds", name, "epoch", "nothing: no claim"), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    keep_memory()  # as the command line does
    compare("glyphs", "glyphs", 200)
    compare("CIFAR-100", "cifar100", 500)


if __name__ == "__main__":
    main()
