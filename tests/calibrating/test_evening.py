"""Evening: what it promises of predicted forgetting, by recomputing it with the offsets in the head's bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from forgetscope.calibrating.evening import MOST, Level, evened, evening_from_keepsakes as evening
from forgetscope.errors import InputError
from forgetscope.forecasting.forecaster import Forecaster, Head, KnownClass

PAST, NEW, WIDTH = 4, 3, 5
NODES = np.repeat(np.arange(PAST + NEW), 20)


def made(seed: int, missing: int | None = None) -> tuple[Forecaster, np.ndarray, Head]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(PAST + NEW, WIDTH))
    before = centres[NODES] + 0.5 * rng.normal(size=(len(NODES), WIDTH))
    now = before @ (np.eye(WIDTH) + 0.1 * rng.normal(size=(WIDTH, WIDTH)))
    known = {
        node: None if node == missing else KnownClass(centres[node], np.full(WIDTH, 0.25), "variance", 100, 0.7)
        for node in range(PAST)
    }
    head = (centres, -np.square(centres).sum(axis=1) / 2 + 0.5 * rng.normal(size=PAST + NEW))
    before_head = (centres[:PAST], -np.square(centres[:PAST]).sum(axis=1) / 2)
    retained = dict.fromkeys(range(PAST), 10)
    return Forecaster(known, before, NODES, NODES >= PAST, retained, before_head, np.random.default_rng), now, head


def applied(head: Head, offsets: np.ndarray) -> Head:
    return head[0], head[1] + np.concatenate([offsets, np.zeros(NEW)])


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_classes_are_predicted_to_be_forgotten_alike_and_their_mean_stays(seed: int) -> None:
    forecaster, now, head = made(seed)
    found = evening(forecaster, now, head, strength=1, shrinkage=1)
    again = forecaster.forecast(now, applied(head, found.offsets)).forgetting
    np.testing.assert_allclose(again, found.after, atol=1e-12)
    if np.abs(found.offsets).max() < MOST - 2:
        assert np.ptp(again) < 0.01
    assert again.mean() == pytest.approx(found.before.mean(), abs=1e-6)


@pytest.mark.parametrize("strength", [0.3, 0.65])
def test_a_part_of_the_differences_is_taken_away(strength: float) -> None:
    forecaster, now, head = made(1)
    found = evening(forecaster, now, head, strength=strength, shrinkage=1)
    assert found.after.std() == pytest.approx((1 - strength) * found.before.std(), rel=0.25)
    assert f"{found.before.std():.2f} as trained" in found.said


def test_nothing_is_done_with_no_strength_or_no_truth() -> None:
    forecaster, now, head = made(2)
    for options in ({"strength": 0.0}, {"shrinkage": 0.0}):
        found = evening(forecaster, now, head, **options)
        np.testing.assert_allclose(found.offsets, 0, atol=1e-9)
        assert found.new[0] == pytest.approx(found.new[1])


def test_shrinkage_is_the_share_that_is_not_error() -> None:
    forecaster, now, head = made(3)
    forecast = forecaster.forecast(now, head)
    expected = 1 - np.square(forecast.error).mean() / forecast.forgetting.var(ddof=1)
    assert evening(forecaster, now, head).shrinkage == pytest.approx(max(0, expected))


@pytest.mark.parametrize("level", ["forgetting", "balance", 0.3])
def test_the_level_is_kept_or_reached(level: Level) -> None:
    forecaster, now, head = made(4)
    found = evening(forecaster, now, head, level=level)
    if level == "balance":
        assert found.new[1] == pytest.approx(found.new[0], abs=1e-6)
    else:
        target = found.before.mean() if level == "forgetting" else level
        assert found.after.mean() == pytest.approx(target, abs=1e-6)


@pytest.mark.parametrize("level", ["balance", 0.1, 0.5, 0.7, -20.0])
@pytest.mark.parametrize("seed", [3, 4])
def test_classes_are_predicted_to_be_forgotten_alike_at_any_level(seed: int, level: Level) -> None:
    forecaster, now, head = made(seed)
    found = evening(forecaster, now, head, strength=1, shrinkage=1, level=level)
    again = forecaster.forecast(now, applied(head, found.offsets)).forgetting
    assert np.ptp(found.before) > 0.1
    assert np.ptp(again) < 0.01


def test_a_class_without_a_forecast_moves_with_the_others() -> None:
    forecaster, now, head = made(5, missing=1)
    found = evening(forecaster, now, head)
    assert np.isnan(found.before[1])
    assert np.isnan(found.after[1])
    assert found.offsets[1] == pytest.approx(found.offsets[[0, 2, 3]].mean())


@pytest.mark.parametrize("options", [{"strength": 1.5}, {"strength": -0.1}, {"shrinkage": 2.0}])
def test_shares_that_are_none_are_refused(options: dict[str, float]) -> None:
    forecaster, now, head = made(6)
    with pytest.raises(InputError, match=str(next(iter(options.values())))):
        evening(forecaster, now, head, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": "a"}, "strength = 'a' is not a number from 0 to 1"),
        ({"strength": True}, "strength = True is not a number from 0 to 1"),
        ({"strength": float("nan")}, "strength = nan is not a number from 0 to 1"),
        ({"shrinkage": "estimated"}, "shrinkage = 'estimated' is not a number from 0 to 1"),
        ({"level": None}, "level = None is not"),
        ({"level": True}, "level = True is not"),
        ({"level": "half"}, "level = 'half' is not"),
        ({"level": 1.5}, "level = 1.5 is not"),
        ({"level": -np.inf}, "level = -inf is not"),
    ],
)
def test_what_is_no_option_is_refused(options: dict[str, Any], message: str) -> None:
    forecaster, now, head = made(6)
    with pytest.raises(InputError, match=message):
        evening(forecaster, now, head, **options)


def test_options_may_be_numbers_of_any_kind() -> None:
    forecaster, now, head = made(6)
    found = evening(forecaster, now, head, strength=np.float32(0.5), shrinkage=1, level=np.float64(0.25))
    assert found.after.mean() == pytest.approx(0.25, abs=1e-6)


def test_a_level_that_is_out_of_reach_is_said() -> None:
    forecaster, now, head = made(4)
    found = evening(forecaster, now, head, level=-20.0)
    reached = f"{found.after.mean():.2f}".replace("-", "−")
    assert (
        f" A mean of −20.00 is out of reach of a constant up to {MOST:g} on all past logits: it becomes {reached}."
        in found.said
    )
    assert "out of reach" not in evening(forecaster, now, head, level=0.3).said


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"strength": 0.0}, "strength = 0 takes no difference away"),
        ({"shrinkage": 0.0}, "shrinkage = 0 takes no difference for real"),
    ],
)
def test_offsets_that_are_all_0_are_said_to_change_nothing_and_why(options: dict[str, float], reason: str) -> None:
    forecaster, now, head = made(2)
    assert evening(forecaster, now, head, **options).said == f"Nothing changes, because {reason}."


def test_differences_no_larger_than_their_errors_change_nothing() -> None:
    class Alike:
        size, learned = 3, {0: 0.8, 1: 0.8}

        def forgetting(self, offsets: object = None) -> dict[int, float]:
            return {0: 0.3, 1: 0.31}

        def new(self, offsets: object = None) -> float:
            return 0.5

    said = "Nothing changes, because the predicted differences between past classes are no larger than their errors."
    assert evened(Alike(), {0: 0.2, 1: 0.2}).said == said
    one = evened(Alike(), {0: 0.2})
    assert one.said == "Nothing changes, because nothing tells of two past classes how much they were forgotten."
