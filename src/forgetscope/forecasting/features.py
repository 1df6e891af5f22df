"""Features of images under any network that makes its output of them by a linear layer: what keepsakes and forecasts are of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from forgetscope.errors import ForgetscopeError, InputError
from forgetscope.forecasting.written import demand_as_trained
from forgetscope.measuring.heads import Fed, LastLayer, feeding, find_last_layer, same_logits, unwrapped
from forgetscope.measuring.watching import cannot_take, kind_of, undisturbed


@dataclass(frozen=True)
class Featured:
    """A network as its last layer is fed, for the block of `featured`."""

    last: LastLayer
    fed: Fed
    name: str  # of the network
    few: Tensor  # inputs

    def features(self, inputs: Tensor) -> Tensor:
        """[n, d] in float64 on the CPU, of what the network eats. Refused where its output is not that of a linear layer."""
        assert self.last.weight is not None
        try:
            found, output = self.fed(inputs)
        except ForgetscopeError:
            raise
        except Exception as error:  # anything: this is a user's code
            raise cannot_take(self.last.run, inputs, error) from error
        logits = F.linear(found.to(self.last.weight.dtype), self.last.weight, self.last.bias)
        if output is not None and not same_logits(output, logits, found):
            raise _not_linear(self.name, self.last)
        return found.cpu().double()

    @property
    def device(self) -> torch.device:
        assert self.last.weight is not None
        return self.last.weight.device

    @property
    def build(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of its parameters but the head's and others with a number per node: those by which architectures differ."""
        own, run = {id(parameter) for parameter in self.last.head.parameters()}, self.last.run
        every = run.parameters() if isinstance(run, nn.Module) else ()
        return tuple(sorted(tuple(one.shape) for one in every if id(one) not in own and self.last.nodes not in one.shape))

    def of_all(self, batches: Iterator[Tensor]) -> NDArray[np.float64]:
        """[n, d], one batch after the other."""
        return torch.cat([self.features(inputs) for inputs in batches]).numpy()

    def head(self, nodes: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weight and bias of these nodes alone, as they are now."""
        weight, bias = self.last.weight, self.last.bias
        assert weight is not None
        if (highest := max(nodes, default=-1)) >= len(weight):
            raise InputError(
                f"Class {highest} needs a head with {highest + 1} nodes; that of {self.name} has {len(weight)}. Labels are "
                "head nodes: grow the head before the network is measured, or give the labels that belong to this one."
            )
        rows = torch.tensor(list(nodes), device=weight.device)
        biases = torch.zeros(len(rows), dtype=torch.float64) if bias is None else bias.detach()[rows].cpu().double()
        return weight.detach()[rows].cpu().double().numpy(), biases.numpy()


@contextmanager
def featured(
    network: nn.Module, few: Tensor, head: nn.Module | None = None, asked: str = "measure(network"
) -> Iterator[Featured]:
    """few: some inputs, to find the last layer with. The block leaves no trace in the network, and runs in evaluation mode.

    asked: how messages call what was called. Refused while offsets of an evening stand in the head: it is to be as trained."""
    demand_as_trained(network)
    with undisturbed(network):
        try:
            last = find_last_layer(network, few, head=head)
        except InputError as error:
            raise InputError(str(error).replace("measure(network, head=...)", f"{asked}, head=...)")) from error
        name = kind_of(unwrapped(network))
        if last.weight is None:
            raise _not_linear(name, last)
        with feeding(last, few) as fed:
            yield Featured(last, fed, name, few)


def _not_linear(name: str, last: LastLayer) -> InputError:
    return InputError(
        f"The last layer of {name} is {kind_of(last.head)}, which does not give features @ weight.T + bias: what is kept of "
        "features would not tell what it makes of them."
    )
