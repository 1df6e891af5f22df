"""A rehearsal problem so small that every mini-batch can be enumerated: past classes 0 and 1, new classes 2 and 3."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from forgetscope.lemma.terms import Images

INPUTS, UNITS, NODES = 3, 2, 4
PER_BATCH = (2, 1)  # rehearsed and new


@dataclass(frozen=True)
class Problem:
    network: nn.Sequential
    full: list[Images]
    rehearsed: list[Images]  # two images of class 0, one of class 1
    new: Images

    @property
    def hidden(self) -> Tensor | None:
        return matrix(self.network[0]) if len(self.network) > 1 else None

    @property
    def head(self) -> Tensor:
        return matrix(self.network[-1])

    def batches(self) -> Iterator[tuple[float, Images]]:
        """Every mini-batch with its probability, by the paper's stages: a multinomial over classes, then i.i.d. within."""
        drawn, of_new = PER_BATCH
        sizes = [len(nodes) for _, nodes in self.rehearsed]
        everything = [self.rehearsed[0], self.rehearsed[1], self.new]
        for first in range(drawn + 1):
            counts = (first, drawn - first)
            chance = math.comb(drawn, first) * math.prod((n / sum(sizes)) ** k for n, k in zip(sizes, counts, strict=True))
            choices = [range(n) for n, k in zip(sizes, counts, strict=True) for _ in range(k)]
            choices += [range(len(self.new[1]))] * of_new
            parts = [0] * counts[0] + [1] * counts[1] + [2] * of_new
            for images in itertools.product(*choices):
                picked = [(everything[part][0][i], everything[part][1][i]) for part, i in zip(parts, images, strict=True)]
                batch = torch.stack([x for x, _ in picked]), torch.stack([node for _, node in picked])
                yield chance / math.prod(map(len, choices)), batch


def matrix(layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()


def tiny_problem(seed: int, *, units: int = UNITS, scale: float = 1.0) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    layers = [nn.Linear(INPUTS, units), nn.Tanh()] if units else []
    network = nn.Sequential(*layers, nn.Linear(units or INPUTS, NODES)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))

    def images(node: int, n: int) -> Images:
        return torch.randn(n, INPUTS, generator=generator, dtype=torch.float64) + node, torch.full((n,), node)

    full = [images(0, 4), images(1, 3)]
    rehearsed = [(inputs[:n], nodes[:n]) for (inputs, nodes), n in zip(full, (2, 1), strict=True)]
    (x, y), (a, b) = images(2, 2), images(3, 1)
    return Problem(network, full, rehearsed, (torch.cat([x, a]), torch.cat([y, b])))
