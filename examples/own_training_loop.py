"""A monitor in a bare PyTorch loop: which of the past classes is this network losing, and can one see it coming?

    python examples/own_training_loop.py
    python examples/own_training_loop.py --epochs 10 --kept 5 --name few    # another training, so a name of its own
    forgetscope show own-loop

Nothing of forgetscope's own training is used. A small network learns some classes of the embedded data set, keeps a few
images of each, and learns as many new classes while it rehearses these. The monitor watches both steps: it measures after every
epoch, says which classes are at risk and why, and leaves a store. At the end its ranking stands beside what was really
forgotten. The monitor's state goes into a checkpoint, as it would in a long run. A minute on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import forgetscope as fs


class Network(nn.Module):
    """Anything will do, whatever its parts are called."""

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


def train_one_epoch(network: Network, optimiser: torch.optim.Optimizer, *parts: tuple[Tensor, Tensor], batch: int = 32) -> None:
    """An equal number of images from each part in every batch."""
    network.train()
    for _ in range(max(1, len(parts[0][1]) * len(parts) // batch)):
        chosen = [torch.randint(len(labels), (batch // len(parts),)) for _, labels in parts]
        images = torch.cat([part[0][positions] for part, positions in zip(parts, chosen, strict=True)])
        labels = torch.cat([part[1][positions] for part, positions in zip(parts, chosen, strict=True)])
        optimiser.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimiser.step()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--name", default="characters")
    options.add_argument("--classes", type=int, default=6, help="of each of the two steps")
    options.add_argument("--epochs", type=int, default=8)
    options.add_argument("--kept", type=int, default=20, help="images of each past class that are rehearsed")
    options.add_argument("--image-size", type=int, default=16)
    options.add_argument("--store", type=Path, default=Path("own-loop"))
    given = options.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is faster with one

    data, past = fs.load_data("glyphs", given.image_size), given.classes

    def images_of(part: object, first: int) -> tuple[Tensor, Tensor]:
        where = np.isin(part.labels, np.arange(first, first + past))  # type: ignore[attr-defined]
        pixels = torch.from_numpy(part.images[where]).permute(0, 3, 1, 2).float() / 255  # type: ignore[attr-defined]
        return pixels, torch.from_numpy(part.labels[where])  # type: ignore[attr-defined]

    old, new, test = images_of(data.train, 0), images_of(data.train, past), images_of(data.test, 0)
    both = (torch.cat([test[0], images_of(data.test, past)[0]]), torch.cat([test[1], images_of(data.test, past)[1]]))
    names = dict(enumerate(data.classes))
    monitor = fs.Monitor(given.store, given.name, settings={"kept": given.kept}, names=names, tell=print, strict=True)

    network = Network(past)
    optimiser = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
    with monitor.step(network, new=old) as step:
        for _ in range(3 * given.epochs):
            train_one_epoch(network, optimiser, old)
            step.epoch_ended()
        step.evaluate(test)

    kept = torch.cat([torch.nonzero(old[1] == node)[: given.kept, 0] for node in range(past)])
    memory = (old[0][kept], old[1][kept])
    network.grow(past)
    optimiser = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
    with monitor.step(network, past=old, memory=memory, new=new, alpha=0.5) as step:
        for _ in range(given.epochs):
            train_one_epoch(network, optimiser, new, memory)
            step.epoch_ended()
            torch.save({"network": network.state_dict(), "monitor": monitor.state_dict()}, given.store / "checkpoint.pt")
        step.evaluate(both)

    frame = step.to_frame().drop(columns=["all_nic", "log_sim"])
    print(f"\n{step}\n\n{frame.sort_values('sic', ascending=False).round(3).to_string(index=False)}")
    rho = frame[["sic", "nic"]].corrwith(frame["forgetting"], method="spearman")
    print(f"\nrank correlation with forgetting: SIC {rho['sic']:+.2f}, NIC {rho['nic']:+.2f}")


if __name__ == "__main__":
    main()
