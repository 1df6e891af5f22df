"""The paper's Last-Layer Imbalanced Forgetting Coefficients at one probe: SIC, CIC, NIC, and ALL-NIC.

Each value here is one probe's term, already weighted by alpha and p_c: the plain sum of terms over a step's probes is the
coefficient. Positive is destructive interference. A class whose own gradient vanishes has no direction to interfere with:
its terms are NaN, never zero. A gradient vanishes when its norm is not above its own rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Coefficients:
    """Terms of P past classes, each [P] in float64."""

    sic: Tensor
    cic: Tensor
    nic: Tensor
    all_nic: Tensor


def coefficients(
    full: Tensor,
    bias: Tensor,
    new: Tensor,
    alpha: float,
    shares: Tensor,
    nodes: Tensor | None = None,
    rounding: Tensor | None = None,
) -> Coefficients:
    """One probe's terms from last-layer gradients.

    full [P, k, d + 1]: f_c, the mean gradients over D_c; bias [P, k, d + 1]: b_c, those over R_c minus f_c;
    new [k, d + 1]: over the new data D^m; shares [P] = p_c. Past class c is head node c, unless `nodes` [P] names its node.
    rounding [P]: the error in the norm of each f_c, else 0.

    Time and memory grow with P k (d + 1), so with the square of the classes; who interferes with whom costs P times that.
    """
    f, b = full.double().flatten(1), bias.double().flatten(1)
    p, lengths = torch.as_tensor(shares).to(f), _divisors(f, rounding)[:, 0]
    sic = -alpha * p * torch.linalg.vecdot(b, f) / lengths
    everyone = p @ b  # per class below: at 200 classes one more array of this kind is 20 MB, and costs more than the arithmetic
    others = torch.stack([(everyone - share * own) @ target for share, own, target in zip(p, b, f, strict=True)])
    cic = -alpha * others / lengths
    nic = new_interference(full, new[None], torch.ones(1), alpha, nodes, rounding)[:, 0]
    all_nic = -(1 - alpha) * (f @ new.double().flatten()) / lengths
    return Coefficients(sic, cic, nic, all_nic)


def past_interference(full: Tensor, bias: Tensor, alpha: float, shares: Tensor, rounding: Tensor | None = None) -> Tensor:
    """[P, P]: what the rehearsal bias of class y (column) does to class c (row). Diagonal: SIC; rest of a row: CIC."""
    f, b = full.double().flatten(1), bias.double().flatten(1)
    return alpha * torch.as_tensor(shares).to(f) * interference(b, f, rounding)


def new_interference(
    full: Tensor,
    new: Tensor,
    shares: Tensor,
    alpha: float,
    nodes: Tensor | None = None,
    rounding: Tensor | None = None,
) -> Tensor:
    """[P, N]: what each of N sources of new data does to class c within row c of the head. A row adds up to NIC.

    new [N, k, d + 1]: the sources' mean gradients; shares [N]: each source's share of the new images.
    """
    past = torch.arange(len(full), device=full.device)
    nodes = past if nodes is None else nodes.to(full.device)
    f = full.double()[past, nodes]  # [P, d + 1], f_c restricted to L_c
    v = new.double()[:, nodes].transpose(0, 1)  # [P, N, d + 1]
    products = torch.einsum("pnd,pd->pn", v, f)
    return -(1 - alpha) * torch.as_tensor(shares).to(f) * products / _divisors(f, rounding)


def interference(v: Tensor, f: Tensor, rounding: Tensor | None = None) -> Tensor:
    """Interf_c(v) = -<v, f_c> / ||f_c||, for vectors v [V, s] and class gradients f [P, s] -> [P, V]."""
    return -(f @ v.T) / _divisors(f, rounding)


def norms(vectors: Tensor) -> Tensor:
    """Euclidean norms [...] of vectors [..., s]; also of those whose squares are too small for floating point."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    tiny = lengths < torch.finfo(vectors.dtype).tiny ** 0.5
    if bool(tiny.any()):
        scale = vectors.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)
        lengths = torch.where(tiny, torch.linalg.vector_norm(vectors / scale, dim=-1) * scale[..., 0], lengths)
    return lengths


def _divisors(f: Tensor, rounding: Tensor | None) -> Tensor:
    """Norms [P, 1]; NaN where a gradient vanishes."""
    lengths = norms(f)
    vanishing = lengths <= (torch.zeros_like(lengths) if rounding is None else rounding.to(lengths))
    return lengths.masked_fill(vanishing, torch.nan)[:, None]
