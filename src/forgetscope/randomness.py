"""Named random streams: every random number is a function of (seed, step, purpose, index).

No global generator is read or moved, and there is no generator state to save. A new consumer takes a new purpose
and shifts nobody else's numbers; an experiment that changes one thing leaves every other draw as it was.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np

Purpose = Literal[
    "class-sequence",
    "glyphs-train",
    "glyphs-test",
    "test-share",
    "validation",
    "network",
    "head",
    "policy",
    "current-images",
    "new-images",
    "rehearsal-counts",
    "rehearsal-images",
    "probe-images",
    "method-batches",
    "crop",
    "flip",
    "brightness",
    "experiment",
    "rerun",
    "simulation",
    "bootstrap",
    "noise",
    "forecast",
    "forecast-images",
]


@dataclass(frozen=True)
class Streams:
    """The streams of one incremental step. Step 0 is for draws that precede all steps.

    draws: others of the same seed and step; 0 are those that there have always been."""

    seed: int
    step: int
    draws: int = 0

    def __call__(self, purpose: Purpose, index: int | str = 0) -> np.random.Generator:
        """A fresh generator; asking twice for the same stream gives the same numbers twice. An index may be in words."""
        if isinstance(index, str):
            index = int.from_bytes(hashlib.sha256(index.encode()).digest()[:8], "little")
        name = f"forgetscope/{self.seed}/{self.step}/{purpose}/{index}" + (f"/{self.draws}" if self.draws else "")
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
        return np.random.Generator(np.random.Philox(key=key))
