"""What equal bits depend on besides device and threads; recorded with whatever was trained."""

import platform
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
        **{package: version(package) for package in ("forgetscope", "torch", "numpy")},
    }
