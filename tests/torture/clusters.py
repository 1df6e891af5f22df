"""A benchmark on a real Ray cluster of several nodes, in which workers, nodes and drivers are lost on the way."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from ray_cluster import RayCluster
from torture.harness import Bench, Outcome, Progress, demand, digests, silent

OPTIONS = ("experiments=1", "epochs=3", "image_size=8", "increments=[0.1,0.2]", "retentions=[0.08]")
STEPS = 6
PATIENCE = 600.0


def campaign(bench: Bench, seed: int, progress: Progress = silent, *, workers: int, nodes: int, drivers: int) -> Outcome:
    """Each trial loses one thing once; then the store must be the local engine's."""
    outcome = Outcome(f"Ray: {workers} workers, {nodes} nodes and {drivers} drivers lost")
    reference = bench.new_store()
    demand(_run(reference).wait(PATIENCE) == 0, "the local engine failed")
    expected, draw = digests(reference), random.Random(seed)
    cluster, faults = RayCluster(), ["worker"] * workers + ["node"] * nodes + ["driver"] * drivers
    draw.shuffle(faults)
    try:
        for done, fault in enumerate(faults, start=1):
            store = bench.new_store()
            with outcome.trial(f"seed {seed}, trial {done}: {fault}"):
                _lose(fault, cluster, store, draw)
                demand(digests(store) == expected, "the store is not that of the local engine")
                demand(not (store / "quarantine").exists(), "something was put into quarantine")
            shutil.rmtree(store, ignore_errors=True)
            progress(done, len(faults))
    finally:
        cluster.close()
    return outcome


def _lose(fault: str, cluster: RayCluster, store: Path, draw: random.Random) -> None:
    process = _run(store, "--engine", "ray", "--address", cluster.address)
    after = draw.randrange(STEPS - 1)
    while process.poll() is None and (len(_steps(store)) < after or not (tasks := cluster.workers("step"))):
        time.sleep(0.02)
    time.sleep(draw.uniform(0.0, 1.0))
    if process.poll() is None and fault == "driver":
        process.kill()
        process.wait()
        process = _run(store, "--engine", "ray", "--address", cluster.address)
    elif process.poll() is None and fault == "node":
        cluster.do("remove")
        cluster.do("add")
    elif process.poll() is None:
        for task in draw.sample(tasks, 1):
            try:
                os.kill(task, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it had just ended
    code = process.wait(PATIENCE)
    demand(code == 0, f"exit code {code}")
    demand(len(_steps(store)) == STEPS, f"{len(_steps(store))} steps, not {STEPS}")


def _run(store: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "forgetscope", "bench", "run", "glyphs", "--store", str(store), "--no-estimate"]
    command += [part for option in OPTIONS for part in ("--set", option)]
    return subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _steps(store: Path) -> list[Path]:
    return list((store / "steps").glob("*")) if (store / "steps").is_dir() else []
