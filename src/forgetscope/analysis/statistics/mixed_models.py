"""Linear mixed models from sufficient sums: y ~ 1 + x with a random intercept and random slopes per group.

For group i with rows (1, x) = X_i the model is y_i = X_i (beta + b_i) + e_i, b_i ~ N(0, sigma² Psi), e_i ~ N(0, sigma² I), with
an unstructured Psi, fitted by restricted maximum likelihood. X'X, X'y, y'y and n of each group say all that the likelihood
knows: a fit costs the same for 10 and for 10,000 rows, and leaving a group out is a weight of zero. The estimates follow every
shift and scale of predictors and response, so standardising on a training part changes no prediction.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forgetscope.analysis.statistics.restricted_likelihood import LEFT, Batch, Groups, Maximum, maximise, start_near
from forgetscope.errors import InputError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]

ALIASED = 1e-10  # share of a predictor's variance that is left beside those before it and counts as none
EXACT = 1e-13  # share of the response's sum of squares that counts as no residual
CHUNK = 256  # fits at a time: bounds memory
STARTS = (1.0, 10.0, 0.2)  # sizes of random effects, in units of how well a group shows its own


@dataclass(frozen=True)
class GroupSums(Batch):
    """Sufficient statistics of every group, of predictors and response in units of `location` and `scale`."""

    xx: Array  # [..., groups, p, p], p = 1 + predictors; the first column of X is 1
    xy: Array  # [..., groups, p]
    yy: Array  # [..., groups]
    location: Array  # [..., p]: of the predictors, then of the response; the same for all groups of a problem
    scale: Array  # [..., p]

    @property
    def n(self) -> Array:
        """[..., groups]: rows of each group."""
        return self.xx[..., 0, 0]

    def spread(self, weights: ArrayLike = 1.0) -> Array:
        """[..., p]: standard deviations (ddof 0) of the predictors, then of the response, over the rows of weighted groups."""
        w = np.asarray(weights, np.float64) * np.ones(self.yy.shape[-1])
        xx, xy = (w[..., None, None] * self.xx).sum(axis=-3), (w[..., None] * self.xy).sum(axis=-2)
        n = np.maximum(xx[..., 0, 0], 1)[..., None]
        squares = np.diagonal(xx, axis1=-2, axis2=-1)[..., 1:]
        squares = np.concatenate([squares, (w * self.yy).sum(axis=-1)[..., None]], axis=-1)
        means = np.concatenate([xx[..., 0, 1:], xy[..., :1]], axis=-1) / n
        spread: Array = np.sqrt(np.maximum(squares / n - means**2, 0)) * self.scale
        return spread


def group_sums(x: ArrayLike, y: ArrayLike) -> GroupSums:
    """Of x [..., groups, rows, predictors] and y [..., groups, rows]; only rows without NaN count, so groups can be padded."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.ndim < 3 or x.shape[-3:-1] != y.shape[-2:]:
        raise InputError(
            f"x has the shape {x.shape} and y {y.shape}; expected [..., groups, rows, predictors] and [..., groups, rows]. "
            f"Pad groups that have fewer rows with NaN."
        )
    lead = np.broadcast_shapes(x.shape[:-3], y.shape[:-2])
    y = np.broadcast_to(y, (*lead, *y.shape[-2:]))[..., None]
    rows = np.concatenate([np.broadcast_to(x, (*lead, *x.shape[-3:])), y], axis=-1)
    known = np.isfinite(rows).all(axis=-1)[..., None]
    n = np.maximum(known.sum(axis=(-3, -2)), 1)
    location = np.where(known, rows, 0.0).sum(axis=(-3, -2)) / n
    # Around the mean and in units of the spread: sums of squares of the values themselves lose the digits that matter.
    rows = np.where(known, rows - location[..., None, None, :], 0.0)
    scale = np.sqrt((rows**2).sum(axis=(-3, -2)) / n)
    scale = np.where(scale > 1e-13 * np.abs(location), scale, np.inf)  # rounding of a mean is no spread
    rows = np.concatenate([known, rows / scale[..., None, None, :]], axis=-1)
    products = np.swapaxes(rows, -1, -2) @ rows
    scale = np.where(np.isfinite(scale), scale, 1.0)
    return GroupSums(products[..., :-1, :-1], products[..., :-1, -1], products[..., -1, -1], location, scale)


@dataclass(frozen=True)
class MixedFit(Batch):
    """Fits of many problems, [...] each. p = 1 + predictors, the intercept first; in the units of the data.

    A predictor that is constant or determined by those before it is left out (`used`), its effect is 0. A group alone has no
    random effects. With no more rows than effects, everything is NaN. Where predictors explain the response exactly there is no
    maximum: sigma2 is 0, the likelihood infinite, and the fit has not converged."""

    fixed: Array  # [..., p]
    fixed_covariance: Array  # [..., p, p]: of these estimates
    covariance: Array  # [..., p, p]: of the random effects
    sigma2: Array  # [...]
    log_likelihood: Array  # [...]: restricted, with the constant of statsmodels
    standardised: Array  # [..., predictors]: effects in standard deviations of the response per one of the predictor
    used: Flags  # [..., p]
    converged: Flags  # [...]: no step, within the boundary or away from it, promises more likelihood
    boundary: Flags  # [...]: the covariance of the random effects is singular, a solution like any other

    def predict(self, x: ArrayLike) -> Array:
        """[..., rows]: by the fixed effects, for x [..., rows, predictors]."""
        slopes: Array = np.einsum("...rk,...k->...r", np.asarray(x, np.float64), self.fixed[..., 1:])
        return self.fixed[..., :1] + slopes


def fit(sums: GroupSums, weights: ArrayLike | None = None, near: MixedFit | None = None) -> MixedFit:
    """Restricted maximum likelihood for every problem, the best of several starts.

    weights: [..., groups], 0 for a group that is left out, else 1; leading dimensions broadcast with those of the sums.
    near: fits of similar problems, [...]; the search then starts from their covariances, elsewhere only if that fails."""
    own, count = sums.yy.shape[:-1], sums.yy.shape[-1]
    w = np.ones(count) if weights is None else np.asarray(weights, np.float64)
    lead = np.broadcast_shapes(own, w.shape[:-1])
    problems = np.broadcast_to(np.arange(math.prod(own)).reshape(own), lead).ravel()
    w = np.broadcast_to(w, (*lead, count)).reshape(-1, count)
    flat = GroupSums(**{f.name: (a := getattr(sums, f.name)).reshape(-1, *a.shape[len(own) :]) for f in fields(sums)})
    p = flat.xy.shape[-1]
    relative = np.full((len(w), p, p), np.nan)
    if near is not None:
        usable = near.converged & (near.sigma2 > 0)
        covariance = near.covariance / np.where(usable, near.sigma2, np.nan)[..., None, None]
        relative[:] = np.broadcast_to(covariance, (*lead, p, p)).reshape(-1, p, p)
    result = _nothing(len(w), p)
    for begin in range(0, len(w), CHUNK):
        part = slice(begin, begin + CHUNK)
        _fit_part(result[part], flat, w[part], problems[part], relative[part])
    return MixedFit(**{f.name: (a := getattr(result, f.name)).reshape((*lead, *a.shape[1:])) for f in fields(result)})


@dataclass(frozen=True)
class HeldOut:
    """Every step predicted from the others of its partition."""

    predictions: Array  # [..., groups, rows]: by the fixed effects; NaN where a predictor is unknown
    fits: MixedFit  # [..., groups]: without the group


def leave_one_out(x: ArrayLike, y: ArrayLike) -> HeldOut:
    """For x [..., groups, rows, predictors] and y [..., groups, rows]: each group's rows by a fit to the other groups.

    A row whose response is unknown is predicted too; it takes no part in any fit."""
    x = np.asarray(x, np.float64)
    sums = group_sums(x, y)
    whole = fit(sums)
    once_per_group = (*(slice(None) for _ in whole.sigma2.shape), None)
    fits = fit(sums[once_per_group], 1.0 - np.eye(sums.yy.shape[-1]), near=whole[once_per_group])
    return HeldOut(fits.predict(x), fits)


def _nothing(count: int, p: int) -> MixedFit:
    def unknown(*shape: int) -> Array:
        return np.full((count, *shape), np.nan)

    return MixedFit(
        fixed=unknown(p),
        fixed_covariance=unknown(p, p),
        covariance=unknown(p, p),
        sigma2=unknown(),
        log_likelihood=unknown(),
        standardised=unknown(p - 1),
        used=np.zeros((count, p), bool),
        converged=np.zeros(count, bool),
        boundary=np.zeros(count, bool),
    )


def _fit_part(result: MixedFit, flat: GroupSums, w: Array, problems: Indices, relative: Array) -> None:
    """Fit problems with the same distinguishable predictors together, and write into `result`."""
    total = np.einsum("bg,bgij->bij", w, flat.xx[problems])
    used = _not_aliased(total)
    enough = total[:, 0, 0] > used.sum(axis=1)
    for pattern in np.unique(used[enough], axis=0):
        chosen = np.flatnonzero(enough & (used == pattern).all(axis=1))
        columns = np.flatnonzero(pattern)
        found = _fit_columns(flat, w[chosen], problems[chosen], relative[chosen], columns)
        spread = flat[problems[chosen]].spread(w[chosen])
        spread[:, -1] = np.where(spread[:, -1] > 0, spread[:, -1], np.nan)
        found.standardised[:] = found.fixed[:, 1:] * spread[:, :-1] / spread[:, -1:]
        result[chosen] = found


def _not_aliased(total: Array) -> Flags:
    """[batch, p]: which columns of X those before them do not determine, from X'X."""
    rest = total.copy()
    size = np.maximum(np.diagonal(total, axis1=-2, axis2=-1), 1e-300)
    used = np.zeros(size.shape, bool)
    for c in range(total.shape[-1]):
        pivot = rest[:, c, c].copy()
        used[:, c] = pivot > ALIASED * size[:, c]
        column = np.where(used[:, c, None], rest[:, :, c], 0.0)
        rest -= column[:, :, None] * column[:, None, :] / np.where(used[:, c], pivot, 1.0)[:, None, None]
    return used


def _fit_columns(flat: GroupSums, w: Array, problems: Indices, relative: Array, columns: Indices) -> MixedFit:
    """Fit some columns of X, in units in which the average X'X of a problem's groups is the identity."""
    own, which = np.unique(problems, return_inverse=True)
    q = len(columns)
    xx, xy, yy = flat.xx[own][:, :, columns[:, None], columns], flat.xy[own][:, :, columns], flat.yy[own]
    filled = np.maximum((xx[..., 0, 0] > 0).sum(axis=1), 1)[:, None, None]
    whiten = np.swapaxes(np.linalg.inv(np.linalg.cholesky(xx.sum(axis=1) / filled)), -1, -2)  # [own, q, q]
    to_data = _from_standard(flat.location[own], flat.scale[own], columns) @ whiten  # effects in these units to the data's
    xx = np.swapaxes(whiten, -1, -2)[:, None] @ xx @ whiten[:, None]
    xy = (xy[..., None, :] @ whiten[:, None])[..., 0, :]
    r, d, rank = _factors(xx, xy)
    rest = np.maximum(yy - np.sum(d**2, axis=-1), 0.0)
    factors = np.concatenate([r, d[..., None]], axis=-1).transpose(2, 3, 0, 1)[:, :, which]
    n = (w * flat.n[problems]).sum(axis=1)
    groups = Groups(np.ascontiguousarray(factors), (w * rest[which]).sum(axis=1), w, n - q)
    to_data, response = to_data[which], flat.scale[problems, -1]

    squares = (w * yy[which]).sum(axis=1)
    plain, right = np.einsum("bg,bgij->bij", w, xx[which]), np.einsum("bg,bgi->bi", w, xy[which])
    least_squares = np.linalg.solve(plain, right[..., None])[..., 0]
    left = squares - np.sum(least_squares * right, axis=1)
    exact = left <= EXACT * squares
    exact |= (groups.rest <= EXACT * squares) & (n > (w * rank[which]).sum(axis=1))  # within every group

    found = _nothing(len(w), flat.xy.shape[-1])
    found.used[:, columns] = True
    found.fixed[:], found.covariance[:], found.fixed_covariance[:] = 0, 0, 0
    found.sigma2[:], found.log_likelihood[:] = 0, np.inf
    beta = least_squares
    searched = np.flatnonzero(~exact)
    if len(searched):
        back = np.linalg.inv(to_data[searched])
        near = back @ relative[searched][:, columns[:, None], columns] @ np.swapaxes(back, -1, -2)
        best = _search(groups[searched], near)
        point, freedom, unit = best.point, groups.freedom[searched], response[searched]
        beta[searched] = point.beta
        sigma2 = point.residual / freedom * unit**2
        outward = to_data[searched] * np.sqrt(sigma2)[:, None, None]
        psi = point.factor @ np.swapaxes(point.factor, -1, -2)
        within = np.ix_(searched, columns, columns)
        found.covariance[within] = outward @ psi @ np.swapaxes(outward, -1, -2)
        found.fixed_covariance[within] = outward @ point.precision_inverse @ np.swapaxes(outward, -1, -2)
        found.sigma2[searched] = sigma2
        constant = 0.5 * freedom * (np.log(2 * np.pi) + 1 - np.log(freedom))
        units = np.linalg.slogdet(to_data[searched])[1] - freedom * np.log(unit)
        found.log_likelihood[searched] = units - constant - point.value
        found.converged[searched], found.boundary[searched] = best.converged, best.boundary
    found.fixed[:, columns] = (to_data @ beta[..., None])[..., 0] * response[:, None]
    found.fixed[:, 0] += flat.location[problems, -1]
    return found


def _from_standard(location: Array, scale: Array, columns: Indices) -> Array:
    """[batch, q, q]: effects of standardised predictors to effects of the predictors as they are."""
    q, predictors = len(columns), columns[1:] - 1
    out = np.zeros((len(location), q, q))
    out[:, 0, 0] = 1
    out[:, np.arange(1, q), np.arange(1, q)] = 1 / scale[:, predictors]
    out[:, 0, 1:] = -location[:, predictors] / scale[:, predictors]
    return out


def _factors(xx: Array, xy: Array) -> tuple[Array, Array, Array]:
    """R, d and the rank of each group: R'R = X'X, R'd = X'y, for groups with fewer rows than columns too."""
    values, vectors = np.linalg.eigh(xx)
    seen = values > 1e-12 * np.maximum(values[..., -1:], 1e-300)
    stretch = np.sqrt(np.where(seen, values, 0.0))
    r = stretch[..., :, None] * np.swapaxes(vectors, -1, -2)
    d = np.einsum("bgij,bgi->bgj", vectors, xy) / np.where(seen, stretch, np.inf)
    return r, d, seen.sum(axis=-1)


def _search(groups: Groups, near: Array) -> Maximum:
    """From the covariances that are given, and from several starts where there is none or it leads nowhere."""
    p = near.shape[-1]
    given = np.isfinite(near).all(axis=(1, 2))
    others = np.flatnonzero(~given)
    which = np.concatenate([np.flatnonzero(given), np.repeat(others, len(STARTS))])
    plain = np.stack([size * np.eye(p) for size in STARTS])
    start = np.concatenate([start_near(near[given]), np.tile(plain, (len(others), 1, 1))])
    present = (np.abs(groups.factors[:, :p]).max(axis=(0, 1)) > 0) & (groups.weights > 0)
    start[present.sum(axis=1)[which] < 2] = 0  # one group alone says nothing about differences: none are assumed
    found = maximise(groups[which], start)
    order = np.lexsort((found.point.value + LEFT * ~found.converged, which))
    best = found[order[np.unique(which[order], return_index=True)[1]]]
    lost = np.flatnonzero(given & ~best.converged)
    if len(lost):
        best[lost] = _search(groups[lost], np.full_like(near[lost], np.nan))
    return best
