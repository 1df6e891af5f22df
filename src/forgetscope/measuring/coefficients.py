"""The paper's Last-Layer Imbalanced Forgetting Coefficients at one probe: SIC, CIC, NIC, and ALL-NIC.

Each value here is one probe's term, already weighted by alpha and p_c: the plain sum of terms over a step's probes is the
coefficient. Positive is destructive interference. A class whose own gradient vanishes has no direction to interfere with:
its terms are NaN, never zero.
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
    full: Tensor, rehearsal: Tensor, new: Tensor, alpha: float, shares: Tensor, nodes: Tensor | None = None
) -> Coefficients:
    """One probe's terms from last-layer gradients.

    full, rehearsal [P, k, d + 1]: mean gradients over D_c and R_c; new [k, d + 1]: over the new data D^m; shares [P] = p_c.
    Past class c is head node c, unless `nodes` [P] names its node.
    """
    past = past_interference(full, rehearsal, alpha, shares)
    sic = past.diagonal()
    own = torch.eye(len(past), dtype=torch.bool, device=past.device)
    everywhere = (1 - alpha) * interference(new.double()[None].flatten(1), full.double().flatten(1))
    return Coefficients(
        sic=sic.clone(),
        cic=past.masked_fill(own, 0).sum(dim=1) + 0 * sic,  # one class alone: CIC is 0, or NaN where SIC is
        nic=new_interference(full, new[None], torch.ones(1), alpha, nodes)[:, 0],
        all_nic=everywhere[:, 0],
    )


def past_interference(full: Tensor, rehearsal: Tensor, alpha: float, shares: Tensor) -> Tensor:
    """[P, P]: what the rehearsal bias of class y (column) does to class c (row). Diagonal: SIC; rest of a row: CIC."""
    f = full.double().flatten(1)
    b = rehearsal.double().flatten(1) - f  # bias vectors b_c
    return alpha * torch.as_tensor(shares).to(f) * interference(b, f)


def new_interference(full: Tensor, new: Tensor, shares: Tensor, alpha: float, nodes: Tensor | None = None) -> Tensor:
    """[P, N]: what each of N sources of new data does to class c within row c of the head. A row adds up to NIC.

    new [N, k, d + 1]: the sources' mean gradients; shares [N]: each source's share of the new images.
    """
    past = torch.arange(len(full), device=full.device)
    nodes = past if nodes is None else nodes.to(full.device)
    f = full.double()[past, nodes]  # [P, d + 1], f_c restricted to L_c
    v = new.double()[:, nodes].transpose(0, 1)  # [P, N, d + 1]
    products = torch.einsum("pnd,pd->pn", v, f)
    return -(1 - alpha) * torch.as_tensor(shares).to(f) * products / _norms(f)


def interference(v: Tensor, f: Tensor) -> Tensor:
    """Interf_c(v) = -<v, f_c> / ||f_c||, for vectors v [V, s] and class gradients f [P, s] -> [P, V]."""
    return -(f @ v.T) / _norms(f)


def _norms(f: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(f, dim=-1, keepdim=True)
    return norms.masked_fill(norms == 0, torch.nan)
