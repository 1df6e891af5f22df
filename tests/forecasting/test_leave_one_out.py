"""Approximate leave-one-out against heads that were really trained without the image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from forgetscope.forecasting.accuracy import leave_one_out


def trained_head(
    features: NDArray[np.float64], nodes: NDArray[np.int64], classes: int, decay: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Multinomial regression to its optimum."""
    inputs, labels = torch.from_numpy(features), torch.from_numpy(nodes)
    head = torch.nn.Linear(features.shape[1], classes).double()
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(head(inputs), labels) + decay / 2 * head.weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return head.weight.detach().numpy(), head.bias.detach().numpy()


@pytest.mark.parametrize("seed", range(3))
def test_accuracy_is_that_of_heads_trained_without_the_image(seed: int) -> None:
    """Few images, many features: the training accuracy is far from the truth, and this is not."""
    rng = np.random.default_rng(seed)
    nodes = np.arange(60) % 3
    features = rng.normal(size=(60, 25)) + 0.8 * np.eye(3, 25)[nodes]
    weight, bias = trained_head(features, nodes, 3, 0.01)
    right = []
    for i in range(len(nodes)):
        rest = np.arange(len(nodes)) != i
        without = trained_head(features[rest], nodes[rest], 3, 0.01)
        right.append((features[i] @ without[0].T + without[1]).argmax() == nodes[i])
    trained = ((features @ weight.T + bias).argmax(axis=1) == nodes).mean()
    found = leave_one_out(features, nodes, weight, bias)
    assert trained > np.mean(right) + 0.2
    assert abs(found.mean() - np.mean(right)) < 0.12
    assert (found == np.array(right)).mean() > 0.85


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 6), st.integers(1, 4))
@settings(max_examples=60)
def test_no_image_is_right_that_was_wrong_with_itself(seed: int, n: int, d: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    features, nodes = rng.normal(size=(n, d)), rng.integers(0, k, n)
    weight, bias = rng.normal(size=(k, d)), rng.normal(size=k)
    found = leave_one_out(features, nodes, weight, bias)
    trained = (features @ weight.T + bias).argmax(axis=1) == nodes
    assert not (found & ~trained).any()


def test_a_head_that_cannot_be_moved_is_taken_as_it_is() -> None:
    features, nodes = np.array([[1e4], [-1e4]]), np.array([0, 1])  # probabilities of exactly 0 and 1
    assert leave_one_out(features, nodes, np.array([[1.0], [-1.0]]), np.zeros(2)).tolist() == [True, True]
