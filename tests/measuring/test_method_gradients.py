"""What a method's own loss does to past classes: against autograd through the whole head in float64, image by image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import forgetscope as fs
from forgetscope.learning.methods import Objective, TrainingBatch, make_method
from forgetscope.measuring.coefficients import Coefficients, method_coefficients
from forgetscope.measuring.measurement import ProbeData, measure, measure_with_method
from forgetscope.measuring.method_gradients import MethodBatches

PAST, ALPHA = 3, 0.4
NAMES = ("sic", "cic", "nic", "all_nic")


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 6), nn.ReLU())
        self.head = nn.Linear(6, 5)

    def features(self, images: Tensor) -> Tensor:
        out: Tensor = self.body(images)
        return out

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(self.features(images))
        return out


@dataclass
class Case:
    """Past classes 0 to 2 with 9, 6 and 6 images, new ones 3 and 4 with 7 each; of the past ones 3, 2 and 2 are kept."""

    network: Plain
    data: ProbeData
    memory: Tensor
    teacher: Tensor  # [images, past]

    @property
    def images(self) -> Tensor:
        return torch.cat([part[0] for part in self.data.parts])

    @property
    def labels(self) -> Tensor:
        return torch.cat([part[1] for part in self.data.parts])

    def found(self, method: fs.Method, memory: Tensor | None = None, seed: int = 0) -> tuple[Coefficients, Coefficients]:
        """The paper's, and the method's."""
        memory = self.memory if memory is None else memory
        objective = Objective(
            *("own", method, PAST, None, self.shares(memory)),
            of_new=self.teacher[self.data.counts[0] :] if "parent" in method.needs else None,
            of_memory=self.teacher[memory] if "parent" in method.needs else None,
            stored=self.teacher[memory] if "stored logits" in method.needs else None,
        )
        batches = MethodBatches(objective.loss, memory, 6, 4, np.random.default_rng(seed))
        measurement, terms = measure_with_method(self.network, self.data, batches)
        return measurement.terms, terms

    def shares(self, memory: Tensor) -> Tensor:
        found = torch.zeros(5)
        found[PAST:] = (1 - ALPHA if len(memory) else 1.0) / 2
        return found + (ALPHA * torch.bincount(self.labels[memory], minlength=5) / len(memory) if len(memory) else 0)


@pytest.fixture(scope="module")
def case() -> Case:
    generator = torch.Generator().manual_seed(0)
    past = torch.tensor([0] * 9 + [1] * 6 + [2] * 6)
    new = torch.tensor([3] * 7 + [4] * 7)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Plain().double()
    images = [2 * torch.randn(len(of), 5, generator=generator).double() for of in (past, new)]
    memory = torch.tensor([4, 0, 7, 12, 9, 20, 15])  # class after class, in the order in which a policy chose them
    data = ProbeData(images[0], past, torch.sort(memory).values, images[1], new, ALPHA)
    return Case(network, data, memory, torch.randn(35, PAST, generator=generator).double())


def by_hand(case: Case, of_new: Tensor, of_memory: Tensor, memory: Tensor) -> Coefficients:
    """of_new [N], of_memory [M]: what each image adds to the expected loss of a batch, with a graph to the head."""
    head = [case.network.head.weight, case.network.head.bias]

    def gradient(value: Tensor) -> Tensor:
        weight, bias = torch.autograd.grad(value, head, retain_graph=True, allow_unused=True, materialize_grads=True)
        return torch.cat([weight, bias[:, None]], dim=1)

    labels = case.labels
    losses = F.cross_entropy(case.network(case.images), labels, reduction="none")
    full = torch.stack([gradient(losses[labels == c].mean()) for c in range(PAST)])
    past = torch.stack([gradient(of_memory[labels[memory] == c].sum()) for c in range(PAST)])
    new = gradient(of_new.sum() + of_memory[labels[memory] >= PAST].sum())
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for c in range(PAST):
        changed = [past[y] - ALPHA * case.data.shares[y] * full[y] for y in range(PAST)]
        length = full[c].norm()
        found["sic"].append(float(-(changed[c] * full[c]).sum() / length))
        found["cic"].append(float(-sum((changed[y] * full[c]).sum() for y in range(PAST) if y != c) / length))
        found["nic"].append(float(-(new[c] @ full[c, c]) / full[c, c].norm()))
        found["all_nic"].append(float(-(new * full[c]).sum() / length))
    return Coefficients(*(torch.tensor(found[name], dtype=torch.float64) for name in NAMES))


def assert_same(one: Coefficients, other: Coefficients, relative: float = 1e-9) -> None:
    for name in NAMES:
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=relative, atol=relative * 1e-3, msg=name)


def test_of_replay_they_are_the_papers(case: Case) -> None:
    for seed in range(5):
        paper, own = case.found(make_method("replay"), seed=seed)
        assert_same(own, paper)
    plain = measure(case.network, case.data, trusted=True)
    assert all(torch.equal(getattr(paper, name), getattr(plain.terms, name)) for name in NAMES)  # bit for bit


def test_of_a_method_of_ones_own_that_is_replay_too(case: Case) -> None:
    class Same(fs.Method):
        def loss(self, batch: TrainingBatch) -> Tensor:
            weight = torch.ones(5)  # of 32 bits, which cross-entropy refuses for logits of 64
            return F.cross_entropy(batch.logits, batch.nodes, weight=weight)

    paper, own = case.found(Same())
    assert_same(own, paper, 1e-4)
    assert not torch.equal(own.sic, paper.sic)


@pytest.mark.parametrize("name", ["distillation", "logit-adjusted", "dark-logits", "ace", "fine-tune", "joint"])
def test_they_are_those_of_the_expected_batch(name: str, case: Case) -> None:
    """Each image by itself through the head, with its weight in a batch: batches of any composition add up to it."""
    first_new, labels = case.data.counts[0], case.labels
    memory = {
        **{"fine-tune": torch.empty(0, dtype=torch.int64), "joint": torch.arange(first_new)},
        **{"ace": torch.cat([case.memory, torch.tensor([22, 25, 30, 34])])},
    }.get(name, case.memory)
    logits, new = case.network(case.images), torch.arange(first_new, len(labels))
    shares = case.shares(memory).double()

    def cross_entropy(of: Tensor, values: Tensor = logits) -> Tensor:
        return F.cross_entropy(values[of], labels[of], reduction="none")

    def soft(of: Tensor) -> Tensor:
        own, target = (torch.softmax(values[of][:, :PAST] / 2, dim=1) for values in (logits, case.teacher))
        return 4 * (target * (target.log() - own.log())).sum(dim=1)

    plain = (cross_entropy(new), cross_entropy(memory))
    losses = {
        "distillation": (plain[0] + soft(new), plain[1] + soft(memory)),
        "logit-adjusted": tuple(cross_entropy(of, logits + shares.log()) for of in (new, memory)),
        "dark-logits": (
            plain[0],
            plain[1] + 0.1 / ALPHA * (logits - F.pad(case.teacher, (0, 2)))[memory, :PAST].square().mean(dim=1),
        ),
        "ace": (F.cross_entropy(logits[new, PAST:], labels[new] - PAST, reduction="none"), plain[1]),
    }.get(name, plain)
    share = 0.0 if name == "fine-tune" else ALPHA
    of_memory = share / max(len(memory), 1) * losses[1]
    expected = by_hand(case, (1 - share) / len(new) * losses[0], of_memory, memory)
    for seed in range(3):
        assert_same(case.found(make_method(name), memory, seed)[1], expected, 1e-6)  # shares have 32 bits
    paper = case.found(make_method("replay"))[0]
    assert torch.allclose(expected.nic, paper.nic) is (
        name in ("dark-logits", "joint")
    )  # which treat new images as replay does
    assert not torch.allclose(expected.sic, paper.sic)


def test_without_rehearsal_a_class_loses_what_replay_would_do_for_it(case: Case) -> None:
    """SIC is then the weight of its own images, times the length of its gradient."""
    paper, own = case.found(make_method("fine-tune"), torch.empty(0, dtype=torch.int64))
    length = measure(case.network, case.data, trusted=True).gradient_norm
    torch.testing.assert_close(own.sic, ALPHA * case.data.shares * length)
    torch.testing.assert_close(own.nic, paper.nic / (1 - ALPHA))


def test_a_difference_of_terms_is_the_difference_of_updates(case: Case) -> None:
    generator = torch.Generator().manual_seed(3)
    full, one, other = (torch.randn(3, 5, 7, generator=generator).double() for _ in range(3))
    new, newer = (torch.randn(5, 7, generator=generator).double() for _ in range(2))
    given = {"full": full, "alpha": 0.3, "shares": torch.tensor([0.2, 0.3, 0.5])}
    first, second = (method_coefficients(past=past, new=of_new, **given) for past, of_new in ((one, new), (other, newer)))
    moved = (one.sum(dim=0) + new) - (other.sum(dim=0) + newer)
    expected = torch.stack([-(moved * f).sum() / f.norm() for f in full])
    found = sum(getattr(first, name) - getattr(second, name) for name in ("sic", "cic", "all_nic"))
    torch.testing.assert_close(found, expected)


def test_a_loss_that_depends_on_the_batch_is_taken_over_batches_like_those_of_training(case: Case) -> None:
    """Of the square of a batch's mean logit: over many orders the mean is that over all batches without replacement."""

    class Together(fs.Method):
        def loss(self, batch: TrainingBatch) -> Tensor:
            return batch.logits[: batch.new].mean(dim=0).square().sum()

    found = torch.stack([case.found(Together(), seed=seed)[1].nic for seed in range(300)])
    logits = case.network(case.images[case.data.counts[0] :]).detach()
    n, k, size = len(logits), 5, 6
    mean = logits.mean(dim=0)
    # Of one image i: 2 / size^2 (z_i + (size - 1) times the mean of the others), on average over the batches that it is in.
    residual = 2 / size**2 * (logits + (size - 1) * (n * mean - logits) / (n - 1))
    assert residual.shape == (n, k)
    features = case.network.features(case.images[case.data.counts[0] :]).detach()
    inputs = torch.cat([features, torch.ones(n, 1)], dim=1).double()
    new = size / n * residual.T @ inputs
    losses = F.cross_entropy(case.network(case.images), case.labels, reduction="none")
    head = [case.network.head.weight, case.network.head.bias]
    rows = []
    for c in range(PAST):
        weight, bias = torch.autograd.grad(losses[case.labels == c].mean(), head, retain_graph=True)
        row = torch.cat([weight[c], bias[c : c + 1]])
        rows.append(-(new[c] @ row) / row.norm())
    error = found.std(dim=0) / len(found) ** 0.5
    assert bool(((found.mean(dim=0) - torch.stack(rows)).abs() < 4 * error).all())
    assert bool((error < 0.01 * found.mean(dim=0).abs()).all())


def test_the_probe_leaves_no_trace(case: Case) -> None:
    before, state = torch.random.get_rng_state(), {name: t.clone() for name, t in case.network.state_dict().items()}

    class Draws(fs.Method):
        def loss(self, batch: TrainingBatch) -> Tensor:
            return torch.rand(()) * F.cross_entropy(batch.logits, batch.nodes)

    case.network.train()
    case.found(Draws())
    assert torch.equal(before, torch.random.get_rng_state())
    assert case.network.training
    assert all(torch.equal(t, state[name]) for name, t in case.network.state_dict().items())
    assert all(parameter.grad is None for parameter in case.network.parameters())
