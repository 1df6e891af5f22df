"""What a step has measured so far. All of it is small and goes into each snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forgetscope.measuring.all_layers import AllLayers
from forgetscope.measuring.probe import Measurement
from forgetscope.store import COEFFICIENTS
from forgetscope.store.tables import QUANTITIES, Measurements


@dataclass
class Measured:
    """The probes of one step so far."""

    iterations: list[int] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)  # per probe [quantities, P]
    pairs: Tensor | None = None  # [P, P + N], summed over probes
    log_sim: Tensor | None = None  # [P]

    def add(self, iteration: int, measurement: Measurement) -> None:
        self.iterations.append(iteration)
        self.values.append(quantities_of(measurement))
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
        if "pairs" not in tensors:
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


def quantities_of(measurement: Measurement | AllLayers) -> Tensor:
    """[quantities, P]"""
    terms = [getattr(measurement.terms, name) for name in COEFFICIENTS]
    return torch.stack([*terms, *(getattr(measurement, name) for name in QUANTITIES[len(COEFFICIENTS) :])])


@dataclass
class Extra:
    """What was measured beside the probes, by the name of its measure: iterations, and per probe [quantities, P]."""

    series: dict[str, tuple[list[int], list[Tensor]]] = field(default_factory=dict)

    def add(self, measure: str, iteration: int, values: Tensor) -> None:
        iterations, rows = self.series.setdefault(measure, ([], []))
        iterations.append(iteration)
        rows.append(values)

    def tensors(self) -> dict[str, Tensor]:
        """For a snapshot."""
        found = {}
        for measure, (iterations, rows) in self.series.items():
            found[f"extra.{measure}.iterations"] = torch.tensor(iterations)
            found[f"extra.{measure}.values"] = torch.stack(rows)
        return found

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Extra:
        names = [name.split(".")[1] for name in tensors if name.startswith("extra.") and name.endswith(".values")]
        return cls(
            {name: (tensors[f"extra.{name}.iterations"].tolist(), list(tensors[f"extra.{name}.values"])) for name in names}
        )

    def arrays(self) -> dict[str, tuple[list[int], NDArray[np.float64]]]:
        """For the table, in the order of the measures' names."""
        return {name: (self.series[name][0], torch.stack(self.series[name][1]).numpy()) for name in sorted(self.series)}
