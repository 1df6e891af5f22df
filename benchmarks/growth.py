"""How the cost of a probe grows with images, and that of the coefficients with classes up to 200.

    python benchmarks/growth.py

Prints seconds relative to the smallest size and, per doubling, the exponent e in cost ~ size^e: 1 is linear, 2 quadratic. Real
CIFAR-100 images (`forgetscope data get cifar100`) through ResNet-8; gradients for a head on 64 features. One thread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import torch

from forgetscope.data.library import load_data
from forgetscope.measuring.gradients import GradientSums
from forgetscope.measuring.probe import CHUNK, Probe
from interleaved import Rounds
from probe import sides_of

IMAGES, CLASSES, NEW, WIDTH = (50, 100, 200, 400), (25, 50, 100, 200), 10, 64


def show(title: str, sizes: tuple[int, ...], times: Rounds) -> None:
    relative: Mapping[int, float] = {size: times.ratio(str(size), str(sizes[0])) for size in sizes}
    exponents = [math.log(relative[b] / relative[a], b / a) for a, b in pairwise(sizes)]
    costs = ", ".join(f"{size}: {relative[size]:.2f}" for size in sizes)
    print(f"{title}: {costs}; exponents {', '.join(f'{e:.2f}' for e in exponents)}", flush=True)


def images() -> None:
    data = load_data("cifar100")
    sides = {str(size): sides_of(data, "resnet8", size)[1]["probe"] for size in IMAGES}
    show("probe, images per class (of 20 classes)", IMAGES, Rounds(sides, 5))


def classes() -> None:
    """From features and logits of 500 images per class to coefficients and pairs; then the last part of that alone."""
    rng = np.random.default_rng(0)
    features = torch.from_numpy(rng.standard_normal((CHUNK, WIDTH), np.float32))

    def sides(count: int) -> tuple[Callable[[], object], Callable[[], object]]:
        past = torch.arange(count - NEW).repeat(2)
        new, image = torch.arange(count - NEW, count), torch.zeros(1, 1)
        probe = Probe(image.expand(len(past), 1), past, torch.arange(count - NEW), image.expand(NEW, 1), new)
        sums, logits = GradientSums(2 * count - NEW, count, WIDTH), features @ features[:count].T
        labels = torch.arange(count).repeat_interleave(CHUNK // 2)  # classes lie one after the other, as in a run

        def everything() -> None:
            for part in torch.split(labels, CHUNK):
                kept = (torch.arange(len(part)) % 10 == 0) | (part >= count - NEW)  # new classes come last of all
                sums.add(features[: len(part)], logits[: len(part)], part, part + (count - NEW) * kept)
            probe._combine(sums)

        return everything, lambda: probe._combine(sums)

    parts = {str(count): sides(count) for count in CLASSES}
    everything, combining = ({name: part[i] for name, part in parts.items()} for i in (0, 1))
    whole, last = Rounds(everything, 11), Rounds(combining, 15)
    show("from features to coefficients and pairs, classes of 500 images", CLASSES, whole)
    show("of it, coefficients and pairs from the sums, classes", CLASSES, last)
    largest = str(CLASSES[-1])
    share = statistics.median(last.times[largest]) / statistics.median(whole.times[largest])
    print(f"which is {100 * share:.0f} % of it at {largest} classes")


def main() -> None:
    torch.set_num_threads(1)
    classes()
    images()


if __name__ == "__main__":
    main()
