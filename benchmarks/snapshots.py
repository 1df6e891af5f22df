"""What a snapshot costs, its fsync included: the share of an epoch of ResNet-32.

    python benchmarks/snapshots.py

An epoch of a second step on CIFAR-100 (`forgetscope data get cifar100`) has 79 iterations for 10 new classes; some of them are
timed. Snapshots hold 171 probes and go to a temporary folder in the current one. One thread.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from forgetscope.data.library import load_data
from forgetscope.experiment.course import Course, Saver
from forgetscope.experiment.settings import Settings
from forgetscope.experiment.stopping import Stop
from forgetscope.learning.networks import build_network
from forgetscope.learning.rsgd import make_optimiser
from interleaved import Rounds
from training import CLASSES, rehearsal_step, spec_of

EPOCH = 79  # iterations


def main() -> None:
    torch.set_num_threads(1)
    data = load_data("cifar100")
    step, iterations = rehearsal_step(data, "resnet32", 26)
    network = build_network("resnet32", 2 * CLASSES, np.random.default_rng(0))
    optimiser = make_optimiser(network, spec_of(data))
    torch.nn.functional.cross_entropy(network(torch.randn(8, 3, 32, 32)), torch.arange(8)).backward()  # type: ignore[no-untyped-call]
    optimiser.step()  # so that there is momentum to save
    course = Course(torch.zeros(5000, dtype=torch.int16))
    measured = course.measured
    measured.iterations, measured.values = list(range(171)), [torch.rand(8, CLASSES, dtype=torch.float64)] * 171
    measured.pairs, measured.log_sim = torch.rand(CLASSES, 2 * CLASSES), torch.rand(CLASSES)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        settings = Settings(torch.device("cpu"), 1)
        saver = Saver(Path(folder), settings, Stop(), network, optimiser, course, None)
        times = Rounds({"epoch": step, "save": saver._save}, 5)
        size = (Path(folder) / "snapshot-0").stat().st_size
    share = times.ratio("save", "epoch") * iterations / EPOCH
    print(f"snapshot / epoch of ResNet-32: {100 * share:.3f} % (median of 5; {size / 1e6:.1f} MB; wanted < 1 %)")


if __name__ == "__main__":
    main()
