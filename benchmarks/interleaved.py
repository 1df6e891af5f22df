"""Timing several sides of a comparison in turns: what disturbs a machine then disturbs them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


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
