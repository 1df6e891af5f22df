"""Methods: the loss by which a step after the first learns, and what it needs for that. `docs/methods.md` cites the sources.

A method is a function of one batch and keeps nothing between two of them, so training goes on bit for bit after any iteration.
What it needs besides the batch is said in `needs`, and nothing else is given to it; `Objective` holds it for one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from forgetscope.choices import named_method
from forgetscope.errors import SpecError
from forgetscope.learning.plugins import call_named, load_named
from forgetscope.learning.rsgd import TrainingSet
from forgetscope.measuring.keepsakes import Keepsake

Need = Literal["memory", "parent", "stored logits", "keepsakes", "current classes", "past images"]
NEEDS: tuple[Need, ...] = get_args(Need)


@dataclass(frozen=True)
class TrainingBatch:
    """One iteration's images, n of them: first `new` of the new data, then those of the memory stream. k nodes, the first
    `past` of them of past classes. What the method does not need is None."""

    logits: Tensor  # float32 [n, k], of the augmented images, with a gradient
    nodes: Tensor  # int64 [n], the right ones
    new: int
    past: int
    shares: Tensor  # float32 [k], of each class in a batch, as expected; 0 where a class is not drawn
    parent_logits: Tensor | None = None  # float32 [n, past], of the images as they are, from the network before the step
    stored_logits: Tensor | None = None  # float32 [n - new, past], from when each was chosen; NaN where there was no such node
    keepsakes: Mapping[int, Keepsake | None] | None = None  # by past node


class Method:
    """What a step learns by. A method of your own gives its `loss`, and says what it needs for it:

    memory            the images that the policy kept, in the memory stream. Without: batches are of new images alone
    parent            logits of all images of a batch from the network before the step, not augmented
    stored logits     logits of memory images from the network that was there when each was chosen
    keepsakes         mean and spread of past classes' features; the run's option `keepsake` makes them
    current classes   the memory stream has images of new classes, too, of each as many as of a past class on average
    past images       all training images of past classes in the memory stream: not rehearsal, but a bound of it

    >>> import forgetscope as fs, torch
    >>> class Focal(fs.Method):
    ...     def loss(self, batch):
    ...         losses = torch.nn.functional.cross_entropy(batch.logits, batch.nodes, reduction="none")
    ...         return ((1 - (-losses).exp()) ** 2 * losses).mean()
    >>> from forgetscope.testing import check_method
    >>> check_method(Focal)
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"memory"})

    def loss(self, batch: TrainingBatch) -> Tensor:
        """One number, with a gradient for the batch's logits."""
        raise NotImplementedError

    def predict(self, logits: Tensor, past: int) -> Tensor:
        """Logits [n, k] of test images to predict by; those that training sees stay as they are."""
        return logits


class Replay(Method):
    """The paper's: cross-entropy over the batch."""

    def loss(self, batch: TrainingBatch) -> Tensor:
        return F.cross_entropy(batch.logits, batch.nodes)


class Distillation(Method):
    """Replay, and the parent's soft predictions on past nodes, of new and of rehearsed images."""

    needs = frozenset({"memory", "parent"})

    def __init__(self, weight: float, temperature: float) -> None:
        self._weight, self._temperature = weight, temperature

    def loss(self, batch: TrainingBatch) -> Tensor:
        assert batch.parent_logits is not None  # as it needs
        soft = distillation_loss(batch.logits[:, : batch.past], batch.parent_logits, self._temperature)
        return F.cross_entropy(batch.logits, batch.nodes) + self._weight * soft


class DarkLogits(Method):
    """Replay, and rehearsed images' logits held to those of when they were chosen."""

    needs = frozenset({"memory", "stored logits"})

    def __init__(self, weight: float) -> None:
        self._weight = weight

    def loss(self, batch: TrainingBatch) -> Tensor:
        assert batch.stored_logits is not None  # as it needs
        moved = logit_distance(batch.logits[batch.new :, : batch.past], batch.stored_logits)
        return F.cross_entropy(batch.logits, batch.nodes) + self._weight * moved


class AsymmetricCrossEntropy(Method):
    """New images are told apart from one another alone; what is in the memory stream, from all classes."""

    needs = frozenset({"memory", "current classes"})

    def loss(self, batch: TrainingBatch) -> Tensor:
        among_new = F.cross_entropy(
            batch.logits[: batch.new, batch.past :], batch.nodes[: batch.new] - batch.past, reduction="sum"
        )
        among_all = F.cross_entropy(batch.logits[batch.new :], batch.nodes[batch.new :], reduction="sum")
        return (among_new + among_all) / len(batch.nodes)


class LogitAdjusted(Method):
    """Replay of logits to which the logarithms of the classes' shares in a batch are added."""

    def __init__(self, strength: float) -> None:
        self._strength = strength

    def loss(self, batch: TrainingBatch) -> Tensor:
        return F.cross_entropy(batch.logits + self._strength * batch.shares.log(), batch.nodes)


class FineTune(Replay):
    """Cross-entropy over new images; nothing of the past is seen."""

    needs: ClassVar[frozenset[Need]] = frozenset()


class Joint(Replay):
    """Replay of all past images."""

    needs = frozenset({"past images"})


CLASSES: dict[str, type[Method]] = {
    "replay": Replay,
    "distillation": Distillation,
    "dark-logits": DarkLogits,
    "ace": AsymmetricCrossEntropy,
    "logit-adjusted": LogitAdjusted,
    "fine-tune": FineTune,
    "joint": Joint,
}


def distillation_loss(logits: Tensor, parent_logits: Tensor, temperature: float) -> Tensor:
    """T^2 KL(softmax(parent / T) || softmax(logits / T)) over nodes, mean over images; both [n, past]. Hinton et al. 2015: T^2
    makes the size of its gradient independent of T."""
    soft, target = (F.log_softmax(values / temperature, dim=1) for values in (logits, parent_logits))
    return temperature**2 * F.kl_div(soft, target, reduction="batchmean", log_target=True)


def logit_distance(logits: Tensor, stored: Tensor) -> Tensor:
    """Mean over images of the mean squared difference over the nodes of which there are stored logits; both [m, past]. Images
    without any do not count; 0 where none has."""
    there = ~stored.isnan()
    squares = torch.where(there, logits - stored.nan_to_num(), 0.0).square()
    nodes = there.sum(dim=1)
    return (squares.sum(dim=1) / nodes.clamp(min=1)).sum() / (nodes > 0).sum().clamp(min=1)


def make_method(text: str | None, source: str | None = None) -> Method:
    """A method as a run gives it, a user's own (the SHA-256 of its source) included; None is replay.

    >>> sorted(make_method("distillation(temperature=4)").needs)
    ['memory', 'parent']
    """
    name, options = named_method(text or "replay")
    if name in CLASSES:
        return CLASSES[name](**options)
    made = call_named(name, partial(load_named(name, source), **options))
    return checked_method(name, made)


def checked_method(name: str, method: object) -> Method:
    """SpecError unless it is one, and needs what there is."""
    if not isinstance(method, Method):
        raise SpecError(
            f"method {name} makes a {type(method).__name__}. Make it a class that inherits from forgetscope.Method."
        )
    if not isinstance(method.needs, frozenset):
        kind = type(method.needs).__name__
        raise SpecError(f'method {name}: needs is a {kind}, expected a frozenset, such as frozenset({{"memory"}}).')
    if strange := sorted(set(map(str, method.needs)) - set(NEEDS)):
        raise SpecError(f"method {name} needs {strange[0]!r}, and there is no such thing. Known: {', '.join(NEEDS)}.")
    if {"stored logits", "past images"} <= method.needs or ("stored logits" in method.needs and "memory" not in method.needs):
        raise SpecError(
            f"method {name} needs stored logits, which memory images alone have. Let it need memory, and no past images."
        )
    if "current classes" in method.needs and not method.needs & {"memory", "past images"}:
        raise SpecError(
            f"method {name} needs current classes in a memory stream that it does without. Let it need memory, too."
        )
    if getattr(method.loss, "__func__", None) is Method.loss:
        raise SpecError(f"method {name} has no loss. Give it one: def loss(self, batch).")
    return method


@dataclass(frozen=True)
class Objective:
    """A method in one step, with all that it needs there. Positions count in the new data and in the memory stream."""

    name: str
    method: Method
    past: int
    memory: TrainingSet | None  # the memory stream's
    shares: Tensor
    of_new: Tensor | None = None  # the parent's logits [new images, past]
    of_memory: Tensor | None = None  # and [images of the memory stream, past]
    stored: Tensor | None = None  # [images of the memory stream, past]
    keepsakes: Mapping[int, Keepsake | None] | None = None
    stream: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)  # by class: the training images in the memory stream
    seconds: float = field(default=0.0, compare=False)  # that it took to prepare

    def batch(self, logits: Tensor, nodes: Tensor, new: Tensor, memory: Tensor) -> TrainingBatch:
        """What the method gets of these images; all of it where the logits are, and of their type."""
        parent = None
        if self.of_new is not None:
            parent = self.of_new[new] if self.of_memory is None else torch.cat([self.of_new[new], self.of_memory[memory]])
            parent = parent.to(logits)
        stored = None if self.stored is None else self.stored[memory].to(logits)
        return TrainingBatch(logits, nodes, len(new), self.past, self.shares.to(logits), parent, stored, self.keepsakes)

    def loss(self, logits: Tensor, nodes: Tensor, new: Tensor, memory: Tensor) -> Tensor:
        """As `train_step` asks for it."""
        return checked_loss(self.name, self.method, self.batch(logits, nodes, new, memory), self._keepsakes_as_given)

    @cached_property
    def _keepsakes_as_given(self) -> bytes:
        return bits_of(self.keepsakes)

    def predict(self, logits: Tensor) -> Tensor:
        """Of test images: the logits [n, k] by which they are classified."""
        known = not bool(logits.isnan().any())
        found = self.method.predict(logits, self.past)
        if not isinstance(found, Tensor) or found.shape != logits.shape:
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise SpecError(f"method {self.name} predicts by {shape} of logits {tuple(logits.shape)}. Return one for each.")
        if not found.is_floating_point():
            raise SpecError(f"method {self.name} predicts by {found.dtype}, expected floating-point logits.")
        if known and bool(found.isnan().any()):
            raise SpecError(f"method {self.name} predicts NaN. Return a number for each logit.")
        return found


def checked_loss(name: str, method: Method, batch: TrainingBatch, keepsakes: bytes) -> Tensor:
    """Of a batch; SpecError unless it is what training can go on with. keepsakes: what `bits_of` says of them as they were
    given, and what it must say afterwards."""
    found = method.loss(batch)
    if not isinstance(found, Tensor) or found.ndim:
        shape = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise SpecError(f"method {name}: its loss is {shape}, expected one number as a tensor. Take the mean over images.")
    if not found.is_floating_point():
        raise SpecError(f"method {name}: its loss is of {found.dtype}, expected a real number.")
    if batch.logits.requires_grad and not found.requires_grad:
        raise SpecError(f"method {name}: its loss has no gradient. Compute it from batch.logits.")
    if bits_of(batch.keepsakes) != keepsakes:
        raise SpecError(f"method {name} changed keepsakes. Work on a copy: the step has them from batch to batch.")
    return found


def bits_of(keepsakes: Mapping[int, Keepsake | None] | None) -> bytes:
    """All numbers of them."""
    there = [one for one in (keepsakes or {}).values() if one is not None]
    return b"".join(part.tobytes() for one in there for part in (one.mean, one.spread) if part is not None)
