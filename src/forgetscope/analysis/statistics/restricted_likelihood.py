"""The restricted likelihood of linear mixed models and its maximum, for many small problems in one batch.

A group's X'X = R'R and X'y = R'd stand for its rows. With Psi = L L' the covariance of the random effects relative to sigma²,
M_i = I + R_i Psi R_i' and beta and sigma² at their best values, the criterion to minimise is

    f(L) = 1/2 [ (N - p) log s + sum_i log|M_i| + log|A| ],   A = sum_i A_i,   A_i = R_i' M_i^-1 R_i,
    s = sum_i rest_i + sum_i (d_i - R_i beta)' M_i^-1 (d_i - R_i beta),

minus the restricted log-likelihood up to a constant (Laird and Ware 1982; Lindstrom and Bates 1988). Its gradient and Hessian
are exact: with u_i = R_i' M_i^-1 (d_i - R_i beta) and a change D of Psi,

    dA_i = -A_i D A_i,   ds = -sum_i u_i' D u_i,   df = <G, D>,   2 G = A - sum_i A_i A^-1 A_i - (N - p)/s sum_i u_i u_i'.

L is free, so a singular Psi is no edge of the search; Psi is the best of all exactly if G L = 0 and G has no negative
eigenvalue. Units are chosen so that the average R'R of a group is the identity.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROUNDS = 200  # evaluations until a search counts as lost; ten are usual
GAIN = 1e-10  # a search ends where a Newton step promises less log-likelihood than this
LEFT = 1e-8  # what a step away from the boundary, or a last step that rounding stops, may promise at most
SMALL = 1e-4  # random effects with less variance than this, in units of how well a group shows its own, may be none
ESCAPES = 4


@dataclass(frozen=True)
class Groups:
    """Problems in a batch. A group that is left out has weight 0."""

    factors: Array  # [p, p + 1, batch, groups]: R_i, and d_i as last column
    rest: Array  # [batch]: sum over the groups of y'y - d'd
    weights: Array  # [batch, groups]
    freedom: Array  # [batch]: N - p

    def __getitem__(self, index: NDArray[np.int64]) -> Groups:
        return Groups(self.factors[:, :, index], self.rest[index], self.weights[index], self.freedom[index])


class Batch:
    """A dataclass of arrays with one entry per problem, indexed and assigned together."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __getitem__(self, index: object) -> Self:
        return type(self)(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def __setitem__(self, index: object, other: Self) -> None:
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(other, field.name)


@dataclass
class Point(Batch):
    """The criterion at L, and what follows from it."""

    factor: Array  # [batch, p, p]: L, lower triangular
    value: Array  # [batch]: f
    beta: Array  # [batch, p]
    residual: Array  # [batch]: s
    precision_inverse: Array  # [batch, p, p]: A^-1
    slope: Array  # [batch, p, p]: G
    gradient: Array  # [batch, k]: of f in the entries of L on and below the diagonal
    hessian: Array  # [batch, k, k]
    squares: Array  # [batch, p², p²]: sum_i of the products of entries of A_i


@dataclass
class Maximum(Batch):
    """Where the searches ended."""

    point: Point
    converged: NDArray[np.bool_]
    boundary: NDArray[np.bool_]


def maximise(groups: Groups, start: Array) -> Maximum:
    """Newton's method from L = start [batch, p, p], every problem at its own pace; a step that does not help is shortened."""
    count = len(start)
    best = evaluate(groups, start)
    converged = np.zeros(count, bool)
    active = np.arange(count)
    here, part = best[active], groups
    direction, gain = _newton(here)
    length, escapes = np.ones(count), np.zeros(count, np.int64)
    for _ in range(ROUNDS):
        finished = gain < GAIN
        stuck = length < 1e-9
        ended = finished | stuck
        if ended.any():
            away, promise = _away_from_boundary(here)
            ended_well = ended & (gain < LEFT) & (promise < LEFT)
            converged[active[ended_well]] = True
            again = finished & (promise >= LEFT) & (escapes < ESCAPES)
            if again.any():  # a saddle: Psi is singular in a direction in which it should not be
                _keep_better(best, active[again], here[again])
                here[again] = evaluate(part[np.flatnonzero(again)], away[again])
                direction[again], gain[again] = _newton(here[again])
                length[again], escapes[again] = 1.0, escapes[again] + 1
            ended &= ~again
            _keep_better(best, active[ended], here[ended])
            kept = np.flatnonzero(~ended)
            if not len(kept):
                break
            if len(kept) < len(active):
                active, here, part = active[kept], here[kept], part[kept]
                direction, gain, length, escapes = direction[kept], gain[kept], length[kept], escapes[kept]
        trial = evaluate(part, here.factor + length[:, None, None] * direction)
        better = trial.value <= here.value  # never true for NaN
        here[better] = trial[better]
        direction[better], gain[better] = _newton(here[better])
        length = np.where(better, 1.0, length / 4)
    else:
        _keep_better(best, active, here)
    return Maximum(best, converged, _settle_on_boundary(groups, best))


def evaluate(groups: Groups, factor: Array) -> Point:
    """Value, gradient and Hessian at L = factor, [batch, p, p]."""
    p = factor.shape[-1]
    w, freedom = groups.weights, groups.freedom
    solved, log_m = _solve(groups.factors, factor)
    pieces = np.einsum("kabg,kcbg->bgac", solved[:, :p], solved[:, :p])  # A_i
    flat = pieces.reshape(*w.shape, p * p)
    total = (w[:, None, :] @ flat).reshape(-1, p, p)
    inverse = np.linalg.inv(total)
    beta = (inverse @ np.einsum("bg,kabg,kbg->ba", w, solved[:, :p], solved[:, p])[..., None])[..., 0]
    error = solved[:, p] - np.einsum("kabg,ba->kbg", solved[:, :p], beta)
    residual = groups.rest + np.einsum("bg,kbg->b", w, error**2)
    value = 0.5 * (freedom * np.log(residual) + (w * log_m).sum(axis=1) + np.linalg.slogdet(total)[1])

    score = np.einsum("kabg,kbg->bga", solved[:, :p], error)  # u_i
    outer = score[..., :, None] * score[..., None, :]
    ratio = (freedom / residual)[:, None, None, None]
    nested = (pieces.reshape(len(w), -1, p) @ inverse).reshape(pieces.shape) @ pieces  # A_i A^-1 A_i
    slope = 0.5 * (total - np.einsum("bg,bgij->bij", w, nested + ratio * outer))

    # Second derivatives, for changes D and E of Psi, are sums over groups of products of entries; three of them in one product.
    mixture = 2 * (nested + ratio * outer) - pieces
    left = np.concatenate([mixture.reshape(flat.shape), flat, score], axis=-1) * w[..., None]
    sums = np.swapaxes(left, -1, -2) @ flat
    crossed, squares, scored = sums[:, : p * p], sums[:, p * p : 2 * p * p], sums[:, 2 * p * p :]
    jacobian = _jacobian(factor)  # [batch, p², k]: dPsi / dL
    # tr(P_i D A_i E) = P[a, b] D[b, c] A[c, d] E[d, a]
    hessian = _turned(crossed, p) @ jacobian
    hessian = np.swapaxes(jacobian, -1, -2) @ hessian
    moved = (_turned(squares, p) @ jacobian).reshape(len(w), p, p, -1)  # sum_i A_i D A_i
    moved = np.einsum("bij,bjlk->bilk", inverse, moved)
    hessian -= np.einsum("bijk,bjil->bkl", moved, moved)
    pushed = np.swapaxes(scored.reshape(-1, p, p, p), 1, 2).reshape(-1, p, p * p) @ jacobian  # sum_i A_i D u_i
    hessian -= 2 * ratio[..., 0] * (np.swapaxes(pushed, -1, -2) @ inverse @ pushed)
    change = np.einsum("bx,bxk->bk", np.einsum("bg,bgij->bij", w, outer).reshape(-1, p * p), jacobian)
    hessian -= (ratio[..., 0] / residual[:, None, None]) * change[:, :, None] * change[:, None, :]
    rows, columns = _lower_indices(p)
    hessian = 0.5 * hessian + 2 * slope[:, rows[:, None], rows] * (columns[:, None] == columns)
    gradient = 2 * (slope @ factor)[:, rows, columns]
    return Point(factor, value, beta, residual, inverse, slope, gradient, hessian, squares)


def start_near(covariance: Array) -> Array:
    """L close to that of a relative covariance [batch, p, p], and never singular: a saddle holds whoever starts on it."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.01))[:, None, :]
    return _lower(root)


def _solve(factors: Array, lower: Array) -> tuple[Array, Array]:
    """C_i^-1 [R_i, d_i] as [p, p + 1, batch, groups] and log|M_i| as [batch, groups], where C_i C_i' = M_i = I + R_i L L' R_i'.

    Written over the entries of the small matrices, so that every operation runs over all groups of all problems."""
    p = len(factors)
    columns = []
    for c in range(p):
        column = factors[:, c] * lower[:, c, c, None]
        for r in range(c + 1, p):
            column += factors[:, r] * lower[:, r, c, None]
        columns.append(column)  # of R_i L
    product: list[Array] = []
    for j in range(p):
        entry = columns[0][j:] * columns[0][j]
        for column in columns[1:]:
            entry += column[j:] * column[j]
        entry[0] += 1
        product.append(entry)
    solved = factors.copy()
    determinant = np.ones(factors.shape[2:])
    for j in range(p):
        determinant *= product[j][0]
        root = np.sqrt(product[j][0])
        column = product[j] / root
        solved[j] /= root
        for k in range(j + 1, p):
            product[k] -= column[k - j :] * column[k - j]
            solved[k] -= column[k - j] * solved[j]
    return solved, np.log(determinant)


def _jacobian(lower: Array) -> Array:
    """[batch, p², k]: the change of Psi = L L' with each entry of L on and below the diagonal."""
    p = lower.shape[-1]
    rows, columns = _lower_indices(p)
    one_sided = np.zeros((len(lower), p, p, len(rows)))
    one_sided[:, rows, :, np.arange(len(rows))] = np.moveaxis(lower[:, :, columns], 2, 0)
    return (one_sided + np.swapaxes(one_sided, 1, 2)).reshape(len(lower), p * p, -1)


def _turned(sums: Array, p: int) -> Array:
    """[batch, p², p²]: what is at ab, cd goes to ad, bc."""
    return sums.reshape(-1, p, p, p, p).transpose(0, 1, 4, 2, 3).reshape(-1, p * p, p * p)


def _newton(point: Point) -> tuple[Array, Array]:
    """A step [batch, p, p] downhill, and half its slope: the decrease that the curvature promises.

    Negative curvature counts by its size: the step leads away from saddles."""
    values, vectors = np.linalg.eigh(point.hessian)
    size = np.abs(values)
    size = np.maximum(size, 1e-9 * size.max(axis=-1, keepdims=True, initial=0) + 1e-300)
    along = np.einsum("bij,bi->bj", vectors, point.gradient)
    step = -np.einsum("bij,bj->bi", vectors, along / size)
    gain = 0.5 * np.sum(along**2 / size, axis=-1)
    reach = 1 + np.linalg.norm(point.factor, axis=(1, 2))
    step *= np.minimum(1, reach / np.maximum(np.linalg.norm(step, axis=1), 1e-300))[:, None]
    matrix = np.zeros_like(point.factor)
    matrix[:, *_lower_indices(matrix.shape[-1])] = step
    return matrix, gain


def _away_from_boundary(point: Point) -> tuple[Array, Array]:
    """L with variance added in the direction where G is lowest, and the log-likelihood that this promises; 0 if none."""
    p = point.factor.shape[-1]
    values, vectors = np.linalg.eigh(point.slope)
    lowest, v = np.minimum(values[:, 0], 0), vectors[:, :, 0]
    outer = (v[:, :, None] * v[:, None, :]).reshape(-1, p * p)
    curvature = 0.5 * np.einsum("bx,bxy,by->b", outer, point.squares, outer)
    curvature = np.maximum(curvature, 1e-300)
    variance = -lowest / curvature
    added = np.concatenate([point.factor, (np.sqrt(variance)[:, None] * v)[..., None]], axis=-1)
    return _lower(added), 0.5 * lowest**2 / curvature


def _settle_on_boundary(groups: Groups, best: Point) -> NDArray[np.bool_]:
    """Whether a singular Psi is as likely; if so it takes the place of the nearly singular one that the search came to."""
    values, vectors = np.linalg.eigh(best.factor @ np.swapaxes(best.factor, -1, -2))
    candidates = np.flatnonzero((values < SMALL).any(axis=1))
    boundary = np.zeros(len(values), bool)
    if len(candidates):
        values, vectors = values[candidates], vectors[candidates]
        root = vectors * np.sqrt(np.where(values < SMALL, 0, values))[:, None, :]
        settled = evaluate(groups[candidates], _lower(root))
        as_good = settled.value <= best.value[candidates] + LEFT
        best[candidates[as_good]] = settled[as_good]
        boundary[candidates[as_good]] = True
    return boundary


def _keep_better(best: Point, index: NDArray[np.int64], found: Point) -> None:
    better = ~(best.value[index] < found.value)
    best[index[better]] = found[better]


@cache
def _lower_indices(p: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns on and below the diagonal; asked for in every round."""
    return np.tril_indices(p)


def _lower(root: Array) -> Array:
    """Lower triangular L with L L' = root root'."""
    return np.swapaxes(np.linalg.qr(np.swapaxes(root, -1, -2), mode="r"), -1, -2)[..., : root.shape[-2]]
