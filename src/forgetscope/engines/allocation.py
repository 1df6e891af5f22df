"""How the C library hands memory back. Training frees and takes the same hundreds of megabytes in every iteration."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc, malloc.h
LARGEST = 32 * 2**20  # the largest threshold that glibc accepts


def keep_memory() -> None:
    """For processes of our own: keep what is freed, instead of returning it to the system and taking it back page by page.

    Where the C library has no such switch, nothing changes."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
