"""How many CPU threads to use by default, how they wait for each other, and how a process keeps the memory that it frees.
Imports no torch: it must act before torch loads.

GNU OpenMP's threads spin for milliseconds while they wait for each other. Beside a busy process one thread of two is then
often not running, and the other burns the core that it needs: two threads fall far below one. Threads that spin briefly and
then sleep keep most of the gain on an idle machine and give way on a busy one; `benchmarks/threads.py` shows both.
"""

import os
import sys
from pathlib import Path

from forgetscope.errors import SPINCOUNT, WAIT_POLICY

SPINS = 500  # a few microseconds; none at all would cost small networks their gain from a second thread
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc, malloc.h
LARGEST = 32 * 2**20  # the largest threshold that glibc accepts
WAITING = (SPINCOUNT, WAIT_POLICY)  # what a user may have decided already


def wait_briefly() -> None:
    """Let OpenMP threads sleep soon; takes effect if torch is not loaded yet and the user has not decided otherwise."""
    if "torch" not in sys.modules and not any(name in os.environ for name in WAITING):
        os.environ[SPINCOUNT] = str(SPINS)


def keep_memory() -> None:
    """For processes of our own: keep what is freed, instead of returning it to the system and taking it back page by page.

    Training frees and takes the same hundreds of megabytes in every iteration. Where the C library has no such switch, nothing
    changes."""
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def default_threads() -> int:
    """All cores where threads wait briefly, else all but one; a function of cores and settings, never of momentary load."""
    cores, spins = available_cores(), os.environ.get(SPINCOUNT, "")
    # OpenMP read these when it was loaded; nobody sets them later and means it.
    brief = (spins.isdigit() and int(spins) <= SPINS) or os.environ.get(WAIT_POLICY, "").lower() == "passive"
    return cores if brief else max(1, cores - 1)


def available_cores() -> int:
    """Cores that this process may use: by affinity, and by a container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _quota(Path("/sys/fs/cgroup/cpu.max")) or cores)


def _quota(file: Path) -> int | None:
    """Whole cores of a control group's quota, at least one; None without a quota."""
    try:
        quota, period = file.read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # no such file, or "max": unlimited
        return None
