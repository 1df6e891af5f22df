"""The contract of rehearsal policies."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from forgetscope.data.preprocessing import Normalisation
from forgetscope.errors import InputError
from forgetscope.learning import networks
from forgetscope.learning.candidates import Candidates
from forgetscope.learning.policies import Policy, checked_choice
from forgetscope.randomness import Purpose, Streams
from forgetscope.spec import AugmentationSpec
from forgetscope.testing.contract import BrokenContract, demand_same, leaving_alone, told_as_broken

NODES = 4


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
        with leaving_alone(f"policy {name}", "Draw from `rng`, which it is given."), told_as_broken():
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
    demand_same(before, _state_of(given), f"policy {name} changed", "Work on a copy: others choose from the same.")
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
