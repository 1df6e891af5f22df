"""A constant, weight aligning and bias correction, against scaled weights and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp

from forgetscope.calibrating.published import LEAST, RIDGE, bias_correction, offset, weight_aligning
from forgetscope.errors import InputError

Drawn = tuple[np.ndarray, np.ndarray]


def drawn(seed: int, past: int = 3, new: int = 2, images: int = 200, scale: float = 1.5, shift: float = 1.0) -> Drawn:
    """Logits whose own class is likelier, new ones having been scaled and moved; classes of unlike sizes."""
    rng = np.random.default_rng(seed)
    size = past + new
    nodes = np.concatenate([np.arange(size), rng.choice(size, images, p=np.arange(1, size + 1) / sum(range(1, size + 1)))])
    logits = rng.normal(size=(len(nodes), size)) + 1.5 * np.eye(size)[nodes]
    logits[:, past:] = scale * logits[:, past:] + shift
    return logits, nodes


def slow_loss(at: np.ndarray, logits: np.ndarray, nodes: np.ndarray, past: int) -> float:
    """Of each class the mean cross-entropy, and of these the mean."""
    moved = logits.copy()
    moved[:, past:] = at[0] * moved[:, past:] + at[1]
    of_image = logsumexp(moved, axis=1) - moved[np.arange(len(nodes)), nodes]
    of_class = [of_image[nodes == node].mean() for node in range(logits.shape[1])]
    return float(np.mean(of_class)) + RIDGE / 2 * ((at[0] - 1) ** 2 + at[1] ** 2)


@given(st.integers(0, 2**32), st.floats(0.2, 3), st.floats(-3, 3))
@settings(max_examples=25, deadline=None)
def test_bias_correction_is_the_minimum_that_scipy_finds(seed: int, scale: float, shift: float) -> None:
    logits, nodes = drawn(seed, scale=scale, shift=shift)
    found = bias_correction(logits, nodes, 3)
    bounds = [(LEAST, None), (None, None)]
    oracle = minimize(
        slow_loss, [1.0, 0.0], (logits, nodes, 3), "L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9}
    )
    here = np.array([found.numbers["scale"], found.numbers["offset"]])
    assert slow_loss(here, logits, nodes, 3) <= oracle.fun + 1e-12
    np.testing.assert_allclose(here, oracle.x, atol=2e-3)
    np.testing.assert_array_equal(found.adjustment.scales, [1, 1, 1, here[0], here[0]])
    np.testing.assert_array_equal(found.adjustment.offsets, [0, 0, 0, here[1], here[1]])


def test_bias_correction_undoes_what_was_done_to_new_logits() -> None:
    logits, nodes = drawn(0, images=200_000)
    plain, _ = drawn(0, images=200_000, scale=1, shift=0)
    found, wanted = (bias_correction(given, nodes, 3).adjustment.of(given) for given in (logits, plain))
    np.testing.assert_allclose(found, wanted, atol=0.01)


def test_a_scale_stays_above_zero_and_the_offset_is_the_best_beside_it() -> None:
    logits, nodes = drawn(1, scale=-1)
    found = bias_correction(logits, nodes, 3)
    assert found.numbers["scale"] == LEAST
    oracle = minimize(lambda at: slow_loss(np.array([LEAST, at[0]]), logits, nodes, 3), [0.0], method="BFGS", tol=1e-10)
    assert found.numbers["offset"] == pytest.approx(oracle.x[0], abs=1e-5)


def test_images_that_are_separated_without_an_error_have_a_correction_all_the_same() -> None:
    nodes = np.repeat(np.arange(4), 5)
    found = bias_correction(20 * np.eye(4)[nodes], nodes, 2)
    assert np.abs([found.numbers["scale"] - 1, found.numbers["offset"]]).max() < 1


def test_new_logits_that_are_all_alike_are_moved_and_not_scaled() -> None:
    logits, nodes = drawn(2)
    logits[:, 3:] = 0
    found = bias_correction(logits, nodes, 3)
    assert found.numbers["scale"] == pytest.approx(1)
    assert np.isfinite(found.numbers["offset"])


def test_how_many_images_a_class_has_changes_nothing() -> None:
    logits, nodes = drawn(3)
    more = np.flatnonzero(nodes == 0)
    again = bias_correction(np.concatenate([logits, logits[more]]), np.concatenate([nodes, nodes[more]]), 3)
    one = bias_correction(logits, nodes, 3)
    np.testing.assert_allclose(again.adjustment.offsets, one.adjustment.offsets, atol=1e-9)
    assert again.numbers["past"] == pytest.approx(one.numbers["past"])


def test_bias_correction_says_what_it_expects() -> None:
    logits, nodes = drawn(4)
    found = bias_correction(logits, nodes, 3)
    right = found.adjustment.of(logits).argmax(axis=1) == nodes
    past = np.mean([right[nodes == node].mean() for node in range(3)])
    assert found.numbers["past"] == pytest.approx(past)
    assert f"{past:.3f} of past images" in found.said
    assert found.numbers["loss"] < found.numbers["loss_before"]


@pytest.mark.parametrize(
    ("nodes", "past", "told"),
    [([0, 0, 1, 1], 1, "Class 2"), ([0, 1, 2, 3], 1, "to 3"), ([0, 1, 2], 1, r"\(3,\)"), ([0, 1, 2, 2], 3, "3 are past")],
)
def test_images_that_tell_nothing_are_refused(nodes: list[int], past: int, told: str) -> None:
    with pytest.raises(InputError, match=told):
        bias_correction(np.zeros((4, 3)), np.array(nodes), past)


def test_logits_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="not finite"):
        bias_correction(np.full((2, 2), np.nan), np.array([0, 1]), 1)


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=25)
def test_aligned_weights_are_new_rows_of_another_length(seed: int, biased: bool) -> None:
    rng = np.random.default_rng(seed)
    weight, bias = rng.normal(size=(5, 8)) * rng.uniform(0.5, 2, (5, 1)), rng.normal(size=5) if biased else None
    features, past = rng.normal(size=(30, 8)), 2
    found = weight_aligning(weight, bias, past)
    scaled = weight.copy()
    scaled[past:] *= np.linalg.norm(weight[:past], axis=1).mean() / np.linalg.norm(weight[past:], axis=1).mean()
    given_bias = 0 if bias is None else bias
    np.testing.assert_allclose(
        found.adjustment.of(features @ weight.T + given_bias), features @ scaled.T + given_bias, atol=1e-12
    )


@pytest.mark.parametrize("weight", [np.zeros((3, 2)), np.full((3, 2), np.inf)])
def test_rows_without_a_length_are_refused(weight: np.ndarray) -> None:
    with pytest.raises(InputError, match="nothing to align"):
        weight_aligning(weight, None, 1)


def test_a_constant_is_on_all_past_logits_and_on_no_other() -> None:
    found = offset(5, 3, 0.7)
    np.testing.assert_array_equal(found.adjustment.offsets, [0.7, 0.7, 0.7, 0, 0])
    np.testing.assert_array_equal(found.adjustment.scales, 1)
    assert "2.01 times" in found.said
    assert offset(5, 3, 0.0).adjustment.is_identity


@pytest.mark.parametrize("past", [0, 5, 6])
def test_without_past_or_new_classes_there_is_nothing_to_calibrate(past: int) -> None:
    with pytest.raises(InputError, match=f"{past} are past"):
        offset(5, past)
