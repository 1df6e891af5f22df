"""Whether two tensors are the same up to rounding."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def agree(one: Tensor, other: Tensor, *as_coarse_as: Tensor) -> bool:
    """Up to the rounding of the coarsest of these, relative to the largest."""
    eps = max(torch.finfo(tensor.dtype).eps for tensor in (one, other, *as_coarse_as))
    if one.shape != other.shape:
        return False
    scale = float(torch.maximum(one.abs().max(), other.abs().max()))
    if not math.isfinite(scale):
        return False
    return bool(((one.double() - other.double()).abs() <= eps**0.5 * scale).all()) and _as_large(one, other, eps)


def same_logits(one: Tensor, other: Tensor, *as_coarse_as: Tensor) -> bool:
    """Up to rounding, relative to each logit, or to what is usual among them where it is less.

    Never to the largest: that may be a mask of -1e9, beside which everything else is the same."""
    eps = max(torch.finfo(tensor.dtype).eps for tensor in (one, other, *as_coarse_as))
    if one.shape != other.shape or not bool((one.isfinite() & other.isfinite()).all()):
        return False
    values, others = one.double(), other.double()
    sizes = torch.maximum(values.abs(), others.abs())
    varied = (values != values[:1]).any(dim=0)  # a masked column is the same for all images
    usual = (sizes[:, varied] if bool(varied.any()) else sizes).amax(dim=0).median().clamp(max=100)
    close = (values - others).abs() <= eps**0.5 * sizes.clamp(min=float(usual))
    return bool(close.all()) and _as_large(values, others, eps)


def _as_large(one: Tensor, other: Tensor, eps: float) -> bool:
    """On the whole: rounding evens out over many numbers, and a factor does not, such as a temperature in half precision."""
    values, others = one.double(), other.double()
    return bool(((values - others) * others).sum().abs() <= max(2 * eps, 1e-3) * others.square().sum())
