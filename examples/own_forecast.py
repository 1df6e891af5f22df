"""Forgetting predicted in a bare PyTorch loop whose past images are gone, without a monitor or a store.

    python examples/own_forecast.py
    python examples/own_forecast.py --epochs 20 --kept 5

A small network learns three groups of classes of the embedded data set, one after the other. When a group is learned, its
keepsakes are made, and its images are let go but for a few, which are rehearsed. From keepsakes, memory and new images alone
`fs.Forecast` says after each epoch how much of each past class is lost. At the end of each step that stands beside what test
images say. The state of the forecast goes into a checkpoint, as it would in a long run. Half a minute on one core.

For brevity nothing is augmented: the network knows its training images better than leave-one-out can tell, so accuracies when
learned come out too high, and forecasts with them (docs/forecast.md). Augment in a training of your own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import forgetscope as fs

Pair = tuple[Tensor, Tensor]


class Network(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        first = [nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
        second = [nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
        self.body = nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(128, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))

    def grow(self, new: int) -> None:
        old, self.head = self.head, nn.Linear(self.head.in_features, self.head.out_features + new)
        with torch.no_grad():
            self.head.weight[: old.out_features], self.head.bias[: old.out_features] = old.weight, old.bias


def train_one_epoch(network: Network, optimiser: torch.optim.Optimizer, *parts: Pair, batch: int = 32) -> None:
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
def accuracies(network: Network, test: Pair) -> np.ndarray:
    """Of each class that the head has a node for."""
    network.eval()
    seen = test[1] < network.head.out_features
    labels = test[1][seen]
    right = network(test[0][seen]).argmax(dim=1) == labels
    return np.array([float(right[labels == node].double().mean()) for node in range(network.head.out_features)])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--classes", type=int, default=8, help="of each of the three steps")
    options.add_argument("--epochs", type=int, default=8)
    options.add_argument("--kept", type=int, default=20, help="images of each past class that are rehearsed")
    options.add_argument("--image-size", type=int, default=16)
    options.add_argument("--checkpoint", type=Path, default=Path("own-forecast.pt"))
    given = options.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is faster with one
    data = fs.load_data("glyphs", given.image_size)

    def images_of(part: object, classes: range) -> Pair:
        where = np.isin(part.labels, classes)  # type: ignore[attr-defined]
        pixels = torch.from_numpy(part.images[where]).permute(0, 3, 1, 2).float() / 255  # type: ignore[attr-defined]
        return pixels, torch.from_numpy(part.labels[where])  # type: ignore[attr-defined]

    test, network = images_of(data.test, range(3 * given.classes)), Network(given.classes)
    kept, memory, learned, lines = fs.Keepsakes({}), None, np.empty(0), []
    for step in range(3):
        classes = range(step * given.classes, (step + 1) * given.classes)
        new = images_of(data.train, classes)
        if memory is not None:
            network.grow(given.classes)
        optimiser = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
        if memory is None:  # the first step has nothing to forget
            for _ in range(3 * given.epochs):
                train_one_epoch(network, optimiser, new)
            kept = fs.keepsakes(network, *new)
        else:
            forecast = fs.Forecast(network, kept, memory=memory, new=new, names=data.classes)
            for _ in range(given.epochs):
                train_one_epoch(network, optimiser, new, memory)
                frame = forecast.measure(network)
                torch.save({"network": network.state_dict(), "forecast": forecast.state_dict()}, given.checkpoint)
            kept = forecast.keepsakes(network)  # of all classes so far, for the next step
            past = accuracies(network, test)[: len(learned)]
            frame["measured"] = np.where(learned > 0, 1 - past / np.maximum(learned, 1e-9), np.nan)
            shown = frame[["class", "forecast", "forecast_low", "forecast_high", "measured"]].round(2)
            print(f"\nStep {step + 1}: {forecast}")
            print(shown.sort_values("forecast", ascending=False).to_string(index=False))
            lines.append(f"step {step + 1} {frame['forecast'].corr(frame['measured'], method='spearman'):+.2f}")
        learned = np.concatenate([learned, accuracies(network, test)[len(learned) :]])
        chosen = torch.cat([torch.nonzero(new[1] == node)[: given.kept, 0] for node in classes])
        few = (new[0][chosen], new[1][chosen])  # all that is left of them
        memory = few if memory is None else (torch.cat([memory[0], few[0]]), torch.cat([memory[1], few[1]]))
    print("\nNothing was augmented here: forecasts are rougher than they would be (docs/forecast.md).")
    print(f"\nrank correlation of predicted and measured forgetting: {', '.join(lines)}\n{kept}")


if __name__ == "__main__":
    main()
