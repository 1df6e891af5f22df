"""Keepsakes against numpy's own covariance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from forgetscope.measuring.keepsakes import Spread, keepsake, rounded, spread_length


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 9), st.floats(0, 1e4))
def test_mean_and_spread_are_those_of_the_population(seed: int, n: int, d: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    features, right = rng.normal(size=(n, d)) + offset, rng.random(n) < 0.5
    whole = np.cov(features, rowvar=False, ddof=0).reshape(d, d)
    for kind, expected in (("variance", np.diag(whole)), ("covariance", whole[np.triu_indices(d)])):
        found = keepsake(features, right, kind, 3)
        assert (found.features_step, found.images, found.training_accuracy) == (3, n, right.sum() / n)
        assert found.mean is not None
        assert found.spread is not None
        assert found.mean.dtype == found.spread.dtype == np.float32
        np.testing.assert_allclose(found.mean, [math.fsum(column) / n for column in features.T], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found.spread, expected, rtol=1e-6 if kind == "variance" else 2**-8, atol=1e-7)
        assert len(found.spread) == spread_length(kind, d)


def test_the_upper_triangle_is_read_row_by_row() -> None:
    features = np.array([[1.0, 8.0, 64.0], [-1.0, -8.0, -64.0]])
    found = keepsake(features, np.array([True, False]), "covariance", 1)
    assert found.spread is not None
    assert found.spread.tolist() == [1, 8, 64, 64, 512, 4096]  # 11, 12, 13, 22, 23, 33


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1))
def test_covariances_are_rounded_as_bfloat16_is(values: list[float]) -> None:
    expected = torch.tensor(values, dtype=torch.float32).bfloat16().float().numpy()
    assert rounded(np.array(values, np.float32)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("kind", ["variance", "covariance"])
def test_what_is_no_finite_number_of_32_bits_is_not_kept(kind: Spread, value: float) -> None:
    features = np.array([[value, 1.0], [0.0, 2.0]])
    found = keepsake(features, np.array([True, True]), kind, 1)
    assert (found.mean, found.spread) == (None, None)
    assert (found.images, found.training_accuracy) == (2, 1.0)
