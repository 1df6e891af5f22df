"""A crash before every single change to the file system: each write, fsync, rename, removal of the run.

A write is torn: half of its bytes are there. With `power`, what was not synced is gone as well.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from torture.faults import Faults
from torture.harness import Bench, Outcome, Progress, counted, demand, silent

TWO_STEPS = {"sequence": ((0, 1), (2, 3))}
CALIBRATED = {**TWO_STEPS, "calibration": "offset"}


def campaign(bench: Bench, n: int, seed: int, progress: Progress = silent, *, power: bool = False) -> Outcome:
    """All changes of a three-step run; n limits how many are tried, 0 is all of them."""
    outcome = Outcome("crash at the Nth write, fsync or rename" + (", unsynced data lost" if power else ""))
    places = bench.reference().places()
    numbers = _some(len(places), n, seed)
    for done, number in enumerate(numbers, 1):
        store = bench.new_store()
        with outcome.trial(f"change {number}, {places[number - 1]}"):
            bench.run(store, Faults(crash_at=number, power=power)).demand(-signal.SIGKILL)
            bench.finish(store)
        shutil.rmtree(store, ignore_errors=True)
        progress(done, len(numbers))
    outcome.remarks.append(_kinds(places))
    return outcome


def one_epoch(bench: Bench, progress: Progress = silent, *, power: bool = False) -> Outcome:
    """All changes of the last epoch of a two-step run: its probe, its snapshot, the commit of the step and what follows."""
    outcome = Outcome("crash at the Nth change, all of one epoch" + (", unsynced data lost" if power else ""))
    places = bench.reference(**TWO_STEPS).places()
    snapshots = [i for i, place in enumerate(places, 1) if place.startswith("replace") and "/snapshot-" in place]
    first = snapshots[-2] + 2  # after the rename of the last snapshot but one comes the fsync of its folder
    before = bench.new_store()  # a crash there leaves the store as the epoch finds it
    bench.run(before, Faults(crash_at=first), **TWO_STEPS).demand(-signal.SIGKILL)
    places = _continued(bench, before, **TWO_STEPS)
    numbers = range(places.index(bench.reference(**TWO_STEPS).places()[first - 1]) + 1, len(places) + 1)
    for done, number in enumerate(numbers, 1):
        store = bench.new_store(like=before)
        with outcome.trial(f"change {number}, {places[number - 1]}"):
            bench.run(store, Faults(crash_at=number, power=power), **TWO_STEPS).demand(-signal.SIGKILL)
            bench.finish(store, **TWO_STEPS)
        shutil.rmtree(store, ignore_errors=True)
        progress(done, len(numbers))
    outcome.remarks.append(_kinds([places[number - 1] for number in numbers]))
    return outcome


def calibration(bench: Bench, n: int, seed: int, progress: Progress = silent, *, power: bool = False) -> Outcome:
    """All changes of a run that calibrates a step which is trained already; n limits how many are tried, 0 is all of them."""
    outcome = Outcome("crash at the Nth change, all of one calibration" + (", unsynced data lost" if power else ""))
    before = bench.reference(**TWO_STEPS).store
    places = _continued(bench, before, **CALIBRATED)
    demand(any(place.startswith("rename /calibrated/") for place in places), f"nothing was calibrated: {places}")
    numbers = _some(len(places), n, seed)
    for done, number in enumerate(numbers, 1):
        store = bench.new_store(like=before)
        with outcome.trial(f"change {number}, {places[number - 1]}"):
            bench.run(store, Faults(crash_at=number, power=power), **CALIBRATED).demand(-signal.SIGKILL)
            bench.finish(store, **CALIBRATED)
        shutil.rmtree(store, ignore_errors=True)
        progress(done, len(numbers))
    outcome.remarks.append(_kinds(places))
    return outcome


def refusals(bench: Bench, n: int, seed: int, progress: Progress = silent, *, error: str = "EIO") -> Outcome:
    """An I/O error at the Nth change, once: a clear error or none needed, and the same command finishes."""
    outcome = Outcome(f"{error} at the Nth write, fsync or rename")
    places = bench.reference().places()
    numbers = _some(len(places), n, seed)
    unharmed = 0
    for done, number in enumerate(numbers, 1):
        store = bench.new_store()
        with outcome.trial(f"change {number}, {places[number - 1]}"):
            result = bench.run(store, Faults(fail_at=number, fail_with=error))
            if result.code:  # 2: before anything was started
                demand_refusal(result.demand(2 if "Choose another folder" in result.stderr else 1).stderr, str(store))
            else:
                unharmed += 1
            bench.finish(store)
        shutil.rmtree(store, ignore_errors=True)
        progress(done, len(numbers))
    outcome.remarks.append(f"{unharmed} of them did no harm: the run went on and ended well")
    return outcome


def demand_refusal(stderr: str, store: str) -> None:
    """One paragraph that names the path and says how to go on."""
    text = " ".join(stderr.split())
    demand("Error: " in text, f"no clear error: {stderr[-400:]!r}")
    demand(store in text, f"the error does not name the path: {stderr[-400:]!r}")
    demand("same command" in text or "Choose another folder" in text, f"nothing says how to go on: {stderr[-400:]!r}")


def _continued(bench: Bench, before: Path, **options: object) -> list[str]:
    """The changes of a run that goes on from there."""
    store = bench.new_store(like=before)
    places = bench.run(store, **options).demand(0).places(store)
    shutil.rmtree(store)
    return places


def _some(total: int, n: int, seed: int) -> range:
    """All of 1 to total, or about n of them at equal distances."""
    stride = -(-total // n) if n else 1
    return range(1 + seed % stride, total + 1, stride)


def _kinds(places: list[str]) -> str:
    kinds = counted(place.split()[0] for place in places)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1]))
