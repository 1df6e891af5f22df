"""The contract of methods."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from forgetscope.data.preprocessing import Normalisation
from forgetscope.errors import InputError
from forgetscope.learning import networks
from forgetscope.learning.methods import Method, Objective, TrainingBatch, bits_of, checked_loss, checked_method
from forgetscope.learning.rsgd import EpochSoFar, TrainingSet, make_optimiser, train_step
from forgetscope.measuring.keepsakes import Keepsake
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec, TrainingSpec
from forgetscope.testing.contract import BrokenContract, leaving_alone, told_as_broken

CALLS = 1000  # on one batch, of which each must give the same: a state may change late


def make_batch(method: Method, *, seed: int = 0) -> TrainingBatch:
    """Noise as a batch of 3 past and 2 new classes, with what the method needs and nothing else, to try it on.

    >>> import forgetscope as fs
    >>> from forgetscope.testing import make_batch
    >>> batch = make_batch(fs.Method())
    >>> batch.logits.shape, batch.new, batch.past, batch.parent_logits
    (torch.Size([12, 5]), 6, 3, None)
    """
    objective, new, memory = _objective(method, seed)
    generator = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(12 if objective.memory else 6, 5, generator=generator)).requires_grad_()
    nodes = new.nodes[:6] if objective.memory is None else torch.cat([new.nodes[:6], objective.memory.nodes[memory[:6]]])
    return objective.batch(logits, nodes, torch.arange(6), memory[:6])


def check_method(make: Callable[[], Method]) -> None:
    """Raises BrokenContract if a method that is made by `make()`, such as its class, breaks a promise that runs rely on.

    It needs what there is. Its loss is one finite number, with a gradient for the logits of the images that it is given, and
    the same for the same batch whatever came before, so that training goes on bit for bit after any iteration; its predictions
    depend on an image's own logits alone. Nothing is drawn from global generators, and nothing that it is given is changed.

    >>> import forgetscope as fs
    >>> from forgetscope.testing import check_method
    >>> class Running(fs.Method):
    ...     seen = 0.0
    ...     def loss(self, batch):
    ...         self.seen += 1
    ...         return self.seen * batch.logits.square().mean()
    >>> check_method(Running)
    Traceback (most recent call last):
    forgetscope.testing.BrokenContract: method Running: its loss on a batch changes with what came before. Keep nothing \
between batches: training that is continued has not seen them.
    """
    if not callable(make):
        raise InputError(f"check_method was given {make!r}. Give it what makes a method: its class.")
    name = getattr(make, "__name__", type(make).__name__)
    with leaving_alone(f"method {name}", "A loss draws nothing: batches are drawn before it."), told_as_broken():
        method = checked_method(name, make())
        batch = make_batch(method)
        first = _checked_loss(name, method, batch)
        for seed in range(1, 4):
            _checked_loss(name, method, make_batch(method, seed=seed))
        same = all(float(method.loss(batch).detach()) == first for _ in range(CALLS))
        after, fresh = (_checked_loss(name, one, make_batch(one)) for one in (method, checked_method(name, make())))
        if not (same and first == after == fresh):
            raise BrokenContract(
                f"method {name}: its loss on a batch changes with what came before. Keep nothing between batches: training "
                "that is continued has not seen them."
            )
        _check_prediction(name, method)
        _check_resuming(name, make)


def _checked_loss(name: str, method: Method, batch: TrainingBatch) -> float:
    """Its value on a batch, which it leaves as it is."""
    given = {part: value.detach().clone() for part, value in vars(batch).items() if isinstance(value, Tensor)}
    loss = checked_loss(name, method, batch, bits_of(batch.keepsakes))
    if not bool(loss.isfinite()):
        raise BrokenContract(f"method {name}: its loss is {loss!r}, expected one finite number as a tensor.")
    left = {part: getattr(batch, part).detach() for part in given}
    for part, value in given.items():
        if not torch.equal(value.nan_to_num(), left[part].nan_to_num()):
            raise BrokenContract(f"method {name} changed {part}. Work on a copy: the step has it from batch to batch.")
    (gradient,) = torch.autograd.grad(loss, batch.logits, allow_unused=True)
    if gradient is None or not bool(gradient.isfinite().all() & gradient.any()):
        raise BrokenContract(f"method {name}: no finite gradient reaches the logits. Compute the loss from batch.logits.")
    return float(loss.detach())


def _check_prediction(name: str, method: Method) -> None:
    batch = make_batch(method)
    logits = batch.logits.detach()
    objective = Objective(name, method, batch.past, None, batch.shares)
    with torch.no_grad():
        together, again, alone = (objective.predict(part.clone()) for part in (logits, logits, logits[:1]))
    if not torch.equal(together, again) or not torch.allclose(together[:1], alone):
        raise BrokenContract(f"method {name}: what it predicts of an image depends on more than that image's logits.")


def _check_resuming(name: str, make: Callable[[], Method]) -> None:
    """Training that was stopped after any iteration, with a method made anew, ends in the same bits."""
    whole, iterations = _trained(name, make, None)
    for stopped in range(1, iterations):
        if not torch.equal(_trained(name, make, stopped)[0], whole):
            raise BrokenContract(
                f"method {name}: training that went on after {stopped} of {iterations} iterations ends otherwise."
            )


class _Stopped(Exception):
    pass


def _trained(name: str, make: Callable[[], Method], stop_after: int | None) -> tuple[Tensor, int]:
    """The weights after two short epochs, and the number of iterations. stop_after: how many there are before the method is
    made anew, and everything else taken from where it was."""
    training = TrainingSpec(
        epochs=2, batch=12, learning_rate=0.05, momentum=0.9, weight_decay=1e-3, augmentation=AugmentationSpec(flip=True)
    )
    network = networks.SmoothNetwork((8, 8), 4, 5, np.random.default_rng(0))
    optimiser, done, last = make_optimiser(network, training), 0, EpochSoFar(0, 0, torch.zeros(0), torch.zeros(0))

    def ended(so_far: EpochSoFar) -> None:
        nonlocal done, last
        done, last = done + 1, so_far
        if done == stop_after:
            raise _Stopped

    def go_on(epochs_done: int, begun: EpochSoFar | None) -> None:
        objective, new, _ = _objective(checked_method(name, make()), 0)
        normalise = Normalisation(torch.full((3,), 0.5), torch.ones(3), channels_last=False)
        each = train_step(
            network,
            optimiser,
            new,
            objective.memory,
            normalise,
            training,
            0.5,
            Streams(0, 2),
            epochs_done=epochs_done,
            begun=begun,
            on_iteration=ended,
            loss=objective.loss,
        )
        for _ in each:
            pass

    try:
        go_on(0, None)
    except _Stopped:
        go_on(last.epoch, last)
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()]), done


def _objective(method: Method, seed: int) -> tuple[Objective, TrainingSet, Tensor]:
    """A method in a step of noise with 3 past and 2 new classes, the new data, and positions in the memory stream."""
    rng = np.random.default_rng(seed)

    def images(sizes: Mapping[int, int]) -> TrainingSet:
        nodes = np.repeat(np.array(list(sizes)), list(sizes.values()))
        pixels = torch.from_numpy(rng.integers(256, size=(len(nodes), 8, 8, 3), dtype=np.uint8))
        return TrainingSet(pixels, torch.from_numpy(nodes), np.array(list(sizes.values())))

    def logits(of: int) -> Tensor:
        return torch.from_numpy(3 * rng.standard_normal((of, 3))).float()

    new, each = images({3: 9, 4: 9}), 8 if "past images" in method.needs else 4
    stream = dict.fromkeys(range(5 if "current classes" in method.needs else 3), each)
    memory = images(stream) if method.needs & {"memory", "past images"} else None
    kept = 0 if memory is None else len(memory.nodes)
    stored = logits(kept)
    stored[: kept // 3, 2] = torch.nan  # chosen when there was no such node yet
    stored[kept // 2 :] = torch.where(torch.arange(kept - kept // 2)[:, None] % 4 == 0, torch.nan, stored[kept // 2 :])
    statistics = {node: Keepsake(1, 50, 0.8, *rng.random((2, 4), np.float32)) for node in range(3)}
    shares = torch.tensor([1, 1, 1, 2, 2]) / 7 if memory else torch.tensor([0, 0, 0, 0.5, 0.5])
    parent = "parent" in method.needs
    objective = Objective(
        *(type(method).__name__, method, 3, memory, shares),
        of_new=logits(len(new.nodes)) if parent else None,
        of_memory=logits(kept) if parent and memory else None,
        stored=stored if "stored logits" in method.needs else None,
        keepsakes=statistics if "keepsakes" in method.needs else None,
    )
    return objective, new, torch.from_numpy(rng.permutation(kept))
