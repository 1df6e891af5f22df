"""What equal bits depend on besides device and threads; recorded with whatever was trained."""

import platform
from functools import cache
from importlib.metadata import version

import torch


def environment() -> dict[str, object]:
    """
    >>> sorted(environment())
    ['forgetscope', 'instructions', 'machine', 'numpy', 'python', 'torch']
    """
    return {
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        **_versions(),
    }


@cache
def _versions() -> dict[str, str]:
    """Looking them up reads files."""
    return {package: version(package) for package in ("forgetscope", "torch", "numpy")}
