from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from forgetscope.learning.networks import build_network
from forgetscope.measuring.folding import folded


def used(network: nn.Module) -> nn.Module:
    """BatchNorm statistics and weights away from their start, then evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    network.train()
    for _ in range(3):
        network(torch.randn(8, 3, 16, 16, generator=generator))
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d) and module.affine:
                module.weight.uniform_(0.5, 2, generator=generator)
                module.bias.uniform_(-1, 1, generator=generator)
    return network.eval()


IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["resnet8", "resnet20", "resnet18", "resnet18-projected"])
@torch.no_grad()
def test_features_are_the_same_up_to_rounding_and_nothing_changes(name: str) -> None:
    network = used(build_network(name, 3, np.random.default_rng(0)))
    before = copy.deepcopy(network.state_dict())
    faster = folded(network.features)  # type: ignore[arg-type]
    assert faster is not network.features
    expected = network.features(IMAGES)  # type: ignore[operator]
    torch.testing.assert_close(faster(IMAGES), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())


@torch.no_grad()
def test_against_the_network_in_float64() -> None:
    network = used(build_network("resnet20", 3, np.random.default_rng(0)))
    exact = copy.deepcopy(network).double().features(IMAGES.double())
    errors = [(features(IMAGES) - exact).norm() for features in (network.features, folded(network.features))]
    assert errors[1] < 3 * errors[0]  # folding is as exact as not folding


class Odd(nn.Module):
    """A convolution and a BatchNorm in many relations; only some may be folded."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        affine, tracking = kind != "plain norm", kind != "no statistics"
        self.norm = nn.BatchNorm2d(4, affine=affine, track_running_stats=tracking)
        self.conv2 = nn.Conv2d(4, 4, 1, bias=False)
        if kind == "weight norm":
            nn.utils.parametrizations.weight_norm(self.conv)
        if kind == "hooked":
            self.conv.register_forward_hook(lambda module, args, output: output * 2)
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if self.kind == "branches" and bool((x > 0).any()):
            x = -x
        if self.kind == "keeps":
            self.kept.append(x)
        normed = self.norm(x)
        if self.kind == "output used twice":
            normed = normed + x
        if self.kind == "norm used twice":
            normed = self.norm(self.conv2(normed))
        return normed.mean(dim=(2, 3))


FOLDABLE = {"plain", "plain norm", "keeps"}


@pytest.mark.parametrize(
    "kind",
    [
        "plain",
        "plain norm",
        "keeps",
        "no statistics",
        "weight norm",
        "hooked",
        "branches",
        "output used twice",
        "norm used twice",
    ],
)
@torch.no_grad()
def test_only_what_is_safe_is_folded(kind: str) -> None:
    network = used(Odd(kind))
    network.kept.clear()
    faster = folded(network)
    assert (faster is network) == (kind not in FOLDABLE)
    assert network.kept == []  # nothing ran on the original
    torch.testing.assert_close(faster(IMAGES), network(IMAGES), rtol=1e-5, atol=1e-5)


def test_a_plain_function_is_left_as_it_is() -> None:
    network = used(Odd("plain"))

    def features(images: Tensor) -> Tensor:
        return network(images)

    assert folded(features) is features
