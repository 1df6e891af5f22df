"""Where and how to compute: what changes the last bits at most, so it is recorded but is no part of a step's identity."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from forgetscope.errors import SpecError
from forgetscope.learning.environment import environment
from forgetscope.spec import StepSpec
from forgetscope.threads import default_threads


@dataclass(frozen=True)
class Settings:
    """Equal bits are promised for equal settings only."""

    device: torch.device
    threads: int
    channels_last: bool = True
    compile: bool = False

    def recorded(self) -> dict[str, Any]:
        return {**asdict(self), "device": self.device.type}

    def continuing(self, recorded: Mapping[str, Any]) -> Settings:
        """As recorded in a snapshot, but on this device: anything else would add up in another order."""
        return replace(self, **{name: value for name, value in recorded.items() if name != "device"})

    def environment(self) -> dict[str, object]:
        """What equal bits depend on."""
        return {**self.recorded(), **environment()}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Threads and deterministic algorithms for the block, then the caller's own again."""
        threads, deterministic = torch.get_num_threads(), torch.backends.cudnn.deterministic
        torch.set_num_threads(self.threads)
        torch.backends.cudnn.deterministic = True
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.backends.cudnn.deterministic = deterministic


def choose_settings(
    device: str = "auto", threads: int | None = None, *, channels_last: bool = True, compile: bool = False
) -> Settings:
    """Fill in what is left open, and refuse what this machine cannot do."""
    if compile and not shutil.which(os.environ.get("CXX", "c++")):
        raise SpecError(
            "--compile: torch.compile needs a C++ compiler, and there is none. Install g++, or leave the option out."
        )
    return Settings(choose_device(device), threads or default_threads(), channels_last, compile)


def choose_device(name: str) -> torch.device:
    """`auto` takes CUDA, then MPS, then the CPU."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, present in available.items() if present)
    if name not in available:
        raise SpecError(f"--device {name!r} is not known. Use auto, cpu, cuda or mps.")
    if not available[name]:
        raise SpecError(f"--device {name}: this machine has none that torch can use. Use --device auto.")
    return torch.device(name)


def check_precision(device: torch.device, spec: StepSpec) -> None:
    """A device must be able to do what the step asks for."""
    precision = spec.training.precision
    able = torch.amp.is_autocast_available(device.type)
    if device.type == "cuda":
        able = able and torch.cuda.is_bf16_supported()
    if precision is not None and not able:
        raise SpecError(
            f"precision = {precision!r}: device {device.type} cannot. Use precision = 'float32', or another device."
        )
