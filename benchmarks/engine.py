"""The engines: what a second job adds, what a job costs besides its training, and how good an estimate is.

    python benchmarks/engine.py

First steps of the glyphs benchmark, each on its own seed, into stores that are thrown away; one thread per job. Steps are
as short as they get where the engine itself is measured.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

import torch

from forgetscope.benchmark.costs import estimate
from forgetscope.benchmark.plans import Plan, benchmark_plan
from forgetscope.benchmark.records import record_plan
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.data.library import load_data
from forgetscope.engines.dispatch import Watcher
from forgetscope.engines.local import Local
from forgetscope.engines.ray import Ray
from forgetscope.engines.running import carry_out, engaged
from forgetscope.experiment.chain import run_chain
from forgetscope.experiment.settings import choose_settings
from forgetscope.experiment.stopping import Stop
from forgetscope.store import Store
from interleaved import Rounds, seconds

JOBS, EPOCHS, ROUNDS = 8, 5, 3


def plan_of(epochs: int, experiments: int, image_size: int = 16) -> Plan:
    options = {"epochs": epochs, "experiments": experiments, "image_size": image_size}
    return benchmark_plan(BenchmarkSpec.load("glyphs", options | {"increments": [0.1], "retentions": [0.08], "steps": 2}))


def first_steps(plan: Plan) -> Plan:
    plan.jobs = {id: job for id, job in plan.jobs.items() if job.parent is None}
    return plan


def engine(plan: Plan, workers: int, *, on_ray: bool = False) -> Callable[[], float]:
    """Answers with the seconds from handing out the first job to the last one's end, the workers' start included."""

    def run() -> float:
        with tempfile.TemporaryDirectory() as folder:
            place = Ray(jobs=workers, device="cpu") if on_ray else Local(jobs=workers, device="cpu")
            return carry_out(plan, Store(folder), place, Watcher())[1].seconds

    return run


def throughput() -> None:
    """Two workers against one; starting them and sending them home, which a benchmark does once, is also taken off."""
    plan = first_steps(plan_of(EPOCHS, JOBS))
    sides = {"one": engine(plan, 1), "two": engine(plan, 2), "start": engine(first_steps(plan_of(1, 2, image_size=8)), 2)}
    times = Rounds(sides, ROUNDS)
    print(times.line("two jobs / one job, steps per second", "one", "two", ">= 1.8 in long benchmarks"), flush=True)
    start = min(times.times["start"])
    rest = sorted((one - start) / (two - start) for one, two in zip(times.times["one"], times.times["two"], strict=True))
    print(f"the same without the workers' start: {rest[ROUNDS // 2]:.2f} ({rest[0]:.2f} to {rest[-1]:.2f})", flush=True)


def overhead(name: str, *, on_ray: bool) -> None:
    """Many short steps through the engine, against the same steps one after the other in one process."""
    plan = first_steps(plan_of(1, 12, image_size=8))
    data, settings = load_data("glyphs", 8), choose_settings("cpu", 1)

    def bare() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            store.prepare()
            for job in plan.jobs.values():
                run_chain([job.spec], data, store, settings)

    start = first_steps(plan_of(1, 1, image_size=8))
    times = Rounds({"engine": engine(plan, 1, on_ray=on_ray), "bare": bare, "start": engine(start, 1, on_ray=on_ray)}, ROUNDS)
    for_start = min(times.times["start"])
    each = [
        (e - for_start) / (len(plan.jobs) - 1) - b / len(plan.jobs)
        for e, b in zip(times.times["engine"], times.times["bare"], strict=True)
    ]
    middle = 1e3 * sorted(each)[len(each) // 2]
    print(f"{name} engine, besides the step itself: {middle:.0f} ms per job (wanted < 600 ms: 1 % of a minute)", flush=True)


def estimates() -> None:
    plan = plan_of(3, 2)
    with tempfile.TemporaryDirectory() as folder, engaged(Local(jobs=2, device="cpu"), plan, Store(folder)) as staff:
        record_plan(staff.work.store, plan)
        began = time.perf_counter()
        rates = staff.calibrate(Stop())
        took = time.perf_counter() - began
        expected = estimate(plan, plan.jobs.keys(), rates, 2)
        actual = seconds(engine(plan, 2))
    print(f"calibration: {took:.0f} s; estimate / actual: {expected.seconds / actual:.2f} (wanted 0.7 to 1.3)")


def main() -> None:
    torch.set_num_threads(1)
    throughput()
    overhead("local", on_ray=False)
    overhead("Ray", on_ray=True)
    estimates()


if __name__ == "__main__":
    main()
