"""SIGTERM, SIGINT and SIGUSR1 in the middle of an epoch: a snapshot within seconds, exit code 3, and no iteration repeated."""

from __future__ import annotations

import random
import shutil
import signal
import time

from torture.harness import Bench, Job, Outcome, Progress, demand, silent

# One epoch of a few seconds: a snapshot that is there before it ends was taken in its middle.
LONG = {"sequence": (tuple(range(12)),), "epochs": 1, "first_batch": 16}
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
PROMPT = 10.0  # seconds


def campaign(bench: Bench, n: int, seed: int, progress: Progress = silent) -> Outcome:
    """The signals take turns; every fourth time a second one follows at once."""
    outcome = Outcome("SIGTERM, SIGINT or SIGUSR1 in the middle of an epoch")
    draw, whole, slowest = random.Random(seed), bench.reference(**LONG).result, 0.0
    total = whole.page.iterations
    for number in range(n):
        number_of, twice = SIGNALS[number % 3], number % 4 == 3
        store = bench.new_store()
        with outcome.trial(f"seed {seed}, trial {number}, {number_of.name}{', twice' if twice else ''}"):
            at = draw.randrange(total // 10, total * 8 // 10)
            job = bench.start(store, **LONG)
            demand(job.wait_until(lambda job=job, at=at: job.page.iterations >= at), f"it never came to iteration {at}")
            seconds = _stop(job, number_of, draw.uniform(0.0, 0.05) if twice else None)
            slowest = max(slowest, seconds)
            stopped = job.wait().demand(3)
            demand("same command" in stopped.stderr, f"nothing says how to go on: {stopped.stderr[-400:]!r}")
            demand(stopped.page.iterations < total, "it was over already")
            snapshots = list(store.glob("working/*/snapshot-*"))
            demand(snapshots or twice, "there is no snapshot")
            bench.demand_whole(store)
            continued = bench.finish(store, **LONG).page.iterations
            if not twice:
                again = stopped.page.iterations + continued - total
                demand(again == 0, f"{again} of {total} iterations were done again")
        shutil.rmtree(store, ignore_errors=True)
        progress(number + 1, n)
    outcome.remarks.append(f"slowest stop {slowest:.1f} s")
    return outcome


def _stop(job: Job, number: int, second_after: float | None) -> float:
    begin = time.monotonic()
    job.signal(number)
    if second_after is not None:
        time.sleep(second_after)
        job.signal(number)
    job.wait(PROMPT)
    return time.monotonic() - begin
