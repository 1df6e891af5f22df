"""What the default number of threads gains on an idle machine, and what it keeps beside a busy neighbour.

    python benchmarks/threads.py

Trains rehearsal steps in processes of their own, with the default number of threads and with one, in turns: alone, then beside
one process that keeps a core busy. The demo's network on glyphs and ResNet-32 on CIFAR-100 (`forgetscope data get cifar100`).
`spinning` is all cores with OpenMP's own way of waiting, for comparison.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ROUNDS, REPEATS = 3, 3
WORK = {"resnet8": ("glyphs", 100), "resnet32": ("cifar100", 13)}
SIDES = ("default", "one", "spinning")


def worker(network: str, side: str) -> None:
    import forgetscope  # before torch, as the command line does  # noqa: F401
    from forgetscope.threads import available_cores, default_threads

    threads = {"default": default_threads(), "one": 1, "spinning": available_cores()}[side]
    import torch

    from forgetscope.data.library import load_data
    from interleaved import seconds
    from training import rehearsal_step

    torch.set_num_threads(threads)
    data, images = WORK[network]
    step, _ = rehearsal_step(load_data(data), network, images)
    step()
    print(statistics.median(seconds(step) for _ in range(REPEATS)))


def run(network: str, side: str) -> float:
    environment = {**os.environ, "OMP_WAIT_POLICY": "active"} if side == "spinning" else dict(os.environ)
    ran = subprocess.run([sys.executable, __file__, network, side], env=environment, capture_output=True, text=True, check=True)
    return float(ran.stdout)


@contextmanager
def neighbour() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()


def compare(network: str, where: str, wanted: str) -> None:
    rounds = [{side: run(network, side) for side in SIDES} for _ in range(ROUNDS)]
    for side in ("default", "spinning"):
        ratios = sorted(times["one"] / times[side] for times in rounds)
        goal = f"; wanted {wanted}" if side == "default" else ""
        middle = statistics.median(ratios)
        print(
            f"{network} {where}: {side} / one thread, images per second: {middle:.2f} "
            f"(rounds {ratios[0]:.2f} to {ratios[-1]:.2f}{goal})",
            flush=True,
        )


def main() -> None:
    if len(sys.argv) == 3:
        worker(sys.argv[1], sys.argv[2])
        return
    for network in WORK:
        compare(network, "alone", "> 1")
        with neighbour():
            compare(network, "beside a busy process", ">= 0.8")


if __name__ == "__main__":
    main()
