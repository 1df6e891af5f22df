"""R-SGD, the paper's variant of SGD for rehearsal: one incremental step's training.

`train_step` gets the new data and the rehearsal set and nothing else, so no other past image can reach the weights.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from forgetscope.data.preprocessing import Normalisation, augment, draw
from forgetscope.learning.sampling import new_batches, rehearsal_batches
from forgetscope.randomness import Streams
from forgetscope.spec import TrainingSpec


@dataclass(frozen=True)
class TrainingSet:
    """Images to learn from, on the training device, class after class."""

    images: Tensor  # uint8 [n, h, w, 3]
    nodes: Tensor  # int64 [n], the head node of each image's class
    class_sizes: NDArray[np.int64]  # in the order in which the classes lie


@dataclass(frozen=True)
class EpochEnd:
    """What is known when an epoch (counted from 1) ends; accuracy is over the augmented training batches."""

    epoch: int
    iteration: int
    loss: float
    accuracy: float


@dataclass
class EpochSoFar:
    """An epoch (counted from 0) that is under way: iterations done, and what they left on the device."""

    epoch: int
    done: int
    losses: Tensor  # float32 [iterations of the epoch]
    correct: Tensor  # int64 [], correct predictions


@dataclass(frozen=True)
class Divergence:
    """The first loss that was not a finite number, and when; epoch and iteration count from 1."""

    epoch: int
    iteration: int
    loss: float


Loss = Callable[
    [Tensor, Tensor, Tensor, Tensor], Tensor
]  # of logits and nodes, and of positions: new images, then the memory's


def replay_loss(logits: Tensor, nodes: Tensor, new: Tensor, memory: Tensor) -> Tensor:
    """The plain mean over the K images, which weights new and rehearsed ones by 1 - alpha and alpha."""
    return F.cross_entropy(logits, nodes)


def learning_rate_at(epoch: int, training: TrainingSpec) -> float:
    """Cosine annealing to 0, stepped per epoch; `epoch` counts from 0."""
    return training.learning_rate * (1 + math.cos(math.pi * epoch / training.epochs)) / 2


def make_optimiser(network: nn.Module, training: TrainingSpec) -> torch.optim.SGD:
    """A fresh optimiser: momentum does not survive a step. Weight decay acts on all parameters."""
    parameters = list(network.parameters())
    fused = _fuses(parameters[0].device)
    return torch.optim.SGD(
        parameters, training.learning_rate, training.momentum, weight_decay=training.weight_decay, fused=fused
    )


def _fuses(device: torch.device) -> bool:
    """Whether the device updates all parameters in one kernel, found out by asking it."""
    parameter = nn.Parameter(torch.zeros(1, device=device))
    parameter.grad = torch.zeros_like(parameter)
    try:
        torch.optim.SGD([parameter], 0.1, 0.9, fused=True).step()
    except (RuntimeError, NotImplementedError):
        return False
    return True


def train_step(
    network: nn.Module,
    optimiser: torch.optim.SGD,
    new: TrainingSet,
    rehearsal: TrainingSet | None,
    normalise: Normalisation,
    training: TrainingSpec,
    alpha: float,
    streams: Streams,
    history: Tensor | None = None,
    *,
    epochs_done: int = 0,
    begun: EpochSoFar | None = None,
    forward: Callable[[Tensor], Tensor] | None = None,
    before_iteration: Callable[[int], None] = lambda iteration: None,
    on_iteration: Callable[[EpochSoFar], None] = lambda so_far: None,
    loss: Loss = replay_loss,
) -> Iterator[EpochEnd | Divergence]:
    """Train in place, yielding after each epoch; a divergence is the last thing. A first step has no rehearsal set and alpha 0.

    history [new images], int16 on the device, is kept up to date: 2 x lost predictions + 1 if the last one was correct.
    `epochs_done` continues a step from its snapshot, and `begun` in the middle of the epoch after these. `before_iteration`
    gets the number of iterations that are done in the whole step, and may look at the network. It and `on_iteration` may stop
    the training by raising. `forward` stands in for the network's own, for example compiled.

    Within an epoch nothing is read back from the device, so a GPU is never waited for; losses are read when it ends.
    """
    device, forward = new.images.device, network if forward is None else forward
    history = torch.zeros(len(new.nodes), dtype=torch.int16, device=device) if history is None else history
    for epoch in range(epochs_done, training.epochs):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate_at(epoch, training)
        batches = epoch_batches(new, rehearsal, training, alpha, streams, epoch)
        draws = draw(training.augmentation, len(batches), training.batch, streams, epoch, device)
        so_far = begun or EpochSoFar(
            epoch, 0, torch.zeros(len(batches), device=device), torch.zeros((), dtype=torch.int64, device=device)
        )
        begun = None
        network.train()
        for i, (new_positions, rehearsal_positions) in enumerate(batches):
            if i < so_far.done:
                continue
            before_iteration(epoch * len(batches) + i)
            images, nodes = _batch(new, new_positions, rehearsal, rehearsal_positions)
            inputs = normalise(augment(images, training.augmentation, draws.batch(i, len(nodes))))
            with _precision(training, device):
                logits = forward(inputs).float()
            so_far.losses[i] = _update(optimiser, loss(logits, nodes, new_positions, rehearsal_positions))
            right = logits.detach().argmax(dim=1) == nodes
            so_far.correct += right.sum()
            note_predictions(history, new_positions, right[: len(new_positions)])
            so_far.done = i + 1
            on_iteration(so_far)
        end = _epoch_end(so_far, batches)
        yield end
        if isinstance(end, Divergence):
            return


def _update(optimiser: torch.optim.SGD, loss: Tensor) -> Tensor:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return loss.detach()


def _batch(new: TrainingSet, from_new: Tensor, rehearsal: TrainingSet | None, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Images and nodes at these positions, the new ones first."""
    images, nodes = new.images[from_new], new.nodes[from_new]
    if rehearsal is None:
        return images, nodes
    return torch.cat([images, rehearsal.images[kept]]), torch.cat([nodes, rehearsal.nodes[kept]])


def _epoch_end(so_far: EpochSoFar, batches: Sequence[tuple[Tensor, Tensor]]) -> EpochEnd | Divergence:
    epoch, before, final = so_far.epoch + 1, so_far.epoch * len(batches), so_far.losses.double().cpu()
    broken = torch.nonzero(~torch.isfinite(final))
    if len(broken):
        first = int(broken[0])
        return Divergence(epoch, before + first + 1, float(final[first]))
    seen = sum(len(positions) for batch in batches for positions in batch)
    return EpochEnd(epoch, before + len(batches), float(final.mean()), float(so_far.correct) / seen)


def _precision(training: TrainingSpec, device: torch.device) -> AbstractContextManager[object]:
    return nullcontext() if training.precision is None else torch.autocast(device.type, torch.bfloat16)


def note_predictions(history: Tensor, positions: Tensor, right: Tensor) -> None:
    """Update each seen image's history, in place. An image that is twice in a batch was right if it was right both times."""
    value = history[positions]
    now = torch.ones_like(history).scatter_reduce_(0, positions, right.to(history.dtype), "amin")[positions]
    lost = (value & 1) * (1 - now)
    history[positions] = (value & ~1) + 2 * lost + now


def epoch_batches(
    new: TrainingSet, rehearsal: TrainingSet | None, training: TrainingSpec, alpha: float, streams: Streams, epoch: int
) -> list[tuple[Tensor, Tensor]]:
    """Per iteration, the positions of its new and of its rehearsal images; the whole epoch moves to the device at once."""
    rehearsed = round(alpha * training.batch)
    from_new = new_batches(training.sampling, streams, epoch, training.batch - rehearsed, len(new.nodes))
    from_rehearsal = [np.empty(0, np.int64)] * len(from_new)
    if rehearsal is not None:
        from_rehearsal = rehearsal_batches(training.sampling, streams, epoch, len(from_new), rehearsed, rehearsal.class_sizes)
    return list(zip(*(_on_device(part, new.images.device) for part in (from_new, from_rehearsal)), strict=True))


def _on_device(batches: Sequence[NDArray[np.int64]], device: torch.device) -> tuple[Tensor, ...]:
    return torch.split(torch.from_numpy(np.concatenate(batches)).to(device), [len(batch) for batch in batches])
