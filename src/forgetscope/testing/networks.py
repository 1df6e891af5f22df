"""The contract of networks."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from forgetscope.errors import InputError
from forgetscope.learning import networks
from forgetscope.measuring.measurement import ProbeData, measure
from forgetscope.testing.contract import BrokenContract, demand_same, leaving_alone, told_as_broken


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
            leaving_alone(f"network {name}", "Draw from torch's.", besides=("torch's",)),
            told_as_broken(),
        ):
            torch.manual_seed(0)
            network = factory(classes)
            networks.check_network(name, network, classes)
            networks.check_features(name, network, images)
        return network

    network, twin = build(), build()
    demand_same(network.state_dict(), twin.state_dict(), f"network {name}: with the same seed of torch, other weights in", "")
    _check_evaluation(name, network, images)
    _check_training(name, network, images, nodes, single_images)
    _check_state(name, network, twin, images)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    _check_growth(name, network, images, classes)
    after = {key: value for key, value in network.state_dict().items() if not key.startswith("head.")}
    demand_same(
        {key: before[key] for key in after}, after, f"network {name}: evaluation changes", "Change state in training only."
    )
    with leaving_alone(f"a probe of network {name}", "Let features(images) draw nothing in evaluation mode."):
        measure(network, ProbeData(images, nodes, torch.arange(classes), images, 3 + nodes % 2))


def _check_growth(name: str, network: nn.Module, images: Tensor, classes: int) -> None:
    old = network.eval()(images)
    networks.grow_head(network, 2, np.random.default_rng(0))
    with told_as_broken():
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
