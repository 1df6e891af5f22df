from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from forgetscope.learning.sampling import draw_new, draw_rehearsal, iterations_per_epoch
from forgetscope.randomness import Streams

SIZES = np.array([5, 20, 10, 1])


def classes_of(positions: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.cumsum(sizes), positions, side="right")


@given(n=st.integers(1, 5000), batch=st.integers(1, 200))
def test_an_epoch_is_one_pass_worth_of_new_data(n: int, batch: int) -> None:
    iterations = iterations_per_epoch(n, batch)
    assert (iterations - 1) * batch < n <= iterations * batch


def test_batch_sizes_are_exact_and_positions_valid() -> None:
    new = draw_new(Streams(0, 2), 0, 30, 64, 500)
    rehearsal = draw_rehearsal(Streams(0, 2), 0, 30, 48, SIZES)
    assert new.shape == (30, 64)
    assert rehearsal.shape == (30, 48)
    assert new.min() >= 0
    assert new.max() < 500
    assert rehearsal.min() >= 0
    assert rehearsal.max() < SIZES.sum()


def test_class_counts_follow_the_multinomial() -> None:
    batches, per_batch, shares = 4000, 12, SIZES / SIZES.sum()
    classes = classes_of(draw_rehearsal(Streams(1, 2), 0, batches, per_batch, SIZES), SIZES)
    counts = np.stack([(classes == c).sum(axis=1) for c in range(len(SIZES))], axis=1)
    assert (counts.sum(axis=1) == per_batch).all()
    # every class's count is binomial over the batches ...
    for c, share in enumerate(shares):
        expected = batches * stats.binom.pmf(np.arange(per_batch + 1), per_batch, share)
        observed = np.bincount(counts[:, c], minlength=per_batch + 1)
        rare = expected < 5
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        assert stats.chisquare(observed, expected).pvalue > 1e-3
    # ... and counts of different classes covary as a multinomial's do
    covariance = np.cov(counts.T, ddof=0)
    np.testing.assert_allclose(covariance, per_batch * (np.diag(shares) - np.outer(shares, shares)), atol=0.15)


def test_images_within_a_class_are_equally_likely_and_drawn_with_replacement() -> None:
    drawn = draw_rehearsal(Streams(2, 2), 0, 3000, 36, SIZES).ravel()
    observed = np.bincount(drawn, minlength=SIZES.sum())
    assert stats.chisquare(observed).pvalue > 1e-3
    one_batch = draw_rehearsal(Streams(2, 2), 1, 1, 100, np.array([3]))
    assert len(np.unique(one_batch)) == 3


def test_new_images_are_drawn_uniformly_with_replacement() -> None:
    drawn = draw_new(Streams(3, 2), 0, 2000, 25, 40)
    assert stats.chisquare(np.bincount(drawn.ravel(), minlength=40)).pvalue > 1e-3
    assert any(len(np.unique(batch)) < 25 for batch in drawn)


def test_epochs_differ_and_repeat_exactly() -> None:
    draw = [draw_new(Streams(0, 2), epoch, 5, 10, 1000).tolist() for epoch in (0, 1, 0)]
    assert draw[0] == draw[2] != draw[1]
