"""Adding up probes: the plain sum of a class's terms over a step's probes is its coefficient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.measuring.all_layers import AllLayers
from forgetscope.measuring.coefficients import Coefficients
from forgetscope.measuring.measurement import Measurement, frame_of, html_of
from forgetscope.measuring.quantities import COEFFICIENTS, QUANTITIES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(eq=False, repr=False)
class Sums:
    """What the probes of P past classes add up to, with each probe's own terms; small, and empty at first.

    `a + b` has the probes of both, first those of a. `state_dict` is plain tensors, for any checkpoint:

    >>> import torch, forgetscope as fs
    >>> images, labels = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2
    >>> network = torch.nn.Linear(3, 4)
    >>> probe = fs.Probe(images, labels, torch.arange(4), images, labels + 2)
    >>> first = probe.measure(network, features=torch.nn.Identity(), head=network)
    >>> saved = probe.sums.state_dict()  # torch.save(saved, "checkpoint.pt")
    >>> probe.sums.reset()
    >>> probe.sums.load_state_dict(saved)
    >>> bool((probe.coefficients.sic == first.terms.sic).all())
    True
    >>> list(probe.sums.to_frame().columns)
    ['sic', 'cic', 'nic', 'all_nic', 'log_sim']
    """

    nodes: tuple[int, ...] | None = None  # of the past classes, where it is known: names them, and no others are added
    iterations: list[int] = field(default_factory=list)  # of each probe
    values: list[Tensor] = field(default_factory=list)  # of each probe [quantities, P]
    pairs: Tensor | None = None  # [P, P + N], summed
    log_sim: Tensor | None = None  # [P]: at the first probe
    names: Mapping[int, str] = field(default_factory=dict)  # by node, where somebody named them; not part of a state
    head_nodes: int = 0  # of the head at the first probe; 0 is unknown
    alpha: float | None = None  # that the terms were measured with, where it is known: those of another are not added
    variances: Tensor | None = None  # [coefficients, P], summed: where probes looked at some images only
    weight: float = 1.0  # what each probe counts for in sums: more than 1 where it stands for others; not part of a state

    def __len__(self) -> int:
        """Of how many probes."""
        return len(self.iterations)

    def __add__(self, other: object) -> Sums:
        if not isinstance(other, Sums):
            return NotImplemented
        self._demand(other.nodes, other.values, other.alpha)
        log_sim = other.log_sim if self.log_sim is None else self.log_sim
        iterations, values = self.iterations + other.iterations, self.values + other.values
        pairs, names = _added(self.pairs, other.pairs), self.names or other.names
        alpha, head_nodes = other.alpha if self.alpha is None else self.alpha, self.head_nodes or other.head_nodes
        nodes, variances = self.nodes or other.nodes, _added(self.variances, other.variances)
        return Sums(nodes, iterations, values, pairs, log_sim, names, head_nodes, alpha, variances, self.weight)

    def __radd__(self, other: object) -> Sums:
        return self + Sums() if isinstance(other, int) and other == 0 else NotImplemented  # what sum() begins with

    def add(self, measurement: Measurement, iteration: int | None = None) -> None:
        """One more probe; iteration: how many of training are done, by default the probes are counted."""
        self.add_terms(quantities_of(measurement), iteration)
        self.pairs = _added(self.pairs, measurement.pairs)
        if measurement.variances is not None:  # every probe draws images of its own, so errors add up in squares
            squares = torch.stack([getattr(measurement.variances, name) for name in COEFFICIENTS])
            self.variances = _added(self.variances, squares)
        if self.log_sim is None:
            self.log_sim = measurement.new_logits

    def add_probe(self, measurement: Measurement, iteration: int | None = None) -> None:
        """The same of a head that has as many nodes as at the first probe; another one is refused."""
        if self.head_nodes not in (0, measurement.head_nodes):
            raise InputError(
                f"The head has {measurement.head_nodes} nodes and had {self.head_nodes} at the first probe: this is "
                "another step. Make a probe or a step for it, with what is past and new now."
            )
        self.head_nodes = measurement.head_nodes
        self.add(measurement, iteration)

    def add_terms(self, values: Tensor, iteration: int | None = None) -> None:
        """One more probe of which nothing but its quantities [quantities, P] is wanted."""
        self._demand(None, [values])
        self.iterations.append(len(self) if iteration is None else iteration)
        self.values.append(values)

    @property
    def totals(self) -> Tensor:
        """[quantities, P]: of the coefficients these are the values."""
        if not self.values:
            raise InputError("Nothing has been measured yet. Call probe.measure(network) first.")
        return self.weight * torch.stack(self.values).sum(dim=0)

    @property
    def coefficients(self) -> Coefficients:
        """SIC, CIC, NIC and ALL-NIC over the probes so far."""
        return Coefficients(*self.totals[: len(COEFFICIENTS)])

    @property
    def errors(self) -> Coefficients | None:
        """Standard errors of the coefficients so far; None where all images were looked at."""
        return None if self.variances is None else Coefficients(*(self.weight * self.variances.sqrt()))

    def arrays(self) -> dict[str, Any]:
        """What tables are made of; values [probes, quantities, P], totals and errors [coefficients, P]."""
        assert self.pairs is not None
        assert self.log_sim is not None
        return {
            "iterations": tuple(self.iterations),
            "values": torch.stack(self.values).numpy(),
            "totals": self.totals.numpy()[: len(COEFFICIENTS)],
            "pairs": (self.weight * self.pairs).numpy(),
            "log_sim": self.log_sim.numpy(),
            "errors": None if self.variances is None else (self.weight * self.variances.sqrt()).numpy(),
        }

    def reset(self) -> None:
        """Back to nothing measured."""
        self.iterations, self.values, self.pairs, self.log_sim, self.head_nodes = [], [], None, None, 0
        self.variances = None

    def state_dict(self) -> dict[str, Tensor]:
        found = {
            "nodes": None if self.nodes is None else torch.tensor(self.nodes),
            "alpha": None if self.alpha is None else torch.tensor(self.alpha, dtype=torch.float64),
            "pairs": self.pairs,
            "log_sim": self.log_sim,
            "variances": self.variances,
            "head_nodes": torch.tensor(self.head_nodes) if self.head_nodes else None,
        }
        if self.values:
            found |= {"iterations": torch.tensor(self.iterations), "values": torch.stack(self.values)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state_dict` gave, in place of what is here; anything else is refused, and nothing changes.

        States of earlier versions do not tell their alpha: it is taken to be the one that is known here."""
        remedy, needed = "Load what Sums.state_dict() gave.", {"iterations", "values"}
        names = set(state) if isinstance(state, Mapping) else {type(state)}
        others = {"nodes", "alpha", "pairs", "log_sim", "head_nodes", "variances"}
        if names - {"nodes", "alpha"} and not needed <= names <= needed | others:
            raise InputError(f"{sorted(map(str, names))} are not the names of a state_dict of Sums. {remedy}")
        if not names and self.state_dict():  # that of empty sums without nodes is {}, as in our snapshots before a probe
            raise InputError(f"The state is {{}}, without sums. {remedy} To begin anew, call reset().")
        if odd := [f"{name} is {part!r:.60}" for name, part in state.items() if not isinstance(part, Tensor)]:
            raise InputError(f"{odd[0]}, expected a tensor. {remedy}")
        parts = {name: tensor.cpu() for name, tensor in state.items()}
        found = {name: tuple(tensor.shape) for name, tensor in parts.items()}
        probes, classes = found.get("values", ())[:1], found.get("values", found.get("nodes", ()))[-1:] or (0,)
        expected = {"nodes": classes, "iterations": probes, "values": (*probes, len(QUANTITIES), *classes), "log_sim": classes}
        expected["head_nodes"] = expected["alpha"] = ()
        expected["variances"] = (len(COEFFICIENTS), *classes)
        expected["pairs"] = (*classes, *max(classes, found.get("pairs", ())[-1:]))  # as many new classes as there are
        if wrong := [name for name in sorted(found, reverse=True) if found[name] != expected[name]]:  # values first
            raise InputError(f"{wrong[0]} has the shape {found[wrong[0]]}, expected {expected[wrong[0]]}. {remedy}")
        values = list(parts.get("values", ()))
        alpha = float(parts["alpha"]) if "alpha" in parts else None
        self._demand(tuple(parts["nodes"].tolist()) if "nodes" in parts else None, values, alpha)
        self.iterations, self.values = (parts["iterations"].tolist() if values else []), values
        self.pairs, self.log_sim, self.variances = parts.get("pairs"), parts.get("log_sim"), parts.get("variances")
        self.head_nodes = int(parts.get("head_nodes", 0))

    def to_frame(self) -> pd.DataFrame:
        """A row per past class, named by its head node: the sums of its terms, and LOG-SIM."""
        sums = dict(zip(COEFFICIENTS, self.totals.numpy(), strict=False))
        log_sim = {} if self.log_sim is None else {"log_sim": self.log_sim.numpy()}
        errors = {} if self.errors is None else {f"{name}_se": getattr(self.errors, name).numpy() for name in COEFFICIENTS}
        nodes = range(self.values[0].shape[1]) if self.nodes is None else self.nodes
        return frame_of(tuple(nodes), self.names, sums | errors | log_sim)

    def __repr__(self) -> str:
        classes = "" if self.nodes is None else f" of {counted(len(self.nodes), 'past class')}"
        return f"Sums({counted(len(self), 'probe')}{classes})"

    def _repr_html_(self) -> str:
        return html_of((repr(self),), self.to_frame() if self.values else None)

    def _demand(self, nodes: tuple[int, ...] | None, values: list[Tensor], alpha: float | None = None) -> None:
        """That these nodes and values are of the same classes as ours, and measured with the same alpha."""
        if nodes is not None and self.nodes is not None and nodes != self.nodes:
            raise InputError(f"Sums of past classes {list(nodes)} are not sums of past classes {list(self.nodes)}.")
        if alpha is not None and self.alpha is not None and not math.isclose(alpha, self.alpha):
            raise InputError(
                f"Sums measured with alpha = {alpha:g} are not sums with alpha = {self.alpha:g}: it scales SIC, CIC and NIC. "
                f"Make the probe with alpha={alpha:g}, or begin anew."
            )
        classes = len(self.nodes) if self.nodes is not None else self.values[0].shape[1] if self.values else None
        found = tuple(values[0].shape) if values else None
        if found and classes is not None and found != (len(QUANTITIES), classes):
            raise InputError(f"A probe has {found} quantities and past classes, expected {(len(QUANTITIES), classes)}.")


def quantities_of(measurement: Measurement | AllLayers) -> Tensor:
    """[quantities, P]"""
    terms = [getattr(measurement.terms, name) for name in COEFFICIENTS]
    return torch.stack([*terms, *(getattr(measurement, name) for name in QUANTITIES[len(COEFFICIENTS) :])])


def _added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one + other
