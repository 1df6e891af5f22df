"""The matching constant against brute force: every constant that can matter is tried."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from forgetscope.analysis.statistics.matching import offset_for

Values = NDArray[np.float64]
MARGINS = st.lists(st.tuples(st.integers(-6, 6), st.sampled_from([0.01, 0.02, 0.05])), min_size=1, max_size=12)


def mean_forgetting(offset: float, margin: Values, gain: Values) -> float:
    return float(1 - gain[margin + offset >= 0].sum())


@given(MARGINS, st.floats(0, 1.2))
def test_no_constant_comes_nearer_and_of_equally_near_ones_none_is_smaller(
    images: list[tuple[int, float]], target: float
) -> None:
    margin, gain = (np.array(column, np.float64) for column in zip(*images, strict=True))
    tried = np.concatenate([-margin, -margin - 1e-9, [0.0]])
    distances = np.array([abs(mean_forgetting(offset, margin, gain) - target) for offset in tried])
    found = offset_for(target, margin, gain)
    if distances.min() > gain.max() + 1e-12:
        assert math.isnan(found)
    elif not math.isnan(found):
        assert abs(mean_forgetting(found, margin, gain) - target) == pytest.approx(distances.min(), abs=1e-9)
        assert abs(found) <= np.abs(tried[distances <= distances.min() + 1e-12]).min() + 1e-8


def test_whoever_has_the_mean_already_is_left_as_it_is() -> None:
    rng = np.random.default_rng(0)
    margin, gain = rng.normal(size=500).astype(np.float32).astype(np.float64), np.full(500, 1 / 500)
    assert offset_for(mean_forgetting(0.0, margin, gain), margin, gain) == 0.0


def test_an_offset_that_was_added_is_found_again() -> None:
    rng = np.random.default_rng(1)
    margin, gain = rng.normal(size=2000), np.full(2000, 1 / 2000)
    found = offset_for(mean_forgetting(0.7, margin, gain), margin, gain)
    assert found == pytest.approx(0.7, abs=0.01)
    assert mean_forgetting(found, margin, gain) == mean_forgetting(0.7, margin, gain)


@pytest.mark.parametrize("target", [0.2, math.nan])
def test_a_mean_that_no_constant_reaches_is_not_matched(target: float) -> None:
    assert math.isnan(offset_for(target, np.array([1.0, -1.0]), np.array([0.1, 0.1])))
    assert math.isnan(offset_for(0.5, np.empty(0), np.empty(0)))
