from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from scipy import stats

from forgetscope.analysis.statistics import rank_correlation as ranks
from forgetscope.analysis.statistics.rank_correlation import (
    average_ranks,
    partial_correlation,
    partial_spearman,
    rank_correlations,
    spearman,
    untied_spearman,
)

Array = NDArray[np.float64]


def tied(seed: int, *shape: int, levels: int = 6, missing: float = 0.1) -> Array:
    """Whole numbers with many ties, some unknown."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, levels, shape).astype(float)
    values[rng.random(shape) < missing] = np.nan
    return values


def pingouin_partial(x: Array, y: Array, controls: Sequence[Array]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pingouin

        frame = pd.DataFrame({"x": x, "y": y, **{f"c{i}": c for i, c in enumerate(controls)}})
        covar = [f"c{i}" for i in range(len(controls))]
        return float(pingouin.partial_corr(frame, "x", "y", covar=covar, method="spearman")["r"].iloc[0])


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_ranks_are_scipy_s_average_ranks_and_leave_out_what_is_unknown(seed: int, classes: int) -> None:
    values = tied(seed, 4, classes)
    expected = np.full(values.shape, np.nan)
    for row, wanted in zip(values, expected, strict=True):
        wanted[~np.isnan(row)] = stats.rankdata(row[~np.isnan(row)])
    np.testing.assert_array_equal(average_ranks(values), expected)


def test_ranks_of_nothing_are_nothing() -> None:
    assert average_ranks(np.empty((3, 0))).shape == (3, 0)
    assert average_ranks(np.empty((0, 3))).shape == (0, 3)
    assert np.isnan(spearman(np.empty((2, 0)), np.empty((2, 0)))).all()
    np.testing.assert_array_equal(average_ranks([np.inf, -np.inf, 0.0, -0.0]), [4, 1, 2.5, 2.5])


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_spearman_is_scipy_s_on_the_complete_pairs(seed: int, classes: int) -> None:
    x, y = tied(seed, 3, 5, classes), tied(seed + 1, 3, 1, classes)
    found = spearman(x, y)
    assert found.shape == (3, 5)
    for s in range(3):
        for p in range(5):
            a, b = x[s, p], y[s, 0]
            both = ~(np.isnan(a) | np.isnan(b))
            a, b = a[both], b[both]
            if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
                assert math.isnan(found[s, p])
            else:
                assert found[s, p] == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-14)


def test_padding_changes_nothing() -> None:
    x, y, c = tied(1, 3, 8)
    padding = np.full(5, np.nan)
    padded = [np.concatenate([v, padding]) for v in (x, y, c)]
    assert spearman(padded[0], padded[1]) == spearman(x, y)
    assert partial_spearman(padded[0], padded[1], [padded[2]]) == partial_spearman(x, y, [c])


@given(st.integers(0, 10**6), st.integers(0, 3))
def test_the_order_of_the_classes_and_monotone_transformations_change_no_bit(seed: int, count: int) -> None:
    x, y, *controls = tied(seed, 2 + count, 12, levels=9)
    order = np.random.default_rng(seed).permutation(12)
    found = partial_spearman(x, y, controls)
    moved = partial_spearman(np.exp(x[order]), y[order] ** 3, [3 * c[order] - 1 for c in controls])
    np.testing.assert_array_equal(found, moved)
    np.testing.assert_allclose(partial_spearman(-x, y, controls), -found, atol=1e-12)
    np.testing.assert_allclose(partial_spearman(y, x, controls[::-1]), found, atol=1e-10)


@given(st.integers(0, 10**6))
def test_without_controls_the_partial_correlation_is_spearman_s(seed: int) -> None:
    x, y = tied(seed, 2, 4, 7)
    np.testing.assert_array_equal(partial_spearman(x, y, []), spearman(x, y))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_partial_correlations_are_pingouin_s(count: int) -> None:
    x, y, *controls = tied(count, 2 + count, 6, 20, levels=20)
    found = partial_spearman(x, y, controls)
    expected = [pingouin_partial(x[i], y[i], [c[i] for c in controls]) for i in range(6)]
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_one_ranking_answers_for_any_controls() -> None:
    x, y, a, b = tied(3, 4, 5, 20, missing=0)
    matrix = rank_correlations(x, y, a, b)
    np.testing.assert_allclose(matrix, np.swapaxes(matrix, -1, -2))
    np.testing.assert_allclose(partial_correlation(matrix, 0, 1, [2, 3]), partial_spearman(x, y, [a, b]))
    np.testing.assert_allclose(partial_correlation(matrix, 2, 1, [0]), partial_spearman(a, y, [x]))
    np.testing.assert_allclose(matrix[..., 0, 1], spearman(x, y))


def test_a_variable_with_other_gaps_costs_only_the_problems_that_have_them() -> None:
    x, y = tied(5, 4, 6, 10, missing=0), tied(6, 4, 1, 10, missing=0)
    x[2, 3, :4] = np.nan
    expected = [[spearman(x[s, p], y[s, 0]) for p in range(6)] for s in range(4)]
    np.testing.assert_array_equal(spearman(x, y), expected)


def test_large_inputs_are_worked_off_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, c = tied(7, 3, 9, 5, 11)
    whole = partial_spearman(x, y[:, :1], [c[:1]])
    monkeypatch.setattr(ranks, "CHUNK", 50)
    np.testing.assert_array_equal(partial_spearman(x, y[:, :1], [c[:1]]), whole)


def test_perfect_agreement_is_exactly_one() -> None:
    for n in range(3, 120):
        x = np.random.default_rng(n).normal(size=n)
        assert spearman(x, x**3) == 1
        assert spearman(x, -x) == -1


def test_what_is_undefined_is_missing_and_warns_nobody() -> None:
    rng = np.random.default_rng(0)
    x, y, c = rng.normal(size=(3, 10))
    constant = np.ones(10)
    assert np.isnan(spearman(x, constant))
    assert np.isnan(partial_spearman(x, y, [constant]))
    assert partial_spearman(x, y, [c, 2 * c]) == pytest.approx(partial_spearman(x, y, [c]))  # the second tells nothing new
    assert np.isnan(partial_spearman(x, y, [c, x]))  # nothing of x is left
    assert np.isnan(partial_spearman(x, y, [np.exp(y)]))
    assert np.isnan(spearman(x[:2], y[:2]))
    assert np.isnan(partial_spearman(x[:3], y[:3], [c[:3]]))
    assert not np.isnan(partial_spearman([1, 2, 3, 4], [2, 1, 3, 4], [[1, 3, 2, 4]]))
    assert np.isnan(spearman(np.full(5, np.nan), y[:5]))


def test_perfect_partial_agreement_is_one() -> None:
    rng = np.random.default_rng(2)
    x, c = rng.normal(size=(2, 30))
    assert partial_spearman(x, x**3, [c]) == pytest.approx(1, abs=1e-12)


@given(st.integers(3, 60), st.integers(0, 10**6))
def test_ranks_without_ties_correlate_as_their_values_to_the_last_bit(classes: int, seed: int) -> None:
    one, other = np.random.default_rng(seed).standard_normal((2, 4, classes))
    found = untied_spearman(average_ranks(one), average_ranks(other))
    assert (found == spearman(one, other)).all()
