from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forgetscope.analysis.statistics.detection import most_forgotten, precision_at_k, roc_auc
from forgetscope.errors import InputError


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=10))
def test_the_area_is_the_share_of_pairs_in_order(rows: list[tuple[int, bool]]) -> None:
    pairs = [(a > b) + 0.5 * (a == b) for (a, p), (b, q) in itertools.product(rows, rows) if p and not q]
    found = roc_auc([score for score, _ in rows], [float(positive) for _, positive in rows])
    if pairs:
        assert found == pytest.approx(sum(pairs) / len(pairs))
    else:
        assert np.isnan(found)


def test_precision_by_hand() -> None:
    forgetting = [0.9, 0.8, 0.7, 0.2, 0.1]
    assert precision_at_k([5, 4, 1, 2, 3], forgetting, 2) == 1
    assert precision_at_k([5, 1, 2, 4, 3], forgetting, 2) == 0.5
    assert precision_at_k([1, 2, 3, 4, 5], forgetting, 5) == 1
    assert precision_at_k([1, 1, 1, 1, 1], forgetting, 2) == pytest.approx(2 / 5)  # a score that says nothing


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=6), st.integers(1, 3))
def test_precision_with_ties_is_the_mean_over_all_ways_to_break_them(rows: list[tuple[int, int]], k: int) -> None:
    scores, forgetting = [s for s, _ in rows], [f for _, f in rows]
    if len(rows) < k:
        assert np.isnan(precision_at_k(scores, forgetting, k))
        return

    def firsts(values: list[int]) -> list[set[int]]:
        orders = itertools.permutations(range(len(values)))
        return [set(order[:k]) for order in orders if all(values[a] >= values[b] for a, b in itertools.pairwise(order))]

    shares = [len(a & b) / k for a in firsts(scores) for b in firsts(forgetting)]
    assert precision_at_k(scores, forgetting, k) == pytest.approx(np.mean(shares))


def test_unknown_classes_take_no_part_and_steps_stack() -> None:
    scores = np.array([[3, 2, 1, math.nan], [1, 2, 3, 4]])
    forgetting = np.array([[0.3, 0.2, 0.1, 0.9], [0.1, math.nan, 0.3, 0.4]])
    np.testing.assert_allclose(precision_at_k(scores, forgetting, 2), [1, 1])
    np.testing.assert_allclose(precision_at_k(scores, forgetting, 4), [math.nan, math.nan])
    np.testing.assert_allclose(roc_auc(scores, most_forgotten(forgetting, 1)), [math.nan, 1])


def test_ties_at_the_edge_are_all_most_forgotten() -> None:
    np.testing.assert_array_equal(most_forgotten([0.5, 0.5, 0.1, math.nan], 1), [1, 1, 0, math.nan])
    np.testing.assert_array_equal(most_forgotten([0.5, 0.2], 7), [1, 1])
    np.testing.assert_array_equal(most_forgotten([0.5, math.nan, 0.2], 3), [1, math.nan, 1])
    with pytest.raises(InputError, match="first 0"):
        most_forgotten([0.5], 0)
