"""Against autograd on the mean loss, and a literal transcription of the definitions over flattened parameters."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from test_probe import NEW, PAST, Plain, images_of, make_probe
from torch import Tensor, nn
from torch.nn import functional as F

from forgetscope.learning.networks import build_network
from forgetscope.measuring.all_layers import Parameters, gradient_sum
from forgetscope.measuring.probe import Probe
from rehearsed import literal_interference

ALPHA = 0.4


def moved(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """With BatchNorm statistics that are not those of a fresh network."""
    torch.manual_seed(0)
    for _ in range(3):
        network(torch.randn(20, *shape))
    return network.double().eval()


def of_two(kind: str) -> tuple[nn.Module, tuple[int, ...]]:
    if kind == "plain":
        return moved(Plain(), (3, 2, 2)), (3, 2, 2)
    return moved(build_network(kind, 5, np.random.default_rng(1)), (3, 8, 8)), (3, 8, 8)


def some_images(classes: tuple[int, ...], shape: tuple[int, ...], seed: int, each: int = 5) -> tuple[Tensor, Tensor]:
    labels = torch.tensor(classes).repeat(each)
    images = torch.randn(len(labels), *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return images + labels[:, None, None, None], labels


def autograd_mean(network: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Gradient of the mean loss by parameter name, by the ordinary way, on a copy."""
    twin = copy.deepcopy(network).eval()
    F.cross_entropy(twin(images), labels).backward()
    return {name: parameter.grad for name, parameter in twin.named_parameters() if parameter.grad is not None}


def flat(gradients: dict[str, Tensor]) -> Tensor:
    backbone = [value.flatten() for name, value in gradients.items() if not name.startswith("head.")]
    return torch.cat([*backbone, gradients["head.weight"].flatten(), gradients["head.bias"]])


def through(gradients: dict[str, Tensor], node: int) -> np.ndarray:
    """Everything before the head, and the row of this node."""
    backbone = [value.flatten() for name, value in gradients.items() if not name.startswith("head.")]
    return torch.cat([*backbone, gradients["head.weight"][node], gradients["head.bias"][node : node + 1]]).numpy()


@pytest.mark.parametrize("kind", ["plain", "resnet8", "resnet8-projected"])
def test_gradients_are_autograd_s_of_the_mean_loss(kind: str) -> None:
    network, shape = of_two(kind)
    images, labels = some_images((0, 1, 2, 3, 4), shape, 3)
    parameters = Parameters(network, network.head.weight, network.head.bias)  # type: ignore[arg-type,union-attr]
    found = gradient_sum(network, parameters.all, zip(images.split(7), labels.split(7), strict=True))
    torch.testing.assert_close(
        found.gradient / found.images, flat(autograd_mean(network, images, labels)), rtol=1e-9, atol=1e-12
    )
    assert found.loss / found.images == pytest.approx(F.cross_entropy(network(images), labels).item())


@pytest.mark.parametrize("kind", ["plain", "resnet8"])
def test_terms_are_the_definitions_over_all_parameters(kind: str) -> None:
    network, shape = of_two(kind)
    (past, past_labels), (new, new_labels) = some_images(PAST, shape, 1, 7), some_images(NEW, shape, 2)
    kept = torch.arange(9)
    measured = Probe(past, past_labels, kept, new, new_labels, ALPHA, batch=4).measure_all_layers(network)
    full = [autograd_mean(network, past[past_labels == c], past_labels[past_labels == c]) for c in PAST]
    some = [autograd_mean(network, past[:9][past_labels[:9] == c], past_labels[:9][past_labels[:9] == c]) for c in PAST]
    f = [flat(gradients).numpy() for gradients in full]
    b = [flat(gradients).numpy() - own for gradients, own in zip(some, f, strict=True)]
    g = autograd_mean(network, new, new_labels)
    p = 1 / 3
    for c in PAST:
        expected = {
            "sic": ALPHA * p * literal_interference(b[c], f[c]),
            "cic": sum(ALPHA * p * literal_interference(b[y], f[c]) for y in PAST if y != c),
            "nic": (1 - ALPHA) * literal_interference(through(g, c), through(full[c], c)),
            "all_nic": (1 - ALPHA) * literal_interference(flat(g).numpy(), f[c]),
        }
        for name, value in expected.items():
            assert float(getattr(measured.terms, name)[c]) == pytest.approx(value, rel=1e-7, abs=1e-10), (name, c)
        assert float(measured.gradient_norm[c]) == pytest.approx(np.linalg.norm(f[c]), rel=1e-7)
        assert float(measured.bias_norm[c]) == pytest.approx(np.linalg.norm(b[c]), rel=1e-7)


def test_where_only_the_head_is_trained_they_are_the_last_layer_s() -> None:
    network = of_two("plain")[0].float()
    for parameter in network.body.parameters():  # type: ignore[union-attr]
        parameter.requires_grad_(False)
    whole, last = make_probe().measure_all_layers(network), make_probe().measure(network)
    for name in ("sic", "cic", "nic", "all_nic"):
        torch.testing.assert_close(getattr(whole.terms, name), getattr(last.terms, name), rtol=1e-4, atol=1e-7)
    for name in ("gradient_norm", "bias_norm", "loss_full", "loss_rehearsal"):
        torch.testing.assert_close(getattr(whole, name), getattr(last, name), rtol=1e-5, atol=1e-7)


def test_it_leaves_no_trace() -> None:
    torch.manual_seed(0)
    network = Plain()
    network(torch.randn(20, 3, 2, 2)).sum().backward()
    network.body[2].eval()  # frozen on purpose
    state, modes = copy.deepcopy(network.state_dict()), [module.training for module in network.modules()]
    gradients, random = [p.grad.clone() for p in network.parameters() if p.grad is not None], torch.get_rng_state()
    make_probe().measure_all_layers(network)
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in network.modules()] == modes
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    for before, after in zip(gradients, (p.grad for p in network.parameters() if p.grad is not None), strict=True):
        assert torch.equal(before, after)


def test_a_class_without_a_gradient_has_no_terms() -> None:
    torch.manual_seed(0)
    network = Plain().eval()
    with torch.no_grad():  # so sure of class 0 that its loss and gradient are exactly zero, whatever the image
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([1e4, 0, 0, 0, 0]))
    terms = make_probe().measure_all_layers(network).terms
    for values in (terms.sic, terms.cic, terms.nic, terms.all_nic):
        assert torch.isnan(values).tolist() == [True, False, False]


def test_images_of_one_class_are_enough_for_a_batch_of_any_size() -> None:
    network, _ = of_two("plain")
    results = [make_probe(batch=batch).measure_all_layers(network.float()).terms.sic for batch in (1, 4, 100)]
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-4, atol=1e-7)
    assert images_of(PAST, 1)[0].shape[0] == 21
