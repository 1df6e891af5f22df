"""The forecaster in worlds where the truth is known: features that really move by a linear map."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from forgetscope.forecasting.forecaster import DRAWS, Forecaster, Head, KnownClass
from forgetscope.forecasting.translation import Fitted, deletions, drawn, spread_of
from forgetscope.measuring.keepsakes import Spread

PAST, NEW, WIDTH = 4, 4, 6
NODES = np.repeat(np.arange(PAST + NEW), 40)


def probability(features: NDArray[np.float64], node: int, head: Head) -> float:
    logits = features @ head[0].T + head[1]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return float((odds[:, node] / odds.sum(axis=1)).mean())


class World:
    """Past and new classes of normal features around centres of their own, which a step maps linearly to others."""

    def __init__(self, seed: int, move: float = 0.4) -> None:
        rng = np.random.default_rng(seed)
        self.centres = rng.normal(size=(PAST + NEW, WIDTH)) * 2
        self.before = self.centres[NODES] + rng.normal(size=(len(NODES), WIDTH))
        self.many = self.centres[:PAST, None] + rng.normal(size=(PAST, 20_000, WIDTH))
        self.map, self.shift = np.eye(WIDTH) + move * rng.normal(size=(WIDTH, WIDTH)), move * rng.normal(size=WIDTH)
        self.head_before: Head = (self.centres[:PAST] / 2, -(self.centres[:PAST] ** 2).sum(axis=1) / 4)
        self.head_now: Head = (rng.normal(size=(PAST + NEW, WIDTH)), rng.normal(size=PAST + NEW))
        self.now = self.before @ self.map + self.shift

    def known(self, kind: Spread = "variance", **given: float) -> dict[int, KnownClass | None]:
        found: dict[int, KnownClass | None] = {}
        for node in range(PAST):
            features = torch.from_numpy(self.many[node])
            found[node] = KnownClass(self.many[node].mean(axis=0), spread_of(features, kind), kind, 20_000, 0.8, **given)
        return found

    def forecaster(self, known: dict[int, KnownClass | None] | None = None, retained: int = 0) -> Forecaster:
        return Forecaster(
            self.known() if known is None else known,
            self.before,
            NODES,
            NODES >= PAST,
            dict.fromkeys(range(PAST), retained),
            self.head_before,
            np.random.default_rng,
        )


@pytest.mark.parametrize("kind", ["variance", "covariance"])
@pytest.mark.parametrize("seed", range(3))
def test_where_features_move_linearly_the_forecast_is_the_truth(kind: Spread, seed: int) -> None:
    world = World(seed)
    found = world.forecaster(world.known(kind)).forecast(world.now, world.head_now)
    for node in range(PAST):
        then = probability(world.many[node], node, world.head_before)
        now = probability(world.many[node] @ world.map + world.shift, node, world.head_now)
        assert found.forgetting[node] == pytest.approx(1 - now / then, abs=0.06)  # some hundred draws; a ridge
        assert found.accuracy[node] == pytest.approx(0.8 * (1 - found.forgetting[node]))
        assert found.low[node] < found.forgetting[node] <= found.high[node] <= 1


def test_what_is_in_memory_is_known() -> None:
    """Of a class that is kept whole the forecast is the memory's own probability, whatever the keepsake says."""
    world = World(3)
    found = world.forecaster(retained=20_000).forecast(world.now, world.head_now)
    for node in range(PAST):
        memory = probability(world.now[node == NODES], node, world.head_now)
        assert found.accuracy[node] == pytest.approx(memory)
        assert found.error[node] == pytest.approx(memory / 0.8 * np.sqrt(0.2 / (0.8 * 20_000)))  # of the accuracy alone
    half = world.forecaster(retained=10_000).forecast(world.now, world.head_now)
    none = world.forecaster().forecast(world.now, world.head_now)
    np.testing.assert_allclose(half.accuracy, (found.accuracy + none.accuracy) / 2)


def test_a_class_of_which_nothing_is_known_has_no_forecast_and_changes_no_other() -> None:
    world, known = World(4), World(4).known()
    whole = world.forecaster(known).forecast(world.now, world.head_now)
    part = world.forecaster({**known, 1: None}).forecast(world.now, world.head_now)
    assert np.isnan([part.forgetting[1], part.low[1], part.high[1], part.accuracy[1]]).all()
    others = [0, 2, 3]
    np.testing.assert_array_equal(part.forgetting[others], whole.forgetting[others])
    np.testing.assert_array_equal(part.error[others], whole.error[others])


def test_a_class_that_was_never_recognised_cannot_be_forgotten() -> None:
    world, known = World(4), World(4).known()
    assert known[2] is not None
    found = world.forecaster({**known, 2: replace(known[2], accuracy=0.0)}).forecast(world.now, world.head_now)
    assert np.isnan(found.forgetting).tolist() == [False, False, True, False]


def test_no_class_is_recognised_more_often_than_always() -> None:
    """Where p_then was tiny, the formula's A is far above 1."""
    world = World(4)
    found = world.forecaster(world.known(probability=1e-9)).forecast(world.now, world.head_now)
    np.testing.assert_allclose(found.accuracy, 1.0)
    np.testing.assert_allclose(found.forgetting, 1 - 1 / 0.8)
    assert (found.low == found.forgetting).all()
    assert (found.high >= found.forgetting).all()


@pytest.mark.parametrize(("right", "is_known"), [(4, False), (5, True)])
def test_a_class_that_was_recognised_on_few_images_is_unknown(right: int, is_known: bool) -> None:
    world, known = World(4), World(4).known()
    assert known[2] is not None
    rare = replace(known[2], accuracy=right / 200, images=200)
    found = world.forecaster({**known, 2: rare}).forecast(world.now, world.head_now)
    assert np.isfinite(found.forgetting).tolist() == [True, True, is_known, True]
    assert (rare.unpredictable is None) == is_known
    if not is_known:
        assert rare.unpredictable == (
            "it was hardly learned: the network recognised 4 of its 200 training images, each judged as if left out of "
            "training, and a forecast needs 5"
        )


@pytest.mark.parametrize(("trained", "is_known"), [(0.41, False), (0.39, True), (None, True)])
def test_a_class_whose_leave_one_out_accuracy_collapsed_is_unknown(trained: float | None, is_known: bool) -> None:
    """Of a head that has hardly learned, each image's own pull is most of what it knows."""
    world, known = World(4), World(4).known()
    assert known[2] is not None
    collapsed = replace(known[2], accuracy=0.2, training_accuracy=trained)
    found = world.forecaster({**known, 2: collapsed}).forecast(world.now, world.head_now)
    assert np.isfinite(found.forgetting).tolist() == [True, True, is_known, True]
    assert (collapsed.unpredictable is None) == is_known
    if not is_known:
        assert collapsed.unpredictable == (
            "how well it was learned is not known: the network recognised 41% of its training images, and 20% when each was "
            "judged as if left out of training, less than half as many"
        )


def test_before_anything_is_trained_nothing_is_predicted() -> None:
    """Of where the new nodes were put a forecast would speak, of forgetting it could not."""
    world, grown = World(4), World(4).head_now
    forecaster, before = world.forecaster(), world.head_before
    head: Head = (np.concatenate([before[0], grown[0][PAST:]]), np.concatenate([before[1], grown[1][PAST:]]))
    found = forecaster.forecast(world.before * (1 + 1e-7), head)
    for part in (found.forgetting, found.low, found.high, found.error, found.accuracy):
        assert np.isnan(part).all()
    assert forecaster.outlook(world.before, head).forgetting() == {}
    assert all(np.isfinite(one.error) for one in forecaster.carried(world.before, head).values())
    assert set(forecaster.draws(world.before)) == set(range(PAST))
    moved: Head = (head[0], head[1] + 1e-6 * np.eye(PAST + NEW)[1])
    for now, then in ((world.before, moved), (world.before * 1.01, head)):
        assert np.isfinite(forecaster.forecast(now, then).forgetting).all()


def of_rows(head: Head, order: list[int]) -> Head:
    return head[0][order], head[1][order]


@pytest.mark.parametrize(
    ("order", "unknown", "why"),
    [
        ([1, 0, 2, 3], [0, 1, 2, 3], "the head does not recognise 2 of 4 classes that the step before learned. Another head"),
        ([0, 1, 2, 3], [], ""),
    ],
)
def test_a_head_with_rows_in_another_order_is_noticed(order: list[int], unknown: list[int], why: str) -> None:
    world = World(1)
    world.head_before = of_rows(world.head_before, order)
    forecaster = world.forecaster()
    found = forecaster.forecast(world.now, world.head_now)
    assert np.flatnonzero(np.isnan(found.forgetting)).tolist() == unknown
    assert sorted(forecaster.missing) == unknown
    if unknown:
        assert forecaster.missing[0].startswith("the head does not recognise it: as the step begins it takes ")
        assert forecaster.missing[2].startswith(why)
        assert forecaster.handed_on == {}
    else:
        assert forecaster.handed_on == forecaster.probabilities


def test_one_class_of_many_that_the_head_does_not_know_concerns_no_other() -> None:
    world, known = World(1), World(1).known()
    assert known[3] is not None
    elsewhere = replace(known[3], mean=world.centres[0])  # what was kept of it lies where another class does
    forecaster = world.forecaster({**known, 3: elsewhere})
    assert list(forecaster.missing) == [3]
    assert np.isnan(forecaster.forecast(world.now, world.head_now).forgetting).tolist() == [False] * 3 + [True]
    assert set(forecaster.handed_on) == {0, 1, 2}
    older = world.forecaster({**known, 3: replace(elsewhere, probability=0.7)})
    assert older.missing == {}  # the head may have lost it since: its p_then was handed on


def test_a_head_that_is_unsure_but_right_passes() -> None:
    """As one trained on smoothed labels, or briefly."""
    world = World(1)
    world.head_before = (world.head_before[0] * 0.05, world.head_before[1] * 0.05)
    forecaster = world.forecaster()
    assert max(forecaster.probabilities.values()) < 0.4
    assert forecaster.missing == {}


def test_two_steps_carry_features_and_errors_on() -> None:
    world = World(5, move=0.2)
    first = world.forecaster()
    forecasts = first.forecast(world.now, world.head_now)
    carried = first.carried(world.now, world.head_now)
    later: dict[int, KnownClass | None] = {
        node: KnownClass(one.mean, one.spread, "variance", 20_000, 0.8, first.probabilities[node], one.error)
        for node, one in carried.items()
    }
    arguments = (NODES, NODES >= PAST, {}, world.head_now, np.random.default_rng)
    second = Forecaster(later, world.now, *arguments)
    assert second.probabilities == first.probabilities  # as they were learned, not as they are
    twice = second.forecast(world.now @ world.map + world.shift, world.head_now)
    for node in range(PAST):
        moved = (world.many[node] @ world.map + world.shift) @ world.map + world.shift
        truth = 1 - probability(moved, node, world.head_now) / probability(world.many[node], node, world.head_before)
        assert twice.forgetting[node] == pytest.approx(truth, abs=0.1)
        assert twice.error[node] >= forecasts.error[node]


def test_the_error_is_a_jackknife_over_classes_but_for_the_own() -> None:
    world = World(6)
    rng = np.random.default_rng(0)
    world.now = world.now + (rng.normal(size=(PAST + NEW, WIDTH)) * 0.7)[NODES]  # each class moves a little on its own
    found = world.forecaster().forecast(world.now, world.head_now)
    squares = np.zeros(PAST)
    for left_out in range(PAST + NEW):
        rest = left_out != NODES
        other = Forecaster(
            world.known(), world.before[rest], NODES[rest], NODES[rest] >= PAST, {}, world.head_before, np.random.default_rng
        )
        # The draws must be the same, so their correlation is that of all images.
        other.__dict__["_draws"] = world.forecaster()._draws
        change = other.forecast(world.now[rest], world.head_now).forgetting - found.forgetting
        squares += np.where(np.arange(PAST) == left_out, 0, 0.75 * change**2)
    np.testing.assert_allclose(found.error, np.sqrt(squares), rtol=1e-6)


def test_an_accuracy_of_a_few_images_makes_the_error_large() -> None:
    """By the delta method: forgetting is 1 - ... - r p / a, and a is a share of n images."""
    world = World(8)
    errors = []
    for accuracy, images in ((0.8, 100), (0.05, 100)):
        known: dict[int, KnownClass | None] = {
            node: replace(one, accuracy=accuracy, images=images) for node, one in world.known().items() if one is not None
        }
        errors.append(world.forecaster(known, retained=10).forecast(world.now, world.head_now).error)
        memory = np.array([probability(world.now[node == NODES], node, world.head_now) for node in range(PAST)])
        expected = 0.1 * memory / accuracy**2 * np.sqrt(accuracy * (1 - accuracy) / images)
        assert (errors[-1] >= expected).all()
    assert (errors[1] > errors[0]).all()


def test_one_class_of_each_kind_tells_nothing_about_the_error() -> None:
    world = World(7)
    some = np.isin(NODES, [0, PAST])
    known = {0: world.known()[0]}
    alone = Forecaster(
        known, world.before[some], NODES[some], NODES[some] >= PAST, {}, world.head_before, np.random.default_rng
    )
    found = alone.forecast(world.now[some], world.head_now)
    assert np.isfinite(found.forgetting).all()
    assert np.isnan(found.error).all()


@given(st.integers(0, 2**32), st.integers(2, 5), st.sampled_from(["variance", "covariance"]))
@settings(max_examples=20, deadline=None)
def test_draws_have_the_moments_that_were_kept(seed: int, width: int, kind: Spread) -> None:
    rng = np.random.default_rng(seed)
    features = torch.from_numpy(rng.normal(size=(50, width)) @ rng.normal(size=(width, width)) + rng.normal(size=width))
    spread, normals = spread_of(features, kind), torch.from_numpy(rng.normal(size=(100_000, width)))
    found = drawn(features.mean(dim=0).numpy(), spread, kind, torch.eye(width, dtype=torch.float64), normals)
    scale = float(features.std())
    np.testing.assert_allclose(found.mean(dim=0), features.mean(dim=0), atol=0.05 * scale)
    np.testing.assert_allclose(spread_of(found, kind), spread, atol=0.1 * scale**2)


def test_variances_go_with_the_correlation_within_classes() -> None:
    """The classes' centres lie along one line, which is none of a class's own shape."""
    rng = np.random.default_rng(0)
    nodes = np.repeat([0, 1], 2000)
    within = rng.normal(size=(4000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])  # a correlation of 0.8
    fitted = Fitted(
        torch.from_numpy(within + 100.0 * nodes[:, None] * [1, -1]), torch.from_numpy(nodes), torch.from_numpy(nodes == 1)
    )
    np.testing.assert_allclose(fitted.correlation(), [[1, 0.8], [0.8, 1]], atol=0.03)
    normals = torch.from_numpy(rng.normal(size=(100_000, 2)))
    draws = drawn(np.zeros(2), np.array([4.0, 9.0]), "variance", fitted.root, normals)
    np.testing.assert_allclose(np.cov(draws.T), [[4, 4.8], [4.8, 9]], atol=0.2)


def test_features_of_a_relu_stay_at_least_zero() -> None:
    rng = np.random.default_rng(0)
    nodes = np.arange(40) % 4
    before, now = rng.random((40, 3)), rng.random((40, 3))
    known: dict[int, KnownClass | None] = {
        node: KnownClass(np.full(3, 0.1), np.full(3, 1.0), "variance", 10, 0.5) for node in (0, 1)
    }
    head = (rng.normal(size=(4, 3)), np.zeros(4))
    forecaster = Forecaster(known, before, nodes, nodes > 1, {}, head, np.random.default_rng)
    assert all((draws >= 0).all() and draws.shape == (DRAWS, 3) for draws in forecaster.draws(now).values())
    negative = Forecaster(known, before - 0.5, nodes, nodes > 1, {}, head, np.random.default_rng)
    assert any((draws < 0).any() for draws in negative.draws(now).values())


def test_many_classes_are_left_out_in_ten_parts_of_each_kind() -> None:
    nodes = torch.arange(37)
    fitted = Fitted(torch.zeros(37, 1, dtype=torch.float64), nodes, nodes >= 25)
    parts = deletions(fitted)
    assert [part.parts for part in parts] == [10] * 20
    assert sorted(node for part in parts for node in part.nodes) == list(range(37))
    assert all(set(nodes[part.images].tolist()) == part.nodes for part in parts)


def test_features_that_are_all_zero_are_no_error() -> None:
    nodes = np.arange(8) % 4
    zeros = np.zeros((8, 3))
    known: dict[int, KnownClass | None] = {
        node: KnownClass(np.zeros(3), np.zeros(3), "variance", 20, 1.0, 0.25) for node in (0, 1)
    }
    begun, head = ((np.full((4, 3), of), np.zeros(4)) for of in (0.0, 1.0))
    found = Forecaster(known, zeros, nodes, nodes > 1, {0: 10, 1: 10}, begun, np.random.default_rng).forecast(zeros, head)
    np.testing.assert_allclose(found.forgetting, [0.5 * (1 - 0.25), 0.5 * (1 - 0.25)], atol=1e-12)
