"""The contracts of what can be plugged in, as functions for your own tests; ours use them too. No test framework is needed.

from forgetscope.testing import check_network, check_policy

def test_my_policy():
    check_policy(most_confident)
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from forgetscope.data.preprocessing import Normalisation
from forgetscope.errors import InputError, SpecError
from forgetscope.learning import networks
from forgetscope.learning.candidates import Candidates
from forgetscope.learning.methods import Method, Objective, TrainingBatch, checked_method
from forgetscope.learning.policies import Policy, checked_choice
from forgetscope.learning.rsgd import EpochSoFar, TrainingSet, make_optimiser, train_step
from forgetscope.measuring.keepsakes import Keepsake
from forgetscope.measuring.measurement import ProbeData, measure
from forgetscope.randomness import Purpose, Streams
from forgetscope.spec import AugmentationSpec, TrainingSpec

__all__ = ["BrokenContract", "check_method", "check_network", "check_policy", "make_batch", "make_candidates"]

NODES = 4


class BrokenContract(AssertionError):
    """Says what was promised, what was found, and what to do."""


def make_candidates(images: int = 24, seed: int = 0) -> Candidates:
    """Noise of 8 x 8 pixels as a class of a network that has not learned it, to try a policy on.

    >>> from forgetscope.testing import make_candidates
    >>> candidates = make_candidates(10)
    >>> len(candidates), candidates.features.shape, candidates.probabilities.shape
    (10, (10, 64), (10, 4))
    """
    rng = np.random.default_rng(seed)
    pixels = torch.from_numpy(rng.integers(256, size=(images, 8, 8, 3), dtype=np.uint8))
    network = networks.build_network("resnet8", NODES, rng)
    with torch.no_grad():
        network.head.weight.mul_(20)  # type: ignore[operator,union-attr]  # far from uniform predictions
    normalise = Normalisation(torch.full((3,), 0.5), torch.ones(3))
    augmentation = AugmentationSpec(crop=2, flip=True, brightness=0.5)
    history = rng.integers(0, 7, images)
    return Candidates(pixels, 1, history, network, normalise, augmentation, _ClassBlind(seed, 2))


def check_policy(policy: Policy, *, ordered: bool = True) -> None:
    """Raises BrokenContract if a rehearsal policy breaks a promise that runs rely on.

    It returns as many different positions as are asked for, also of equal images and of all there are; the same stream gives
    the same choice; which head node the class has does not matter; nothing but the stream is drawn from, and network, images
    and history stay as they are. ordered: a smaller quota gives the first of a larger one's, the most valuable images first.

    >>> import numpy as np
    >>> from forgetscope.testing import check_policy
    >>> def most_confident(candidates, quota, rng):
    ...     return np.argsort(-candidates.probabilities[:, candidates.node], kind="stable")[:quota]
    >>> check_policy(most_confident)
    >>> check_policy(lambda candidates, quota, rng: np.random.permutation(len(candidates))[:quota])
    Traceback (most recent call last):
    forgetscope.testing.BrokenContract: policy <lambda> moved NumPy's global generator. Draw from `rng`, which it is given.
    """
    if not callable(policy):
        raise InputError(f"check_policy was given {policy!r}. Give it the function itself: policy(candidates, quota, rng).")
    name = getattr(policy, "__name__", type(policy).__name__)

    def choice(candidates: Candidates, quota: int, seed: int = 0) -> list[int]:
        with _leaving_alone(f"policy {name}", "Draw from `rng`, which it is given."), _broken():
            chosen: list[int] = checked_choice(name, policy, candidates, quota, np.random.default_rng(seed)).tolist()
        return chosen

    for images, quota in ((1, 1), (7, 3), (12, 12)):
        for seed in range(3):
            choice(make_candidates(images, seed), quota, seed)
    one = make_candidates(1)
    choice(replace(one, images=one.images.expand(20, -1, -1, -1).contiguous(), history=np.full(20, 3)), 20)  # all equal

    given = make_candidates()
    before = _state_of(given)
    found = choice(given, 9)
    _demand_same(before, _state_of(given), f"policy {name} changed", "Work on a copy: others choose from the same.")
    again = choice(make_candidates(), 9)
    if found != again:
        raise BrokenContract(
            f"policy {name} chose {found} and then {again} from the same images with the same stream. "
            "Draw from `rng`, and keep nothing between calls."
        )
    if ordered and found[:4] != (fewer := choice(given, 4)):
        raise BrokenContract(
            f"policy {name} chose {fewer} for a quota of 4, and {found[:4]} as the first of 9. Return the most valuable first, "
            "whatever the quota; or check with ordered=False if its choice of a few is meant to be another one."
        )
    moved = choice(_with_nodes_exchanged(given), 9)
    if found != moved:
        raise BrokenContract(
            f"policy {name} chose {found} of a class at head node {given.node}, and {moved} of the same class at another node. "
            "Treat every class alike: use candidates.node for its own column only."
        )


def check_network(
    factory: Callable[[int], nn.Module], *, image_size: int | tuple[int, int] = 32, single_images: bool = False
) -> None:
    """Raises BrokenContract if a network that is made by `factory(classes)` breaks a promise that runs rely on.

    It has `features(images) -> [n, d]` and a linear `head` with a bias, and its output is what the head makes of the features,
    also of a head that has grown. In evaluation an image's output depends on that image and the weights alone. Training reaches
    the head. Its weights are drawn from torch's generator alone; its state can be saved, and loaded into another one; a probe
    leaves no trace. image_size: of the images it will see; single_images: it can learn from a batch of one, which
    sampling = 'reshuffled-short' may make.

    >>> import torch
    >>> from forgetscope.testing import check_network
    >>> class Small(torch.nn.Module):
    ...     def __init__(self, classes):
    ...         super().__init__()
    ...         self.body, self.head = torch.nn.Linear(3 * 8 * 8, 16), torch.nn.Linear(16, classes)
    ...     def features(self, images):
    ...         return self.body(images.flatten(1)).relu()
    ...     def forward(self, images):
    ...         return self.head(self.features(images))
    >>> check_network(Small, image_size=8)
    """
    if isinstance(factory, nn.Module) or not callable(factory):
        raise InputError(f"check_network was given a {type(factory).__name__}. Give it what makes a network: factory(classes).")
    name, classes = getattr(factory, "__name__", type(factory).__name__), 3
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    images = torch.randn(6, 3, *size, generator=torch.Generator().manual_seed(0))
    nodes = torch.arange(6) % classes

    def build() -> nn.Module:
        with (
            torch.random.fork_rng(devices=[]),
            _leaving_alone(f"network {name}", "Draw from torch's.", besides=("torch's",)),
            _broken(),
        ):
            torch.manual_seed(0)
            network = factory(classes)
            networks.check_network(name, network, classes)
            networks.check_features(name, network, images)
        return network

    network, twin = build(), build()
    _demand_same(network.state_dict(), twin.state_dict(), f"network {name}: with the same seed of torch, other weights in", "")
    _check_evaluation(name, network, images)
    _check_training(name, network, images, nodes, single_images)
    _check_state(name, network, twin, images)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    _check_growth(name, network, images, classes)
    after = {key: value for key, value in network.state_dict().items() if not key.startswith("head.")}
    _demand_same(
        {key: before[key] for key in after}, after, f"network {name}: evaluation changes", "Change state in training only."
    )
    with _leaving_alone(f"a probe of network {name}", "Let features(images) draw nothing in evaluation mode."):
        measure(network, ProbeData(images, nodes, torch.arange(classes), images, 3 + nodes % 2))


def _check_growth(name: str, network: nn.Module, images: Tensor, classes: int) -> None:
    old = network.eval()(images)
    networks.grow_head(network, 2, np.random.default_rng(0))
    with _broken():
        networks.check_features(name, network, images)
    if not torch.allclose(network(images)[:, :classes], old, rtol=1e-3, atol=1e-4):
        raise BrokenContract(
            f"network {name}: a grown head changes the outputs of old classes. Compute them from `self.head` alone."
        )


def _check_evaluation(name: str, network: nn.Module, images: Tensor) -> None:
    with torch.no_grad():
        together, again, alone = network.eval()(images), network(images), network(images[:1])
    if not torch.equal(together, again):
        raise BrokenContract(f"network {name}: the same images give other outputs in evaluation mode. Heed `self.training`.")
    if not torch.allclose(together[:1], alone, rtol=1e-3, atol=1e-4):
        raise BrokenContract(f"network {name}: in evaluation an image's output depends on the others of its batch.")


def _check_training(name: str, network: nn.Module, images: Tensor, nodes: Tensor, single_images: bool) -> None:
    network.train()
    for count in (len(images), 1) if single_images else (len(images),):
        network.zero_grad()
        try:
            F.cross_entropy(network(images[:count]), nodes[:count]).backward()  # type: ignore[no-untyped-call]
        except ValueError as error:  # BatchNorm, where one image has one value per channel
            raise BrokenContract(f"network {name} cannot learn from batches of {count}: {error}") from error
        gradient = network.head.weight.grad  # type: ignore[union-attr]
        if not isinstance(gradient, Tensor) or not bool(gradient.isfinite().all() & gradient.any()):
            raise BrokenContract(f"network {name}: no gradient reaches its head from {count} images. Do not detach the output.")
    network.zero_grad()


def _check_state(name: str, network: nn.Module, twin: nn.Module, images: Tensor) -> None:
    state = network.state_dict()
    odd = [key for key, value in state.items() if not isinstance(value, Tensor) or value.dtype == torch.bfloat16]
    if odd:
        raise BrokenContract(f"network {name}: {odd} of its state cannot be saved. Keep tensors of NumPy's types only.")
    twin.load_state_dict(state)
    with torch.no_grad():
        if not torch.equal(twin.eval()(images), network.eval()(images)):
            raise BrokenContract(f"network {name}: a saved and loaded state gives other outputs. Register all of it.")


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
    with _leaving_alone(f"method {name}", "A loss draws nothing: batches are drawn before it."), _broken():
        method = checked_method(name, make())
        first = _checked_loss(name, method, make_batch(method))
        for seed in range(1, 4):
            _checked_loss(name, method, make_batch(method, seed=seed))
        after, fresh = (_checked_loss(name, one, make_batch(one)) for one in (method, checked_method(name, make())))
        if not first == after == fresh:
            raise BrokenContract(
                f"method {name}: its loss on a batch changes with what came before. Keep nothing between batches: training "
                "that is continued has not seen them."
            )
        _check_prediction(name, method)
        _check_resuming(name, make)


def _checked_loss(name: str, method: Method, batch: TrainingBatch) -> float:
    """Its value on a batch, which it leaves as it is."""
    given = {part: value.detach().clone() for part, value in vars(batch).items() if isinstance(value, Tensor)}
    loss = method.loss(batch)
    if not isinstance(loss, Tensor) or loss.ndim or not bool(loss.isfinite()):
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


class _ClassBlind(Streams):
    """The same numbers for every class, so that policies that draw by node can be compared between nodes."""

    def __call__(self, purpose: Purpose, index: int | str = 0) -> np.random.Generator:
        return super().__call__(purpose)


def _with_nodes_exchanged(given: Candidates) -> Candidates:
    """The head's rows move, the class's node with them."""
    order = torch.tensor([2, 3, 0, 1])
    network = networks.build_network("resnet8", NODES, None)
    state = given.network.state_dict()
    network.load_state_dict({key: value[order] if key.startswith("head.") else value for key, value in state.items()})
    return replace(given, network=network, node=int((order == given.node).nonzero()))


def _state_of(candidates: Candidates) -> dict[str, Tensor]:
    tensors = {"images": candidates.images, "history": torch.from_numpy(candidates.history)}
    return {name: tensor.clone() for name, tensor in {**tensors, **candidates.network.state_dict()}.items()}


def _demand_same(before: dict[str, Tensor], after: dict[str, Tensor], what: str, remedy: str) -> None:
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    if changed:
        raise BrokenContract(f"{what} {', '.join(changed[:3])}. {remedy}".strip())


@contextmanager
def _broken() -> Iterator[None]:
    """What runs refuse is a broken contract here."""
    try:
        yield
    except SpecError as error:
        raise BrokenContract(str(error)) from None


@contextmanager
def _leaving_alone(who: str, remedy: str, *, besides: tuple[str, ...] = ()) -> Iterator[None]:
    """No global generator moves in the block, besides these."""
    before = _generators()
    yield
    for whose, state in _generators().items():
        if state != before[whose] and whose not in besides:
            raise BrokenContract(f"{who} moved {whose} global generator. {remedy}")


def _generators() -> dict[str, object]:
    _, keys, *rest = np.random.get_state()
    return {
        "torch's": torch.get_rng_state().tolist(),
        "NumPy's": (np.asarray(keys).tolist(), *rest),
        "Python's": random.getstate(),
    }
