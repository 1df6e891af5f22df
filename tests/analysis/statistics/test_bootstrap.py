from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy import stats

from forgetscope.analysis.statistics import bootstrap
from forgetscope.analysis.statistics.bootstrap import cluster_bca, cluster_mean_bca, sd_bca
from forgetscope.errors import InputError

Array = NDArray[np.float64]


def scipy_interval(sample: Array, statistic: Callable[..., Array], resamples: int, seed: int) -> list[float]:
    found = stats.bootstrap((sample,), statistic, n_resamples=resamples, method="BCa", rng=seed)
    return [found.confidence_interval.low, found.confidence_interval.high]


def resampled(n: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """The resamples that scipy draws."""
    return np.random.default_rng(seed).integers(0, n, (resamples, n))


@pytest.mark.parametrize("n", [15, 40, 120])
def test_with_scipy_s_resamples_the_interval_is_scipy_s(n: int) -> None:
    samples = np.random.default_rng(n).gamma(2, size=(3, n)) * [[1], [100], [1e-3]] + [[0], [50], [-7]]
    found = sd_bca(samples, indices=resampled(n, 3000, n))
    expected = [scipy_interval(sample, np.std, 3000, n) for sample in samples]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_ties_count_half_as_in_scipy() -> None:
    sample = np.array([0.0, 1, 1, 2, 4, 4, 5, 9])  # eighths of whole numbers and their squares are exact in any order
    found = sd_bca(sample, indices=resampled(8, 4000, 3))
    np.testing.assert_allclose(found, scipy_interval(sample, np.std, 4000, 3), rtol=1e-12)


def test_with_its_own_resamples_the_interval_is_scipy_s_up_to_chance() -> None:
    sample = np.random.default_rng(8).normal(size=40)
    ours = sd_bca(sample, resamples=100_000)
    np.testing.assert_allclose(ours, scipy_interval(sample, np.std, 20_000, 1), atol=0.02)


@given(st.integers(0, 10**6), st.floats(0.01, 100), st.floats(-100, 100))
@settings(max_examples=20, deadline=None)
def test_intervals_follow_shift_and_scale(seed: int, scale: float, shift: float) -> None:
    sample = np.random.default_rng(seed).exponential(size=12)
    spread = sd_bca(scale * sample + shift, resamples=500)
    np.testing.assert_allclose(spread, scale * sd_bca(sample, resamples=500), rtol=1e-8)


def test_a_seed_decides_whatever_the_threads_the_neighbours_and_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(1).normal(size=(5, 30))
    whole = sd_bca(samples, resamples=30_000, threads=2)
    monkeypatch.setattr(bootstrap, "BLOCK", 60_000)  # two samples at a time
    np.testing.assert_allclose(sd_bca(samples, resamples=30_000, threads=1), whole, rtol=1e-12)
    np.testing.assert_allclose(sd_bca(samples[3], resamples=30_000), whole[3], rtol=1e-12)
    assert not np.allclose(sd_bca(samples, resamples=30_000, seed=1), whole, rtol=1e-6)


def test_leading_dimensions_stay() -> None:
    samples = np.random.default_rng(2).normal(size=(2, 3, 10))
    found = sd_bca(samples, resamples=200)
    assert found.shape == (2, 3, 2)
    np.testing.assert_allclose(found[1, 2], sd_bca(samples[1, 2], resamples=200), rtol=1e-12)


def test_degenerate_samples_have_no_interval_and_spoil_no_other() -> None:
    good = [0.1, 0.5, 0.2, 0.9]
    found = sd_bca([[0.1, 0.1, 0.1, 0.1], good, [0.1, 0.2, math.nan, 0.3]], resamples=1000)
    assert np.isnan(found[[0, 2]]).all()
    np.testing.assert_allclose(found[1], sd_bca(good, resamples=1000), rtol=1e-12)
    assert np.isnan(sd_bca([0.3], resamples=100)).all()
    assert np.isnan(sd_bca(np.empty((2, 0)), resamples=100)).all()
    assert np.isnan(sd_bca([0.1, 0.4], resamples=100)).all()  # without one value no spread is left


def test_quantiles_are_numpy_s_for_many_values_too() -> None:
    rng = np.random.default_rng(4)
    for values in (rng.normal(size=200_000), rng.integers(0, 5, 100_000).astype(float), np.sort(rng.random(70_000))):
        for level in (0.0, 1e-6, 0.021, 0.5, 0.976, 0.99999, 1.0):
            assert bootstrap._quantile(values, level) == pytest.approx(np.quantile(values, level), rel=1e-12)
    assert bootstrap._quantile(np.array([3.0]), 0.4) == 3


def test_indices_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match=r"\(10, 4\).*\[resamples, 3\]"):
        sd_bca([1.0, 2.0, 3.0], indices=np.zeros((10, 4)))


def test_clusters_of_one_row_are_scipy_s_bootstrap_of_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, count, drawn = np.random.default_rng(5).gamma(2, size=25), bootstrap._count, resampled(25, 20_000, 1)
    monkeypatch.setattr(bootstrap, "_count", lambda n, resamples, seed, _, chunk: count(n, resamples, seed, drawn, chunk))
    found = cluster_mean_bca(sample, range(25), resamples=20_000)
    np.testing.assert_allclose(found, scipy_interval(sample, np.mean, 20_000, 1), rtol=1e-10)


def drawn_again(statistic: Callable[[Array], float], clusters: Array, resamples: int, rng: np.random.Generator) -> Array:
    """The plain way: concatenate the rows of drawn clusters, and ask again."""
    rows = [np.flatnonzero(clusters == cluster) for cluster in np.unique(clusters)]
    draws = rng.integers(0, len(rows), (resamples, len(rows)))
    return np.array([statistic(np.concatenate([rows[i] for i in draw])) for draw in draws])


def test_intervals_over_clusters_are_those_of_rows_drawn_cluster_by_cluster() -> None:
    rng = np.random.default_rng(6)
    clusters = np.repeat(np.arange(40), rng.integers(2, 9, 40))
    x = rng.normal(size=40)[clusters] + rng.normal(size=len(clusters))
    y = 2 * x + rng.normal(size=40)[clusters]
    sums = np.zeros((40, 5))
    np.add.at(sums, clusters, np.column_stack([np.ones(len(x)), x, y, x * x, x * y]))

    def slope(total: Array) -> Array:
        n, sx, sy, sxx, sxy = total.T
        return (n * sxy - sx * sy) / (n * sxx - sx**2)

    plain = drawn_again(lambda rows: float(np.polyfit(x[rows], y[rows], 1)[0]), clusters, 4000, rng)
    found = cluster_bca(sums, slope, resamples=20_000)
    assert found.shape == (2,)
    # BCa shifts the percentiles by a small bias and acceleration; the width stays that of the plain percentiles.
    assert found[1] - found[0] == pytest.approx(np.diff(np.quantile(plain, [0.025, 0.975]))[0], rel=0.08)
    assert found.mean() == pytest.approx(np.polyfit(x, y, 1)[0], abs=0.02)


def test_the_mean_over_clusters_counts_them_by_their_rows_and_leaves_unknown_ones_out() -> None:
    rng = np.random.default_rng(6)
    clusters = np.repeat(np.arange(20), rng.integers(2, 9, 20))
    values = rng.normal(size=20)[clusters] + 0.1 * rng.normal(size=len(clusters))
    values[3] = math.nan
    plain = np.quantile(drawn_again(lambda rows: float(np.nanmean(values[rows])), clusters, 4000, rng), [0.025, 0.975])
    found = cluster_mean_bca(values, clusters)
    np.testing.assert_allclose(found, plain, atol=0.08)
    alone = cluster_mean_bca(values, range(len(values)), resamples=4000)
    assert found[1] - found[0] > 1.5 * (alone[1] - alone[0])  # rows of a cluster are no independent evidence
    both = np.column_stack([values, np.nan_to_num(values) + 1e6])
    np.testing.assert_allclose(cluster_mean_bca(both, clusters)[0], found, rtol=1e-12)
    np.testing.assert_allclose(cluster_mean_bca(both, clusters)[1], cluster_mean_bca(both[:, 1], clusters), rtol=1e-12)


def test_one_cluster_says_nothing_about_others() -> None:
    assert np.isnan(cluster_mean_bca([1.0, 2.0], ["a", "a"])).all()
    assert np.isnan(cluster_mean_bca([math.nan, math.nan], ["a", "b"])).all()
    assert np.isnan(cluster_bca([[1.0]], lambda total: total[:, 0])).all()
    assert np.isnan(cluster_bca([[1.0], [2.0], [3.0]], lambda total: np.ones(len(total)), resamples=50)).all()
    assert np.isnan(cluster_mean_bca([1.0, 1.0, 1.0], ["a", "b", "c"], resamples=50)).all()
