"""Evening from held-out images, where the truth is known because it was drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import softmax

from forgetscope.calibrating.evening import MOST, Level
from forgetscope.calibrating.held_out import evening_from_held_out
from forgetscope.errors import InputError

PAST, NEW = 6, 4
LEARNED = np.full(PAST, 0.67)


def drawn(seed: int, images: int, spread: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Past classes have lost more or less of their logits: truly, by the same draw of `seed` whatever `images` is."""
    lost = spread * np.random.default_rng(seed).normal(size=PAST)
    rng = np.random.default_rng([seed, images])
    nodes = np.repeat(np.arange(PAST + NEW), images)
    logits = 2 * rng.normal(size=(len(nodes), PAST + NEW)) + 4 * np.eye(PAST + NEW)[nodes]  # softmax is the truth
    logits[:, :PAST] -= 0.5 + lost
    return logits, nodes


def true_forgetting(offsets: np.ndarray, seed: int, spread: float = 2.0) -> np.ndarray:
    """By accuracy on thousands of other images."""
    logits, nodes = drawn(seed, 4000, spread)
    logits[:, :PAST] += offsets
    right = logits.argmax(axis=1) == nodes
    return 1 - np.array([right[nodes == node].mean() for node in range(PAST)]) / LEARNED


@pytest.mark.parametrize("seed", range(5))
def test_true_forgetting_becomes_more_even_and_its_mean_stays(seed: int) -> None:
    found = evening_from_held_out(*drawn(seed, 40), LEARNED, strength=1)
    before, after = (true_forgetting(offsets, seed) for offsets in (np.zeros(PAST), found.offsets))
    assert after.std() < 0.7 * before.std()
    assert after.mean() == pytest.approx(before.mean(), abs=0.1)


def test_with_many_images_predicted_and_true_spread_are_what_was_promised() -> None:
    found = evening_from_held_out(*drawn(1, 2000), LEARNED, strength=1, shrinkage=1)
    assert np.ptp(found.after) < 0.01
    assert true_forgetting(found.offsets, 1).std() < 0.2 * true_forgetting(np.zeros(PAST), 1).std()


def test_of_few_images_less_is_taken_for_real() -> None:
    shares = [evening_from_held_out(*drawn(2, images, 0.5), LEARNED).shrinkage for images in (2, 8, 32, 2000)]
    assert shares == sorted(shares)
    assert shares[0] < 0.6 < 0.95 < shares[-1]


def test_where_nothing_differs_in_truth_little_is_taken_for_real() -> None:
    shares = [evening_from_held_out(*drawn(seed, 20, 0.0), LEARNED).shrinkage for seed in range(20)]
    assert np.mean(shares) < 0.2


@pytest.mark.parametrize("options", [{"shrinkage": 0.0}, {"strength": 0.0}])
def test_nothing_changes_without_truth_or_strength(options: dict[str, float]) -> None:
    assert evening_from_held_out(*drawn(3, 16), LEARNED, **options).adjustment.is_identity


@given(st.integers(0, 2**32), st.permutations(range(PAST)))
@settings(max_examples=20, deadline=None)
def test_permuting_past_classes_permutes_their_offsets(seed: int, order: list[int]) -> None:
    logits, nodes = drawn(seed, 10)
    learned = np.random.default_rng(seed).uniform(0.5, 1, PAST)
    places = np.array([*order, *range(PAST, PAST + NEW)])  # the class that is then at each node
    there = np.argsort(places)
    one = evening_from_held_out(logits, nodes, learned)
    other = evening_from_held_out(logits[:, places], there[nodes], learned[order])
    np.testing.assert_allclose(other.offsets, one.offsets[order], atol=1e-8)


@pytest.mark.parametrize("level", ["forgetting", "balance", 0.4])
def test_the_level_is_what_was_asked_for(level: Level) -> None:
    logits, nodes = drawn(4, 30)
    found = evening_from_held_out(logits, nodes, LEARNED, level=level)
    odds = softmax(found.adjustment.of(logits), axis=1)
    own = odds[np.arange(len(nodes)), nodes]
    forgotten = 1 - np.array([own[nodes == node].mean() for node in range(PAST)]) / LEARNED
    np.testing.assert_allclose(found.after, forgotten, atol=1e-12)
    if level == "balance":
        of_new = odds[nodes >= PAST, PAST:].sum(axis=1).mean()
        assert of_new == pytest.approx(found.new[0], abs=1e-6)
        assert of_new == pytest.approx(found.new[1])
    else:
        assert forgotten.mean() == pytest.approx(found.before.mean() if level == "forgetting" else level, abs=1e-6)


@pytest.mark.parametrize("level", ["forgetting", "balance", 0.2, 0.6])
def test_many_classes_some_of_them_hardly_recognised_are_predicted_to_be_forgotten_alike_at_any_level(level: Level) -> None:
    rng, past, size = np.random.default_rng(0), 15, 20
    nodes = np.repeat(np.arange(size), 30)
    logits = 1.5 * rng.normal(size=(len(nodes), size))
    logits[np.arange(len(nodes)), nodes] += rng.uniform(0.2, 4, size)[nodes]
    logits[:, :past] -= rng.uniform(0, 2.5, past)
    found = evening_from_held_out(logits, nodes, rng.uniform(0.4, 0.95, past), strength=1, shrinkage=1, level=level)
    assert found.before.std() > 0.15
    assert found.after.std() < 0.002


def test_a_class_of_which_nothing_tells_moves_with_the_others() -> None:
    logits, nodes = drawn(5, 20)
    learned = LEARNED.copy()
    learned[1] = np.nan  # not known
    learned[2] = 0  # never recognised
    seen = nodes != 3  # no held-out image
    found = evening_from_held_out(logits[seen], nodes[seen], learned, strength=1, shrinkage=1)
    assert np.flatnonzero(np.isnan(found.before)).tolist() == [1, 2, 3]
    np.testing.assert_allclose(found.offsets[[1, 2, 3]], found.offsets[[0, 4, 5]].mean())


def test_without_any_image_nothing_changes_and_that_is_said() -> None:
    found = evening_from_held_out(np.empty((0, PAST + NEW)), np.empty(0, np.int64), LEARNED)
    assert found.adjustment.is_identity
    assert "Nothing tells" in found.said


def test_the_price_is_not_told_without_new_images() -> None:
    logits, nodes = drawn(6, 20)
    past = nodes < PAST
    assert "cannot be told" in evening_from_held_out(logits[past], nodes[past], LEARNED).said
    with pytest.raises(InputError, match="balance"):
        evening_from_held_out(logits[past], nodes[past], LEARNED, level="balance")


def test_what_was_learned_counts_as_unsure_as_it_was_counted() -> None:
    logits, nodes = drawn(7, 20)
    few, many = (evening_from_held_out(logits, nodes, LEARNED, counted=np.full(PAST, n)) for n in (20, 2000))
    assert few.shrinkage < many.shrinkage


def test_a_class_that_was_hardly_learned_or_wholly_lost_ends_in_finite_offsets() -> None:
    logits, nodes = drawn(8, 20)
    logits[:, 0] -= 50  # nothing brings it back
    learned = LEARNED.copy()
    learned[1] = 0.02  # and this one is now better than it ever was
    found = evening_from_held_out(logits, nodes, learned, strength=1, shrinkage=1)
    assert np.isfinite(found.offsets).all()
    assert np.abs(found.offsets).max() < 3 * MOST


@pytest.mark.parametrize(
    ("options", "told"),
    [({"level": "even"}, "'even'"), ({"level": 1.5}, "1.5"), ({"level": np.nan}, "nan"), ({"strength": 2}, "2")],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        evening_from_held_out(*drawn(9, 5), LEARNED, **options)


@pytest.mark.parametrize(
    ("logits", "nodes", "told"),
    [
        (np.zeros((3, PAST + NEW)), [0, 1], r"\(2,\)"),
        (np.zeros((1, PAST + NEW)), [PAST + NEW], "to 10"),
        (np.zeros((1, PAST)), [0], "6 are past"),
        (np.full((1, PAST + NEW), np.inf), [0], "not finite"),
    ],
)
def test_images_that_cannot_be_read_are_refused(logits: np.ndarray, nodes: list[int], told: str) -> None:
    with pytest.raises(InputError, match=told):
        evening_from_held_out(logits, np.array(nodes), LEARNED)
