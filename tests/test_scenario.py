from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from forgetscope.errors import SpecError
from forgetscope.scenario import class_sequence, explicit_sequence


@given(size=st.integers(1, 10), steps=st.integers(1, 5), seed=st.integers(0, 1000))
def test_steps_are_sorted_disjoint_and_of_equal_size(size: int, steps: int, seed: int) -> None:
    sequence = class_sequence(50, size / 50, steps, seed)
    assert [len(group) for group in sequence] == [size] * steps
    assert all(list(group) == sorted(group) for group in sequence)
    assert len({label for group in sequence for label in group}) == size * steps


def test_another_seed_gives_another_sequence_and_more_steps_leave_the_first_ones_alone() -> None:
    assert class_sequence(100, 0.1, 3, seed=0) != class_sequence(100, 0.1, 3, seed=1)
    assert class_sequence(100, 0.1, 3, seed=0)[:2] == class_sequence(100, 0.1, 2, seed=0)


def test_every_class_appears_equally_often_in_the_first_step() -> None:
    counts = [0] * 10
    for seed in range(2000):
        for label in class_sequence(10, 0.2, 1, seed)[0]:
            counts[label] += 1
    assert sum(counts) == 4000
    assert max(abs(n - 400) for n in counts) < 5 * (400 * 0.8) ** 0.5  # five standard deviations


@pytest.mark.parametrize(
    ("increment", "steps", "message"),
    [
        (0.15, 2, r"increment = 0.15 of 10 classes is 1.5 classes per step.*0.1 and 0.2"),
        (0.01, 1, r"is 0.1 classes per step"),
        (
            0.5,
            3,
            r"3 steps of 5 classes need 15 classes, but the data set has 10. Use at most 2 steps or an increment of .* 0.3",
        ),
    ],
)
def test_impossible_sequences_are_refused_with_the_nearest_valid_values(increment: float, steps: int, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        class_sequence(10, increment, steps, seed=0)


def test_an_explicit_sequence_is_sorted_and_checked() -> None:
    assert explicit_sequence([[3, 1], [0]], 4) == ((1, 3), (0,))
    for groups, message in (
        ([[0], [0]], "Class 0 appears twice"),
        ([[4]], "Class 4 in step 1 of the sequence does not exist: the data set has classes 0 to 3"),
        ([[0], []], "Step 2 of the sequence introduces no class"),
        ([], "The sequence is empty"),
    ):
        with pytest.raises(SpecError, match=message):
            explicit_sequence(groups, 4)
