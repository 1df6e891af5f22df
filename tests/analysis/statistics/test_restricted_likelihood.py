from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from forgetscope.analysis.statistics.restricted_likelihood import Groups, evaluate, maximise, start_near

Array = NDArray[np.float64]


def problems(seed: int, batch: int = 3, groups: int = 6, p: int = 3) -> Groups:
    rng = np.random.default_rng(seed)
    return Groups(
        factors=rng.normal(size=(p, p + 1, batch, groups)),
        rest=rng.random(batch) + 1,
        weights=(rng.random((batch, groups)) < 0.9).astype(float),
        freedom=rng.integers(20, 40, batch).astype(float),
    )


def by_definition(groups: Groups, lower: Array, b: int) -> float:
    """f(L) with inverses and determinants as in the formula."""
    psi, p = lower @ lower.T, len(lower)
    precision, right, logs = np.zeros((p, p)), np.zeros(p), 0.0
    chosen = [g for g in range(groups.weights.shape[1]) if groups.weights[b, g]]
    for g in chosen:
        r, d = groups.factors[:, :p, b, g], groups.factors[:, p, b, g]
        m = np.eye(p) + r @ psi @ r.T
        logs += np.linalg.slogdet(m)[1]
        precision += r.T @ np.linalg.inv(m) @ r
        right += r.T @ np.linalg.inv(m) @ d
    beta = np.linalg.solve(precision, right)
    s = groups.rest[b]
    for g in chosen:
        r, d = groups.factors[:, :p, b, g], groups.factors[:, p, b, g]
        s += (d - r @ beta) @ np.linalg.inv(np.eye(p) + r @ psi @ r.T) @ (d - r @ beta)
    return float(0.5 * (groups.freedom[b] * np.log(s) + logs + np.linalg.slogdet(precision)[1]))


@given(st.integers(0, 10**6), st.integers(1, 4))
@settings(max_examples=20)
def test_the_criterion_is_as_written_and_its_derivatives_are_its_differences(seed: int, p: int) -> None:
    groups = problems(seed, p=p)
    lower = np.tril(np.random.default_rng(seed + 1).normal(size=(3, p, p)))
    here = evaluate(groups, lower)
    for b in range(3):
        np.testing.assert_allclose(here.value[b], by_definition(groups, lower[b], b), rtol=1e-10)
    h = 1e-5
    for k, (r, c) in enumerate(zip(*np.tril_indices(p), strict=True)):
        change = np.zeros_like(lower)
        change[:, r, c] = h
        up, down = evaluate(groups, lower + change), evaluate(groups, lower - change)
        scale = 1 + np.abs(here.hessian).max()
        np.testing.assert_allclose((up.value - down.value) / (2 * h), here.gradient[:, k], atol=1e-7 * scale)
        np.testing.assert_allclose((up.gradient - down.gradient) / (2 * h), here.hessian[:, k], atol=1e-6 * scale)


def test_every_search_of_a_batch_ends_where_it_would_end_alone() -> None:
    groups = problems(5, batch=8, groups=15)
    start = np.broadcast_to(np.eye(3), (8, 3, 3)).copy()
    together = maximise(groups, start)
    assert together.converged.all()
    for b in range(8):
        alone = maximise(groups[np.array([b])], start[b : b + 1])
        np.testing.assert_allclose(alone.point.value[0], together.point.value[b], rtol=1e-12)


def test_a_search_that_starts_on_a_saddle_leaves_it() -> None:
    rng = np.random.default_rng(3)
    groups = problems(3, batch=1, groups=30)
    groups.factors[:, 3] += 3 * rng.normal(size=(3, 1, 30))  # large random effects
    groups.rest[:], groups.freedom[:] = 100, 187
    saddle = maximise(groups, np.zeros((1, 3, 3)))
    inside = maximise(groups, np.eye(3)[None])
    assert saddle.converged.all()
    assert not saddle.boundary.any()
    np.testing.assert_allclose(saddle.point.value, inside.point.value, atol=1e-8)


def test_a_start_near_a_singular_covariance_is_not_singular() -> None:
    covariance = np.array([[[1.0, 2.0], [2.0, 4.0]]])
    lower = start_near(covariance)
    np.testing.assert_allclose(lower @ np.swapaxes(lower, -1, -2), covariance, atol=0.011)
    assert np.linalg.matrix_rank(lower[0]) == 2
