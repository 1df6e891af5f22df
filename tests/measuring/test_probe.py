from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from forgetscope.errors import InputError
from forgetscope.learning.networks import build_network
from forgetscope.measuring.measurement import measure
from forgetscope.measuring.probe import Probe
from rehearsed import class_mean_gradients, from_rehearsal

PAST, NEW = (0, 1, 2), (3, 4)


class Plain(nn.Module):
    """Somebody else's network: BatchNorm, dropout, features and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU())
        self.head = nn.Linear(6, 5)

    def features(self, images: Tensor) -> Tensor:
        return self.body(images)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


@pytest.fixture
def network() -> Plain:
    torch.manual_seed(0)
    network = Plain()
    for _ in range(3):  # move the BatchNorm statistics away from their start
        network(torch.randn(20, 3, 2, 2))
    return network


def images_of(classes: tuple[int, ...], seed: int, each: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(classes).repeat(each)
    return torch.randn(len(labels), 3, 2, 2, generator=generator) + labels[:, None, None, None], labels


def make_probe(batch: int = 4, alpha: float = 0.4) -> Probe:
    past, new = images_of(PAST, 1), images_of(NEW, 2)
    return Probe(*past, torch.arange(6), *new, alpha, batch=batch)


def test_it_equals_the_functional_core_on_all_images_at_once(network: Plain) -> None:
    (past_images, past_labels), (new_images, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    network.eval()
    with torch.no_grad():
        past, new = network.features(past_images), network.features(new_images)
        full = class_mean_gradients(past, network.head(past), past_labels, 3)
        kept = class_mean_gradients(past[:6], network.head(past[:6]), past_labels[:6], 3)
        g_new = class_mean_gradients(new, network.head(new), new_labels, 5)[3:].mean(dim=0)  # classes of equal size
        expected = from_rehearsal(full, kept, g_new, 0.4, torch.full((3,), 1 / 3))
    network.train()
    measured = make_probe().measure(network)
    for name in ("sic", "cic", "nic", "all_nic"):
        torch.testing.assert_close(getattr(measured.terms, name), getattr(expected, name), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(
        measured.new_logits, network.head(new)[:, :3].detach().double().mean(dim=0), rtol=1e-5, atol=1e-6
    )


def test_pairs_add_up_and_losses_are_means(network: Plain) -> None:
    measured = make_probe().measure(network)
    past = measured.pairs[:, :3]
    torch.testing.assert_close(past.diagonal(), measured.terms.sic)
    torch.testing.assert_close(past.sum(dim=1), measured.terms.sic + measured.terms.cic)
    torch.testing.assert_close(measured.pairs[:, 3:].sum(dim=1), measured.terms.nic)
    network.eval()
    images, labels = images_of(PAST, 1)
    losses = nn.functional.cross_entropy(network(images), labels, reduction="none").detach().double()
    torch.testing.assert_close(measured.loss_full[1], losses[labels == 1].mean(), rtol=1e-5, atol=1e-6)


def test_the_batch_size_does_not_matter(network: Plain) -> None:
    small, large = make_probe(batch=3).measure(network), make_probe(batch=100).measure(network)
    torch.testing.assert_close(small.pairs, large.pairs, rtol=1e-4, atol=1e-7)


def test_images_after_convolutions_are_measured_on_the_folded_copy() -> None:
    """The whole probe against the functional core on the original network, for a network that is folded."""
    network = build_network("resnet8", 5, np.random.default_rng(0))
    generator = torch.Generator().manual_seed(0)
    past_labels, new_labels = torch.tensor(PAST).repeat(7), torch.tensor(NEW).repeat(7)
    past_images, new_images = (torch.randn(len(n), 3, 8, 8, generator=generator) for n in (past_labels, new_labels))
    network(past_images)  # moves the BatchNorm statistics
    measured = Probe(past_images, past_labels, torch.arange(6), new_images, new_labels, 0.4).measure(network)
    network.eval()
    with torch.no_grad():
        past, new = network.features(past_images), network.features(new_images)
        full = class_mean_gradients(past, network.head(past), past_labels, 3)
        kept = class_mean_gradients(past[:6], network.head(past[:6]), past_labels[:6], 3)
        g_new = class_mean_gradients(new, network.head(new), new_labels, 5)[3:].mean(dim=0)
    expected = from_rehearsal(full, kept, g_new, 0.4, torch.full((3,), 1 / 3))
    for name in ("sic", "cic", "nic", "all_nic"):
        torch.testing.assert_close(getattr(measured.terms, name), getattr(expected, name), rtol=1e-4, atol=1e-7)


def test_a_class_without_a_gradient_is_missing_and_the_bound_says_why(network: Plain) -> None:
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([2000.0, 0, 0, 0, 0]))  # class 0 is certain; e^-2000 is 0
    measured = make_probe().measure(network)
    assert measured.terms.sic.isnan().tolist() == [True, False, False]
    assert measured.gradient_norm[0] == measured.rounding[0] == 0
    assert (measured.gradient_norm[1:] > measured.rounding[1:]).all()


def test_it_leaves_no_trace(network: Plain) -> None:
    network.train()
    network.body[2].eval()  # frozen on purpose
    before, modes = copy.deepcopy(network.state_dict()), [module.training for module in network.modules()]
    network.head.weight.grad = torch.ones_like(network.head.weight)
    generator = torch.get_rng_state()
    make_probe().measure(network)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert [module.training for module in network.modules()] == modes
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.equal(network.head.weight.grad, torch.ones_like(network.head.weight))


def test_the_coefficient_is_the_plain_sum_over_probes(network: Plain) -> None:
    probe = make_probe()
    first = probe.measure(network)
    with torch.no_grad():
        network.head.weight.add_(0.3)
    second = probe.measure(network)
    torch.testing.assert_close(probe.coefficients.sic, first.terms.sic + second.terms.sic)
    torch.testing.assert_close(probe.coefficients.nic, first.terms.nic + second.terms.nic)
    torch.testing.assert_close(probe.log_sim, first.new_logits)  # of the first probe only
    assert probe.sums.to_frame().index.tolist() == probe.past_nodes.tolist()


def test_measuring_is_a_function_of_network_and_images(network: Plain) -> None:
    probe = make_probe()
    first, again = (measure(network, probe) for _ in range(2))
    assert torch.equal(first.pairs, again.pairs)
    assert len(probe.sums) == 0


def test_probing_changes_no_later_number(network: Plain) -> None:
    """A plain loop with momentum, dropout and shuffling from the global generator ends in the same bits."""
    images, labels = images_of(PAST + NEW, 3)
    ends = []
    for probed in (False, True):
        learner, probe = copy.deepcopy(network), make_probe()
        optimiser = torch.optim.SGD(learner.parameters(), 0.1, momentum=0.9)
        torch.manual_seed(1)
        for _ in range(3):
            learner.train()
            batch = torch.randperm(len(labels))[:10]
            optimiser.zero_grad()
            nn.functional.cross_entropy(learner(images[batch]), labels[batch]).backward()
            if probed:
                probe.measure(learner)
                probe.measure_all_layers(learner)
            optimiser.step()
        ends.append(learner.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_head_nodes_may_be_scattered(network: Plain) -> None:
    renamed = {0: 4, 1: 2, 2: 0, 3: 1, 4: 3}
    relabel = torch.tensor([renamed[i] for i in range(5)])
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.head.weight[relabel] = network.head.weight
        other.head.bias[relabel] = network.head.bias
    (past_images, past_labels), (new_images, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    probe = Probe(past_images, relabel[past_labels], torch.arange(6), new_images, relabel[new_labels], 0.4)
    assert probe.past_nodes.tolist() == [0, 2, 4]
    scattered, straight = probe.measure(other).terms, make_probe().measure(network).terms
    torch.testing.assert_close(scattered.nic.flip(0), straight.nic, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(scattered.cic.flip(0), straight.cic, rtol=1e-4, atol=1e-7)


def test_last_layers_of_other_names_can_be_passed(network: Plain) -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.fc = network.body, network.head

    other = Other()
    named = make_probe().measure(other, features=other.body, head=other.fc)
    torch.testing.assert_close(named.pairs, make_probe().measure(network).pairs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 1.0}, "alpha = 1.0"),
        ({"rehearsed": torch.zeros(21, dtype=torch.bool)}, r"rehearsed marks none of the 21 past images, but alpha = 0.5"),
        ({"new_labels": torch.zeros(14, dtype=torch.int64)}, r"Classes \[0\] are both past and new"),
    ],
)
def test_wrong_input_is_refused_with_its_value(change: dict[str, object], message: str) -> None:
    (past_images, past_labels), (new_images, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    given = {"past_images": past_images, "past_labels": past_labels, "rehearsed": torch.arange(6), "new_images": new_images}
    with pytest.raises(InputError, match=message):
        Probe(**{**given, "new_labels": new_labels, "alpha": 0.5, **change})


def test_a_network_that_does_not_fit_is_told_why(network: Plain) -> None:
    with pytest.raises(
        InputError, match=r"The output of Linear for 4 images has the shape \(4, 3, 2, 2\), expected \[4, classes\]"
    ):
        make_probe().measure(nn.Linear(2, 2))
    with pytest.raises(
        InputError, match=r"Linear cannot be applied to a batch of shape \(4, 3, 2, 2\) .* prepare=, which makes"
    ):
        make_probe().measure(nn.Linear(3, 5))
    network.head = nn.Linear(6, 4)
    with pytest.raises(InputError, match="Label 4 needs a head with 5 nodes; it has 4"):
        make_probe().measure(network)
