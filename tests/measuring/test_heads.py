"""Networks as people have them, each against autograd through its own forward in float64 and the definitions, literally."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import forgetscope as fs
from forgetscope.errors import InputError

PAST, NEW, ALPHA, WIDTH, NODES = (0, 1, 2), (3, 4), 0.4, 6, 5
KEPT = torch.arange(9) * 2


class Base(nn.Module):
    """A body with BatchNorm and dropout; what is below ends in all the ways that people's networks end."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(12, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.5), nn.ReLU())
        self.fc = self.last()

    def last(self) -> nn.Module:
        return nn.Linear(WIDTH, NODES)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.body(images))


class Unbiased(Base):
    def last(self) -> nn.Module:
        return nn.Linear(WIDTH, NODES, bias=False)


class Nested(Base):
    def last(self) -> nn.Module:
        return nn.ModuleDict(
            {"deep": nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, NODES), nn.Dropout(0.1))}
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.fc["deep"](self.body(images))


class SimpleLinear(nn.Module):
    """As PyCIL has it: no nn.Linear, and it returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(NODES, WIDTH)), nn.Parameter(torch.randn(NODES))

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        return {"logits": F.linear(features, self.weight, self.bias)}


class Dicts(Base):
    def last(self) -> nn.Module:
        return SimpleLinear()

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features = self.body(images)
        return {**self.fc(features), "features": features}


class Transformer(nn.Module):
    """Like a ViT: a token of its own that attends to patches."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.norm, self.fc = nn.LayerNorm(4), nn.Linear(4, NODES)

    def forward(self, images: Tensor) -> Tensor:
        patches = images.flatten(2)
        return self.fc(self.norm(self.layer(torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1))[:, 0]))


class CosineLinear(nn.Linear):
    """A cosine head that says it is a linear one."""

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features), F.normalize(self.weight)) + self.bias


class Cosine(Base):
    def last(self) -> nn.Module:
        return CosineLinear(WIDTH, NODES)


class ScaledCosine(nn.Module):
    """With a scale that all nodes share."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.sigma = nn.Parameter(torch.randn(NODES, WIDTH)), nn.Parameter(torch.tensor([3.0]))

    def forward(self, features: Tensor) -> Tensor:
        return self.sigma * F.linear(F.normalize(features), F.normalize(self.weight))


class CosineWithScale(Base):
    def last(self) -> nn.Module:
        return ScaledCosine()


class Normalised(Base):
    """`features` and `head` have the names that we know, but the head is fed something else."""

    def __init__(self) -> None:
        super().__init__()
        self.head = self.fc

    def features(self, images: Tensor) -> Tensor:
        return self.body(images)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(4 * F.normalize(self.features(images)))


class Temperature(Normalised):
    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images)) / 0.3


class WeightNorm(Base):
    def last(self) -> nn.Module:
        return nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, NODES))


class OldWeightNorm(Base):
    def last(self) -> nn.Module:
        with pytest.warns(FutureWarning):
            return nn.utils.weight_norm(nn.Linear(WIDTH, NODES))


class IncrementalClassifier(nn.Module):
    """As Avalanche has it: nodes that are not active yet give -1000."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.classifier, self.in_place = nn.Linear(WIDTH, NODES + 2), in_place
        self.register_buffer("active", torch.arange(NODES + 2) < NODES)

    def forward(self, features: Tensor) -> Tensor:
        out = self.classifier(features)
        if not self.in_place:
            return out.masked_fill(~self.active, -1000)
        out[:, ~self.active] = -1000
        return out


class Masked(Base):
    def last(self) -> nn.Module:
        return IncrementalClassifier(in_place=False)


class MaskedInPlace(Base):
    def last(self) -> nn.Module:
        return IncrementalClassifier(in_place=True)


class LogSoftmax(Base):
    def forward(self, images: Tensor) -> Tensor:
        return F.log_softmax(super().forward(images), dim=1)


class SeveralHeads(Base):
    def last(self) -> nn.Module:
        return nn.ModuleList([nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 2)])

    def forward(self, images: Tensor) -> Tensor:
        features = self.body(images)
        return torch.cat([head(features) for head in self.fc], dim=1)


class LearnedTemperature(Base):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7))

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) / self.temperature


def images_of(classes: tuple[int, ...], seed: int, each: int = 7) -> tuple[Tensor, Tensor]:
    labels = torch.tensor(classes).repeat(each)
    images = torch.randn(len(labels), 3, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return images + labels[:, None, None, None] / 3, labels


def made(kind: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """In float64 and training mode, with BatchNorm statistics and logits that are not those of a fresh network."""
    torch.manual_seed(seed)
    network = kind().double()
    with torch.no_grad():
        for i, parameter in enumerate(network.parameters()):
            parameter.mul_(1.2 + i / 5)  # each by another factor: with |v| = g weight norm has the gradients of a linear layer
    for _ in range(3):
        network(torch.randn(20, 3, 2, 2, dtype=torch.float64))
    return network


def own_logits(network: nn.Module, images: Tensor) -> Tensor:
    output = network(images)
    return output["logits"] if isinstance(output, dict) else output


Rows = Callable[[int], list[tuple[int, object]]]  # of a node: which part of which parameter


def row_of_each(parameters: list[Tensor]) -> Rows:
    """Row c of what has a row per node, and what is shared."""
    return lambda node: [(i, node if len(p) > 1 else slice(None)) for i, p in enumerate(parameters)]


def expected(
    network: nn.Module, parameters: list[Tensor], rows: Rows | None = None, loss: object = F.cross_entropy
) -> dict[str, Tensor]:
    """The definitions over these parameters, with gradients of the mean loss by `backward` through the whole network."""
    network = network.eval()
    rows = rows or row_of_each(parameters)
    (past, past_labels), (new, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    kept = torch.zeros(len(past), dtype=torch.bool)
    kept[KEPT] = True

    def gradient(images: Tensor, labels: Tensor) -> list[Tensor]:
        value = loss(own_logits(network, images), labels)  # type: ignore[operator]
        return list(torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True))

    def flat(parts: list[Tensor]) -> Tensor:
        return torch.cat([part.flatten() for part in parts])

    def interf(v: Tensor, f: Tensor) -> Tensor:
        return -(v @ f) / f.norm()

    full = [gradient(past[past_labels == c], past_labels[past_labels == c]) for c in PAST]
    stored = [gradient(past[kept & (past_labels == c)], past_labels[kept & (past_labels == c)]) for c in PAST]
    f = [flat(parts) for parts in full]
    b = [flat(parts) - own for parts, own in zip(stored, f, strict=True)]
    g = gradient(new, new_labels)
    p = torch.stack([(past_labels[kept] == c).double().mean() for c in PAST])

    def within(parts: list[Tensor], node: int) -> Tensor:
        return torch.cat([parts[i][part].flatten() for i, part in rows(node)])

    return {
        "sic": torch.stack([ALPHA * p[c] * interf(b[c], f[c]) for c in PAST]),
        "cic": torch.stack([sum(ALPHA * p[y] * interf(b[y], f[c]) for y in PAST if y != c) for c in PAST]),  # type: ignore[misc]
        "nic": torch.stack([(1 - ALPHA) * interf(within(g, c), within(full[c], c)) for c in PAST]),
        "all_nic": torch.stack([(1 - ALPHA) * interf(flat(g), f[c]) for c in PAST]),
    }


def make_probe(**named: object) -> fs.Probe:
    return fs.Probe(*images_of(PAST, 1), KEPT, *images_of(NEW, 2), ALPHA, **{"batch": 4, **named})  # type: ignore[arg-type]


def assert_measured(measured: fs.Measurement, values: dict[str, Tensor], rtol: float = 1e-9) -> None:
    for name, value in values.items():
        torch.testing.assert_close(
            getattr(measured.terms, name), value.detach(), rtol=rtol, atol=rtol / 1e3, msg=lambda m, n=name: f"{n}: {m}"
        )
    torch.testing.assert_close(measured.pairs[:, :3].sum(dim=1), measured.terms.sic + measured.terms.cic)
    torch.testing.assert_close(measured.pairs[:, 3:].sum(dim=1), measured.terms.nic)


IN_CLOSED_FORM = {
    "plain": (Base, lambda n: [*n.fc.parameters()]),
    "without bias": (Unbiased, lambda n: [n.fc.weight]),
    "nested": (Nested, lambda n: [*n.fc["deep"][2].parameters()]),
    "dicts": (Dicts, lambda n: [*n.fc.parameters()]),
    "transformer": (Transformer, lambda n: [*n.fc.parameters()]),
    "normalised": (Normalised, lambda n: [*n.head.parameters()]),
}
BY_AUTOGRAD = {
    "cosine": (Cosine, lambda n: [*n.fc.parameters()]),
    "cosine with scale": (CosineWithScale, lambda n: [*n.fc.parameters()]),
    "temperature": (Temperature, lambda n: [*n.head.parameters()]),
    "weight norm": (WeightNorm, lambda n: [*n.fc.parameters()]),
    "old weight norm": (OldWeightNorm, lambda n: [*n.fc.parameters()]),
    "masked": (Masked, lambda n: [*n.fc.classifier.parameters()]),
    "masked in place": (MaskedInPlace, lambda n: [*n.fc.classifier.parameters()]),
    "log-softmax": (LogSoftmax, lambda n: [*n.fc.parameters()]),
}


@pytest.mark.parametrize("name", [*IN_CLOSED_FORM, *BY_AUTOGRAD])
def test_terms_are_those_of_autograd_through_the_networks_own_forward(name: str) -> None:
    kind, parameters = {**IN_CLOSED_FORM, **BY_AUTOGRAD}[name]
    network = made(kind)
    measured = make_probe().measure(network.train())
    assert_measured(measured, expected(network, parameters(network)))
    assert ("in closed form" in repr(measured)) == (name in IN_CLOSED_FORM)
    new = own_logits(network.eval(), images_of(NEW, 2)[0]).mean(dim=0)[:3]
    torch.testing.assert_close(measured.new_logits, new.detach())


@pytest.mark.parametrize("name", ["plain", "cosine", "masked"])
def test_a_head_that_begins_with_zeros_is_looked_at_more_closely(name: str) -> None:
    """All its logits are 0 whatever it does with them; only derivatives tell."""
    network = made({**IN_CLOSED_FORM, **BY_AUTOGRAD}[name][0])
    head = network.fc.classifier if name == "masked" else network.fc
    with torch.no_grad():
        head.bias.zero_()
        head.weight.mul_(1e-3 if name == "cosine" else 0)
    assert_measured(make_probe().measure(network), expected(network, [head.weight, head.bias]))


def test_a_frozen_head_is_measured_and_stays_frozen() -> None:
    for name in ("plain", "temperature"):
        kind, parameters = {**IN_CLOSED_FORM, **BY_AUTOGRAD}[name]
        network = made(kind)
        values = expected(network, parameters(network))
        network.requires_grad_(False)
        assert_measured(make_probe().measure(network), values)
        assert not any(parameter.requires_grad for parameter in network.parameters())


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def test_wrappers_are_looked_into(tmp_path: Path) -> None:
    for name in ("plain", "temperature"):
        kind, parameters = {**IN_CLOSED_FORM, **BY_AUTOGRAD}[name]
        network = made(kind)
        values = expected(network, parameters(network))
        compiled = torch.compile(network, backend="eager")
        compiled(images_of(PAST, 1)[0])
        with one_process(tmp_path):
            for wrapped in (
                nn.DataParallel(network),
                nn.parallel.DistributedDataParallel(network),
                compiled,
                nn.DataParallel(torch.compile(network, backend="eager")),
            ):
                assert_measured(make_probe().measure(wrapped.train()), values)
                assert_measured(make_probe().measure(wrapped.eval()), values)


def test_a_part_that_is_compiled_is_no_obstacle() -> None:
    network = made(Base)
    values = expected(network, [*network.fc.parameters()])
    network.body, network.fc = (torch.compile(part, backend="eager") for part in (network.body, network.fc))
    assert_measured(make_probe().measure(network), values)


class Autocast(Base):
    def forward(self, images: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(images)


def test_mixed_precision_gives_the_numbers_up_to_its_rounding() -> None:
    network = made(Autocast)
    values = expected(network, [*network.fc.parameters()])
    network.float()
    probe = make_probe(prepare=Tensor.float)
    inside = probe.measure(network)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        around = make_probe(prepare=Tensor.float).measure(copy.deepcopy(network))
        assert torch.is_autocast_enabled("cpu")
        assert network(images_of(PAST, 1)[0].float()).requires_grad  # no cast without a graph was left behind
    for name, value in values.items():
        for measured in (inside, around):
            torch.testing.assert_close(getattr(measured.terms, name), value.detach(), rtol=0.1, atol=0.02)
    assert "in closed form" in repr(inside)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            SeveralHeads,
            "SeveralHeads has no last layer that could be told: SeveralHeads computes its output from that of Linear",
        ),
        (LearnedTemperature, "its output depends on temperature besides its Linear"),
    ],
)
def test_what_cannot_be_told_is_refused_by_name_and_measured_when_named(kind: type[Base], message: str) -> None:
    network = made(kind)
    with pytest.raises(InputError, match=message):
        make_probe().measure(network)
    parameters = [*network.fc.parameters()]

    def rows(node: int) -> list[tuple[int, object]]:
        head, row = divmod(node, 3)
        return [(2 * head, row), (2 * head + 1, row)]

    values = expected(network, parameters, rows if kind is SeveralHeads else None)
    assert_measured(make_probe().measure(network, head=network.fc), values)


class TwoBranches(Base):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(WIDTH, NODES)

    def forward(self, images: Tensor) -> Tensor:
        features = self.body(images)
        return self.fc(features) + self.other(features)


class CosineInForward(Base):
    """Its last layer is never called: the network's own forward takes the weights out of it."""

    def last(self) -> nn.Module:
        return nn.Linear(WIDTH, NODES, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        return 4 * F.linear(F.normalize(self.body(images)), F.normalize(self.fc.weight))  # type: ignore[arg-type]


class LinearInForward(Base):
    def forward(self, images: Tensor) -> Tensor:
        return F.linear(self.body(images), self.fc.weight, self.fc.bias)  # type: ignore[arg-type]


class ScaledInForward(Base):
    """Of its last layer a part is called, after the weights were used."""

    def last(self) -> nn.Module:
        return nn.ModuleDict({"cosine": nn.Linear(WIDTH, NODES, bias=False), "scale": nn.PReLU()})

    def forward(self, images: Tensor) -> Tensor:
        return self.fc["scale"](F.linear(F.normalize(self.body(images)), F.normalize(self.fc["cosine"].weight)))


@pytest.mark.parametrize("kind", [CosineInForward, LinearInForward, ScaledInForward])
def test_a_head_that_is_used_in_the_networks_own_forward_is_measured_when_named(kind: type[Base]) -> None:
    network = made(kind)
    with pytest.raises(InputError, match=r"Name the module whose parameters are to be measured"):
        make_probe().measure(network)
    values = expected(network, [*network.fc.parameters()])
    requiring = [parameter.requires_grad for parameter in network.parameters()]
    for frozen in (False, True):  # a body that is frozen stays so
        network.body.requires_grad_(not frozen)
        assert_measured(make_probe().measure(network, head=network.fc), values)
        assert all(parameter.requires_grad != frozen for parameter in network.body.parameters())
    network.body.requires_grad_(True)
    assert requiring == [parameter.requires_grad for parameter in network.parameters()]


class Functional(Base):
    def last(self) -> nn.Module:
        self.weight = nn.Parameter(torch.randn(NODES, WIDTH))
        return nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return F.linear(self.body(images), self.weight)


class Scaled(Base):
    """With a bias correction behind the last layer."""

    def last(self) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, NODES), nn.BatchNorm1d(NODES))


class Pair(Base):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        features = self.body(images)
        return self.fc(features), features


class Flat(Base):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images)[:, 0]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            TwoBranches,
            "TwoBranches has no last layer that could be told: its output depends on body.1.weight besides its Linear",
        ),
        (Functional, "Functional has no last layer that could be told: Functional computes its output from that of Linear"),
        (Scaled, r"its output depends on fc.1.weight besides its Linear. Name the module .* measure\(network, head=\.\.\.\)"),
        (Pair, "Pair returns a tuple of 2, which does not say what the logits are"),
        (Flat, r"output of Flat for 4 images has the shape \(4,\), expected \[4, classes\]"),
    ],
)
def test_other_networks_are_refused_in_a_sentence(kind: type[Base], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_probe().measure(made(kind))


def test_features_that_skip_a_layer_are_refused() -> None:
    network = made(Nested)
    deep = network.fc["deep"]
    with pytest.raises(InputError, match=r"features.images. is not what the network feeds its Linear: they differ by up to"):
        make_probe().measure(network, features=network.body, head=deep[2])
    skipped = nn.Sequential(network.body, deep[:2])
    values = expected(network, [*deep[2].parameters()])
    assert_measured(make_probe().measure(network, features=skipped, head=deep[2]), values)
    with pytest.raises(
        InputError, match=r"features.images. of 4 images gives \(4, 3, 2, 2\), expected \[4, d\]: pool and flatten"
    ):
        make_probe().measure(network, features=nn.Identity(), head=deep[2])
    with pytest.raises(InputError, match=r"does not use the Linear that was passed as its head, .* Pass the module in it"):
        make_probe().measure(network, head=nn.Linear(WIDTH, NODES))
    with pytest.raises(InputError, match=r"str is not a torch.nn.Module"):
        make_probe().measure("resnet8")  # type: ignore[arg-type]


def test_other_losses_are_measured_through_the_networks_own() -> None:
    losses = {
        "smoothing": nn.CrossEntropyLoss(label_smoothing=0.1),
        "each": lambda logits, labels: F.cross_entropy(logits, labels, reduction="none") ** 2,
        "one against all": lambda logits, labels: F.binary_cross_entropy_with_logits(
            logits, F.one_hot(labels, NODES).to(logits)
        ),
    }
    for loss in losses.values():
        for name in ("plain", "cosine"):
            kind, parameters = {**IN_CLOSED_FORM, **BY_AUTOGRAD}[name]
            network = made(kind)
            values = expected(network, parameters(network), loss=lambda a, b, loss=loss: loss(a, b).mean())
            measured = make_probe(loss=loss).measure(network)
            assert_measured(measured, values)
            assert "your loss" in repr(measured)
    assert "cross-entropy in closed form" in repr(make_probe(loss=nn.CrossEntropyLoss()).measure(made(Base)))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            nn.CrossEntropyLoss(reduction="sum"),
            r"CrossEntropyLoss\(\) is .* of 5 images, one per class, and the mean of their own losses is",
        ),
        (nn.CrossEntropyLoss(weight=torch.arange(1.0, NODES + 1)), "of 5 images, one per class, and the mean"),
        (lambda logits: logits, "failed .TypeError"),
    ],
)
def test_a_loss_that_is_no_mean_over_images_is_refused(loss: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_probe(loss=loss).measure(made(Base))


def test_all_layers_need_a_linear_last_layer() -> None:
    with pytest.raises(InputError, match=r"The last layer of Cosine is CosineLinear, which does not give features @ weight.T"):
        make_probe().measure_all_layers(made(Cosine))
    assert make_probe().measure_all_layers(nn.DataParallel(made(Dicts))).terms.sic.isfinite().all()


@pytest.mark.parametrize("bound", [3, 20, 80])
def test_a_loss_that_clamps_is_not_taken_for_the_cross_entropy(bound: int) -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.clamp(-bound, bound), labels)

    network = made(Base)
    with torch.no_grad():
        network.fc.weight.mul_(bound)
    measured = make_probe(loss=loss).measure(network)
    assert_measured(measured, expected(network, [*network.fc.parameters()], loss=loss))
    assert "your loss" in repr(measured)
    in_float32 = make_probe(loss=lambda logits, labels: F.cross_entropy(logits.float(), labels)).measure(network)
    assert "cross-entropy in closed form" in repr(in_float32)


def from_eight_on(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy, for labels below 8; from there on without the first nodes, as methods that mask do."""
    mask = torch.zeros_like(logits)
    mask[labels >= 8, :3] = -1e9
    return F.cross_entropy(logits + mask, labels)


def test_a_loss_is_tried_on_every_class_that_occurs() -> None:
    (past, past_labels), (new, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 13)).double()

    def probe(loss: object) -> fs.Probe:
        return fs.Probe(past, past_labels + 8, KEPT, new, new_labels + 8, ALPHA, loss=loss)  # type: ignore[arg-type]

    def by_hand(loss: object) -> fs.Measurement:
        other = make_probe(loss=lambda logits, labels: loss(logits, labels + 8))  # type: ignore[operator]
        return other.measure(network)

    measured = probe(from_eight_on).measure(network)
    assert "your loss" in repr(measured)
    torch.testing.assert_close(measured.terms.sic, by_hand(from_eight_on).terms.sic)
    torch.testing.assert_close(measured.terms.all_nic, by_hand(from_eight_on).terms.all_nic)
    weights = torch.ones(13, dtype=torch.float64)
    weights[10:] = 5

    def penalty(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels) + (labels >= 8).to(logits).mean() * logits.pow(2).mean().detach() * len(labels)

    for loss in (nn.CrossEntropyLoss(weight=weights), nn.CrossEntropyLoss(ignore_index=12), penalty):
        with pytest.raises(InputError, match="of 5 images, one per class, and the mean of their own losses is"):
            probe(loss).measure(network)


class LowRank(nn.Module):
    """A head whose base is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, NODES).requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, WIDTH)), nn.Parameter(torch.randn(NODES, 2))

    def forward(self, features: Tensor) -> Tensor:
        return self.base(features) + features @ self.down.T @ self.up.T


def test_what_is_frozen_in_a_head_is_not_measured() -> None:
    network = made(Base)
    network.fc.bias.requires_grad_(False)
    measured = make_probe().measure(network)
    assert_measured(measured, expected(network, [network.fc.weight]))
    assert "Frozen, so not measured: bias." in repr(measured)
    assert "frozen" not in repr(make_probe().measure(made(Base))).lower()
    with pytest.raises(InputError, match="bias of the last layer Linear is frozen"):
        make_probe().measure_all_layers(network)
    network.requires_grad_(False)
    assert "Measured as if it were trained, but frozen: weight, bias." in repr(make_probe().measure(network))
    network = made(Base)
    network.fc = LowRank().double()
    parameters = [network.fc.down, network.fc.up]
    values = expected(network, parameters, lambda node: [(0, slice(None)), (1, node)])
    assert_measured(make_probe().measure(network, head=network.fc), values)
    network = made(SeveralHeads)
    network.fc[0].requires_grad_(False)
    values = expected(network, [*network.fc[1].parameters()], lambda node: [(0, slice(None))])
    measured = make_probe().measure(network, head=network.fc)
    for name in ("sic", "cic", "all_nic"):
        torch.testing.assert_close(getattr(measured.terms, name), values[name].detach())
    assert measured.terms.nic.isnan().all()  # nothing that is trained belongs to a past class alone


class Clamped(nn.Module):
    """Linear only where logits are small."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(12, NODES)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(images.flatten(1)).clamp(-2, 2)


class Halved(Clamped):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(12, NODES, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(images.flatten(1)) / 2


@pytest.mark.parametrize("kind", [Clamped, Halved])
@pytest.mark.parametrize("batch", [3, 64])
def test_linear_is_what_is_linear_for_every_image(kind: type[nn.Module], batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever few images it is looked at with: here they are all but 0."""
    (past, past_labels), new = images_of(PAST, 1, each=9), images_of(NEW, 2)
    past = 3 * past
    past[:8] = past[torch.linspace(0, 26, min(batch, 8), dtype=torch.float64).long()] = 0
    monkeypatch.setitem(globals(), "images_of", lambda classes, _: (past, past_labels) if classes == PAST else new)
    torch.manual_seed(0)
    network = kind().double()
    values = expected(network, [*network.parameters()])
    measured = make_probe(batch=batch).measure(network)
    assert_measured(measured, values)
    assert "by autograd" in repr(measured)


class Sampled(Base):
    def forward(self, images: Tensor) -> Tensor:
        return self.fc(F.dropout(self.body(images), 0.5, training=True))


class OfTheBatch(Base):
    def last(self) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(WIDTH, track_running_stats=False), nn.Linear(WIDTH, NODES))


def test_an_output_that_is_not_the_images_own_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"Sampled gives something else for the same images twice.* Let it draw nothing in eval"
    ):
        make_probe().measure(made(Sampled))
    with pytest.raises(
        InputError, match=r"OfTheBatch gives something else for the same images in other batches.* BatchNorm needs"
    ):
        make_probe().measure(made(OfTheBatch))
    with pytest.raises(InputError, match="prepare gives other inputs for the same images the second time"):
        make_probe(prepare=lambda images: images + torch.randn_like(images)).measure(made(Base))


@pytest.mark.parametrize("mask", [-1e3, -1e4, -1e9])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("kind", [Sampled, OfTheBatch])
def test_a_mask_hides_nothing_of_what_is_beside_it(kind: type[Base], mask: float, added: bool) -> None:
    """However large it is, and however many nodes have it."""

    class Beside(kind):  # type: ignore[misc, valid-type]
        def forward(self, images: Tensor) -> Tensor:
            logits = super().forward(images)
            rest = torch.full((len(logits), 2 * NODES), mask, dtype=logits.dtype)
            return torch.cat([logits, rest + (logits.repeat(1, 2) if added else 0)], dim=1)

    network = made(Beside).float()
    with pytest.raises(InputError, match="Beside gives something else for the same images"):
        make_probe(prepare=Tensor.float).measure(network, head=network.fc)


class Infinite(Base):
    """Masks nodes with -inf; the last two are nobody's."""

    masked: tuple[int, ...] = (NODES, NODES + 1)

    def last(self) -> nn.Module:
        return nn.Linear(WIDTH, NODES + 2)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).index_fill(1, torch.tensor(self.masked), -torch.inf)


def test_nodes_that_are_minus_infinity_do_not_take_part() -> None:
    network = made(Infinite)
    assert_measured(make_probe().measure(network), expected(network, [*network.fc.parameters()]))
    network.masked = (1, NODES)
    with pytest.raises(InputError, match="The output of node 1 is -inf for every image, but images of class 1 are measured"):
        make_probe().measure(network)

    class Now(Base):
        def forward(self, images: Tensor) -> Tensor:
            logits = super().forward(images)
            return logits.masked_fill((logits == logits.min()), -torch.inf)

    with pytest.raises(InputError, match=r"is not finite: -inf at node . for one of 4 images. Mask the node for all images"):
        make_probe().measure(made(Now))


class Folded(nn.Module):
    """A convolution and a BatchNorm that can be folded, but for what the forward does with them besides."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, WIDTH, 1), nn.BatchNorm2d(WIDTH), nn.Linear(WIDTH, NODES)
        nn.init.uniform_(self.norm.weight, 0.5, 2)

    def besides(self, features: Tensor) -> Tensor:
        return features

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.besides(self.norm(self.conv(images)).relu().mean(dim=(2, 3))))


class ReadsNorm(Folded):
    def besides(self, features: Tensor) -> Tensor:
        return features * self.norm.weight


class ReadsConvolution(Folded):
    def besides(self, features: Tensor) -> Tensor:
        return features - self.conv.weight.mean(dim=(1, 2, 3))


@pytest.mark.parametrize("kind", [Folded, ReadsNorm, ReadsConvolution])
@pytest.mark.parametrize("named", [False, True])
def test_a_folded_copy_is_used_where_it_gives_the_same(kind: type[Folded], named: bool) -> None:
    network = made(kind)
    values = expected(network, [*network.fc.parameters()])

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def features(self, images: Tensor) -> Tensor:
            of = self.network
            return of.besides(of.norm(of.conv(images)).relu().mean(dim=(2, 3)))

    if named:
        parts = Parts()
        assert_measured(make_probe().measure(parts, features=parts.features, head=network.fc), values)
    else:
        assert_measured(make_probe().measure(network), values)


class Viewed(nn.Module):
    """Flattens with `view`, as many networks do: that works in one layout of the images only."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(12, NODES)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(images.view(len(images), -1))


class ViewedConvolution(Viewed):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(F.relu(self.norm(self.conv(images))).view(-1, 12))


class ViewedNorm(ViewedConvolution):
    """This one could be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)


@pytest.mark.parametrize("kind", [Viewed, ViewedConvolution, ViewedNorm])
@pytest.mark.parametrize("batch", [1, 4, None])
def test_networks_that_flatten_with_view_are_measured(kind: type[Viewed], batch: int | None) -> None:
    network = made(kind)
    values = expected(network, [*network.fc.parameters()])
    assert_measured(make_probe(batch=batch).measure(network), values)
    assert make_probe(batch=batch).measure_all_layers(network).terms.sic.isfinite().all()

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.body = network, copy.deepcopy(network)
            self.body.fc = nn.Identity()

    parts = Parts()
    assert_measured(make_probe(batch=batch).measure(parts, features=parts.body, head=network.fc), values)


class Tied(nn.Module):
    """The last layer has its weight in common with an earlier one."""

    def __init__(self) -> None:
        super().__init__()
        self.earlier, self.fc = nn.Linear(12, 12), nn.Linear(12, 12)
        self.fc.weight = self.earlier.weight

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.earlier(images.flatten(1)).relu())


class TiedByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(F.linear(images.flatten(1), self.fc.weight).relu())


@pytest.mark.parametrize(("kind", "by"), [(Tied, "earlier"), (TiedByHand, "a forward")])
def test_weights_that_an_earlier_layer_uses_too_are_refused_by_name(kind: type[nn.Module], by: str) -> None:
    network = made(kind)
    for named in ({}, {"head": network.fc}):
        for frozen in (False, True):
            network.fc.requires_grad_(not frozen)
            with pytest.raises(InputError, match=f"weight of the last layer Linear is used before it too, by {by}: its grad"):
                make_probe().measure(network, **named)


class Twice(Base):
    """Uses its last layer for something else besides."""

    def forward(self, images: Tensor) -> Tensor:
        features = self.body(images)
        self.fc(features * 2)
        return self.fc(features)


class Added(Base):
    def forward(self, images: Tensor) -> Tensor:
        features = self.body(images)
        return self.fc(features) + self.fc(features**2)


@pytest.mark.parametrize("kind", [Twice, Added])
@pytest.mark.parametrize("named", [False, True])
def test_a_head_that_is_used_twice_is_measured_with_both_uses(kind: type[Base], named: bool) -> None:
    network = made(kind)
    measured = make_probe().measure(network, head=network.fc if named else None)
    assert_measured(measured, expected(network, [*network.fc.parameters()]))


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("kind", "warmth"), [(torch.bfloat16, 1.08), (torch.bfloat16, 1.03), (torch.float16, 1.01)])
def test_half_precision_hides_no_temperature(kind: torch.dtype, warmth: float, zeros: bool) -> None:
    class Warm(Base):
        warmth = 1.0

        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images) / self.warmth

    network = made(Warm)
    if zeros:
        nn.init.zeros_(network.fc.weight)
        nn.init.zeros_(network.fc.bias)
    network = network.to(kind)
    for network.warmth, how in ((1.0, "in closed form"), (warmth, "by autograd")):
        assert how in repr(make_probe(prepare=lambda images: images.to(kind)).measure(network))
