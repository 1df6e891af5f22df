from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forgetscope.measuring.forgetting import forgetting, forgetting_half_gap, forgetting_range

fractions = st.lists(st.floats(-5, 1), min_size=2, max_size=12)


def test_forgetting_by_hand() -> None:
    assert forgetting([0.8, 0.5, 0.5], [0.2, 0.5, 0.75]).tolist() == pytest.approx([0.75, 0.0, -0.5])


def test_a_class_that_was_never_learned_has_no_forgetting() -> None:
    assert math.isnan(forgetting([0.0], [0.3])[0])


def test_range_and_half_gap_by_hand() -> None:
    fg = [0.9, 0.1, 0.5, 0.3]
    assert forgetting_range(fg) == pytest.approx(0.8)
    assert forgetting_half_gap(fg) == pytest.approx((0.9 + 0.5) / 2 - (0.1 + 0.3) / 2)


def test_with_an_odd_number_the_middle_class_counts_to_the_upper_half() -> None:
    assert forgetting_half_gap([0.0, 0.5, 1.0]) == pytest.approx(0.75)


def test_undefined_forgetting_is_left_out() -> None:
    assert forgetting_range([0.2, math.nan, 0.6]) == pytest.approx(0.4)
    assert forgetting_half_gap([0.2, math.nan, 0.6]) == pytest.approx(0.4)


@pytest.mark.parametrize("fg", [[], [0.5], [math.nan, 0.5], [math.nan, math.nan]])
def test_below_two_classes_there_is_no_imbalance_to_measure(fg: list[float]) -> None:
    assert math.isnan(forgetting_range(fg))
    assert math.isnan(forgetting_half_gap(fg))


@given(fractions)
def test_the_half_gap_never_exceeds_the_range_and_both_ignore_order(fg: list[float]) -> None:
    assert -1e-12 <= forgetting_half_gap(fg) <= forgetting_range(fg) + 1e-12
    assert forgetting_half_gap(fg[::-1]) == forgetting_half_gap(fg)


@given(fractions, st.floats(-1, 1))
def test_forgetting_more_of_everything_changes_no_imbalance(fg: list[float], shift: float) -> None:
    moved = np.array(fg) + shift
    assert forgetting_range(moved) == pytest.approx(forgetting_range(fg), abs=1e-9)
    assert forgetting_half_gap(moved) == pytest.approx(forgetting_half_gap(fg), abs=1e-9)
