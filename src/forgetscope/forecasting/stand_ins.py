"""The coefficients without past images: features that stand for a class's images outside the memory take their place.

What is found is an estimate, as good as what stands in. Of the images themselves it is what the probe measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from forgetscope.measuring.coefficients import Coefficients, coefficients
from forgetscope.measuring.gradients import GradientSums, rounding_error


@dataclass(frozen=True)
class SeenImages:
    """Images whose features are known: of the memory and of new classes, or some of them.

    features [n, d], nodes [n]: of their classes, which are past where `kept` has them. kept: how many images of each past class
    are in memory, by node; new: how many each new class has; unrehearsed: how many of each past class are not in memory."""

    features: Tensor
    nodes: Tensor
    kept: Mapping[int, int]
    new: Mapping[int, int]
    unrehearsed: Mapping[int, int]


def estimated_terms(
    seen: SeenImages, stand_ins: Mapping[int, Tensor], weight: Tensor, bias: Tensor, alpha: float, *, biased: bool = True
) -> Coefficients:
    """One probe's terms, of the past classes in the order of `seen.kept`; SIC of a class without a stored image is unknown.

    stand_ins: features [m, d] by node. Without those of a class nothing is known of it, nor what it does to others. biased:
    whether the head has biases.

    >>> features, nodes = torch.eye(4, dtype=torch.float64), torch.tensor([0, 0, 1, 2])
    >>> seen = SeenImages(features, nodes, kept={0: 2, 1: 1}, new={2: 1}, unrehearsed={0: 3, 1: 3})
    >>> terms = estimated_terms(seen, {0: features[:1], 1: features[2:3]}, torch.zeros(3, 4), torch.zeros(3), 0.5)
    >>> round(float(terms.sic[0]), 3)  # the memory lies elsewhere than what stands in
    0.038
    """
    past, classes = list(seen.kept), [*seen.kept, *seen.new]
    of_stand_ins, head = [c for c in past if c in stand_ins], (weight, bias, biased)
    known = _gradients(seen.features, seen.nodes, classes, *head)
    standing = torch.cat([stand_ins[c] for c in of_stand_ins]) if of_stand_ins else seen.features[:0]
    sizes = torch.tensor([len(stand_ins[c]) for c in of_stand_ins], dtype=torch.long)
    absent = _gradients(standing, torch.repeat_interleave(torch.tensor(of_stand_ins, dtype=torch.long), sizes), past, *head)
    kept, rest = (torch.tensor([of[c] for c in past], dtype=torch.float64) for of in (seen.kept, seen.unrehearsed))
    whole = kept / (kept + rest)  # the share of a class that is in memory
    lengths = _mixed(whole, known.lengths[: len(past)], absent.lengths)
    r, u = (_means(sums, len(past)) for sums in (known, absent))
    full = _mixed(whole, r, u)  # f_c
    images = torch.tensor(list(seen.new.values()), dtype=torch.float64)
    new = torch.einsum("n,nkd->kd", images / images.sum(), (known.gradients / known.counts[:, None, None])[len(past) :])
    bias_vectors = torch.where(kept[:, None, None] > 0, r - full, 0.0)  # b_c, with a share of 0 if nothing is kept
    nodes = torch.tensor(past, dtype=torch.long)
    found = coefficients(
        full=full,
        bias=bias_vectors,
        new=new,
        alpha=alpha,
        shares=kept / kept.sum().clamp(min=1),
        nodes=nodes,
        rounding=rounding_error(lengths, known.eps),
    )
    unknown = kept == 0
    return Coefficients(found.sic.masked_fill(unknown, torch.nan), found.cic, found.nic, found.all_nic)


def _gradients(features: Tensor, nodes: Tensor, classes: list[int], weight: Tensor, bias: Tensor, biased: bool) -> GradientSums:
    """Over the images of each of these classes."""
    sums = GradientSums(len(classes), *weight.shape, biased=biased)
    if len(nodes):
        place = torch.full((max(*classes, int(nodes.max())) + 1,), -1, dtype=torch.long)
        place[torch.tensor(classes)] = torch.arange(len(classes))
        logits = F.linear(features.double(), weight.double(), bias.double())
        sums.add(features, logits, nodes, place[nodes])
    return sums


def _means(sums: GradientSums, past: int) -> Tensor:
    """[P, k, d + 1]; NaN of a class without images."""
    return sums.gradients[:past] / sums.counts[:past, None, None]


def _mixed(share: Tensor, kept: Tensor, rest: Tensor) -> Tensor:
    """Over the memory and the others; what has no share does not count, known or not."""
    share = share.view(-1, *[1] * (kept.ndim - 1))
    return torch.where(share > 0, share * kept, 0.0) + torch.where(share < 1, (1 - share) * rest, 0.0)
