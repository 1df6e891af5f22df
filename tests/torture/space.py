"""A disk that is full, dead, read-only or forbidden: a clear error, nothing lost, and the same command finishes later."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
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
    with _tmpfs(bench) if mounted else nullcontext() as disk:
        for done, room in enumerate(levels, 1):
            with outcome.trial(f"{room} of {needed} bytes free"):
                if disk is not None:
                    _fill(bench, disk, room)
                else:
                    _by_injection(bench, room)
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


@dataclass
class _Tmpfs:
    """A launcher in a file system name space of its own, with a tmpfs in it."""

    launcher: Launcher
    where: Path

    @property
    def inside(self) -> Path:
        """The mount, as seen from here."""
        return Path(f"/proc/{self.launcher.process.pid}/root{self.where}")

    def remount(self, options: str) -> None:
        enter = ["nsenter", "-t", str(self.launcher.process.pid), "-U", "-m", "--preserve-credentials"]
        subprocess.run([*enter, "mount", "-o", f"remount,{options}", str(self.where)], check=True)


@contextmanager
def _tmpfs(bench: Bench) -> Iterator[_Tmpfs]:
    where = bench.folder / "tmpfs"
    where.mkdir(exist_ok=True)
    launcher = Launcher(bench.folder / "jobs-tmpfs", ["unshare", "-rm", "sh", "-c", MOUNT, str(where)])
    try:
        launcher.run("--version").demand(0)  # from here on the mount is there
        yield _Tmpfs(launcher, where)
    finally:
        launcher.close()


def _fill(bench: Bench, disk: _Tmpfs, room: int) -> None:
    """A file takes all space but for so much; later it is removed."""
    store, ballast = disk.where / "store", disk.inside / "ballast"
    command = bench.command(store)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, _free(disk.inside) - room)
    try:
        demand_full(disk.launcher.run(*command), store)
        if (disk.inside / "store" / "steps").is_dir():
            disk.launcher.run("store", "verify", store).demand(0)  # nothing that was finished suffered
        ballast.unlink()
        disk.launcher.run(*command).demand(0)
        bench.demand_same_bytes(Path(shutil.copytree(disk.inside / "store", bench.new_store())))
    finally:
        ballast.unlink(missing_ok=True)
        shutil.rmtree(disk.inside / "store", ignore_errors=True)


def read_only(bench: Bench) -> Outcome:
    """Two steps are there when the disk becomes read-only; the third follows when it can be written again."""
    outcome = Outcome("a disk that is read-only")
    with _tmpfs(bench) as disk, outcome.trial("read-only"):
        store = disk.where / "store"
        disk.launcher.run(*bench.command(store, sequence=((0, 1), (2, 3)))).demand(0)
        disk.remount("ro")
        refused = disk.launcher.run(*bench.command(store))
        demand(refused.code in (1, 2) and "Read-only file system" in refused.stderr, f"{refused.code}: {refused.stderr!r}")
        demand_refusal(refused.stderr, str(store))
        disk.launcher.run("store", "verify", store).demand(0)
        disk.remount("rw")
        disk.launcher.run(*bench.command(store)).demand(0)
        bench.demand_same_bytes(Path(shutil.copytree(disk.inside / "store", bench.new_store())))
    return outcome


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
