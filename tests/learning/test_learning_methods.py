"""Methods: one contract for all, and each loss against a calculation by hand or by autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from forgetscope.choices import METHODS
from forgetscope.errors import SpecError
from forgetscope.learning.methods import (
    CLASSES,
    NEEDS,
    Method,
    Objective,
    TrainingBatch,
    checked_method,
    distillation_loss,
    logit_distance,
    make_method,
)
from forgetscope.measuring.keepsakes import Keepsake
from forgetscope.testing import BrokenContract, check_method, make_batch

NAMES = [*METHODS, "distillation(weight=0.3, temperature=5)", "dark-logits(weight=2)", "logit-adjusted(strength=0.5)"]


@pytest.mark.parametrize("name", NAMES)
def test_every_method_keeps_the_contract(name: str) -> None:
    check_method(partial(make_method, name))


def test_every_method_that_can_be_named_is_there() -> None:
    assert list(CLASSES) == list(METHODS)
    assert {need for method in CLASSES.values() for need in method.needs} == {*NEEDS} - {"keepsakes"}


def gradient(name: str, batch: TrainingBatch) -> Tensor:
    (found,) = torch.autograd.grad(make_method(name).loss(batch), batch.logits)
    return found


def softmax(values: Any) -> Any:
    e = np.exp(values - values.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_distillation_is_a_temperature_squared_times_the_divergence_from_the_parent() -> None:
    batch = make_batch(make_method("distillation"))
    assert batch.parent_logits is not None
    z, teacher = batch.logits.detach().double().numpy(), batch.parent_logits.double().numpy()
    p, q = softmax(teacher / 2), softmax(z[:, :3] / 2)
    expected = 4 * (p * np.log(p / q)).sum(axis=1).mean()
    assert distillation_loss(batch.logits[:, :3], batch.parent_logits, 2.0).item() == pytest.approx(expected, rel=1e-5)
    by_hand = softmax(z)  # of cross-entropy, softmax - onehot; of the divergence, T (q - p)
    by_hand[np.arange(12), batch.nodes.numpy()] -= 1
    by_hand[:, :3] += 2 * (q - p)
    np.testing.assert_allclose(gradient("distillation", batch).numpy(), by_hand / 12, rtol=1e-4, atol=1e-6)


def test_distillation_without_weight_has_the_gradient_of_replay_bit_for_bit() -> None:
    batch = make_batch(make_method("distillation"))
    assert torch.equal(gradient("distillation(weight=0)", batch), gradient("replay", batch))


def test_dark_logits_count_over_the_nodes_that_were_there() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], requires_grad=True)
    stored = torch.tensor([[0.0, 4.0, 3.0], [2.0, 5.0, math.nan], [math.nan] * 3])
    distance = logit_distance(logits, stored)
    assert distance.item() == pytest.approx(((1 + 4 + 0) / 3 + (4 + 0) / 2) / 2)
    (found,) = torch.autograd.grad(distance, logits)
    expected = torch.tensor([[1 / 3, -2 / 3, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(found, expected)
    assert float(logit_distance(torch.ones(2, 3), torch.full((2, 3), math.nan))) == 0


def test_dark_logits_hold_memory_images_alone() -> None:
    batch = make_batch(make_method("dark-logits"))
    extra = gradient("dark-logits", batch) - gradient("replay", batch)
    assert not extra[: batch.new].any()
    assert not extra[:, batch.past :].any()
    assert extra[batch.new :, : batch.past].any()


def test_asymmetric_cross_entropy_tells_new_images_apart_from_one_another_alone() -> None:
    batch = make_batch(make_method("ace"))
    z, nodes = batch.logits.detach().double().numpy(), batch.nodes.numpy()
    losses = [-np.log(softmax(z[i, 3:])[nodes[i] - 3]) for i in range(6)]
    losses += [-np.log(softmax(z[i])[nodes[i]]) for i in range(6, 12)]
    assert make_method("ace").loss(batch).item() == pytest.approx(np.mean(losses), rel=1e-5)
    assert not gradient("ace", batch)[:6, :3].any()
    assert (nodes[6:] >= 3).any()  # of current classes, in the memory stream: what trains them against past nodes


def test_logit_adjustment_adds_log_shares() -> None:
    batch = make_batch(make_method("logit-adjusted"))
    z, shares = batch.logits.detach().double().numpy(), np.array([1, 1, 1, 2, 2]) / 7
    p = softmax(z + 0.5 * np.log(shares))
    expected = -np.log(p[np.arange(12), batch.nodes.numpy()]).mean()
    assert make_method("logit-adjusted(strength=0.5)").loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_equal_shares_make_logit_adjustment_the_identity() -> None:
    batch = make_batch(make_method("replay"))
    same = TrainingBatch(batch.logits, batch.nodes, batch.new, batch.past, torch.full((5,), 0.2))
    np.testing.assert_allclose(gradient("logit-adjusted", same), gradient("replay", same), atol=1e-7)


def test_fine_tuning_is_given_new_images_alone() -> None:
    batch = make_batch(make_method("fine-tune"))
    assert (len(batch.logits), batch.new, int(batch.nodes.min())) == (6, 6, 3)


def test_no_method_sees_a_past_image_that_is_not_in_memory_but_joint_which_says_so() -> None:
    """What streams are made of follows from what is needed alone; a batch holds logits and no images."""
    assert [name for name in METHODS if "past images" in make_method(name).needs] == ["joint"]
    names = {one.name for one in fields(TrainingBatch)}
    assert names == {"logits", "nodes", "new", "past", "shares", "parent_logits", "stored_logits", "keepsakes"}


class Strange(Method):
    def __init__(self, needs: set[str]) -> None:
        self.needs = frozenset(needs)  # type: ignore[misc, assignment]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (F.cross_entropy, "mine makes a function"),
        (Strange({"money"}), "method mine needs 'money'"),
        (Strange({"stored logits"}), "method mine needs stored logits, which memory images alone have"),
        (Strange({"stored logits", "past images", "memory"}), "which memory images alone have"),
        (Strange({"current classes"}), "needs current classes in a memory stream"),
    ],
)
def test_what_is_no_method_is_told(method: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        checked_method("mine", method)


def test_needs_that_could_change_are_told() -> None:
    for needs in (["memory"], {"memory"}, "memory"):
        method = Strange(set())
        method.needs = needs  # type: ignore[misc, assignment]
        with pytest.raises(SpecError, match=r"method mine: needs is a .*, expected a frozenset"):
            checked_method("mine", method)


def test_a_method_without_a_loss_is_told_unless_its_instance_has_one() -> None:
    with pytest.raises(SpecError, match=r"method mine has no loss. Give it one: def loss\(self, batch\)"):
        checked_method("mine", Strange({"memory"}))
    method = Strange({"memory"})
    method.loss = F.cross_entropy  # type: ignore[method-assign, assignment]
    assert checked_method("mine", method) is method


def of(batch: TrainingBatch) -> Tensor:
    return F.cross_entropy(batch.logits, batch.nodes)


def changing_keepsakes(batch: TrainingBatch) -> Tensor:
    for one in (batch.keepsakes or {}).values():
        if one is not None and one.mean is not None:
            one.mean[:] = 0
    return of(batch)


def late(calls: list[int]) -> Any:
    def loss(batch: TrainingBatch) -> Tensor:
        calls.append(1)
        return of(batch) * (1 if len(calls) < 300 else 2)

    return loss


@pytest.mark.parametrize(
    ("needs", "loss", "predict", "message"),
    [
        ({"memory"}, lambda batch: of(batch).detach(), None, "its loss has no gradient. Compute it from batch.logits"),
        ({"memory"}, lambda batch: of(batch) * (1 + 0j), None, "its loss is of torch.complex64, expected a real number"),
        ({"memory", "keepsakes"}, changing_keepsakes, None, "mine changed keepsakes. Work on a copy"),
        ({"memory"}, late([]), None, "its loss on a batch changes with what came before"),
        ({"memory"}, of, lambda logits, past: logits * math.nan, "mine predicts NaN. Return a number for each logit"),
        ({"memory"}, of, lambda logits, past: logits > 0, "mine predicts by torch.bool, expected floating-point logits"),
        ({"memory"}, of, lambda logits, past: logits.long(), "mine predicts by torch.int64, expected floating-point logits"),
    ],
)
def test_the_contract_says_what_is_broken_in_one_line(needs: set[str], loss: Any, predict: Any, message: str) -> None:
    def mine() -> Method:
        method = Strange(needs)
        method.loss = loss  # type: ignore[method-assign]
        if predict:
            method.predict = predict  # type: ignore[method-assign]
        return method

    with pytest.raises(BrokenContract) as error:
        check_method(mine)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


class Counts(Method):
    """How often another batch came: more often than anything but a training shows it."""

    def __init__(self) -> None:
        self._changes, self._last = 0, torch.zeros(0)

    def loss(self, batch: TrainingBatch) -> Tensor:
        self._changes += not torch.equal(self._last, batch.nodes)
        self._last = batch.nodes.clone()
        return of(batch) * (2 if self._changes > 5 else 1)


class Draws(Method):
    """From a generator of its own, which nobody else's draws move."""

    def __init__(self, seed: int | None = 0) -> None:
        self._generator = np.random.default_rng(seed)

    def loss(self, batch: TrainingBatch) -> Tensor:
        return of(batch) * self._generator.random()


class DrawsFromAll(Method):
    """From the generator that batches and augmentation could be drawn from."""

    def loss(self, batch: TrainingBatch) -> Tensor:
        return of(batch) + 0 * torch.rand(())


class LooksAtOtherImages(Method):
    def predict(self, logits: Tensor, past: int) -> Tensor:
        return logits - logits.mean(dim=0)

    def loss(self, batch: TrainingBatch) -> Tensor:
        return of(batch)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Counts, "training that went on after 1 of 6 iterations ends otherwise"),
        (Draws, "its loss on a batch changes with what came before"),
        (partial(Draws, None), "its loss on a batch changes with what came before"),
        (DrawsFromAll, "moved torch's global generator. A loss draws nothing"),
        (LooksAtOtherImages, "what it predicts of an image depends on more than that image's logits"),
    ],
)
def test_the_contract_notices_a_method_that_runs_could_not_go_on_with(make: Callable[[], Method], message: str) -> None:
    with pytest.raises(BrokenContract) as error:
        check_method(make)
    assert message in str(error.value)


def test_what_the_contract_refuses_runs_refuse() -> None:
    kept = {0: Keepsake(1, 50, 0.8, np.ones(4, np.float32), np.ones(4, np.float32))}
    arguments = (
        torch.zeros(4, 5).requires_grad_(),
        torch.tensor([3, 4, 3, 4]),
        torch.arange(4),
        torch.zeros(0, dtype=torch.int64),
    )
    for needs, loss, message in (
        ({"memory"}, lambda batch: of(batch).detach(), "no gradient"),
        ({"memory"}, lambda batch: of(batch) * (1 + 0j), "complex64"),
        ({"memory", "keepsakes"}, changing_keepsakes, "changed keepsakes"),
    ):
        method = Strange(needs)
        method.loss = loss  # type: ignore[method-assign, assignment]
        with pytest.raises(SpecError, match=message):
            Objective("mine", method, 3, None, torch.ones(5) / 5, keepsakes=kept).loss(*arguments)


def test_a_network_that_is_not_finite_is_not_the_method_s_fault() -> None:
    objective = Objective("mine", make_method(None), 3, None, torch.ones(5) / 5)
    assert objective.predict(torch.full((4, 5), math.nan)).isnan().all()


class PerImage(Method):
    def loss(self, batch: TrainingBatch) -> Tensor:
        return F.cross_entropy(batch.logits, batch.nodes, reduction="none")

    def predict(self, logits: Tensor, past: int) -> Tensor:
        return logits[:, past:]


def test_a_loss_or_a_prediction_of_another_shape_is_told() -> None:
    objective = Objective("mine", PerImage(), 3, None, torch.ones(5) / 5)
    logits, nodes, none = torch.zeros(4, 5), torch.tensor([3, 4, 3, 4]), torch.zeros(0, dtype=torch.int64)
    with pytest.raises(SpecError, match=r"mine: its loss is a tensor of shape \(4,\), expected one number"):
        objective.loss(logits, nodes, torch.arange(4), none)
    with pytest.raises(SpecError, match=r"mine predicts by \(4, 2\) of logits \(4, 5\)"):
        objective.predict(logits)
