from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from forgetscope.analysis.statistics import correlation_estimate, mean_estimate, spearman

values = st.lists(st.integers(0, 8), min_size=3, max_size=12)


@given(values, st.integers(0, 1000))
def test_spearman_equals_pearson_of_average_ranks(x: list[int], seed: int) -> None:
    y = np.random.default_rng(seed).integers(0, 6, len(x))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert math.isnan(spearman(x, y))
    else:
        assert spearman(x, y) == pytest.approx(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1], abs=1e-12)


def test_spearman_leaves_out_incomplete_pairs() -> None:
    assert spearman([1, 2, math.nan, 3, 4], [1, 2, 9, math.nan, 5]) == pytest.approx(1.0)
    assert math.isnan(spearman([1, 2, math.nan], [3, 4, 5]))


def test_a_mean_s_interval_is_student_s() -> None:
    sample = [0.2, 0.5, 0.4, 0.9, math.nan]
    estimate = mean_estimate(sample)
    low, high = stats.t.interval(0.95, 3, loc=0.5, scale=stats.sem(sample[:4]))
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (
        pytest.approx(0.5),
        pytest.approx(low),
        pytest.approx(high),
        4,
    )


def test_one_sample_has_a_mean_and_no_interval() -> None:
    estimate = mean_estimate([0.4])
    assert estimate.value == 0.4
    assert math.isnan(estimate.low)
    assert math.isnan(mean_estimate([]).value)


def test_correlations_are_averaged_in_fisher_s_z() -> None:
    rho = [0.3, 0.8, -0.2]
    z = np.arctanh(rho)
    estimate = correlation_estimate(rho, 10)
    half = stats.t.ppf(0.975, 2) * z.std(ddof=1) / math.sqrt(3)
    assert estimate.value == pytest.approx(math.tanh(z.mean()))
    assert (estimate.low, estimate.high) == (
        pytest.approx(math.tanh(z.mean() - half)),
        pytest.approx(math.tanh(z.mean() + half)),
    )


def test_a_perfect_correlation_counts_as_nearly_perfect() -> None:
    # for 10 classes: 1 - 6/990, half-way to 1 - 12/990, which one swapped pair gives
    one_swap = spearman(range(10), [1, 0, *range(2, 10)])
    estimate = correlation_estimate([1.0, 1.0], 10)
    assert one_swap < estimate.value < 1
    assert estimate.value == pytest.approx((1 + one_swap) / 2)
    mixed = correlation_estimate([1.0, 0.0, -1.0], [10, 10, 10])
    assert mixed.value == pytest.approx(0.0, abs=1e-12)


def test_larger_groups_of_classes_are_clipped_later() -> None:
    assert correlation_estimate([1.0], 50).value > correlation_estimate([1.0], 10).value


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20))
def test_the_mean_lies_within_its_interval_and_within_the_values(rho: list[float]) -> None:
    estimate = correlation_estimate(rho, 10)
    assert -1 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert -1 < estimate.value < 1
    limit = 1 - 6 / 990
    assert min(max(min(rho), -limit), limit) - 1e-9 <= estimate.value <= max(min(max(rho), limit), -limit) + 1e-9
