"""How much of uneven forgetting is noise of the test images: against simulations of the images themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy import stats

from forgetscope.analysis.statistics.estimates import Estimate, fisher_z
from forgetscope.analysis.statistics.noise import (
    Recognised,
    ceiling_estimate,
    equal_variances,
    noise_of_step,
    rank_ceiling,
    reliability_estimate,
    sampling_variances,
    spread_estimate,
)

Values = NDArray[np.float64]


def alike(classes: int, images: int, learned: float = 0.8, now: float = 0.45, both: float | None = None) -> Recognised:
    shares = (images, learned, now, learned * now if both is None else both)
    return Recognised(*(np.full(classes, share, np.float64) for share in shares))


def seen(counts: NDArray[np.int64]) -> Recognised:
    """Of counts [..., classes, 4]: recognised both times, then only, now only, never."""
    images = counts.sum(axis=-1)
    both, then, now = counts[..., 0], counts[..., 0] + counts[..., 1], counts[..., 0] + counts[..., 2]
    return Recognised(*(np.asarray(part, np.float64) for part in (images, then / images, now / images, both / images)))


def tables(learned: Values, now: Values, both: Values) -> Values:
    """[classes, 4]: how likely each of the four is."""
    return np.stack([both, learned - both, now - both, 1 - learned - now + both], axis=-1)


@pytest.mark.parametrize(
    ("classes", "images", "range_floor", "half_gap_floor"), [(10, 100, 0.21, 0.10), (20, 100, 0.26, None), (10, 50, 0.30, 0.14)]
)
def test_equal_forgetting_looks_as_uneven_as_images_drawn_one_by_one(
    classes: int, images: int, range_floor: float, half_gap_floor: float | None
) -> None:
    """All classes lose the same, from 0.80 to 0.45, then and now independent: the numbers are known from before."""
    rng = np.random.default_rng(0)
    then, now = rng.binomial(images, 0.8, (20_000, classes)), rng.binomial(images, 0.45, (20_000, classes))
    drawn = np.sort(1 - now / then, axis=1)
    gap = drawn[:, classes // 2 :].mean(axis=1) - drawn[:, : classes // 2].mean(axis=1)
    found = noise_of_step(alike(classes, images))
    assert found.range_floor == pytest.approx(np.ptp(drawn, axis=1).mean(), rel=0.03)
    assert found.half_gap_floor == pytest.approx(gap.mean(), rel=0.03)
    assert round(found.range_floor, 2) == range_floor
    assert half_gap_floor is None or round(found.half_gap_floor, 2) == half_gap_floor


def test_the_floor_is_that_of_pairs_with_unequal_accuracies() -> None:
    """Against multinomial draws of images whose classes all lose the same, and are as correlated as these."""
    learned = np.linspace(0.5, 0.85, 20)
    phi, kept = 0.4, 0.6
    now = kept * learned
    both = learned * now + phi * np.sqrt(learned * (1 - learned) * now * (1 - now))
    drawn = seen(np.random.default_rng(1).multinomial(100, tables(learned, now, both), (4000, 20)))
    forgetting = 1 - drawn.now / drawn.learned
    found = noise_of_step(Recognised(np.full(20, 100.0), learned, now, both))
    assert found.range_floor == pytest.approx(np.ptp(forgetting, axis=1).mean(), rel=0.03)
    assert noise_of_step(Recognised(np.full(20, 100.0), learned, now, learned * now)).range_floor > 1.15 * found.range_floor
    assert equal_variances(Recognised(np.full(20, 100.0), learned, now, both)) == pytest.approx(
        forgetting.var(axis=0), rel=0.12
    )


@pytest.mark.parametrize(("images", "tolerance"), [(400, 0.05), (100, 0.12), (50, 0.2)])
def test_the_delta_method_agrees_with_a_paired_bootstrap_within_the_class(images: int, tolerance: float) -> None:
    rng = np.random.default_rng(2)
    shares = tables(np.array([0.5, 0.7, 0.9]), np.array([0.3, 0.6, 0.8]), np.array([0.25, 0.5, 0.78]))
    counts = np.round(images * shares).astype(np.int64)
    resampled = seen(rng.multinomial(images, counts / counts.sum(axis=1, keepdims=True), (20_000, 3)))
    again = (1 - resampled.now / resampled.learned).var(axis=0)
    assert sampling_variances(seen(counts)) == pytest.approx(again, rel=tolerance)


def test_variances_without_noise_are_unbiased_and_reliability_is_that_of_half_tests() -> None:
    """True forgetting is known. Half-tests: r between two halves of the images, 2 r / (1 + r) by Spearman and Brown."""
    rng, classes = np.random.default_rng(3), 10
    learned = rng.uniform(0.6, 0.8, (3000, classes))
    true = rng.normal(0.4, 0.08, (3000, classes))
    now = learned * (1 - true)
    both = learned * now + 0.2 * np.sqrt(learned * (1 - learned) * now * (1 - now))
    halves = rng.multinomial(50, tables(learned, now, both), (2, 3000, classes))
    found = [noise_of_step(seen(step)) for step in halves.sum(axis=0)]
    variances, observed = np.array([one.variance for one in found]), np.array([one.observed for one in found])
    error = 4 * variances.std() / np.sqrt(3000)
    assert variances.mean() == pytest.approx(true.var(axis=1, ddof=1).mean(), abs=error)
    assert (variances < 0).any()  # not cut off
    parts = seen(halves)
    one, other = (values - values.mean(axis=1, keepdims=True) for values in 1 - parts.now / parts.learned)
    r = (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum())
    reliability = reliability_estimate(variances, observed)
    assert reliability.value == pytest.approx(2 * r / (1 + r), abs=0.03)
    whole = seen(halves.sum(axis=0))
    fg = 1 - whole.now / whole.learned
    rho = [stats.spearmanr(a, b).statistic for a, b in zip(true, fg, strict=True)]
    reached = np.tanh(fisher_z(rho, classes).mean())
    noises = [sampling_variances(seen(step)) for step in halves.sum(axis=0)[:200]]
    assert rank_ceiling(variances.mean(), noises) == pytest.approx(reached, abs=0.02)
    assert rank_ceiling(variances.mean(), noises) == pytest.approx(np.sqrt(reliability.value), abs=0.05)


def test_a_mean_variance_below_zero_is_no_spread_and_leaves_nothing_to_rank() -> None:
    below = Estimate(-0.002, -0.004, 0.0001, 8)
    assert spread_estimate(below) == Estimate(0.0, 0.0, pytest.approx(0.01), 8)
    ceiling = ceiling_estimate(below, [np.full(10, 0.005)] * 8)
    assert (ceiling.value, ceiling.low) == (0.0, 0.0)
    assert 0 < ceiling.high < 0.3


def test_an_interval_of_reliability_holds_its_value() -> None:
    without, observed = np.array([0.01, 0.001, 0.04]), np.array([0.012, 0.006, 0.041])
    rest = without - without.mean() / observed.mean() * observed
    margin = stats.t.ppf(0.975, 2) * stats.sem(rest) / observed.mean()
    value = without.mean() / observed.mean()
    assert 0 < value - margin < 1 < value + margin
    ends = pytest.approx(value - margin), pytest.approx(value + margin)
    assert reliability_estimate(without, observed) == Estimate(pytest.approx(value), *ends, 3)
    below = reliability_estimate(np.array([-0.001, -0.002, -0.0012]), np.array([0.01, 0.01, 0.011]))
    assert below.value == pytest.approx(-0.0042 / 0.031)
    assert below.low < below.value < below.high < 0  # neither is cut
    alone = reliability_estimate(without[:1], observed[:1])
    assert np.isnan([alone.low, alone.high]).all()


def test_what_cannot_be_known_is_missing() -> None:
    nothing = noise_of_step(alike(1, 100))
    assert np.isnan(nothing).all()
    never = Recognised(*(np.array(column) for column in ([100.0, 100, 100], [0.0, 0.8, 0.7], [0.1, 0.5, 0.4], [0, 0.45, 0.35])))
    assert np.isnan(sampling_variances(never)).tolist() == [True, False, False]
    assert np.isfinite(noise_of_step(never)).all()
    assert np.isnan(rank_ceiling(0.01, [np.array([0.1, 0.1, np.nan])]))
    assert np.isnan(reliability_estimate(np.array([np.nan]), np.array([np.nan])).value)
    assert np.isnan(sampling_variances(alike(2, 1))).all()


@settings(max_examples=50)
@given(st.integers(2, 30), st.integers(2, 200), st.integers(0, 2**32))
def test_classes_may_come_in_any_order_and_more_images_are_less_noise(classes: int, images: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = seen(rng.multinomial(images, rng.dirichlet(np.ones(4), classes)))
    order = rng.permutation(classes)
    turned = Recognised(*(column[order] for column in found))
    np.testing.assert_allclose(sampling_variances(turned), sampling_variances(found)[order])
    np.testing.assert_allclose(noise_of_step(turned)[2:], noise_of_step(found)[2:], atol=1e-9)
    more = found._replace(images=2 * found.images)
    known = np.isfinite(sampling_variances(found))
    assert (sampling_variances(more)[known] <= sampling_variances(found)[known]).all()


def test_the_order_of_steps_does_not_matter_to_the_ceiling() -> None:
    noises = [np.full(5, 0.01), np.full(5, 0.04), np.full(8, 0.02)]
    assert rank_ceiling(0.02, noises) == rank_ceiling(0.02, noises[::-1])
