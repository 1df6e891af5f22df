"""Past classes forgotten more evenly in a training of one's own: offsets from what the monitor kept of them.

    python examples/own_evening.py
    python examples/own_evening.py --classes 12 --kept 20

A small network learns two groups of classes of the embedded data set, one after the other. `fs.Monitor` keeps mean and variance
of the first group's features; their images are let go but for a few, which are rehearsed. When the second group is learned,
`step.evening()` says what it expects to gain and to cost, and its offsets are written into the head's bias. What test images
say before and after stands beside it. Then the offsets are taken back, as they are before training goes on. Under a minute.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import forgetscope as fs

Pair = tuple[Tensor, Tensor]


def small_network(classes: int) -> nn.Sequential:
    first = [nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, classes))


def train_one_epoch(network: nn.Module, optimiser: torch.optim.Optimizer, *parts: Pair, batch: int = 32) -> None:
    """An equal number of images from each part in every batch."""
    network.train()
    for _ in range(max(1, len(parts[0][1]) * len(parts) // batch)):
        chosen = [torch.randint(len(labels), (batch // len(parts),)) for _, labels in parts]
        images = torch.cat([part[0][positions] for part, positions in zip(parts, chosen, strict=True)])
        labels = torch.cat([part[1][positions] for part, positions in zip(parts, chosen, strict=True)])
        optimiser.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimiser.step()


@torch.no_grad()
def accuracies(network: nn.Module, test: Pair, classes: int) -> np.ndarray:
    network.eval()
    right = network(test[0])[:, :classes].argmax(dim=1) == test[1]
    return np.array([float(right[test[1] == node].double().mean()) for node in range(classes)])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--classes", type=int, default=8, help="of each of the two steps")
    options.add_argument("--epochs", type=int, default=12)
    options.add_argument("--kept", type=int, default=50, help="images of each past class that are rehearsed")
    options.add_argument("--image-size", type=int, default=16)
    given = options.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is faster with one
    data, past, all_of_them = fs.load_data("glyphs", given.image_size), given.classes, 2 * given.classes

    def images_of(part: object, classes: range) -> Pair:
        where = np.isin(part.labels, classes)  # type: ignore[attr-defined]
        pixels = torch.from_numpy(part.images[where]).permute(0, 3, 1, 2).float() / 255  # type: ignore[attr-defined]
        return pixels, torch.from_numpy(part.labels[where])  # type: ignore[attr-defined]

    old, new = (images_of(data.train, classes) for classes in (range(past), range(past, all_of_them)))
    test, network = images_of(data.test, range(all_of_them)), small_network(all_of_them)
    of_old = (test[0][test[1] < past], test[1][test[1] < past])
    monitor = fs.Monitor("own-evening", "characters", names=dict(enumerate(data.classes)), strict=True)

    optimiser = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
    with monitor.step(network, new=old):
        for _ in range(2 * given.epochs):
            train_one_epoch(network, optimiser, old)
    learned = accuracies(network, of_old, past)

    chosen = torch.cat([torch.nonzero(old[1] == node)[: given.kept, 0] for node in range(past)])
    memory = (old[0][chosen], old[1][chosen])  # all that is left of them
    with monitor.step(network, memory=memory, new=new, alpha=0.5) as step:
        for _ in range(given.epochs):
            train_one_epoch(network, optimiser, new, memory)
            step.epoch_ended()

    found = step.evening()
    print(f"{found.to_frame().round(2).to_string()}\n\n{found.said}\n\nTest images, of {past} past and {past} new classes:")
    for when in ("as trained", "evened"):
        if when == "evened":
            found.write(network)
        now = accuracies(network, test, all_of_them)
        forgetting = 1 - now[:past] / np.maximum(learned, 1e-9)
        spread = f"forgetting spreads by {forgetting.std():.3f} around {forgetting.mean():.3f}, at worst {forgetting.max():.3f}"
        print(f"{when:11} {spread}; accuracy {now.mean():.3f}, of new classes {now[past:].mean():.3f}")
    found.take_back(network)  # a next step would train from here


if __name__ == "__main__":
    main()
