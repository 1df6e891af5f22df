from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forgetscope import threads


@pytest.fixture(autouse=True)
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in threads.WAITING:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 7),  # threads that spin leave one core to others
        ({"GOMP_SPINCOUNT": str(threads.SPINS)}, 8),
        ({"GOMP_SPINCOUNT": "300000"}, 7),
        ({"GOMP_SPINCOUNT": "infinite"}, 7),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, 8),
        ({"OMP_WAIT_POLICY": "active"}, 7),
    ],
)
def test_the_count_follows_cores_and_settings(
    variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 8)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert threads.default_threads() == expected


def test_one_core_gives_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 1)
    assert threads.default_threads() == 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not pin processes to cores")
def test_cores_that_the_process_may_not_use_do_not_count() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from forgetscope.threads import available_cores; print(available_cores())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


@pytest.mark.parametrize(("content", "cores"), [("max 100000", None), ("250000 100000", 2), ("50000 100000", 1), ("", None)])
def test_a_container_s_quota_counts(content: str, cores: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(content)
    assert threads._quota(tmp_path / "cpu.max") == cores
    assert threads._quota(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("before", "expected"),
    [("", str(threads.SPINS)), ("import torch; ", None), ("import os; os.environ['OMP_WAIT_POLICY'] = 'active'; ", None)],
)
def test_threads_are_told_to_wait_briefly_if_it_is_not_too_late_and_nobody_decided(before: str, expected: str | None) -> None:
    code = f"{before}import forgetscope, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{expected}\n"


PROBE = """
import ctypes, os, resource, sys
from forgetscope.threads import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
for _ in range(10):
    blocks = [libc.malloc(8_000_000) for _ in range(5)]
    for block in blocks:
        ctypes.memset(block, 1, 8_000_000)
    for block in blocks:
        libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")
def test_memory_that_is_taken_again_is_not_faulted_in_again() -> None:
    def faults(choice: str) -> int:
        ran = subprocess.run([sys.executable, "-c", PROBE, choice], capture_output=True, text=True, check=True)
        return int(ran.stdout)

    assert faults("keep") < faults("leave") - 10_000  # each round has about 10,000 pages, and the first must fault


def test_a_c_library_without_the_switch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    threads.keep_memory()
