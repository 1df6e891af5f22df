"""Timing several sides of a comparison in turns: what disturbs a machine then disturbs them all.

A side may live in a process of its own, as it would in use: sides that share a process share its heap and disturb each other.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Remote:
    """One side in a process of its own: `python SCRIPT ARGUMENTS`, which must call `serve`."""

    def __init__(self, script: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self) -> str:
        """Run it once and wait; what it has to say."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self._process.args} ended with {self._process.wait()}")
        return answer.strip()


def serve(work: Callable[[], object]) -> None:
    """Run the work once for each line of standard input, and answer with a line when it is done."""
    for _ in sys.stdin:
        print(work(), flush=True)


class Rounds:
    """The seconds of every side in every round. The first side of a round is another one each time."""

    def __init__(self, sides: Mapping[str, Callable[[], object]], rounds: int) -> None:
        for work in sides.values():
            work()  # warm up
        names = list(sides)
        self.times: dict[str, list[float]] = {name: [0.0] * rounds for name in names}
        for i in range(rounds):
            for name in names[i % len(names) :] + names[: i % len(names)]:
                self.times[name][i] = seconds(sides[name])

    def ratio(self, side: str, to: str) -> float:
        """Median over the rounds of one side's seconds divided by the other's."""
        return statistics.median(a / b for a, b in zip(self.times[side], self.times[to], strict=True))

    def line(self, what: str, side: str, to: str, wanted: str) -> str:
        """The ratio with the range of single rounds, ready to print."""
        single = sorted(a / b for a, b in zip(self.times[side], self.times[to], strict=True))
        return f"{what}: {self.ratio(side, to):.3f} (rounds {single[0]:.3f} to {single[-1]:.3f}; wanted {wanted})"
