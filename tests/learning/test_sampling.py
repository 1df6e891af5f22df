from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from forgetscope.learning.sampling import iterations_per_epoch, new_batches, rehearsal_batches
from forgetscope.randomness import Streams
from forgetscope.spec import Sampling

SIZES = np.array([5, 20, 10, 1])


def draw_new(streams: Streams, epoch: int, images: int, per_batch: int) -> np.ndarray:
    return np.stack(new_batches("iid", streams, epoch, per_batch, images))


def draw_rehearsal(streams: Streams, epoch: int, iterations: int, per_batch: int, sizes: np.ndarray) -> np.ndarray:
    return np.stack(rehearsal_batches("iid", streams, epoch, iterations, per_batch, sizes))


def classes_of(positions: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.cumsum(sizes), positions, side="right")


@given(n=st.integers(1, 5000), batch=st.integers(1, 200))
def test_an_epoch_is_one_pass_worth_of_new_data(n: int, batch: int) -> None:
    iterations = iterations_per_epoch(n, batch)
    assert (iterations - 1) * batch < n <= iterations * batch


def test_batch_sizes_are_exact_and_positions_valid() -> None:
    new = draw_new(Streams(0, 2), 0, 1900, 64)
    rehearsal = draw_rehearsal(Streams(0, 2), 0, 30, 48, SIZES)
    assert new.shape == (30, 64)
    assert rehearsal.shape == (30, 48)
    assert new.min() >= 0
    assert new.max() < 1900
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
    drawn = np.concatenate([draw_new(Streams(3, 2), epoch, 40, 25) for epoch in range(1000)])
    assert stats.chisquare(np.bincount(drawn.ravel(), minlength=40)).pvalue > 1e-3
    assert any(len(np.unique(batch)) < 25 for batch in drawn)


def test_epochs_differ_and_repeat_exactly() -> None:
    draw = [draw_new(Streams(0, 2), epoch, 50, 10).tolist() for epoch in (0, 1, 0)]
    assert draw[0] == draw[2] != draw[1]


@pytest.mark.parametrize("sampling", ["reshuffled", "reshuffled-short"])
@given(images=st.integers(1, 200), per_batch=st.integers(1, 64), epoch=st.integers(0, 5))
def test_reshuffled_passes_see_every_new_image_once_per_epoch(
    sampling: Sampling, images: int, per_batch: int, epoch: int
) -> None:
    batches = new_batches(sampling, Streams(0, 2), epoch, per_batch, images)
    assert len(batches) == iterations_per_epoch(images, per_batch)
    drawn = np.concatenate(batches)
    assert sorted(drawn[:images].tolist()) == list(range(images))
    if sampling == "reshuffled":
        assert {len(batch) for batch in batches} == {per_batch}  # filled up from the next pass
    else:
        assert len(drawn) == images
        assert [len(batch) for batch in batches[:-1]] == [per_batch] * (len(batches) - 1)
        assert len(batches[-1]) == images - per_batch * (len(batches) - 1)


def test_reshuffled_rehearsal_goes_through_the_set_before_it_repeats() -> None:
    drawn = np.concatenate(rehearsal_batches("reshuffled", Streams(0, 2), 0, 9, 8, SIZES))
    assert len(drawn) == 72 == 2 * SIZES.sum()
    assert (np.bincount(drawn) == 2).all()
    assert sorted(drawn[:36].tolist()) == list(range(36))


def test_short_rehearsal_batches_break_the_mix_as_the_scripts_do() -> None:
    batches = rehearsal_batches("reshuffled-short", Streams(0, 2), 0, 7, 16, SIZES)
    assert [len(batch) for batch in batches] == [16, 16, 4, 16, 16, 4, 16]  # 36 images per pass
    assert sorted(np.concatenate(batches[:3]).tolist()) == list(range(36))
    again = rehearsal_batches("reshuffled-short", Streams(0, 2), 1, 7, 16, SIZES)
    assert [len(batch) for batch in again] == [16, 16, 4, 16, 16, 4, 16]  # each epoch starts anew
    assert batches[0].tolist() != again[0].tolist()


def test_a_reshuffled_order_is_uniform() -> None:
    first = [int(new_batches("reshuffled", Streams(seed, 2), 0, 4, 6)[0][0]) for seed in range(1800)]
    assert stats.chisquare(np.bincount(first, minlength=6)).pvalue > 1e-3
