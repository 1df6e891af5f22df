from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from forgetscope.engines import allocation

PROBE = """
import ctypes, os, resource, sys
from forgetscope.engines.allocation import keep_memory
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
    monkeypatch.setattr(allocation.ctypes, "CDLL", lambda name: object())
    allocation.keep_memory()
