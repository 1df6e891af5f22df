from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from forgetscope.data.preprocessing import Normalisation
from forgetscope.learning.networks import build_network
from forgetscope.learning.rsgd import (
    Divergence,
    EpochEnd,
    TrainingSet,
    learning_rate_at,
    make_optimiser,
    note_predictions,
    train_step,
)
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec, TrainingSpec

AS_IS = Normalisation(torch.zeros(3), torch.ones(3))


def training(**changes: Any) -> TrainingSpec:
    options = {"epochs": 3, "batch": 16, "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 5e-4}
    return TrainingSpec(**{**options, "augmentation": AugmentationSpec(), **changes})


def images_of(classes: int, each: int, first_node: int) -> TrainingSet:
    """The value of every pixel tells the node, so that a network can see which images it was given."""
    nodes = torch.arange(first_node, first_node + classes).repeat_interleave(each)
    images = nodes.to(torch.uint8)[:, None, None, None].expand(-1, 4, 4, 3).contiguous()
    return TrainingSet(images, nodes, np.full(classes, each))


class Watcher(nn.Module):
    """Notes the batches that it is given; its logits are parameters."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.linspace(-1, 1, classes))
        self.batches: list[list[int]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.batches.append((images[:, 0, 0, 0] * 255).round().int().tolist())
        return self.logits.expand(len(images), -1)


def run(network: nn.Module, spec: TrainingSpec, alpha: float, rehearsal: TrainingSet | None) -> list[Any]:
    optimiser = make_optimiser(network, spec)
    return list(train_step(network, optimiser, images_of(3, 15, 4), rehearsal, AS_IS, spec, alpha, Streams(0, 2)))


@pytest.mark.parametrize("sampling", ["iid", "reshuffled"])
def test_every_batch_holds_exactly_its_share_of_new_and_rehearsed_images(sampling: str) -> None:
    network = Watcher(7)
    ends = run(network, training(sampling=sampling), 0.25, images_of(4, 2, 0))
    assert [(end.epoch, end.iteration) for end in ends] == [(1, 4), (2, 8), (3, 12)]  # ceil(45 / 12) iterations each
    assert len(network.batches) == 12
    for batch in network.batches:
        assert sum(node >= 4 for node in batch) == 12
        assert sum(node < 4 for node in batch) == 4


def test_a_first_step_takes_new_images_only() -> None:
    network = Watcher(7)
    run(network, training(epochs=1), 0.0, None)
    assert len(network.batches) == 3  # ceil(45 / 16)
    assert all(len(batch) == 16 and min(batch) >= 4 for batch in network.batches)


def test_one_iteration_equals_sgd_by_hand() -> None:
    network = Watcher(7)
    start = network.logits.detach().clone()
    (end,) = run(network, training(epochs=1, batch=90, weight_decay=0.01), 0.5, images_of(4, 2, 0))
    counts = torch.bincount(torch.tensor(network.batches[0]), minlength=7).double()
    probabilities = torch.softmax(start.double(), dim=0)
    gradient = probabilities - counts / 90  # of the plain mean over the K images
    expected = start - 0.1 * (gradient + 0.01 * start)
    torch.testing.assert_close(network.logits.detach().double(), expected, rtol=1e-5, atol=1e-6)
    assert end.loss == pytest.approx(float(-(counts / 90 * probabilities.log()).sum()), rel=1e-5)
    assert end.accuracy == pytest.approx(float(counts[6] / 90))


def test_the_learning_rate_follows_a_cosine_to_zero_per_epoch() -> None:
    spec = training(epochs=4, learning_rate=0.2)
    rates = [learning_rate_at(epoch, spec) for epoch in range(4)]
    assert rates == pytest.approx([0.2, 0.1 * (1 + math.cos(math.pi / 4)), 0.1, 0.1 * (1 - math.cos(math.pi / 4))])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser := torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.2), 4)
    for rate in rates:
        assert optimiser.param_groups[0]["lr"] == pytest.approx(rate)
        optimiser.step()
        schedule.step()


def test_the_network_is_given_channels_last_images() -> None:
    seen: list[bool] = []

    class Layout(Watcher):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(images.is_contiguous(memory_format=torch.channels_last))
            return super().forward(images)

    run(Layout(7), training(augmentation=AugmentationSpec(crop=1, flip=True, brightness=0.2)), 0.5, images_of(4, 2, 0))
    assert seen
    assert all(seen)


def test_a_step_continues_from_any_epoch() -> None:
    whole, rest = (build_network("resnet8", 7, np.random.default_rng(0)) for _ in range(2))
    ends = run(whole, training(), 0.5, images_of(4, 2, 0))
    spec, rehearsal, new = training(), images_of(4, 2, 0), images_of(3, 15, 4)
    optimiser = make_optimiser(rest, spec)
    first = next(iter(train_step(rest, optimiser, new, rehearsal, AS_IS, spec, 0.5, Streams(0, 2))))
    later = list(train_step(rest, optimiser, new, rehearsal, AS_IS, spec, 0.5, Streams(0, 2), epochs_done=1))
    assert [first, *later] == ends
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), rest.state_dict().values(), strict=True))


def test_short_batches_are_trained_on_as_they_are() -> None:
    network = Watcher(7)
    run(network, training(epochs=1, batch=32, sampling="reshuffled-short"), 0.5, images_of(4, 2, 0))
    composition = [(sum(n >= 4 for n in batch), sum(n < 4 for n in batch)) for batch in network.batches]
    assert composition == [(16, 8), (16, 8), (13, 8)]  # 45 new images; a rehearsal set of 8 never fills its 16


def test_a_lost_prediction_is_counted_when_a_correct_one_turns_wrong() -> None:
    history = torch.zeros(4, dtype=torch.int16)
    for positions, right in (
        ([0, 1], [1, 0]),
        ([0, 1], [0, 1]),
        ([0, 1], [0, 0]),
        ([0], [1]),
        ([2, 2], [1, 0]),
        ([3, 3], [1, 1]),
    ):
        note_predictions(history, torch.tensor(positions), torch.tensor(right, dtype=torch.bool))
    # image 0: right, wrong (lost), wrong, right; image 1: wrong, right, wrong (lost); 2: right and wrong at once; 3: right
    assert (history // 2).tolist() == [1, 1, 0, 0]
    assert (history % 2).tolist() == [1, 0, 0, 1]
    assert (history > 0).tolist() == [True, True, False, True]  # learned at least once


def test_training_keeps_the_history_of_every_new_image() -> None:
    network, spec = build_network("resnet8", 7, np.random.default_rng(0)), training(epochs=4, learning_rate=0.05)
    history = torch.zeros(45, dtype=torch.int16)
    new = images_of(3, 15, 4)
    list(train_step(network, make_optimiser(network, spec), new, images_of(4, 2, 0), AS_IS, spec, 0.5, Streams(0, 2), history))
    assert int(history.max()) > 0
    assert int(history.min()) >= 0


def test_a_loss_that_is_not_finite_ends_the_step_with_its_iteration() -> None:
    class Breaks(Watcher):
        def forward(self, images: Tensor) -> Tensor:
            logits = super().forward(images)
            return logits * (math.nan if len(self.batches) == 6 else 1)

    first, last = run(Breaks(7), training(), 0.25, images_of(4, 2, 0))  # of three epochs
    assert isinstance(first, EpochEnd)
    assert isinstance(last, Divergence)
    assert (last.epoch, last.iteration) == (2, 6)
    assert math.isnan(last.loss)


class Reads(TorchFunctionMode):
    """Counts calls that would make the program wait for a GPU: a value is read, or a shape depends on one."""

    WAITS = (
        "item",
        "cpu",
        "numpy",
        "tolist",
        "nonzero",
        "unique",
        "masked_select",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
    )

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in self.WAITS:
            self.found.append(func.__name__)
        if func.__name__ == "__getitem__":
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            self.found += ["mask" for part in index if isinstance(part, Tensor) and part.dtype == torch.bool]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("precision", [None, "bfloat16"])
def test_nothing_inside_an_epoch_waits_for_the_device(precision: str | None) -> None:
    def reads(new_images: int) -> list[str]:
        """Of one epoch; more images mean more iterations."""
        augmentation = AugmentationSpec(crop=1, flip=True, brightness=0.2)
        spec = training(epochs=1, augmentation=augmentation, precision=precision)
        network, new = build_network("resnet8", 7, np.random.default_rng(0)), images_of(3, new_images, 4)
        optimiser, counter = make_optimiser(network, spec), Reads()
        with counter:
            (end,) = train_step(network, optimiser, new, images_of(4, 2, 0), AS_IS, spec, 0.5, Streams(0, 2))
        assert end.iteration == -(-3 * new_images // 8)
        return counter.found

    few, many = reads(3), reads(30)
    assert few == many  # so it is not the iterations that read
    assert {"cpu", "__float__"} <= set(few)  # the counter does count: loss and accuracy are read when the epoch ends
    assert len(few) < 12


def test_on_a_device_without_values_an_epoch_runs_up_to_its_end() -> None:
    """A meta tensor has a shape and no values: the first thing that needs one fails."""
    device, spec = torch.device("meta"), training(epochs=1, augmentation=AugmentationSpec(crop=1, flip=True, brightness=0.2))
    network = build_network("resnet8", 7, np.random.default_rng(0)).to(device)
    new, past = images_of(3, 15, 4), images_of(4, 2, 0)
    sets = [TrainingSet(part.images.to(device), part.nodes.to(device), part.class_sizes) for part in (new, past)]
    passes: list[torch.Size] = []
    network.register_forward_hook(lambda module, args, output: passes.append(output.shape))
    normalise = Normalisation(torch.zeros(3, device=device), torch.ones(3, device=device))
    with pytest.raises(NotImplementedError, match="no data"):
        next(iter(train_step(network, make_optimiser(network, spec), *sets, normalise, spec, 0.5, Streams(0, 2))))
    assert passes == [(16, 7)] * 6  # ceil(45 / 8) iterations: all of the epoch


def test_mixed_precision_keeps_weights_and_losses_in_float32() -> None:
    network, spec = build_network("resnet8", 7, np.random.default_rng(0)), training(epochs=1, precision="bfloat16")
    seen: list[torch.dtype] = []
    network.head.register_forward_hook(lambda module, args, output: seen.append(output.dtype))  # type: ignore[union-attr]
    (end,) = run(network, spec, 0.5, images_of(4, 2, 0))
    assert set(seen) == {torch.bfloat16}
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    (exact,) = run(build_network("resnet8", 7, np.random.default_rng(0)), training(epochs=1), 0.5, images_of(4, 2, 0))
    assert end.loss == pytest.approx(exact.loss, rel=0.1)
    assert end.loss != exact.loss


def test_the_layout_changes_rounding_only() -> None:
    last, first = (build_network("resnet8", 7, np.random.default_rng(0)) for _ in range(2))
    first.to(memory_format=torch.contiguous_format)
    spec, sets = training(epochs=1), (images_of(3, 15, 4), images_of(4, 2, 0))
    plain = Normalisation(AS_IS.mean, AS_IS.std, channels_last=False)
    assert plain(torch.rand(2, 4, 4, 3)).is_contiguous()
    (a,) = train_step(last, make_optimiser(last, spec), *sets, AS_IS, spec, 0.5, Streams(0, 2))
    (b,) = train_step(first, make_optimiser(first, spec), *sets, plain, spec, 0.5, Streams(0, 2))
    assert isinstance(a, EpochEnd)
    assert isinstance(b, EpochEnd)
    assert a.loss == pytest.approx(b.loss, rel=1e-3)
