"""The paper's Imbalanced Forgetting Coefficients at one probe: SIC, CIC, NIC, and ALL-NIC.

Each value here is one probe's term, already weighted by alpha and p_c: the plain sum of terms over a step's probes is the
coefficient. Positive is destructive interference. A class whose own gradient vanishes has no direction to interfere with:
its terms are NaN, never zero. A gradient vanishes when its norm is not above its own rounding error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Coefficients:
    """Terms of P past classes, each [P] in float64.

    >>> from torch import tensor
    >>> terms = Coefficients(tensor([0.3, 0.1]), tensor([0.0, 0.2]), tensor([0.5, -0.1]), tensor([0.4, 0.0]))
    >>> int(terms.sic.argmax())  # the past class whose rehearsal images mislead most
    0
    """

    sic: Tensor
    cic: Tensor
    nic: Tensor
    all_nic: Tensor


def _by_name(function: Callable[P, T]) -> Callable[P, T]:
    """Once its second argument was another: a call in that sense must not go through."""

    @wraps(function)
    def wrapper(*args: P.args, **named: P.kwargs) -> T:
        if args or "rehearsal" in named:
            raise TypeError(
                "coefficients takes its arguments by name: full=, bias= (the gradients over the rehearsal images minus full), "
                "new=, alpha=, shares=, and if wanted nodes= and rounding=."
            )
        return function(*args, **named)

    return wrapper


@_by_name
def coefficients(
    *,
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

    Two past classes that are learned apart, and new data that pull at the first one's own node:

    >>> import torch
    >>> full = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]])
    >>> new = torch.tensor([[-3.0, 0.0], [0.0, 0.0]])
    >>> found = coefficients(full=full, bias=-0.5 * full, new=new, alpha=0.5, shares=torch.tensor([0.5, 0.5]))
    >>> found.sic.tolist(), found.cic.tolist(), found.nic.tolist()
    ([0.125, 0.25], [-0.0, -0.0], [1.5, -0.0])
    """
    f, b = full.double().flatten(1), bias.double().flatten(1)
    p = torch.as_tensor(shares).to(f)
    everyone = p @ b  # per class below: at 200 classes one more array of this kind is 20 MB, and costs more than the arithmetic
    others = torch.stack([(everyone - share * own) @ target for share, own, target in zip(p, b, f, strict=True)])
    rows, new_rows = _class_rows(full, new[None], nodes)
    products = Products(
        own=torch.linalg.vecdot(b, f),
        others=others,
        new=f @ new.double().flatten(),
        new_within=_row_products(rows, new_rows)[:, 0],
        length=divisors(f, rounding),
        length_within=divisors(rows, rounding),
    )
    return terms(products, alpha, p)


def method_coefficients(
    *,
    full: Tensor,
    past: Tensor,
    new: Tensor,
    alpha: float,
    shares: Tensor,
    nodes: Tensor | None = None,
    rounding: Tensor | None = None,
) -> Coefficients:
    """One probe's terms of a method: what its updates do, against what replay of all past images would do.

    full [P, k, d + 1]: f_c, the mean gradients of cross-entropy over D_c: what is forgotten, whatever the network learns by.
    past [P, k, d + 1]: u_c, the part of a batch's expected gradient that rehearsed images of class c have in it;
    new [k, d + 1]: u_new, that of images of new classes. With v_c = u_c - alpha p_c f_c the terms of class c are
    SIC -<v_c, f_c> / ||f_c||, CIC -<sum of v_y over past y != c, f_c> / ||f_c|| and NIC, in row c, -<u_new, f_c> / ||f_c||.

    Under replay u_c = alpha p_c (f_c + b_c) and u_new = (1 - alpha) g_new, so these are the paper's. What is subtracted is the
    same under every method, so terms of two methods in one network differ by what their updates differ in, projected on f_c.

    >>> import torch
    >>> full, new = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]), torch.tensor([[-3.0, 0.0], [0.0, 0.0]])
    >>> given = {"full": full, "new": 0.5 * new, "alpha": 0.5, "shares": torch.ones(1)}
    >>> method_coefficients(past=0.5 * full, **given).nic  # replay of all images: what is new pushes class 0 down
    tensor([1.5000], dtype=torch.float64)
    >>> method_coefficients(past=0.0 * full, **given).sic  # no rehearsal at all: nothing holds it up
    tensor([0.5000], dtype=torch.float64)
    """
    replayed = alpha * torch.as_tensor(shares).to(full)[:, None, None] * full
    bias, everyone = (past - replayed) / alpha, torch.ones(len(full))
    return coefficients(
        full=full, bias=bias, new=new / (1 - alpha), alpha=alpha, shares=everyone, nodes=nodes, rounding=rounding
    )


@dataclass(frozen=True)
class Products:
    """Inner products with f_c over some parameters S, and what to divide them by; each [P] in float64.

    `within`: over those of the parameters through which class c's logit is computed. In the last layer that is L_c, row c of
    the head; in all layers it is row c and everything before the head."""

    own: Tensor  # <b_c, f_c>
    others: Tensor  # <sum of p_y b_y over past y != c, f_c>
    new: Tensor  # <g_new, f_c>
    new_within: Tensor
    length: Tensor  # ||f_c||, NaN where it vanishes: `divisors`
    length_within: Tensor


def terms(products: Products, alpha: float, shares: Tensor) -> Coefficients:
    """One probe's terms: each is a weight times Interf_c. The lemma weights the three sources by these."""
    return Coefficients(
        sic=-alpha * shares * products.own / products.length,
        cic=-alpha * products.others / products.length,
        nic=-(1 - alpha) * products.new_within / products.length_within,
        all_nic=-(1 - alpha) * products.new / products.length,
    )


def past_interference(full: Tensor, bias: Tensor, alpha: float, shares: Tensor, rounding: Tensor | None = None) -> Tensor:
    """[P, P]: what the rehearsal bias of class y (column) does to class c (row). Diagonal: SIC; rest of a row: CIC."""
    f, b = full.double().flatten(1), bias.double().flatten(1)
    return alpha * torch.as_tensor(shares).to(f) * interference(b, f, rounding)


def new_interference(
    full: Tensor, new: Tensor, shares: Tensor, alpha: float, nodes: Tensor | None = None, rounding: Tensor | None = None
) -> Tensor:
    """[P, N]: what each of N sources of new data does to class c within row c of the head. A row adds up to NIC.

    new [N, k, d + 1]: the sources' mean gradients; shares [N]: each source's share of the new images.
    """
    f, v = _class_rows(full, new, nodes)
    return -(1 - alpha) * torch.as_tensor(shares).to(f) * _row_products(f, v) / divisors(f, rounding)[:, None]


def released_nic(
    full: Tensor, new: Tensor, alpha: float, nodes: Tensor | None = None, rounding: Tensor | None = None
) -> Tensor:
    """[P]: NIC as the paper's released scripts compute it in second steps; arguments as those of `coefficients`.

    They take the head's gradient as one vector, weights row by row and then biases, and look for the bias of node c where it
    was before the head grew: P d + c, counted from 0. In the grown head that is a weight of the first new class (of a later one
    if c >= d), so row c goes with a stranger in place of its bias, in f_c and in g_new alike.
    """
    f, v = _class_rows(full, new[None], nodes)
    past, heads, width = torch.arange(len(full)), full.shape[1], full.shape[2] - 1
    at = len(full) * width + (past if nodes is None else nodes.cpu())
    is_weight = at < heads * width
    row = torch.where(is_weight, at // width, at - heads * width)
    column = torch.where(is_weight, at % width, width)
    f[:, -1] = full[past, row, column].double()
    v[:, 0, -1] = new[row, column].double()
    return -(1 - alpha) * _row_products(f, v)[:, 0] / divisors(f, rounding)


def _class_rows(full: Tensor, new: Tensor, nodes: Tensor | None) -> tuple[Tensor, Tensor]:
    """f_c [P, d + 1] and the N sources' gradients [P, N, d + 1], both restricted to L_c.

    nodes: of the classes, or marks [P, s] of the parameters that make up L_c; then only f_c is restricted: products are too."""
    if nodes is not None and nodes.dtype == torch.bool:
        return full.double().flatten(1) * nodes, new.double().flatten(1).expand(len(full), -1, -1)
    past = torch.arange(len(full), device=full.device)
    nodes = past if nodes is None else nodes.to(full.device)
    return full.double()[past, nodes], new.double()[:, nodes].transpose(0, 1)


def _row_products(f: Tensor, v: Tensor) -> Tensor:
    """[P, N]"""
    return torch.einsum("pnd,pd->pn", v, f)


def interference(v: Tensor, f: Tensor, rounding: Tensor | None = None) -> Tensor:
    """Interf_c(v) = -<v, f_c> / ||f_c||, for vectors v [V, s] and class gradients f [P, s] -> [P, V]."""
    return -(f @ v.T) / divisors(f, rounding)[:, None]


def norms(vectors: Tensor) -> Tensor:
    """Euclidean norms [...] of vectors [..., s]; also of those whose squares are too small for floating point."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    tiny = lengths < torch.finfo(vectors.dtype).tiny ** 0.5
    if bool(tiny.any()):
        scale = vectors.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)
        lengths = torch.where(tiny, torch.linalg.vector_norm(vectors / scale, dim=-1) * scale[..., 0], lengths)
    return lengths


def divisors(f: Tensor, rounding: Tensor | None) -> Tensor:
    """Norms [P] of f [P, s]; NaN where a gradient vanishes."""
    lengths = norms(f)
    vanishing = lengths <= (torch.zeros_like(lengths) if rounding is None else rounding.to(lengths))
    return lengths.masked_fill(vanishing, torch.nan)
