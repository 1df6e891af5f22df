"""Eight processes, one plan, one store, started together; whoever holds a lock is killed on the way."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from pathlib import Path

from torture.harness import PATIENCE, Bench, Job, Outcome, Progress, demand, silent

CROWD = 8
LOCKS = ("ENOLCK", "nothing", "ENOTSUP")
EXTRA = 5
LAST_EPOCH = re.compile(r"^step (\d+)/3 +epoch 2/2 ", re.MULTILINE)


def campaign(bench: Bench, n: int, seed: int, progress: Progress = silent) -> Outcome:
    outcome = Outcome("eight processes, one plan, one store; a holder of the lock killed")
    draw, killed, number = random.Random(seed), 0, 0
    while number < n or (killed * 2 < n and number < n + EXTRA):  # on a fast machine a crowd may be done before the blow
        store = bench.new_store()
        with outcome.trial(f"seed {seed}, crowd {number}"):
            killed += _crowd(bench, store, draw)
        shutil.rmtree(store, ignore_errors=True)
        number += 1
        progress(min(number, n), n)
    outcome.remarks.append(f"{killed} holders killed")
    demand(killed * 2 >= n, f"only {killed} holders were killed in {n} crowds: the campaign proves too little")
    return outcome


def unlocked(bench: Bench, n: int, seed: int, progress: Progress = silent, *, crowd: int = 4) -> Outcome:
    """On a file system whose locks fail, or are granted to everybody (see `beneath`): work is done twice, nothing else."""
    outcome = Outcome("locks that fail, or hold nothing, under several processes; one of them killed")
    draw, twice = random.Random(seed), 0
    for number in range(n):
        store, how = bench.new_store(), LOCKS[number % len(LOCKS)]
        with outcome.trial(f"seed {seed}, crowd {number}, {how}"):
            twice += _unlocked(bench, store, how, crowd, draw)
        shutil.rmtree(store, ignore_errors=True)
        progress(number + 1, n)
    outcome.remarks.append(f"{crowd} processes each; {twice} steps were trained by more than one of them")
    return outcome


def calibrating(bench: Bench, before: Path, **options: object) -> Outcome:
    """Two processes on the calibrations of the same steps, which are trained already: one of each, whoever made it."""
    outcome = Outcome("two processes that calibrate the same steps at once")
    store = bench.new_store(like=before)
    with outcome.trial("two at once"):
        jobs = [bench.start(store, **options) for _ in range(2)]
        results = [job.wait().demand(0) for job in jobs]
        demand(len({result.stdout for result in results}) == 1, "they print different results")
        demand(not (store / "quarantine").exists(), "something was put into quarantine")
        demand(not list((store / "working").glob("commit-*")), "a commit was left unfinished")
        bench.demand_same_bytes(store, **options)
    shutil.rmtree(store, ignore_errors=True)
    return outcome


def _unlocked(bench: Bench, store: Path, how: str, crowd: int, draw: random.Random) -> int:
    """How many steps were trained to their end more than once."""
    jobs = [bench.launcher.start(*bench.command(store), FLOCK=how) for _ in range(crowd)]
    seen = dict[str, set[int]]()
    victim, after, end = draw.choice(jobs), draw.randrange(3), time.monotonic() + PATIENCE
    killed = False
    while time.monotonic() < end and not all(bench.launcher.has_ended(job.pid) for job in jobs):
        _note_commits(store, seen)
        if not killed and len(seen) >= after and draw.random() < 0.02:
            killed = True
            victim.signal(signal.SIGKILL)
        time.sleep(0.005)
    results = {job.pid: job.wait(1.0) for job in jobs}
    _note_commits(store, seen)
    others = [results[job.pid] for job in jobs if job is not victim]
    demand([result.code for result in others] == [0] * len(others), f"{[r.stderr[-300:] for r in others if r.code]}")
    demand(len({result.stdout for result in others}) == 1, "they print different results")
    for step, inodes in seen.items():
        demand(len(inodes) == 1, f"step {step} was committed {len(inodes)} times")
    demand(not (store / "quarantine").exists(), "something was put into quarantine")
    bench.demand_same_bytes(store)
    bench.finish(store)
    trained = sorted(step for result in others for step in LAST_EPOCH.findall(result.stderr))
    return len(trained) - len(set(trained))


def _crowd(bench: Bench, store: Path, draw: random.Random) -> int:
    jobs = [bench.start(store) for _ in range(CROWD)]
    victim, seen = _kill_a_holder(jobs, store, draw.randrange(2), draw.uniform(0.0, 0.5))
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and not all(bench.launcher.has_ended(job.pid) for job in jobs):
        _note_commits(store, seen)
        time.sleep(0.005)
    results = [job.wait(1.0) for job in jobs]
    _note_commits(store, seen)
    others = [result for job, result in zip(jobs, results, strict=True) if job is not victim]
    demand([result.code for result in others] == [0] * len(others), f"{[r.stderr[-300:] for r in others if r.code]}")
    demand(len({result.stdout for result in others}) == 1, "they print different results")
    for step, inodes in seen.items():
        demand(len(inodes) == 1, f"step {step} was committed {len(inodes)} times")
    trained = sorted(step for result in others for step in LAST_EPOCH.findall(result.stderr))
    demand(len(trained) == len(set(trained)), f"steps trained to their end: {trained}, some by two processes")
    demand(victim is not None or trained == ["1", "2", "3"], f"steps trained to their end: {trained}")
    demand(not (store / "quarantine").exists(), "something was put into quarantine")
    leftovers = list((store / "working").glob("commit-*"))
    demand(len(leftovers) <= (victim is not None), f"half-made commits were left: {leftovers}")
    bench.demand_same_bytes(store)
    return victim is not None


def _kill_a_holder(jobs: list[Job], store: Path, after: int, delay: float) -> tuple[Job | None, dict[str, set[int]]]:
    """Once so many steps are there, and a little later, kill whoever holds a lock then."""
    seen: dict[str, set[int]] = {}
    end, ready = time.monotonic() + 120, 0.0
    while time.monotonic() < end and not all(job.launcher.has_ended(job.pid) for job in jobs):
        _note_commits(store, seen)
        if len(seen) >= after:
            ready = ready or time.monotonic() + delay
        holders = _holders(store) if ready and time.monotonic() >= ready else set()
        for job in jobs:
            if job.pid in holders:
                job.signal(signal.SIGKILL)
                if job.wait().code == -signal.SIGKILL:
                    return job, seen
        time.sleep(0.005)
    return None, seen


def _note_commits(store: Path, seen: dict[str, set[int]]) -> None:
    for folder in (store / "steps").glob("*"):
        seen.setdefault(folder.name, set()).add(folder.stat().st_ino)


def _holders(store: Path) -> set[int]:
    """Processes that hold, and do not wait for, a lock of this store: as the kernel tells."""
    files = set()
    for path in (store / "working").glob("*.lock"):
        try:
            files.add(path.stat().st_ino)
        except FileNotFoundError:
            continue
    found = set()
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "->" not in fields and fields[1] == "FLOCK" and int(fields[5].split(":")[2]) in files:
            found.add(int(fields[4]))
    return found
