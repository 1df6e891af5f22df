"""Backbones with a linear head that grows: the CIFAR ResNets of He et al. (2016), and ResNet-18 for small images.

A network is anything with `features(images) -> [n, d]` and `head`, an `nn.Linear`; all coefficients are measured there.
"""

import math
import re
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from forgetscope.characters import counted
from forgetscope.errors import SpecError
from forgetscope.learning.plugins import blaming_own_code, call_named, load_named
from forgetscope.measuring.heads import is_linear_layer


class Network(nn.Module):
    """A backbone that ends in features, and a head with one node per class seen so far."""

    def __init__(self, backbone: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(width, classes)

    def features(self, images: Tensor) -> Tensor:  # [n, 3, h, w] -> [n, d]
        features: Tensor = self.backbone(images)
        return features

    def forward(self, images: Tensor) -> Tensor:  # [n, 3, h, w] -> [n, classes]
        logits: Tensor = self.head(self.features(images))
        return logits


class SmoothNetwork(Network):
    """Without a kink, for checking theory: one layer of tanh units, or with `units` = 0 a linear softmax model.

    Inputs are divided by the square root of their number: a standardised image has norm 1, and smoothness is of order 1."""

    def __init__(self, shape: tuple[int, int], units: int, classes: int, rng: np.random.Generator) -> None:
        pixels = 3 * shape[0] * shape[1]
        with torch.random.fork_rng(devices=[]):
            hidden = nn.Linear(pixels, units) if units else None
            super().__init__(nn.Identity() if hidden is None else nn.Sequential(hidden, nn.Tanh()), units or pixels, classes)
        _initialise(self, rng)
        if hidden is not None:
            with torch.no_grad():
                hidden.weight.mul_(math.sqrt(pixels))  # as large as they would be without the division

    @property
    def hidden(self) -> nn.Linear | None:
        """The weights of the tanh units; a linear model has none."""
        return cast(nn.Linear, self.backbone[0]) if isinstance(self.backbone, nn.Sequential) else None

    def unit_inputs(self, images: Tensor) -> Tensor:  # [n, 3, h, w] -> [n, 3 h w]
        return images.flatten(1) / math.sqrt(images[0].numel())

    def features(self, images: Tensor) -> Tensor:
        return super().features(self.unit_inputs(images))


@blaming_own_code()
def build_network(
    name: str, classes: int, rng: np.random.Generator | None, source: str | None = None, *, fan_out: bool = False
) -> nn.Module:
    """A network in channels-last layout; `rng` draws its first weights, None leaves them for a saved state to fill.

    A user's own, `package.module:factory`, is called with the number of classes; source: its SHA-256. fan_out: convolutions
    are scaled by their outputs instead of their inputs."""
    with torch.random.fork_rng(devices=[]):  # constructors draw from the global generator; ours must not move it
        if ":" in name:
            torch.manual_seed(0 if rng is None else int(rng.integers(2**62)))
            network = call_named(name, load_named(name, source), classes)
        else:
            network = Network(*_backbone(name), classes)
            if rng is not None:
                _initialise(network, rng, fan_out)
    check_network(name, network, classes)
    return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return]


def check_network(name: str, network: object, classes: int) -> None:
    """Says precisely what a network lacks."""
    problem, head = None, getattr(network, "head", None)
    if not isinstance(network, nn.Module):
        problem = f"is {type(network).__name__}, not a torch.nn.Module"
    elif not callable(getattr(network, "features", None)):
        problem = "has no method features(images) that returns [n, d]"
    elif not isinstance(head, nn.Linear):
        problem = f"has as its head {type(head).__name__}, not a torch.nn.Linear"
    elif head.out_features != classes:
        problem = f"has a head with {counted(head.out_features, 'node')} for {counted(classes, 'class')}"
    elif head.bias is None:
        problem = "has a head without bias; the coefficients include it"
    elif type(network).forward is nn.Module.forward:
        problem = "has no method forward(images) that returns [n, classes]"
    if problem:
        raise SpecError(
            f"network {name} {problem}. It needs features(images), forward(images) and a linear head with one node per class."
        )


def check_features(name: str, network: nn.Module, images: Tensor) -> None:
    """A network's features must be what its head takes, and its output what its head makes of them."""
    network.eval()
    with torch.no_grad():
        features, logits = network.features(images), network(images)  # type: ignore[operator]
        head = network.head
        assert isinstance(head, nn.Linear)  # as check_network saw
        width = head.in_features
        if not isinstance(features, Tensor) or features.shape != (len(images), width):
            found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise SpecError(
                f"network {name}: features of {len(images)} images are {found}, but the head takes [{len(images)}, {width}]."
            )
        if isinstance(logits, Tensor) and not logits.isfinite().all():
            raise SpecError(f"network {name}: its output is not finite, before anything is learned. Look at its first weights.")
        whole = isinstance(logits, Tensor) and logits.shape == (len(images), head.out_features)
        if not whole or not torch.allclose(logits, head(features), rtol=1e-3, atol=1e-4):
            raise SpecError(
                f"network {name}: its output is not head(features(images)). "
                "The coefficients would not be those of its training."
            )
        if not is_linear_layer(head, features):
            raise SpecError(
                f"network {name}: its head, {type(head).__name__}, does not give features @ weight.T + bias, or its weights "
                "are computed from others. The coefficients would not be those of its training. Use a torch.nn.Linear."
            )


def grow_head(network: nn.Module, new_classes: int, rng: np.random.Generator) -> None:
    """Append one node per new class, uniform in +-1/sqrt(d); the old rows stay bit for bit."""
    old = network.head
    assert isinstance(old, nn.Linear)  # as check_network saw
    with torch.random.fork_rng(devices=[]):
        head = nn.Linear(old.in_features, old.out_features + new_classes)
    _initialise_linear(head, rng)
    with torch.no_grad():
        head.to(old.weight.device)
        head.weight[: old.out_features] = old.weight
        head.bias[: old.out_features] = old.bias
    network.head = head


def head_of(network: nn.Module) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weight [k, d] and bias [k] as they are now."""
    head = network.head
    assert isinstance(head, nn.Linear)  # as check_network saw
    return head.weight.detach().cpu().double().numpy(), head.bias.detach().cpu().double().numpy()


def _backbone(name: str) -> tuple[nn.Module, int]:
    if name.endswith("-projected"):
        backbone, width = _backbone(name.removesuffix("-projected"))
        return nn.Sequential(backbone, nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64)), 64
    if name == "resnet18":
        return _ResNet((64, 128, 256, 512), each=2, projecting=True), 512
    match = re.fullmatch(r"resnet(\d+)", name)
    depth = int(match[1]) if match else 0
    if depth < 8 or depth % 6 != 2:
        raise SpecError(
            f"network = {name!r} is not known. Use a CIFAR ResNet of depth 6n + 2 (resnet8, resnet20, resnet32, ...) "
            "or resnet18, each with -projected behind it if wanted, or your own as package.module:factory."
        )
    return _ResNet((16, 32, 64), each=(depth - 2) // 6, projecting=False), 64


def _initialise(network: Network, rng: np.random.Generator, fan_out: bool = False) -> None:
    """He initialisation of the convolutions, drawn in a fixed order; BatchNorm starts as the identity."""
    for module in network.backbone.modules():
        if isinstance(module, nn.Conv2d):
            fan = module.weight[:, 0].numel() if fan_out else module.weight[0].numel()
            draws = rng.standard_normal(tuple(module.weight.shape)) * math.sqrt(2 / fan)
            with torch.no_grad():
                module.weight.copy_(torch.from_numpy(draws))
        elif isinstance(module, nn.Linear):
            _initialise_linear(module, rng)
    _initialise_linear(network.head, rng)


def _initialise_linear(head: nn.Linear, rng: np.random.Generator) -> None:
    """Uniform in +-1/sqrt(d)."""
    bound = 1 / math.sqrt(head.in_features)
    with torch.no_grad():
        for parameter in (head.weight, head.bias):
            parameter.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(parameter.shape))))


class _ResNet(nn.Module):
    """A 3 x 3 stem of stride 1, then stages of `each` blocks; each stage but the first halves the image.

    Shortcuts between stages have no parameters (option A), or a projection (option B)."""

    def __init__(self, widths: tuple[int, ...], each: int, projecting: bool) -> None:
        super().__init__()
        self.stem = _convolution(3, widths[0])
        blocks: list[nn.Module] = []
        for before, channels in pairwise((widths[0], *widths)):
            stride = 1 if before == channels else 2
            shortcut = _convolution(before, channels, kernel=1, stride=2) if projecting and stride == 2 else None
            blocks += [_Block(before, channels, stride, shortcut), *(_Block(channels, channels) for _ in range(each - 1))]
        self.blocks = nn.Sequential(*blocks)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(F.relu(self.stem(images), inplace=True)).mean(dim=(2, 3))  # type: ignore[no-any-return]


class _Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut: identity, `projection`, or identity with zero channels around it."""

    def __init__(self, channels_in: int, channels: int, stride: int = 1, projection: nn.Module | None = None) -> None:
        super().__init__()
        self.first = _convolution(channels_in, channels, stride=stride)
        self.second = _convolution(channels, channels)
        self.projection = projection
        self.stride = stride
        self.padding = channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        # In place, where no backward pass needs what is overwritten: fresh memory costs as much as the arithmetic on it.
        return self.second(F.relu(self.first(x), inplace=True)).add_(self._shortcut(x)).relu_()  # type: ignore[no-any-return]

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.projection is not None:
            return self.projection(x)  # type: ignore[no-any-return]
        if self.padding == 0:
            return x
        half = self.padding // 2
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.padding - half))


def _convolution(channels_in: int, channels: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(channels_in, channels, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels))
