from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetscope.learning.policies import POLICIES, quota, rehearsal_set
from forgetscope.randomness import Streams
from forgetscope.spec import RehearsalSpec


def spec(retention: float) -> RehearsalSpec:
    return RehearsalSpec(alpha=0.5, policy="uniform", retention=retention, probe_every=1)


@pytest.mark.parametrize(
    ("images", "retention", "kept"),
    [(500, 0.08, 40), (200, 0.08, 16), (10, 0.25, 3), (10, 0.01, 1), (3, 1.0, 3), (50, 0.01, 1)],
)
def test_the_quota_is_the_rounded_share_and_at_least_one(images: int, retention: float, kept: int) -> None:
    assert quota(images, retention) == kept


@pytest.mark.parametrize("name", POLICIES)
@given(n=st.integers(1, 60), share=st.floats(0.01, 1), seed=st.integers(0, 1000))
def test_a_policy_fills_its_quota_with_different_images_that_it_was_given(name: str, n: int, share: float, seed: int) -> None:
    images = np.arange(100, 100 + n)
    chosen = POLICIES[name](images, quota(n, share), np.random.default_rng(seed))
    assert len(chosen) == quota(n, share)
    assert len(set(chosen.tolist())) == len(chosen)
    assert set(chosen.tolist()) <= set(images.tolist())


@pytest.mark.parametrize("name", POLICIES)
def test_a_smaller_quota_keeps_the_first(name: str) -> None:
    images = np.arange(30)
    large, small = (POLICIES[name](images, n, np.random.default_rng(5)) for n in (12, 5))
    assert small.tolist() == large[:5].tolist()


def test_uniform_chooses_every_image_equally_often() -> None:
    counts = np.zeros(10)
    for seed in range(3000):
        counts[POLICIES["uniform"](np.arange(10), 3, np.random.default_rng(seed))] += 1
    assert np.abs(counts - 900).max() < 5 * (3000 * 0.3 * 0.7) ** 0.5


def test_older_classes_keep_what_the_parent_kept_in_its_order() -> None:
    kept = {7: np.array([5, 3, 9, 1])}
    learned = {2: np.arange(20, 30), 4: np.arange(40, 50)}
    sizes = {7: 10, 2: 10, 4: 10}
    constant = rehearsal_set(spec(0.4), learned, kept, sizes, Streams(0, 3))
    shrinking = rehearsal_set(spec(0.2), learned, kept, sizes, Streams(0, 3))
    assert list(constant) == [7, 2, 4]
    assert constant[7].tolist() == [5, 3, 9, 1]
    assert shrinking[7].tolist() == [5, 3]
    assert shrinking[2].tolist() == constant[2][:2].tolist()


def test_what_is_kept_of_a_class_does_not_depend_on_the_other_classes() -> None:
    sizes = {2: 10, 4: 10}
    both = rehearsal_set(spec(0.4), {2: np.arange(10), 4: np.arange(10, 20)}, {}, sizes, Streams(0, 2))
    alone = rehearsal_set(spec(0.4), {4: np.arange(10, 20)}, {}, sizes, Streams(0, 2))
    assert both[4].tolist() == alone[4].tolist()
