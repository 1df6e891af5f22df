"""Resident memory and storage of a step with 171 probes.

    python benchmarks/memory.py

Real CIFAR-100 images (`forgetscope data get cifar100`) at 16 x 16 through ResNet-8, two classes and then two more, 170 epochs.
Prints the resident memory after some of the second step's probes as a share of that after the tenth, and the size of its files.
"""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path

import forgetscope as fs
from forgetscope.benchmark.plans import Job
from forgetscope.engines.dispatch import Watcher
from forgetscope.threads import keep_memory

SPEC = fs.RunSpec(dataset="cifar100", image_size=16, sequence=((0, 1), (2, 3)), retention=0.1, epochs=170)
SHOWN = (2, 5, 10, 20, 40, 60, 80, 100, 120, 140, 160, 170)


class Watches(Watcher):
    """Notes the resident memory in bytes after each epoch of the second step."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}

    def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
        if job.spec.step == 2:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.bytes[epoch] = pages * resource.getpagesize()


def main() -> None:
    keep_memory()  # as the command line does
    watch = Watches()
    with tempfile.TemporaryDirectory() as folder:
        step = fs.run(SPEC, folder, on=fs.Here(device="cpu", threads=1), watch=watch).steps[-1]
        probes = len(set(step.table("probes")["probe"].to_pylist()))
        sizes = {name: entry["size"] for name, entry in sorted(step.manifest.items())}
    shares = ", ".join(f"{epoch}: {watch.bytes[epoch] / watch.bytes[10]:.3f}" for epoch in SHOWN)
    print(f"{probes} probes; resident memory after epoch, relative to epoch 10 ({watch.bytes[10] / 1e6:.0f} MB): {shares}")
    print(f"storage: {sum(sizes.values()) / 1e3:.0f} kB: " + ", ".join(f"{n} {s / 1e3:.1f}" for n, s in sizes.items()))


if __name__ == "__main__":
    main()
