"""Smoothness constants L_c of a class's loss: certified for two small networks, and estimated for any.

Certified means: an upper bound for the largest eigenvalue of the Hessian of a class's mean cross-entropy, over all parameters,
at every point of a ball around the present ones. Then the lemma's assumption, a quadratic upper bound, holds on every segment
from the centre that stays in the ball.

With x = [input, 1], z = A x, h = [tanh(z), 1] and logits o = B h, where W is B without its bias column, r = softmax - onehot
and S = diag(p) - p p^T. Along a direction (U, V) in (A, B) with |U|^2 + |V|^2 = 1, the loss's second derivative is
o'^T S o' + r^T o'', where

    o' = V h + W (tanh'(z) * U x)    and    o'' = 2 V_W (tanh'(z) * U x) + W (tanh''(z) * (U x)^2).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BEND = 4 / (3 * math.sqrt(3))  # largest |tanh''|
TWIST = 2.0  # largest |tanh'''|


def certified_smoothness(inputs: Tensor, node: int, hidden: Tensor | None, head: Tensor, radius: float) -> float:
    """L of the mean loss over one class's images, valid within `radius` of the parameters; float64.

    inputs [n, d]; hidden = A [units, d + 1] of a network with one layer of tanh units, None for a linear softmax model;
    head = B [k, units + 1]; the last column of both is the bias. A linear model's L holds everywhere, since S <= 1/2.
    """
    x = _with_one(inputs.double())
    form = 0.5 * x.T @ x / len(x) if hidden is None else _quadratic_form(x, node, hidden.double(), head.double(), radius)
    return float(torch.linalg.eigvalsh(form)[-1])


def _quadratic_form(x: Tensor, node: int, a: Tensor, b: Tensor, radius: float) -> Tensor:
    """M [2, 2]: the second derivative of the mean loss is at most (|V|, |U|) M (|V|, |U|)^T everywhere in the ball.

    Every factor is bounded by itself; all are non-negative, so their products and sums are bounded too."""
    z, weights = x @ a.T, b[:, :-1]
    activations = torch.tanh(z)
    slopes = 1 - activations**2
    lengths = x.norm(dim=1)
    reach = radius * lengths  # at most |z* - z|, and |h* - h|: tanh is 1-Lipschitz
    h = _with_one(activations)
    features = (h.norm(dim=1) + reach).clamp_max(math.sqrt(h.shape[1]))
    slope = (slopes.amax(dim=1) + BEND * reach).clamp_max(1)
    bend = ((2 * activations * slopes).abs().amax(dim=1) + TWIST * reach).clamp_max(BEND)
    gain = float(torch.linalg.matrix_norm(weights, 2))
    # o* - o = (B* - B) h* + W (h* - h), and the two changes of parameters share the radius.
    shift = radius * torch.sqrt(features**2 + (gain * lengths) ** 2)
    s, residual = _softmax_bounds(h @ b.T, node, shift)
    through = (gain + radius) * slope * lengths  # |W (tanh' * U x)| <= through |U|
    vv = s * features**2
    uv = s * features * through + residual * slope * lengths
    uu = s * through**2 + residual * (float(weights.norm(dim=0).max()) + radius) * bend * lengths**2
    return torch.stack([vv.mean(), uv.mean(), uv.mean(), uu.mean()]).reshape(2, 2)


def _softmax_bounds(logits: Tensor, node: int, shift: Tensor) -> tuple[Tensor, Tensor]:
    """[n] each: largest eigenvalue of S and norm of r for all logits within `shift` of these.

    A log-probability's gradient is e_i - p, so it moves by at most sqrt(2) |o* - o|; r by at most |o* - o| / 2, since S <= 1/2.
    S <= diag(p), and the absolute values in its row i add up to 2 p_i (1 - p_i) (Gershgorin)."""
    logs = torch.log_softmax(logits, dim=1)
    moved = math.sqrt(2) * shift
    likeliest = torch.exp(logs.amax(dim=1) + moved)
    wrong = -torch.expm1(logs[:, node] - moved)  # 1 - p of the true class
    by_rows = torch.where(wrong < 0.5, 2 * wrong * (1 - wrong), 0.5)
    r = torch.exp(logs)
    r[:, node] -= 1
    return torch.minimum(likeliest, by_rows), torch.minimum(math.sqrt(2) * wrong, r.norm(dim=1) + shift / 2)


def _with_one(rows: Tensor) -> Tensor:
    return torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)


def largest_curvature(
    network: nn.Module, inputs: Tensor, nodes: Tensor, iterations: int = 50, tolerance: float = 1e-3
) -> float:
    """The Hessian's eigenvalue of largest size at the present parameters, by power iteration: approached from below."""
    parameters = list(network.parameters())
    loss = F.cross_entropy(network(inputs), nodes)
    slopes = torch.cat([slope.flatten() for slope in torch.autograd.grad(loss, parameters, create_graph=True)])
    direction = torch.randn(len(slopes), generator=torch.Generator().manual_seed(0), dtype=slopes.dtype)
    size = 0.0
    for _ in range(iterations):
        products = torch.autograd.grad(slopes, parameters, direction / direction.norm(), retain_graph=True)
        direction = torch.cat([product.flatten() for product in products])
        before, size = size, float(direction.norm())
        if abs(size - before) <= tolerance * size:
            break
    return size
