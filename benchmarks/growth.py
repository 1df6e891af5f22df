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
from forgetscope.measuring.coefficients import coefficients, past_interference
from forgetscope.measuring.gradients import GradientSums
from forgetscope.measuring.probe import CHUNK
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
    """From features and logits of 500 images per class to the coefficients; then pairs, and both from the sums."""
    rng = np.random.default_rng(0)
    features = torch.from_numpy(rng.standard_normal((CHUNK, WIDTH), np.float32))

    def sides(count: int) -> tuple[Callable[[], object], ...]:
        past, new = torch.arange(count - NEW), torch.arange(count - NEW, count)
        sums, logits = GradientSums(2 * count - NEW, count, WIDTH), features @ features[:count].T
        labels = torch.arange(count).repeat_interleave(CHUNK // 2)  # classes lie one after the other, as in a run
        full, bias = sums.gradients[: len(past)], sums.gradients[len(past) : 2 * len(past)]
        shares = torch.full((len(past),), 1 / len(past))

        def from_gradients() -> None:
            coefficients(full=full, bias=bias, new=sums.gradients[-NEW:].sum(dim=0), alpha=0.5, shares=shares, nodes=past)

        def from_features() -> None:
            for part in torch.split(labels, CHUNK):
                kept = (torch.arange(len(part)) % 10 == 0) | (part >= new[0])  # new classes come last of all
                sums.add(features[: len(part)], logits[: len(part)], part, part + len(past) * kept)
            from_gradients()

        return from_features, from_gradients, lambda: past_interference(full, bias, 0.5, shares)

    parts = {str(count): sides(count) for count in CLASSES}
    whole, terms, pairs = (Rounds({name: part[i] for name, part in parts.items()}, 11) for i in range(3))
    show("from features of 500 images per class to the coefficients, classes", CLASSES, whole)
    show("of it, coefficients from mean gradients, classes", CLASSES, terms)
    show("beside it, who interferes with whom, classes", CLASSES, pairs)
    largest = str(CLASSES[-1])
    for name, times in (("coefficients", terms), ("pairs", pairs)):
        share = statistics.median(times.times[largest]) / statistics.median(whole.times[largest])
        print(f"{name} at {largest} classes: {100 * share:.0f} % of the time from features to coefficients", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    classes()
    images()


if __name__ == "__main__":
    main()
