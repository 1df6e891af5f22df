"""What an exact probe costs, against a bare evaluation forward over the same images: channels-last, batch 500, ready tensors.

    python benchmarks/probe.py

10 past and 10 new classes, one thread; ResNet-32 on CIFAR-100 (`forgetscope data get cifar100`) and the demo's network on
glyphs. The probe starts from uint8 images and does all that a run's probe does; coefficients and pairs are timed inside it.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

import numpy as np
import torch

from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.data.preprocessing import Normalisation
from forgetscope.experiment.preparation import training_set
from forgetscope.learning.networks import build_network
from forgetscope.measuring import measurement
from forgetscope.measuring.gradients import GradientSums
from forgetscope.measuring.measurement import Measurement, ProbeData
from forgetscope.measuring.probe import Probe
from forgetscope.threads import keep_memory
from interleaved import Remote, Rounds, seconds, serve

CLASSES = 10
CPU = torch.device("cpu")


class TimedProbe(Probe):
    """Notes how long the coefficients take once the gradients are there."""

    combining = 0.0

    def measure(self, network: torch.nn.Module, **named: object) -> Measurement:  # type: ignore[override]
        whole, found = measurement._combine, list[Measurement]()

        def timed(sums: GradientSums, data: ProbeData) -> Measurement:
            self.combining = seconds(lambda: found.append(whole(sums, data)))
            return found[0]

        measurement._combine = timed
        try:
            return super().measure(network)
        finally:
            measurement._combine = whole


def sides_of(data: DataSet, name: str, images: int) -> tuple[TimedProbe, dict[str, Callable[[], object]]]:
    of = [np.flatnonzero(data.train.labels == label)[:images] for label in range(2 * CLASSES)]
    past = training_set(data.train, {label: of[label] for label in range(CLASSES)}, 0, CPU)
    new = training_set(data.train, {label: of[label] for label in range(CLASSES, 2 * CLASSES)}, CLASSES, CPU)
    normalise = Normalisation.of(data)
    network = build_network(name, 2 * CLASSES, np.random.default_rng(0))
    rehearsed = torch.arange(len(past.nodes)) % 10 == 0
    probe = TimedProbe(past.images, past.nodes, rehearsed, new.images, new.nodes, prepare=normalise)
    ready = normalise(torch.cat([past.images, new.images]))

    @torch.no_grad()
    def forward() -> None:
        network.eval()
        for start in range(0, len(ready), 500):
            network(ready[start : start + 500])

    return probe, {"probe": lambda: probe.measure(network), "forward": forward}


NETWORKS = {"resnet8": ("glyphs", 200), "resnet32": ("cifar100", 100)}  # data set, images of each class


def side(network: str, name: str) -> Callable[[], object]:
    """Answers a probe with the seconds that its coefficients took."""
    dataset, images = NETWORKS[network]
    probe, sides = sides_of(load_data(dataset), network, images)

    if name == "probe":
        keep_memory()  # as the command line does

    def run() -> float:
        sides[name]()
        return probe.combining

    return run


def compare(title: str, network: str, rounds: int, wanted: str) -> None:
    sides = {name: Remote(__file__, network, name) for name in ("probe", "forward")}
    times = Rounds(sides, rounds)
    print(times.line(f"{title}: probe / bare forward, seconds", "probe", "forward", wanted))
    share = float(sides["probe"]()) / statistics.median(times.times["forward"])
    print(f"{title}: coefficients and pairs / bare forward, seconds: {100 * share:.2f} % (wanted < 3 %)", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        serve(side(*sys.argv[1:]))
        return
    compare("demo's network", "resnet8", rounds=11, wanted="nothing: no claim")
    compare("ResNet-32", "resnet32", rounds=7, wanted="<= 0.75")
    _, sides = sides_of(load_data("cifar100"), "resnet32", NETWORKS["resnet32"][1])
    print(Rounds(sides, 5).line("ResNet-32: the same in turns within one process", "probe", "forward", "<= 0.75"))


if __name__ == "__main__":
    main()
