"""A disk that is full, dead, read-only or forbidden: a clear error, nothing lost, and the same command finishes later."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from torture.crashes import demand_refusal
from torture.faults import Faults
from torture.harness import Bench, Launcher, Outcome, Progress, Result, demand, silent

MOUNT = 'mount -t tmpfs -o size=256m tmpfs "$0" && exec "$@"'


def campaign(bench: Bench, n: int, seed: int, progress: Progress = silent) -> Outcome:
    """n fill levels between empty and almost enough, on a small tmpfs where one can be mounted, else by injection."""
    mounted = can_mount()
    outcome = Outcome("disk full at several fill levels")
    reference = bench.reference()
    needed = sum(path.stat().st_size for path in reference.store.rglob("*") if path.is_file())
    levels = [round(needed * (i + 0.5) / n) for i in range(n)]
    with _on_tmpfs(bench) if mounted else nullcontext(partial(_by_injection, bench)) as fill:
        for done, room in enumerate(levels, 1):
            with outcome.trial(f"{room} of {needed} bytes free"):
                fill(room)
            progress(done, n)
    outcome.remarks.append("on a tmpfs" if mounted else "by injection: no tmpfs may be mounted here")
    return outcome


def can_mount() -> bool:
    """Whether a process of ours may mount a file system for itself."""
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


@contextmanager
def _on_tmpfs(bench: Bench) -> Iterator[Callable[[int], None]]:
    """A launcher in a file system name space of its own, with a tmpfs in it."""
    where = bench.folder / "full"
    where.mkdir(exist_ok=True)
    launcher = Launcher(bench.folder / "jobs-full", ["unshare", "-rm", "sh", "-c", MOUNT, str(where)])
    try:
        launcher.run("--version").demand(0)  # from here on the mount is there
        inside = Path(f"/proc/{launcher.process.pid}/root{where}")  # as seen from here
        yield lambda room: _fill_tmpfs(bench, launcher, where, inside, room)
    finally:
        launcher.close()


def _fill_tmpfs(bench: Bench, launcher: Launcher, where: Path, inside: Path, room: int) -> None:
    """A file takes all space but for so much; later it is removed."""
    store, ballast = where / "store", inside / "ballast"
    command = bench.command(store)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, _free(inside) - room)
    try:
        demand_full(launcher.run(*command), store)
        if (inside / "store" / "steps").is_dir():
            launcher.run("store", "verify", store).demand(0)  # nothing that was finished suffered
        ballast.unlink()
        launcher.run(*command).demand(0)
        bench.demand_same_bytes(Path(shutil.copytree(inside / "store", bench.new_store())))
    finally:
        ballast.unlink(missing_ok=True)
        shutil.rmtree(inside / "store", ignore_errors=True)


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _by_injection(bench: Bench, room: int) -> None:
    store = bench.new_store()
    demand_full(bench.run(store, Faults(room=room)), store)
    if (store / "steps").is_dir():
        bench.demand_whole(store)
    bench.finish(store)


def demand_full(result: Result, store: Path) -> None:
    demand_refusal(result.demand(1).stderr, str(store))
    demand("No space left on device" in result.stderr, f"no reason: {result.stderr[-400:]!r}")


def refused(bench: Bench, name: str, number: int) -> Outcome:
    """From a change on, every one fails: a disk that died, or was taken away."""
    outcome = Outcome(f"{name} from the {number}th change on")
    store = bench.new_store()
    with outcome.trial(f"{name} from change {number} on"):
        result = bench.run(store, Faults(fail_at=number, fail_with=name, for_good=True))
        demand_refusal(result.demand(1).stderr, str(store))
        demand(os.strerror(getattr(errno, name)) in result.stderr, f"no reason: {result.stderr[-400:]!r}")
        bench.demand_whole(store)
        bench.finish(store)
    return outcome
