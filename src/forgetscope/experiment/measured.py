"""What a step has measured so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from forgetscope.measuring.probe import Measurement
from forgetscope.store import COEFFICIENTS
from forgetscope.tables import QUANTITIES, Measurements


@dataclass
class Measured:
    """The probes of one step so far; small, and all of it goes into each snapshot."""

    iterations: list[int] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)  # per probe [quantities, P]
    pairs: Tensor | None = None  # [P, P + N], summed over probes
    log_sim: Tensor | None = None  # [P]

    def add(self, iteration: int, measurement: Measurement) -> None:
        terms = measurement.terms
        rows = [getattr(terms, name) for name in COEFFICIENTS]
        rows += [getattr(measurement, name) for name in QUANTITIES[len(COEFFICIENTS) :]]
        self.iterations.append(iteration)
        self.values.append(torch.stack(rows))
        self.pairs = measurement.pairs if self.pairs is None else self.pairs + measurement.pairs
        if self.log_sim is None:
            self.log_sim = measurement.new_logits

    def tensors(self) -> dict[str, Tensor]:
        """For a snapshot; empty before the first probe."""
        if self.pairs is None or self.log_sim is None:
            return {}
        return {
            "iterations": torch.tensor(self.iterations),
            "values": torch.stack(self.values),
            "pairs": self.pairs,
            "log_sim": self.log_sim,
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Measured:
        if not tensors:
            return cls()
        return cls(tensors["iterations"].tolist(), list(tensors["values"]), tensors["pairs"], tensors["log_sim"])

    def measurements(self) -> Measurements | None:
        """As arrays for the tables; None before the first probe."""
        if self.pairs is None or self.log_sim is None:
            return None
        values = torch.stack(self.values)
        return Measurements(
            iterations=tuple(self.iterations),
            values=values.numpy(),
            totals=values.sum(dim=0).numpy()[: len(COEFFICIENTS)],  # NumPy's sum would differ in the last bits
            pairs=self.pairs.numpy(),
            log_sim=self.log_sim.numpy(),
        )
