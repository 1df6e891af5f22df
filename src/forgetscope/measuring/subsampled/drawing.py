"""Which images a probe looks at: some of each class, drawn without replacement, the rehearsed ones and the others apart."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TypeVar

import numpy as np
import torch

from forgetscope.measuring.probe_data import ProbeData
from forgetscope.measuring.subsampled.quotas import new_quota, quotas

Data = TypeVar("Data", bound=ProbeData)


def subsampled(data: Data, images: int, stream: Callable[[int], np.random.Generator]) -> Data:
    """The same data, to be measured on some images: of a past class so many. stream: of a class's draws, by its head node."""
    some, past = copy(data), len(data.past_nodes)
    all_groups = torch.cat([groups for _, _, groups in data.parts])
    some.population = population = torch.bincount(all_groups, minlength=data.groups).double()
    wanted = torch.full((data.groups,), new_quota(images, len(data.new_nodes)))
    for c in range(past):
        few, rest = quotas(images, int(population[past + c]), int(population[c]))
        wanted[c], wanted[past + c] = rest, few
    nodes, parts = torch.cat([data.past_nodes, data.past_nodes, data.new_nodes]).tolist(), []
    streams = {node: stream(node) for node in nodes}
    for pixels, labels, groups in data.parts:
        drawn = []
        for group in torch.unique(groups).tolist():  # the others of a past class before those that are rehearsed
            positions = torch.nonzero(groups == group)[:, 0].numpy()
            drawn.append(streams[nodes[group]].permutation(positions)[: int(wanted[group])])
        at = torch.from_numpy(np.sort(np.concatenate(drawn)))
        parts.append((pixels[at.to(pixels.device)], labels[at], groups[at]))
    some.parts = (parts[0], parts[1])
    return some
