"""What a calibration comes to, as predictions have it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forgetscope.calibrating.adjustment import Adjustment
from forgetscope.errors import InputError


@given(st.integers(0, 2**32), st.floats(-50, 50))
def test_one_constant_on_all_logits_changes_no_prediction(seed: int, constant: float) -> None:
    rng = np.random.default_rng(seed)
    found, logits = Adjustment(rng.uniform(0.5, 2, 4), rng.normal(size=4)), rng.normal(size=(20, 4))
    moved = Adjustment(found.scales, found.offsets + constant)
    np.testing.assert_array_equal(moved.of(logits).argmax(axis=1), found.of(logits).argmax(axis=1))


def test_logits_are_scaled_and_then_moved() -> None:
    logits = np.array([[1.0, -2.0], [0.5, 0.0]], np.float32)
    found = Adjustment(np.array([1.0, 2.0]), np.array([0.25, -1.0])).of(logits)
    np.testing.assert_array_equal(found, [[1.25, -5.0], [0.75, -1.0]])
    assert found.dtype == np.float64


def test_nothing_is_changed_by_the_identity_alone() -> None:
    assert Adjustment.by_node(3, {}).is_identity
    assert not Adjustment.by_node(3, {1: 1e-300}).is_identity
    assert not Adjustment(np.array([1.0, 2.0]), np.zeros(2)).is_identity


def test_it_is_a_value_that_nobody_changes() -> None:
    offsets = np.zeros(2)
    found = Adjustment(np.ones(2), offsets)
    offsets[0] = 1
    assert found.is_identity
    with pytest.raises(ValueError, match="read-only"):
        found.offsets[0] = 1


@pytest.mark.parametrize(
    ("scales", "offsets", "told"),
    [([1, 1], [0], r"\(2,\)"), ([1, 0], [0, 0], "above 0"), ([1, -1], [0, 0], "above 0"), ([1, 1], [0, np.nan], "nan")],
)
def test_what_is_no_adjustment_is_refused(scales: list[float], offsets: list[float], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Adjustment(np.array(scales), np.array(offsets))


def test_logits_of_other_classes_are_refused() -> None:
    with pytest.raises(InputError, match="3 logits"):
        Adjustment.by_node(2, {}).of(np.zeros((4, 3)))
