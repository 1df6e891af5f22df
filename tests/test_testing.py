"""The contract suites find what breaks a contract, and say which value and what to do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from forgetscope.errors import InputError
from forgetscope.learning.candidates import Candidates
from forgetscope.learning.networks import SmoothNetwork
from forgetscope.testing import BrokenContract, check_network, check_policy

KEPT: list[int] = []


def repeating(candidates: Candidates, quota: int, rng: np.random.Generator) -> list[int]:
    return [0] * quota


def from_python(candidates: Candidates, quota: int, rng: np.random.Generator) -> list[int]:
    return random.sample(range(len(candidates)), quota)


def from_torch(candidates: Candidates, quota: int, rng: np.random.Generator) -> Tensor:
    return torch.randperm(len(candidates))[:quota]


def remembering(candidates: Candidates, quota: int, rng: np.random.Generator) -> Any:
    KEPT.append(1)
    return np.roll(np.arange(len(candidates)), len(KEPT))[:quota]


def normalising_in_place(candidates: Candidates, quota: int, rng: np.random.Generator) -> Any:
    candidates.images[:, 0] = 0
    return np.arange(quota)


def training(candidates: Candidates, quota: int, rng: np.random.Generator) -> Any:
    candidates.network.train()(candidates.normalise(candidates.images))
    return np.arange(quota)


def by_quota(candidates: Candidates, quota: int, rng: np.random.Generator) -> Any:
    return np.roll(np.arange(len(candidates)), quota)[:quota]


def by_node(candidates: Candidates, quota: int, rng: np.random.Generator) -> Any:
    return np.roll(np.arange(len(candidates)), candidates.node)[:quota]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (repeating, "policy repeating must return 3 different positions from 0 to 6"),
        (from_python, "policy from_python moved Python's global generator. Draw from `rng`"),
        (from_torch, "policy from_torch moved torch's global generator"),
        (remembering, "policy remembering chose .* with the same stream. Draw from `rng`, and keep nothing"),
        (normalising_in_place, "policy normalising_in_place changed images. Work on a copy"),
        (training, r"policy training changed backbone.stem.1.running_mean, .*"),
        (
            by_quota,
            r"policy by_quota chose \[20, .* for a quota of 4, and \[15, .* as the first of 9. Return the most valuable",
        ),
        (by_node, r"of a class at head node 1, and .* of the same class at another node. Treat every class alike"),
    ],
)
def test_what_a_policy_breaks_is_said(policy: Callable[..., Any], message: str) -> None:
    with pytest.raises(BrokenContract, match=message):
        check_policy(policy)


def test_a_choice_that_depends_on_the_quota_can_be_meant() -> None:
    check_policy(by_quota, ordered=False)


class Own(nn.Module):
    """Keeps the contract; what is below it breaks it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body, self.norm, self.drop = nn.Linear(3 * 8 * 8, 5), nn.BatchNorm1d(5), nn.Dropout(0.5)
        self.head = nn.Linear(5, classes)

    def features(self, images: Tensor) -> Tensor:
        return self.drop(self.norm(self.body(images.flatten(1))).relu())

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


class Unbiased(Own):
    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.head = nn.Linear(5, classes, bias=False)


class Scaled(Own):
    def forward(self, images: Tensor) -> Tensor:
        return 2 * super().forward(images)


class Numpys(Own):
    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        nn.init.constant_(self.body.weight, np.random.uniform())


class Noisy(Own):
    def features(self, images: Tensor) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        return super().features(images) + self.calls // 4


class OfTheBatch(Own):
    def features(self, images: Tensor) -> Tensor:
        return super().features(images - images.mean(dim=0))


class Detached(Own):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).detach().requires_grad_()


class Unregistered(Own):
    def features(self, images: Tensor) -> Tensor:
        if self.training:
            self.scale = 2.0
        return super().features(images) * getattr(self, "scale", 1.0)


class Counting(Own):
    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.register_buffer("seen", torch.zeros(()))

    def features(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        return super().features(images)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda classes: classes, "is int, not a torch.nn.Module"),
        (lambda classes: Own(2), "has a head with 2 nodes for 3 classes"),
        (Unbiased, "network Unbiased has a head without bias"),
        (Scaled, r"network Scaled: its output is not head\(features\(images\)\)"),
        (Numpys, "network Numpys moved NumPy's global generator. Draw from torch's"),
        (Noisy, "network Noisy: the same images give other outputs in evaluation mode"),
        (OfTheBatch, "network OfTheBatch: in evaluation an image's output depends on the others of its batch"),
        (Detached, "network Detached: no gradient reaches its head from 6 images"),
        (Unregistered, "network Unregistered: a saved and loaded state gives other outputs. Register all of it"),
        (Counting, "network Counting: evaluation changes seen. Change state in training only"),
    ],
)
def test_what_a_network_breaks_is_said(factory: Callable[[int], Any], message: str) -> None:
    with pytest.raises(BrokenContract, match=message):
        check_network(factory, image_size=8)


def test_dropout_and_batch_norm_keep_the_contract_but_for_single_images() -> None:
    check_network(Own, image_size=8)
    with pytest.raises(BrokenContract, match="network Own cannot learn from batches of 1: Expected more than 1 value"):
        check_network(Own, image_size=8, single_images=True)


def test_images_need_not_be_square() -> None:
    check_network(lambda classes: SmoothNetwork((4, 6), 5, classes, np.random.default_rng(0)), image_size=(4, 6))


def test_what_is_given_in_place_of_a_function_is_named() -> None:
    with pytest.raises(InputError, match=r"check_policy was given 'uniform'. Give it the function itself"):
        check_policy("uniform")  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"check_network was given a Linear\. Give it what makes a network: factory\(classes\)"
    ):
        check_network(nn.Linear(3, 4))
    with pytest.raises(InputError, match="check_network was given a str"):
        check_network("resnet8")  # type: ignore[arg-type]
