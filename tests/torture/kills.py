"""SIGKILL of the process group at random instants, again and again, until the run is done."""

from __future__ import annotations

import random
import shutil
import signal
import time

from torture.faults import Faults
from torture.harness import Bench, Job, Lost, Outcome, Progress, demand, silent

SLOW = 0.004  # seconds per piece of a write: on a disk this slow, most of the time is spent in saves


def campaign(bench: Bench, n: int, seed: int, progress: Progress = silent) -> Outcome:
    """n kills from outside. Every second run has a slow disk, where they are aimed at saves: at least a quarter hit one."""
    outcome = Outcome("SIGKILL of the process group at random instants")
    draw, inside, runs = random.Random(seed), 0, 0
    whole = bench.reference().result.seconds
    while outcome.tried < n:
        store, runs, kills = bench.new_store(), runs + 1, 0
        slow = SLOW if runs % 2 else 0.0
        try:
            while outcome.tried + kills < n:
                job = bench.start(store, Faults(slow=slow))
                aimed = slow and draw.random() < 0.8
                hit = _kill_inside_a_save(job, draw) if aimed else _kill_after(job, draw.uniform(0.0, whole))
                if hit is None:
                    break
                kills, inside = kills + 1, inside + hit
                progress(outcome.tried + kills, n)
        except Lost as loss:
            outcome.details.append(f"run {runs}: {loss}")
        with outcome.trial(f"seed {seed}, run {runs}, {kills} kills", weight=max(1, kills)):
            bench.finish(store)
        shutil.rmtree(store)
    outcome.remarks.append(f"{inside} of them inside a save, {runs} runs")
    demand(4 * inside >= n, f"only {inside} of {n} kills hit a save: the campaign proves too little")
    return outcome


def _kill_after(job: Job, seconds: float) -> bool | None:
    """Whether it hit a save; None if the command was faster."""
    if job.wait_until(lambda: time.monotonic() - job.started > seconds) is None:
        job.wait().demand(0)
        return None
    return _kill(job)


def _kill_inside_a_save(job: Job, draw: random.Random) -> bool | None:
    """At a random instant from a random save on."""
    page, skip, begun, was = job.page, draw.randrange(12), 0, 0

    def reached() -> bool:
        nonlocal begun, was
        now = page.saving
        begun, was = begun + (now > was), now
        return begun > skip

    if job.wait_until(reached) is None:
        job.wait().demand(0)
        return None
    time.sleep(draw.uniform(0.0, 8 * SLOW))
    return _kill(job)


def _kill(job: Job) -> bool | None:
    job.signal(signal.SIGKILL)
    result = job.wait()
    if result.code == 0:  # it had ended already
        return None
    result.demand(-signal.SIGKILL)
    return bool(result.page.saving)
