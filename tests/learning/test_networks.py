from __future__ import annotations

import numpy as np
import pytest
import torch

from forgetscope.errors import SpecError
from forgetscope.learning.networks import build_network, check_features, grow_head
from forgetscope.learning.plugins import source_digests
from forgetscope.testing import check_network


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def parameters(name: str, classes: int) -> int:
    return sum(p.numel() for p in build_network(name, classes, None).parameters())


def test_sizes_are_the_published_ones() -> None:
    # He et al. (2016), table 6: 0.27 M and 0.46 M for ten classes
    assert parameters("resnet20", 10) == 269_722
    assert parameters("resnet32", 10) == 464_154
    # ResNet-18: 11.18 M without stem and head, as in the ImageNet model of 11,689,512 with a 7 x 7 stem and 1000 classes
    assert parameters("resnet18", 1000) == 11_689_512 - 64 * 3 * (7 * 7 - 3 * 3)


@pytest.mark.parametrize("name", ["resnet8", "resnet14", "resnet18", "resnet8-projected"])
def test_every_network_keeps_the_contract_that_users_networks_are_held_to(name: str) -> None:
    def factory(classes: int) -> torch.nn.Module:
        return build_network(name, classes, rng(int(torch.randint(100, ()))))

    check_network(factory, image_size=16, single_images=True)


@pytest.mark.parametrize(("name", "width", "side"), [("resnet8", 64, 16), ("resnet14", 64, 32), ("resnet18", 512, 16)])
def test_features_and_head_make_the_logits(name: str, width: int, side: int) -> None:
    network = build_network(name, 7, rng()).eval()
    images = torch.randn(2, 3, side, side)
    features = network.features(images)
    assert features.shape == (2, width)
    assert torch.equal(network(images), network.head(features))


def test_shortcuts_of_the_cifar_family_have_no_parameters_and_pad_with_zeros() -> None:
    network = build_network("resnet8", 2, rng())
    assert {tuple(p.shape) for p in network.parameters() if p.ndim == 4 and p.shape[2] == 1} == set()
    block = network.backbone.blocks[1]
    x = torch.randn(1, 16, 8, 8)
    shortcut = block._shortcut(x)
    assert shortcut.shape == (1, 32, 4, 4)
    assert torch.equal(shortcut[:, 8:24], x[:, :, ::2, ::2])
    assert not shortcut[:, :8].any()
    assert not shortcut[:, 24:].any()


def test_first_weights_follow_the_stream_and_no_global_generator() -> None:
    state = torch.get_rng_state()
    first, same, other = (build_network("resnet8", 3, rng(seed)).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])
    stem = first["backbone.stem.0.weight"]
    assert float(stem.std()) == pytest.approx((2 / 27) ** 0.5, rel=0.15)


def test_a_growing_head_keeps_old_rows_bit_for_bit() -> None:
    network = build_network("resnet8", 4, rng())
    weight, bias = network.head.weight.detach().clone(), network.head.bias.detach().clone()
    state = torch.get_rng_state()
    grow_head(network, 50, rng(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(network.head.weight[:4], weight)
    assert torch.equal(network.head.bias[:4], bias)
    new = torch.cat([network.head.weight[4:].flatten(), network.head.bias[4:]]).detach()
    bound = 1 / 64**0.5
    assert float(new.abs().max()) <= bound
    assert float(new.abs().mean()) == pytest.approx(bound / 2, rel=0.1)
    assert network(torch.zeros(1, 3, 16, 16)).shape == (1, 54)


@pytest.mark.parametrize("name", ["resnet9", "resnet2", "vgg16", "resnet"])
def test_unknown_networks_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match=f"network = '{name}' is not known. Use a CIFAR ResNet of depth 6n"):
        build_network(name, 2, None)


def test_the_projected_resnet18_ends_in_64_features() -> None:
    network = build_network("resnet18-projected", 3, rng())
    assert parameters("resnet18-projected", 3) == parameters("resnet18", 3) - 3 * 513 + 512 * 128 + 128 + 128 * 64 + 64 + 3 * 65
    assert network.features(torch.zeros(2, 3, 8, 8)).shape == (2, 64)
    bound = 1 / 512**0.5
    assert float(network.backbone[1].weight.detach().abs().max()) <= bound


class Own(torch.nn.Module):
    def __init__(self, classes: int, width: int = 4, scale: float = 1.0) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
        self.head = torch.nn.Linear(width, classes)
        self.scale = scale

    def features(self, images: torch.Tensor) -> torch.Tensor:
        return self.body(images)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.scale * self.head(self.features(images))


class Headless(torch.nn.Module):
    def features(self, images: torch.Tensor) -> torch.Tensor:
        return images


def two_nodes(classes: int) -> torch.nn.Module:
    return Own(2)


def no_module(classes: int) -> int:
    return classes


def headless(classes: int) -> torch.nn.Module:
    return Headless()


def no_features(classes: int) -> torch.nn.Module:
    return torch.nn.Linear(2, classes)


def build_own(name: str, seed: int = 0) -> torch.nn.Module:
    (source,) = source_digests([f"test_networks:{name}"]).values()
    return build_network(f"test_networks:{name}", 5, rng(seed), source)


def test_a_user_s_own_network_by_name_follows_the_stream() -> None:
    state = torch.get_rng_state()
    first, same, other = (build_own("Own", seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.head.weight, same.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)
    grow_head(first, 2, rng())
    assert first(torch.zeros(1, 3, 8, 8)).shape == (1, 7)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_module", "is int, not a torch.nn.Module"),
        ("no_features", r"has no method features\(images\)"),
        ("headless", "has as its head NoneType, not a torch.nn.Linear"),
        ("two_nodes", "has a head with 2 nodes for 5 classes"),
    ],
)
def test_what_a_network_lacks_is_said_precisely(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=rf"network test_networks:{name} {message}"):
        build_own(name)


def test_features_must_fit_the_head_and_the_head_the_output() -> None:
    images = torch.zeros(2, 3, 8, 8)
    check_features("mine", Own(3), images)
    with pytest.raises(SpecError, match=r"features of 2 images are \(2, 4\), but the head takes \[2, 6\]"):
        check_features("mine", WrongWidth(3, width=6), images)
    with pytest.raises(SpecError, match=r"its output is not head\(features\(images\)\)"):
        check_features("mine", Own(3, scale=2.0), images)
    with pytest.raises(SpecError, match=r"its output is not finite"):
        check_features("mine", Own(3, scale=float("nan")), images)
    for output in (None, torch.zeros(2), torch.zeros(3, 2)):
        network = Own(3)
        network.forward = lambda images, output=output: output  # type: ignore[method-assign]
        with pytest.raises(SpecError, match=r"its output is not head\(features\(images\)\)"):
            check_features("mine", network, images)


class CosineHead(torch.nn.Linear):
    """Says that it is a linear layer, and computes another thing."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(torch.nn.functional.normalize(features), self.weight, self.bias)


def test_a_head_that_only_looks_linear_is_refused() -> None:
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    cosine, normed = Own(3), Own(3)
    cosine.head = CosineHead(cosine.head.in_features, 3)
    normed.head = torch.nn.utils.parametrizations.weight_norm(normed.head)
    for network, kind in ((cosine, "CosineHead"), (normed, "ParametrizedLinear")):
        with pytest.raises(SpecError, match=rf"network mine: its head, {kind}, does not give features @ weight.T \+ bias"):
            check_features("mine", network, images)


class WrongWidth(Own):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(images), 3)
