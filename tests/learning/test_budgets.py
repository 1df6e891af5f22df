from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from forgetscope.errors import SpecError
from forgetscope.learning.budgets import quotas, retained
from forgetscope.spec import RehearsalSpec


def spec(retention: float | None = None, memory: int | None = None) -> RehearsalSpec:
    return RehearsalSpec(alpha=0.5, policy="uniform", retention=retention, memory=memory, probe_every=1)


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
