"""Which classes were learned at all."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from forgetscope.analysis.statistics.learned import barely_learned, classes_known, wilson_low


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_limit_is_wilsons(counts: tuple[int, int]) -> None:
    right, images = counts
    expected = stats.binomtest(right, images).proportion_ci(0.95, method="wilson").low
    assert float(wilson_low(right / images, images)) == pytest.approx(expected, abs=1e-12)


def test_what_is_not_clearly_above_guessing_was_barely_learned() -> None:
    """Of ten classes and 100 test images each: 17 right have a lower limit of 0.109, 16 one of 0.101, 15 one of 0.093."""
    shares, images = np.array([0.17, 0.16, 0.15, 0.1, 0.0]), np.full(5, 100.0)
    assert barely_learned(shares, images, np.full(5, 10.0)).tolist() == [False, False, True, True, True]
    assert barely_learned(shares, images, np.full(5, 20.0)).tolist() == [False, False, False, False, True]


def test_the_fewer_images_the_more_is_needed() -> None:
    assert barely_learned([0.5, 0.5], [4, 400], [3, 3]).tolist() == [True, False]


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert barely_learned([math.nan, 0.0, 0.0], [100, 0, math.nan], [10, 10, 10]).tolist() == [False] * 3


def test_a_network_that_knew_one_class_alone_cannot_be_wrong() -> None:
    assert barely_learned([1.0, 0.9, 0.0], [20, 20, 20], [1, 1, 1]).tolist() == [False, False, True]


def test_a_head_is_as_large_as_the_steps_until_then_made_it() -> None:
    """Classes of steps 1, 1, 2, 2, 2 and 3."""
    assert classes_known([1, 1, 2, 2, 2, 3], [1, 2, 1]).tolist() == [2, 5, 2]
    assert classes_known([2, 1, 3, 2, 1, 2], [2]).tolist() == [5]
