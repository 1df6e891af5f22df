from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from forgetscope.analysis.statistics.bootstrap import sd_bca
from forgetscope.analysis.statistics.estimates import (
    PERFECT,
    Estimate,
    correlation_estimate,
    fisher_z,
    mean_estimate,
    needed_samples,
    sd_estimates,
    share_estimate,
)
from forgetscope.analysis.statistics.rank_correlation import spearman
from forgetscope.errors import InputError

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


@given(st.lists(st.integers(0, 3), min_size=3, max_size=6), st.lists(st.integers(0, 3), min_size=3, max_size=6))
def test_only_perfect_correlations_are_clipped(first: list[int], second: list[int]) -> None:
    """Ties leave three classes with 0.87 and four with 0.95, both beyond what a perfect correlation of theirs counts as."""
    n = min(len(first), len(second))
    rho = float(spearman(first[:n], second[:n]))
    if math.isnan(rho) or abs(rho) > PERFECT:
        return
    assert float(fisher_z(rho, n)) == pytest.approx(math.atanh(rho))
    assert correlation_estimate([rho], n).value == pytest.approx(rho)


def test_tied_correlations_of_few_classes_are_left_as_they_are() -> None:
    for n in (3, 4, 10):
        tied = float(spearman(range(n), [0, 0, *range(1, n - 1)]))
        assert tied == pytest.approx(math.sqrt(1 - 6 / (n**3 - n)))
        assert float(fisher_z(tied, n)) == pytest.approx(math.atanh(tied))
        assert float(fisher_z(-1.0, n)) == pytest.approx(math.atanh(6 / (n**3 - n) - 1))


@given(st.integers(1, 60), st.floats(0, 1))
def test_shares_have_the_exact_interval_of_scipy_which_never_collapses(n: int, part: float) -> None:
    hits = round(part * n)
    found = share_estimate([1.0] * hits + [0.0] * (n - hits) + [math.nan])
    oracle = stats.binomtest(hits, n).proportion_ci(method="exact")
    assert (found.value, found.n) == (pytest.approx(hits / n), n)
    assert (found.low, found.high) == (pytest.approx(oracle.low, abs=1e-9), pytest.approx(oracle.high, abs=1e-9))
    assert found.low < found.high


def test_shares_of_steps_that_depend_on_each_other_are_known_less_well() -> None:
    alone, shared = share_estimate([1, 1, 0, 0] * 6), share_estimate([1, 1, 0, 0] * 6, trials=8)
    assert shared.value == alone.value == 0.5
    assert (shared.n, alone.n) == (8, 24)
    oracle = stats.binomtest(4, 8).proportion_ci(method="exact")
    assert (shared.low, shared.high) == (pytest.approx(oracle.low), pytest.approx(oracle.high))
    assert math.isnan(share_estimate([]).low)


def test_larger_groups_of_classes_are_clipped_later() -> None:
    assert correlation_estimate([1.0], 50).value > correlation_estimate([1.0], 10).value


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20))
def test_the_mean_lies_within_its_interval_and_within_the_values(rho: list[float]) -> None:
    estimate = correlation_estimate(rho, 10)
    assert -1 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert -1 < estimate.value < 1
    counted = [math.copysign(1 - 6 / 990, one) if abs(one) > PERFECT else one for one in rho]
    assert min(counted) - 1e-9 <= estimate.value <= max(counted) + 1e-9


def test_z_values_are_finite_and_their_mean_is_the_correlation_estimate() -> None:
    z = fisher_z([1.0, 0.5, math.nan, -1.0], [10, 20, 5, 1])
    assert np.isfinite(z[[0, 1, 3]]).all()
    assert z[1] == pytest.approx(np.arctanh(0.5))
    assert correlation_estimate([1.0, 0.5], [10, 20]).value == pytest.approx(math.tanh(z[:2].mean()))


def test_standard_deviations_are_the_population_s_with_bca_intervals() -> None:
    rng = np.random.default_rng(0)
    samples = [rng.normal(size=20), [*rng.normal(size=20), math.nan], rng.normal(size=8), [0.5], [], [1.0] * 20]
    found = sd_estimates(samples, resamples=2000)
    assert [e.n for e in found] == [20, 20, 8, 1, 0, 20]
    assert found[0].value == pytest.approx(np.std(samples[0]))
    for i, sample in ((0, samples[0]), (1, samples[1][:20]), (2, samples[2])):
        np.testing.assert_allclose([found[i].low, found[i].high], sd_bca(sample, resamples=2000))
    assert found[3].value == 0
    assert math.isnan(found[4].value)
    assert found[5].value == 0
    assert all(math.isnan(found[i].low) for i in (3, 4, 5))
    assert sd_estimates([samples[2]], resamples=2000) == [found[2]]
    assert sd_estimates([]) == []


def test_an_estimate_reads_well_and_shows_itself() -> None:
    assert str(Estimate(0.51234, 0.43, 0.5871, 40)) == "0.512 (0.430, 0.587), n = 40"
    assert str(Estimate(123.4, 100.0, 146.8, 9)) == "123.4 (100.0, 146.8), n = 9"
    assert str(Estimate(0.2, -0.0001, 0.4, 3)) == "0.200 (0.000, 0.400), n = 3"
    assert str(Estimate(-0.2, -0.4, 0.0, 3)) == "−0.200 (−0.400, 0.000), n = 3"
    assert str(Estimate(0.5, math.nan, math.nan, 1)) == "0.500, n = 1"
    assert str(Estimate(math.nan, math.nan, math.nan, 0)) == "–, n = 0"
    assert Estimate(0.51234, 0.43, 0.5871, 40)._repr_html_() == "<b>0.512</b> (0.430, 0.587), n = 40"
    assert Estimate(0.5, math.nan, math.nan, 1)._repr_html_() == "<b>0.500</b>, n = 1"


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20), st.floats(0.05, 5))
def test_the_needed_number_is_the_least_that_is_enough(pilot: list[float], half_width: float) -> None:
    n = needed_samples(pilot, half_width)
    sd = np.std(pilot, ddof=1)

    def reach(k: int) -> float:
        return float(stats.t.ppf(0.975, k - 1) * sd / math.sqrt(k))

    assert n is not None
    assert reach(n) <= half_width
    assert n == 2 or reach(n - 1) > half_width


def test_one_value_gives_no_advice_and_no_width_is_refused() -> None:
    assert needed_samples([0.3, math.nan], 0.1) is None
    with pytest.raises(InputError, match="half-width of -1"):
        needed_samples([0.3, 0.4], -1)
