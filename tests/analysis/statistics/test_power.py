"""Against statsmodels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import nct, t
from statsmodels.stats.power import TTestPower

from forgetscope.analysis.statistics.estimates import mean_estimate
from forgetscope.analysis.statistics.power import deviation, paired_power, pairs_for, smallest_difference


@pytest.mark.parametrize("n", [2, 3, 5, 20, 1000])
@pytest.mark.parametrize("effect", [0.01, 0.1, 0.5, 1.5, 20.0])
def test_the_power_of_the_paired_t_test(effect: float, n: int) -> None:
    expected = TTestPower().power(effect, n, 0.05)
    if not math.isnan(expected):  # its lower tail has holes
        assert paired_power(0.3 * effect, 0.3, n) == pytest.approx(expected, abs=1e-9)
    assert paired_power(-0.3 * effect, 0.3, n) == paired_power(0.3 * effect, 0.3, n)


@pytest.mark.parametrize("effect", [0.05, 0.1, 0.5, 1.0])
def test_pairs_are_enough_and_one_fewer_is_not(effect: float) -> None:
    n = pairs_for(-effect * 0.2, 0.2)
    assert n == math.ceil(TTestPower().solve_power(effect, power=0.8, alpha=0.05))
    assert smallest_difference(0.2, n) <= effect * 0.2 < smallest_difference(0.2, n - 1)


@pytest.mark.parametrize(("effect", "pairs"), [(0.6999, 19), (0.9821, 11), (1.9642, 5), (3.989, 3)])
def test_no_number_of_pairs_is_off_where_scipy_has_holes(effect: float, pairs: int) -> None:
    """Of these effects scipy's noncentral t distribution is NaN on the way of the search: it ended in 3,158 pairs, say."""
    assert pairs_for(effect, 1.0) == pairs
    assert nct.sf(t.ppf(0.975, pairs - 1), pairs - 1, effect * math.sqrt(pairs)) >= 0.8
    assert nct.sf(t.ppf(0.975, pairs - 2), pairs - 2, effect * math.sqrt(pairs - 1)) < 0.8


@given(effect=st.floats(0.02, 30), n=st.integers(2, 3000))
def test_power_is_a_number_and_grows_with_pairs_and_effect(effect: float, n: int) -> None:
    found = paired_power(effect, 1.0, n)
    assert 0.05 <= found <= 1
    assert paired_power(effect, 1.0, n + 1) >= found - 1e-9
    assert paired_power(effect * 1.01, 1.0, n) >= found - 1e-9


def test_what_cannot_be_told() -> None:
    assert pairs_for(0.0, 1.0) is None
    assert pairs_for(1e-6, 1.0) is None  # no plan has so many
    assert math.isnan(paired_power(0.1, 0.1, 1))
    assert math.isnan(smallest_difference(0.1, 1))


def test_the_deviation_is_read_off_an_interval() -> None:
    values = np.random.default_rng(0).normal(size=7)
    assert deviation(mean_estimate(values)) == pytest.approx(values.std(ddof=1))
    assert math.isnan(deviation(mean_estimate(values[:1])))
