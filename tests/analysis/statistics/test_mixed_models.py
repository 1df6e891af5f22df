from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from forgetscope.analysis.statistics.mixed_models import MixedFit, fit, group_sums, leave_one_out
from forgetscope.errors import InputError

Array = NDArray[np.float64]


def steps(
    seed: int, groups: int = 12, rows: int = 10, predictors: int = 2, intercept_sd: float = 0.5, slope_sd: float = 0.3
) -> tuple[Array, Array]:
    """x [groups, rows, predictors] and y [groups, rows] that follow the model."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(groups, rows, predictors))
    effects = rng.normal(size=predictors) + slope_sd * rng.normal(size=(groups, predictors))
    intercepts = 1 + intercept_sd * rng.normal(size=(groups, 1))
    return x, intercepts + np.einsum("grk,gk->gr", x, effects) + 0.4 * rng.normal(size=(groups, rows))


def statsmodels_fit(x: Array, y: Array) -> Any:
    groups, rows, _ = x.shape
    design = np.concatenate([np.ones((groups, rows, 1)), x], axis=-1).reshape(groups * rows, -1)
    with warnings.catch_warnings():
        from statsmodels.regression.mixed_linear_model import MixedLM

        warnings.simplefilter("ignore")  # after the import, which switches its own warnings on
        return MixedLM(y.ravel(), design, np.repeat(np.arange(groups), rows), exog_re=design).fit(reml=True)


def likelihood(x: Array, y: Array, covariance: Array, sigma2: float) -> float:
    """The restricted log-likelihood from the covariance matrix of all rows; rows without NaN only."""
    precision, right, value, p = 0.0, 0.0, 0.0, x.shape[-1] + 1
    parts = []
    for rows, response in zip(x, y, strict=True):
        known = np.isfinite(response) & np.isfinite(rows).all(axis=1)
        design = np.column_stack([np.ones(known.sum()), rows[known]])
        v = design @ covariance @ design.T + sigma2 * np.eye(len(design))
        parts.append((design, response[known], np.linalg.inv(v)))
        value -= 0.5 * np.linalg.slogdet(v)[1]
        precision = precision + design.T @ parts[-1][2] @ design
        right = right + design.T @ parts[-1][2] @ response[known]
    beta = np.linalg.solve(precision, right)
    for design, response, inverse in parts:
        value -= 0.5 * (response - design @ beta) @ inverse @ (response - design @ beta)
    n = sum(len(response) for _, response, _ in parts)
    return float(value - 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * (n - p) * math.log(2 * math.pi))


def assert_is_a_maximum(found: MixedFit, x: Array, y: Array, seed: int = 0) -> None:
    """It has the likelihood that it claims, and no covariance or variance nearby has more."""
    claimed, sigma2 = float(found.log_likelihood), float(found.sigma2)
    assert found.converged
    assert likelihood(x, y, found.covariance, sigma2) == pytest.approx(claimed, abs=1e-6)
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(found.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    for size in (1e-3, 1e-2, 0.1, 0.5):
        for _ in range(8):
            moved = root + size * math.sqrt(sigma2) * rng.normal(size=root.shape)
            assert likelihood(x, y, moved @ moved.T, sigma2 * math.exp(size * rng.normal() / 10)) <= claimed + 1e-7


@pytest.mark.parametrize(("seed", "predictors", "slope_sd"), [(0, 1, 0.3), (1, 2, 0.3), (2, 1, 0.0)])
def test_the_restricted_likelihood_is_at_least_statsmodels(seed: int, predictors: int, slope_sd: float) -> None:
    x, y = steps(seed, predictors=predictors, slope_sd=slope_sd)
    found, theirs = fit(group_sums(x, y)), statsmodels_fit(x, y)
    assert found.converged
    assert found.log_likelihood >= theirs.llf - 1e-6
    if found.log_likelihood < theirs.llf + 1e-6:  # both found it
        np.testing.assert_allclose(found.fixed, theirs.fe_params, atol=1e-3)
        np.testing.assert_allclose(found.covariance, theirs.cov_re, atol=1e-2)
        assert found.sigma2 == pytest.approx(theirs.scale, rel=1e-2)
        np.testing.assert_allclose(found.fixed_covariance, theirs.cov_params()[: predictors + 1, : predictors + 1], atol=1e-3)


def test_the_constant_is_statsmodels() -> None:
    x, y = steps(4)
    found, model = fit(group_sums(x, y)), statsmodels_fit(x, y).model
    from statsmodels.regression.mixed_linear_model import MixedLMParams

    at_ours = MixedLMParams.from_components(fe_params=found.fixed, cov_re=found.covariance / found.sigma2)
    assert not found.boundary
    assert model.loglike(at_ours) == pytest.approx(float(found.log_likelihood), abs=1e-9)
    assert model.get_scale(found.fixed, found.covariance / found.sigma2, np.empty(0)) == pytest.approx(float(found.sigma2))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [10, 50])
@pytest.mark.parametrize(("intercept_sd", "slope_sd"), [(0.3, 0.1), (0.0, 0.0), (1.0, 1.0)])
def test_the_restricted_likelihood_is_at_least_statsmodels_in_the_paper_s_shape(
    rows: int, intercept_sd: float, slope_sd: float
) -> None:
    for seed in range(3):
        x, y = steps(seed, 40, rows, 3, intercept_sd, slope_sd)
        found = fit(group_sums(x, y))
        assert found.converged
        assert found.log_likelihood >= statsmodels_fit(x, y).llf - 1e-6


@pytest.mark.slow
def test_other_starts_find_nothing_better(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows, slope_sd in [(6, 0.3), (10, 0.1), (10, 0.0), (50, 0.1), (50, 0.0), (50, 1.0)]:
        x, y = map(np.array, zip(*(steps(seed, 40, rows, 3, slope_sd=slope_sd) for seed in range(20)), strict=True))
        usual = fit(group_sums(x, y))
        assert usual.converged.all()
        with monkeypatch.context() as patch:
            patch.setattr("forgetscope.analysis.statistics.mixed_models.STARTS", (0.01, 0.05, 0.5, 3.0, 30.0, 100.0))
            np.testing.assert_array_less(fit(group_sums(x, y)).log_likelihood, usual.log_likelihood + 1e-7)


@given(st.integers(0, 10**6), st.sampled_from([2, 5, 12]), st.sampled_from([5, 12]), st.sampled_from([0.0, 0.5]))
@settings(max_examples=20, deadline=None)
def test_a_fit_is_a_maximum_within_the_boundary_and_on_it(seed: int, groups: int, rows: int, sd: float) -> None:
    x, y = steps(seed, groups, rows, 2, sd, sd)
    found = fit(group_sums(x, y))
    assert_is_a_maximum(found, x, y, seed)
    lowest = np.linalg.eigvalsh(found.covariance)[0]
    assert found.boundary == (lowest < 1e-12 * max(1.0, float(found.sigma2)))


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_the_order_of_groups_and_rows_changes_nothing(seed: int) -> None:
    x, y = steps(seed)
    rng = np.random.default_rng(seed)
    groups, rows = rng.permutation(12), rng.permutation(10)
    a, b = fit(group_sums(x, y)), fit(group_sums(x[groups][:, rows], y[groups][:, rows]))
    np.testing.assert_allclose(a.log_likelihood, b.log_likelihood, atol=1e-7)
    np.testing.assert_allclose(a.fixed, b.fixed, atol=1e-4)


@given(st.integers(0, 10**6), st.floats(0.01, 1000), st.floats(-1000, 1000))
@settings(max_examples=15, deadline=None)
def test_shift_and_scale_of_predictors_and_response_change_no_prediction(seed: int, scale: float, shift: float) -> None:
    x, y = steps(seed, 6, 8)
    a, b = leave_one_out(x, y), leave_one_out(x * [scale, 1] + [shift, -3], 5 * y - 2)
    np.testing.assert_allclose(5 * a.predictions - 2, b.predictions, atol=1e-4)
    np.testing.assert_allclose(a.fits.standardised, b.fits.standardised, atol=1e-4)


def test_a_left_out_step_is_predicted_by_a_fit_to_the_others_standardised_by_hand() -> None:
    x, y = steps(7)
    left = leave_one_out(x, y)
    assert left.fits.converged.all()
    for held_out in range(0, 12, 4):
        training = np.arange(12) != held_out
        mean, sd = x[training].mean(axis=(0, 1)), x[training].std(axis=(0, 1))
        again = fit(group_sums((x[training] - mean) / sd, y[training]))
        by_hand = again.fixed[0] + (x[held_out] - mean) / sd @ again.fixed[1:]
        np.testing.assert_allclose(left.predictions[held_out], by_hand, atol=1e-5)
        np.testing.assert_allclose(left.fits.standardised[held_out], again.fixed[1:] / y[training].std(), atol=1e-5)
    theirs = statsmodels_fit(x[1:], y[1:])
    assert left.fits[0].log_likelihood >= theirs.llf - 1e-6
    np.testing.assert_allclose(left.predictions[0], theirs.fe_params[0] + x[0] @ theirs.fe_params[1:], atol=1e-3)


def test_many_problems_at_once_are_each_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forgetscope.analysis.statistics.mixed_models.CHUNK", 7)
    x, y = map(np.array, zip(*(steps(seed, 5, 9) for seed in range(6)), strict=True))
    x = x.reshape(2, 3, 5, 9, 2)
    together = leave_one_out(x, y.reshape(2, 3, 5, 9))
    assert together.predictions.shape == (2, 3, 5, 9)
    for i in range(2):
        for j in range(3):
            alone = leave_one_out(x[i, j], y.reshape(2, 3, 5, 9)[i, j])
            np.testing.assert_allclose(alone.predictions, together.predictions[i, j], atol=1e-6)
            np.testing.assert_allclose(alone.fits.log_likelihood, together.fits[i, j].log_likelihood, atol=1e-8)


def test_unknown_rows_and_padding_take_no_part() -> None:
    x, y = steps(8, 6, 12)
    x[2, 3, 0], y[4, 5:], y[5] = np.nan, np.nan, np.nan  # the last step has nothing known at all
    found = fit(group_sums(x, y))
    assert_is_a_maximum(found, x, y)
    padded = fit(group_sums(np.pad(x, ((0, 0), (0, 4), (0, 0)), constant_values=np.nan), np.pad(y, ((0, 0), (0, 4)))))
    np.testing.assert_allclose(padded.log_likelihood, found.log_likelihood, atol=1e-8)
    left = leave_one_out(x, y)
    assert np.isfinite(left.predictions[4]).all()  # known predictors are enough
    assert np.isnan(left.predictions[2, 3])
    np.testing.assert_allclose(left.fits[5].log_likelihood, found.log_likelihood, atol=1e-8)


def test_moments_give_the_spread_of_any_part() -> None:
    x, y = steps(9, 5)
    weights = np.array([1.0, 0, 1, 1, 0])
    spread = group_sums(x * 100 + 1000, y).spread(weights)
    kept = weights > 0
    np.testing.assert_allclose(spread, [*(100 * x[kept].std(axis=(0, 1))), y[kept].std()])


def test_groups_with_fewer_rows_than_parameters_count_for_what_they_hold() -> None:
    x, y = steps(10, 20, 8, 3)
    y[::2, 2:] = np.nan
    found = fit(group_sums(x, y))
    assert_is_a_maximum(found, x, y)


def test_a_constant_predictor_or_a_copy_is_left_out() -> None:
    x, y = steps(11)
    alone = fit(group_sums(x, y))
    constant = fit(group_sums(np.insert(x, 1, 0.3, axis=-1), y))
    copied = fit(group_sums(np.concatenate([x, 3 * x[..., :1] - 1], axis=-1), y))
    assert constant.used.tolist() == [True, True, False, True]
    assert copied.used.tolist() == [True, True, True, False]
    np.testing.assert_allclose(constant.fixed[[0, 1, 3]], alone.fixed, atol=1e-6)
    np.testing.assert_allclose(copied.fixed[:3], alone.fixed, atol=1e-6)
    assert constant.fixed[2] == copied.fixed[3] == 0
    assert constant.converged
    left = leave_one_out(np.insert(x, 1, 0.3, axis=-1), y)
    np.testing.assert_allclose(left.predictions, leave_one_out(x, y).predictions, atol=1e-5)


def test_a_predictor_that_varies_in_one_step_only_is_constant_without_it() -> None:
    x, y = steps(12, 6)
    x[1:, :, 1] = 0.5
    left = leave_one_out(x, y)
    assert left.fits.used[0].tolist() == [True, True, False]
    assert left.fits.used[1:].all()
    assert np.isfinite(left.predictions).all()


def test_identical_rows_are_no_obstacle() -> None:
    x, y = steps(13, 8, 6)
    x[3], y[3] = x[3, 0], y[3, 0]
    found = fit(group_sums(x, y))
    assert_is_a_maximum(found, x, y)


def test_two_groups_and_one_leave_no_choice_but_the_boundary() -> None:
    x, y = steps(14, 2, 30)
    found = fit(group_sums(x, y))
    assert_is_a_maximum(found, x, y)
    assert found.boundary
    one = fit(group_sums(x[:1], y[:1]))
    assert one.boundary
    assert one.converged
    design = np.column_stack([np.ones(30), x[0]])
    np.testing.assert_allclose(one.fixed, np.linalg.lstsq(design, y[0])[0])
    assert np.isfinite(leave_one_out(x, y).predictions).all()


def test_an_exact_response_has_no_maximum_and_its_line_is_found() -> None:
    x, y = steps(15)
    line = fit(group_sums(x, 2 * x[..., 0] - x[..., 1] + 3))
    np.testing.assert_allclose(line.fixed, [3, 2, -1])
    assert (float(line.sigma2), float(line.log_likelihood), bool(line.converged)) == (0, math.inf, False)
    constant = fit(group_sums(x, np.full_like(y, 0.1)))
    np.testing.assert_allclose(constant.fixed, [0.1, 0, 0], atol=1e-12)
    within = fit(group_sums(x, x[..., 0] * np.arange(12)[:, None]))  # another exact line in each step
    assert not within.converged
    assert within.sigma2 == 0


def test_too_few_rows_give_nothing() -> None:
    x, y = steps(16, 2, 1)
    found = fit(group_sums(x, y))
    assert np.isnan(found.fixed).all()
    assert not found.converged
    assert np.isnan(leave_one_out(x, np.full_like(y, np.nan)).predictions).all()


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"\(4, 5, 2\) and y \(4, 6\)"):
        group_sums(np.zeros((4, 5, 2)), np.zeros((4, 6)))
