"""Networks as people have them, over loaders, each against autograd through its own forward in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from watched import observed, pairs, terms

from forgetscope.errors import InputError
from measuring.test_heads import BY_AUTOGRAD, IN_CLOSED_FORM, Base, SeveralHeads, expected, made


@pytest.mark.parametrize("name", [*IN_CLOSED_FORM, *BY_AUTOGRAD])
def test_terms_are_those_of_autograd_through_the_networks_own_forward(name: str, tmp_path: Path) -> None:
    kind, parameters = {**IN_CLOSED_FORM, **BY_AUTOGRAD}[name]
    network = made(kind)
    step = observed(tmp_path, network.train())
    values = expected(network, parameters(network))
    torch.testing.assert_close(terms(step), torch.stack([values[term] for term in values]).detach(), rtol=1e-9, atol=1e-12)
    assert ("in closed form" in repr(step)) == (name in IN_CLOSED_FORM)


def test_several_heads_are_refused_by_name_and_measured_where_one_says_which(tmp_path: Path) -> None:
    network = made(SeveralHeads)
    with pytest.raises(InputError, match="SeveralHeads has no last layer that could be told"):
        observed(tmp_path, network)
    step = observed(tmp_path, network, head=network.fc)
    rows = lambda node: [(0, node), (1, node)]  # noqa: E731  # of the first head, where the past classes are
    values = expected(network, [*network.fc.parameters()], rows)
    torch.testing.assert_close(terms(step)[:3], torch.stack([values[t] for t in ("sic", "cic", "nic")]).detach())


def test_wrappers_and_mixed_precision_give_the_numbers_of_the_network_itself(tmp_path: Path) -> None:
    network = made(Base)
    plain = terms(observed(tmp_path / "plain", network))
    assert torch.allclose(terms(observed(tmp_path / "wrapped", nn.DataParallel(network))), plain, rtol=1e-12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.allclose(terms(observed(tmp_path / "mixed", network)), plain, rtol=1e-12)


def test_another_loss_is_the_one_that_is_measured(tmp_path: Path) -> None:
    network = made(Base)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.2)
    values = expected(network, [*network.fc.parameters()], loss=smooth)
    found = terms(observed(tmp_path, network, loss=smooth))
    torch.testing.assert_close(found, torch.stack([*values.values()]).detach(), rtol=1e-9, atol=1e-12)
    weights = nn.CrossEntropyLoss(weight=torch.arange(1.0, 6.0).double())
    with pytest.raises(InputError, match=r"loss CrossEntropyLoss.* is .* of 5 images, one per class"):
        observed(tmp_path, network, loss=weights)


def test_alpha_may_be_a_tensor_of_one_number(tmp_path: Path) -> None:
    network = made(Base)
    plain, step = observed(tmp_path / "plain", network, alpha=0.25), observed(tmp_path, network, alpha=torch.tensor(0.25))
    assert torch.equal(terms(step), terms(plain))
    with pytest.raises(InputError, match=r"alpha = tensor\(\[0.2000, 0.3000\]\) is not between 0 and 1"):
        observed(tmp_path / "two", network, alpha=torch.tensor([0.2, 0.3]))


def test_labels_that_are_no_nodes_are_mapped(tmp_path: Path) -> None:
    network = made(Base)
    named = {name: (images, labels * 10 + 7) for name, (images, labels) in pairs().items()}
    step = observed(tmp_path, network, **named, nodes={node * 10 + 7: node for node in range(5)})
    torch.testing.assert_close(terms(step), terms(observed(tmp_path / "nodes", network)), rtol=1e-12, atol=0)
    assert step.past == (7, 17, 27)
    assert list(step.to_frame().index) == [7, 17, 27]


def test_a_network_that_works_in_place_leaves_the_images_alone(tmp_path: Path) -> None:
    class InPlace(Base):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(F.relu_(images))

    given = pairs()
    before = {name: images.clone() for name, (images, _) in given.items()}
    observed(tmp_path, made(InPlace), **given)
    assert all(torch.equal(given[name][0], before[name]) for name in given)
