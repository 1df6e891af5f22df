"""What a probe of the monitor costs, against a bare evaluation pass over the same past, memory and new loaders.

    python benchmarks/monitor.py

ResNet-8, one thread, on CIFAR-100 (`forgetscope data get cifar100`) and on glyphs, also in a pass so short that what does not
depend on the number of images shows: looking at the network, files. A Dataset normalises each image when it is fetched, and
all sides use the same DataLoaders: batches of 100, shuffled. A probe does all that it does in a training: it compares the
images with those of the first one, and writes the step's files durably. By default it looks at a hundred images of each past
class, and fetches no others.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from forgetscope.data.library import load_data
from forgetscope.learning.networks import build_network
from forgetscope.monitor.monitor import Monitor
from interleaved import Remote, Rounds, serve

BATCH = 100
CASES = (("cifar100", 10), ("glyphs", 25), ("glyphs", 10))  # past classes, and as many new ones
IMAGES = {"cifar100": 250, "glyphs": 200}  # of each class


class Pictures(Dataset[tuple[Tensor, int]]):
    """As people write them: bytes become a normalised tensor when an item is fetched."""

    def __init__(self, name: str, classes: range, share: int = 1) -> None:
        data = load_data(name)
        positions = np.concatenate([np.flatnonzero(data.train.labels == label)[: IMAGES[name] // share] for label in classes])
        self._images, self._labels = data.train.images[np.sort(positions)], data.train.labels[np.sort(positions)]

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        pixels = torch.from_numpy(np.array(self._images[at])).permute(2, 0, 1).float().div_(255)
        return pixels.sub_(0.5).div_(0.25), int(self._labels[at])


def side(name: str, classes: str, which: str) -> Callable[[], object]:
    past = int(classes)
    parts = {"past": range(past), "new": range(past, 2 * past)}
    data = {part: Pictures(name, of) for part, of in parts.items()}
    data["memory"] = Pictures(name, parts["past"], share=10)
    loaders = {part: DataLoader(images, BATCH, shuffle=True) for part, images in data.items()}
    network = build_network("resnet8", 2 * past, np.random.default_rng(0))
    if which != "evaluation":
        folder, images = tempfile.TemporaryDirectory(), None if which == "exact" else "auto"
        monitor = Monitor(folder.name, "speed", probe_images=images, strict=True)  # type: ignore[arg-type]
        step = monitor.step(network, **loaders, alpha=0.5).open()  # type: ignore[arg-type]
        return lambda: (step.epoch_ended(), folder.name)[0]

    @torch.no_grad()
    def evaluation() -> None:
        network.eval()
        for loader in loaders.values():
            for images, _ in loader:
                network(images)

    return evaluation


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        serve(side(*sys.argv[1:]))
        return
    for name, past in CASES:
        sides = {which: Remote(__file__, name, str(past), which) for which in ("exact", "default", "evaluation")}
        times = Rounds(sides, 9)
        for which, wanted in (("exact", "<= 1.1"), ("default", "< exact")):
            what = f"{name}, {past} past classes: {which} probe / bare evaluation pass, seconds"
            print(times.line(what, which, "evaluation", wanted), flush=True)


if __name__ == "__main__":
    main()
