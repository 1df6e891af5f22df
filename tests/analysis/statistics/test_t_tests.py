from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from forgetscope.analysis.statistics.t_tests import paired, paired_correlations, welch
from forgetscope.errors import InputError


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(2, 12))
def test_independent_samples_are_compared_as_by_scipy(seed: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), 0.5 + 2 * rng.normal(size=m)
    found, expected = welch([*a, math.nan], b), stats.ttest_ind(a, b, equal_var=False)
    interval = expected.confidence_interval()
    assert (found.t, found.df, found.p) == (
        pytest.approx(expected.statistic),
        pytest.approx(expected.df),
        pytest.approx(expected.pvalue),
    )
    assert (found.estimate.low, found.estimate.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert found.estimate.n == n + m


@given(st.integers(0, 10**6), st.integers(2, 12))
def test_pairs_are_compared_as_by_scipy(seed: int, n: int) -> None:
    a, b = np.random.default_rng(seed).normal(size=(2, n))
    found, expected = paired([*a, 1.0], [*b, math.nan]), stats.ttest_rel(a, b)
    interval = expected.confidence_interval()
    assert (found.t, found.df, found.p) == (pytest.approx(expected.statistic), n - 1, pytest.approx(expected.pvalue))
    assert (found.estimate.low, found.estimate.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert found.estimate.n == n


def test_correlations_are_compared_in_z_and_perfect_ones_do_not_decide_alone() -> None:
    a, b = [0.9, 0.8, 0.7], [0.5, 0.1, 0.4]
    assert paired_correlations(a, b, 10).p == pytest.approx(stats.ttest_rel(np.arctanh(a), np.arctanh(b))[1])
    assert math.isfinite(paired_correlations([1.0, 0.8, 0.7], b, 10).t)
    assert paired_correlations(a, b, 10).scale == "z"


def test_too_few_values_or_none_that_vary_leave_the_test_open() -> None:
    for found in (
        welch([1.0], [2.0, 3.0]),
        welch([1.0, 1.0], [2.0, 2.0]),
        paired([1.0, 2.0], [0.0, 1.0]),
        paired([1.0], [0.0]),
    ):
        assert math.isnan(found.p)
        assert math.isfinite(found.estimate.value)
    assert math.isnan(welch([], [1.0]).estimate.value)
    assert math.isnan(paired([], []).estimate.value)


def test_pairs_of_unequal_number_are_refused() -> None:
    with pytest.raises(InputError, match="3 and 2"):
        paired([1.0, 2.0, 3.0], [1.0, 2.0])
