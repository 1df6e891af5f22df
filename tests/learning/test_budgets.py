from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forgetscope.errors import SpecError
from forgetscope.learning.budgets import Prices, allocated, neyman, quotas, retained
from forgetscope.spec import Kept, RehearsalSpec


def spec(retention: float | None = None, memory: int | None = None, memory_bytes: int | None = None) -> RehearsalSpec:
    budget = {"retention": retention, "memory": memory, "memory_bytes": memory_bytes}
    return RehearsalSpec(alpha=0.5, policy="uniform", probe_every=1, **budget)


def priced(introduced: list[int], image: int, features: int, kind: Kept | None, forecast: bool, logits: bool) -> Prices:
    """Of classes that steps introduced, in this order."""
    kept = RehearsalSpec(
        alpha=0.5, policy="uniform", probe_every=1, retention=0.1, keepsake=kind, forecast=True if forecast and kind else None
    )
    return Prices.of(kept, (image, image), dict(enumerate(introduced)), features=features, stores_logits=logits)


@pytest.mark.parametrize(
    ("images", "retention", "kept"),
    [(500, 0.08, 40), (200, 0.08, 16), (10, 0.25, 3), (10, 0.01, 1), (3, 1.0, 3), (50, 0.01, 1)],
)
def test_retention_keeps_the_rounded_share_and_at_least_one(images: int, retention: float, kept: int) -> None:
    assert retained(images, retention) == kept
    assert quotas(spec(retention), {7: images}) == {7: kept}


def test_a_fixed_memory_is_divided_and_the_remainder_goes_to_the_lowest_nodes() -> None:
    assert quotas(spec(memory=11), {5: 100, 3: 100, 9: 100}) == {5: 4, 3: 4, 9: 3}
    assert quotas(spec(memory=30), {5: 100, 3: 4, 9: 100}) == {5: 10, 3: 4, 9: 10}  # never more than a class has


@given(memory=st.integers(1, 500), classes=st.integers(1, 50), more=st.integers(0, 50))
def test_a_fixed_memory_is_never_exceeded_and_quotas_shrink_as_classes_come(memory: int, classes: int, more: int) -> None:
    sizes = dict.fromkeys(range(classes + more), 1000)
    if memory < classes + more:
        with pytest.raises(
            SpecError, match=f"memory = {memory} images? cannot hold one of each of {classes + more} past classes"
        ):
            quotas(spec(memory=memory), sizes)
        return
    later = quotas(spec(memory=memory), sizes)
    earlier = quotas(spec(memory=memory), dict.fromkeys(range(classes), 1000))
    assert sum(later.values()) == memory
    assert max(later.values()) - min(later.values()) <= 1
    assert all(later[label] <= earlier[label] for label in range(classes))


# ---- Quotas by spread

classes = st.lists(st.tuples(st.integers(1, 40), st.floats(1e-3, 1e3)), min_size=1, max_size=8)


@given(classes=classes, share=st.floats(0, 1))
def test_an_allocation_is_exact_within_bounds_and_as_near_as_whole_numbers_get(
    classes: list[tuple[int, float]], share: float
) -> None:
    most, weights = [n for n, _ in classes], [n * sigma for n, sigma in classes]
    total = len(most) + int(share * (sum(most) - len(most)))
    found = allocated(total, weights, most)
    least = [min(2, n) for n in most] if sum(min(2, n) for n in most) <= total else [1] * len(most)
    assert sum(found) == total
    assert all(a <= n <= b for a, n, b in zip(least, found, most, strict=True))
    np.testing.assert_array_less(np.abs(np.array(found) - in_proportion(total, weights, least, most)), 1 + 1e-6)
    assert allocated(total, [4 * weight for weight in weights], most) == found


def in_proportion(total: int, weights: list[float], least: list[int], most: list[int]) -> np.ndarray:
    """Real numbers, by looking for the one factor with which they add up."""
    low, high = 1e-9, 1e9
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if np.clip(middle * np.array(weights), least, most).sum() < total else (low, middle)
    shares: np.ndarray = np.clip(high * np.array(weights), least, most)
    return shares


@pytest.mark.parametrize(
    ("total", "weights", "most", "expected"),
    [
        (10, [1.0, 1.0, 1.0], [9, 9, 9], [4, 3, 3]),  # ties fall to the first
        (10, [0.0, 0.0, 0.0], [9, 9, 9], [4, 3, 3]),
        (10, [1.0, float("nan"), 5.0], [9, 9, 9], [4, 3, 3]),
        (10, [1.0, float("inf"), 5.0], [9, 9, 9], [4, 3, 3]),
        (10, [1e-9, 1.0, 1.0], [9, 9, 9], [2, 4, 4]),  # none below two
        (4, [1e-9, 1.0, 1.0], [9, 9, 9], [1, 2, 1]),  # or one, if there are too few
        (12, [5.0, 1.0, 1.0], [6, 9, 9], [6, 3, 3]),  # none above what there is
        (20, [1.0, 0.0, 0.0], [6, 9, 9], [6, 7, 7]),
        (10, [np.float64(0.1), np.float64(0.2), np.float64(0.7)], [9, 9, 9], [2, 2, 6]),
    ],
)
def test_allocations_by_hand(total: int, weights: list[float], most: list[int], expected: list[int]) -> None:
    assert allocated(total, weights, most) == expected


def test_it_estimates_the_mean_of_all_images_nearly_as_well_as_any_allocation() -> None:
    """Neyman's: the variance of the mean over classes, each by its size, from what is drawn of each without replacement."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        sizes, spreads = rng.integers(20, 60, 3), rng.uniform(0.1, 3, 3)

        def variance(drawn: tuple[int, ...], sizes: np.ndarray = sizes, spreads: np.ndarray = spreads) -> float:
            n = np.array(drawn)
            return float((sizes**2 * spreads**2 / n * (1 - n / sizes)).sum())

        every = (split for split in product(range(2, 21), repeat=3) if sum(split) == 24 and (np.array(split) <= sizes).all())
        best = min(map(variance, every))
        found = variance(tuple(allocated(24, list(sizes * spreads), list(sizes))))
        assert best <= found <= 1.03 * best
        assert found <= variance((8, 8, 8)) * 1.001


@given(
    steps=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    memory=st.integers(1, 300),
    seed=st.integers(0, 10**6),
    size=st.integers(1, 60),
)
def test_the_classes_of_a_step_keep_together_what_balanced_quotas_give_them(
    steps: list[int], memory: int, seed: int, size: int
) -> None:
    """Step after step, with a memory that shrinks for each class."""
    rng, kept, introduced = np.random.default_rng(seed), dict[int, int](), dict[int, int]()
    for step, count in enumerate(steps, start=1):
        new = range(len(introduced), len(introduced) + count)
        introduced |= dict.fromkeys(new, step)
        sizes = dict.fromkeys(introduced, size)
        if memory < len(sizes):
            return
        balanced = quotas(spec(memory=memory), sizes)
        weights = kept | {label: size * rng.uniform(0, 2) for label in new}
        found = neyman(balanced, introduced, weights, kept | dict.fromkeys(new, size))
        for other in range(1, step + 1):
            mine = [label for label in introduced if introduced[label] == other]
            assert sum(found[label] for label in mine) == sum(balanced[label] for label in mine)
        assert all(1 <= found[label] <= kept.get(label, size) for label in introduced)
        assert list(found) == list(balanced)
        kept = found


def test_a_retention_leaves_older_classes_what_they_have() -> None:
    introduced = {4: 1, 2: 1, 7: 2, 0: 2}
    balanced = quotas(spec(0.1), dict.fromkeys(introduced, 100))
    found = neyman(balanced, introduced, {4: 13, 2: 7, 7: 1.0, 0: 3.0}, {4: 13, 2: 7, 7: 100, 0: 100})
    assert found == {4: 13, 2: 7, 7: 5, 0: 15}


# ---- A budget in bytes


def test_prices_by_hand() -> None:
    plain = priced([1, 1, 2], 8, 64, None, forecast=False, logits=False)
    assert (plain.images, plain.besides, plain.least) == (dict.fromkeys(range(3), 192), 0, 576)
    dark = priced([1, 1, 2], 8, 64, "variance", forecast=False, logits=True)
    assert dark.images == {0: 192 + 4 * 2, 1: 192 + 4 * 2, 2: 192 + 4 * 3}
    assert dark.besides == 4 * 128
    assert priced([1], 8, 64, "covariance", forecast=False, logits=False).besides == 4 * (64 + 64 * 65 // 2)
    assert priced([1], 8, 64, "variance", forecast=True, logits=False).besides == 2 * 4 * 128


budgets = given(
    steps=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 30), min_size=20, max_size=20),
    spare=st.integers(0, 20_000),
    image=st.integers(1, 6),
    kind=st.sampled_from([None, "variance", "covariance"]),
    forecast=st.booleans(),
    logits=st.booleans(),
)


@budgets
def test_what_is_kept_never_costs_more_and_one_more_image_would(
    steps: list[int], sizes: list[int], spare: int, image: int, kind: Kept | None, forecast: bool, logits: bool
) -> None:
    introduced = [step for step, count in enumerate(steps, start=1) for _ in range(count)]
    prices = priced(introduced, image, 5, kind, forecast, logits)
    of = dict(enumerate(sizes[: len(introduced)]))
    found = quotas(spec(memory_bytes=prices.least + spare), of, prices=prices)
    costs = sum(count * prices.images[label] for label, count in found.items()) + prices.besides * len(found)
    assert costs <= prices.least + spare
    assert all(1 <= count <= of[label] for label, count in found.items())
    unfilled = [label for label, count in found.items() if count < of[label]]
    if unfilled:  # all have as many or one more; the next is of the first class that has fewer
        fewest = min(found[label] for label in unfilled)
        assert all(found[label] <= fewest + 1 for label in unfilled)
        following = next(label for label in unfilled if found[label] == fewest)
        assert costs + prices.images[following] > prices.least + spare


@budgets
def test_quotas_in_bytes_shrink_as_classes_come(
    steps: list[int], sizes: list[int], spare: int, image: int, kind: Kept | None, forecast: bool, logits: bool
) -> None:
    introduced = [step for step, count in enumerate(steps, start=1) for _ in range(count)]
    memory_bytes = priced(introduced, image, 5, kind, forecast, logits).least + spare
    before: dict[int, int] = {}
    for number in range(1, len(steps) + 1):
        there = [step for step in introduced if step <= number]
        prices = priced(there, image, 5, kind, forecast, logits)
        found = quotas(spec(memory_bytes=memory_bytes), dict(enumerate(sizes[: len(there)])), prices=prices)
        assert all(found[label] <= count for label, count in before.items())
        before = found


def test_a_budget_without_room_is_told_with_the_least_that_would_do() -> None:
    prices = priced([1, 1], 8, 64, "variance", forecast=False, logits=True)
    least = 2 * (192 + 8 + 512)
    with pytest.raises(
        SpecError, match=f"memory_bytes = {least - 1} is too little for 2 past classes: .* Use at least {least}"
    ):
        quotas(spec(memory_bytes=least - 1), {0: 10, 1: 10}, prices=prices)
    assert quotas(spec(memory_bytes=least), {0: 10, 1: 10}, prices=prices) == {0: 1, 1: 1}
