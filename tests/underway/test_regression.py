"""The regression of final forgetting, against ordinary least squares and simulations in which the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from forgetscope.underway.regression import COURSE, FEATURES, features, fitted, interval, left_out, ridge

DRAWS = np.random.default_rng(5)
ALL = np.ones(2, bool)


def test_a_ridge_is_least_squares_with_a_row_for_each_standardised_weight() -> None:
    x, y = DRAWS.normal(3, [1, 20, 0.1], (40, 3)), DRAWS.normal(0.4, 0.2, 40)
    z = (x - x.mean(0)) / x.std(0)
    rows = np.vstack([np.column_stack([np.ones(40), z]), np.column_stack([np.zeros(3), np.sqrt(2.5) * np.eye(3)])])
    (base, *weights), *_ = np.linalg.lstsq(rows, np.concatenate([y, np.zeros(3)]), rcond=None)
    other = DRAWS.normal(3, 1, (5, 3))
    expected = base + ((other - x.mean(0)) / x.std(0)) @ np.array(weights)
    assert ridge(x, y, 2.5).at(other) == pytest.approx(expected, rel=1e-9)


def test_what_does_not_vary_has_no_weight() -> None:
    x = np.column_stack([np.full(10, 7.3), np.arange(10.0)])
    line = ridge(x, 2 * np.arange(10.0), 1e-9)
    assert line.weights == pytest.approx([0, 2])
    assert line.at(np.array([[99.0, 3.0]])) == pytest.approx([6])


def test_each_group_is_predicted_by_the_others() -> None:
    x, y, groups = DRAWS.normal(size=(12, 2)), DRAWS.normal(size=12), ["a", "b", "c"] * 4
    found = left_out(x, y, groups)
    for name in "abc":
        own = np.array(groups) == name
        assert found[own] == pytest.approx(ridge(x[~own], y[~own]).at(x[own]))


@pytest.mark.parametrize("experiments", [5, 10])
def test_intervals_hold_95_percent_where_classes_of_an_experiment_err_together(experiments: int) -> None:
    draws, held = np.random.default_rng(experiments), []
    for _ in range(300):
        groups = np.repeat(np.arange(experiments + 1), 10)
        x = draws.normal(size=(len(groups), 2))
        together, own = draws.normal(0, 0.03, experiments + 1)[groups], draws.normal(0, 0.1, len(groups))
        y = x @ np.array([0.1, -0.05]) + together + own
        last = groups == experiments
        _, low, high = fitted(x[~last], y[~last], groups[~last].tolist(), ALL).predicted(x[last])
        held.append((low <= np.minimum(y[last], 1)) & (y[last] <= high))
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


def test_nothing_is_forgotten_more_than_completely() -> None:
    x = np.linspace(0, 1, 20)[:, None]
    fit = fitted(x, x[:, 0] + DRAWS.normal(0, 0.05, 20), list(range(4)) * 5, np.ones(1, bool))
    value, low, high = fit.predicted(np.array([[3.0]]))
    assert value == high == 1
    assert low <= 1
    assert interval(0.1, 1) == pytest.approx(1.959964 * 0.1 * np.sqrt(2))


def test_features_are_means_so_far_and_losses_of_the_last_probe() -> None:
    course = DRAWS.normal(size=(3, len(COURSE), 2))
    found = dict(zip(FEATURES, features(course), strict=True))
    of = {name: course[:, i] for i, name in enumerate(COURSE)}
    assert found["sic"] == pytest.approx(of["sic"].mean(0))
    assert found["nic_now"] == pytest.approx(of["nic"][2])
    assert found["loss_gap"] == pytest.approx(of["loss_full"][2] - of["loss_rehearsal"][2])
    assert found["loss_before"] == pytest.approx(of["loss_full"][0])
    assert found["so_far"] == pytest.approx(of["forecast"][2])
