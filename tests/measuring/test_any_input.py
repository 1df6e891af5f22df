"""What people hand to a probe: taken where the meaning is clear, refused in a sentence where it is not, left as it was."""

from __future__ import annotations

import copy
import random
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from test_heads import BY_AUTOGRAD, IN_CLOSED_FORM, KEPT, NEW, PAST, Base, expected, images_of, made, make_probe
from torch import Tensor, nn

import forgetscope as fs
from forgetscope.errors import InputError
from forgetscope.measuring.folding import folded_module
from forgetscope.measuring.measurement import ProbeData, measure

ANY = {**IN_CLOSED_FORM, **BY_AUTOGRAD}


def state_of(network: nn.Module) -> list[object]:
    """Everything that a probe could leave a trace in, as values that can be compared."""
    modules = list(network.modules())
    tensors = [*network.state_dict().values(), *(p.grad for p in network.parameters() if p.grad is not None)]
    hooks = [[*m._forward_hooks, *m._forward_pre_hooks, *m._backward_hooks] for m in modules]
    everywhere = torch.nn.modules.module._has_any_global_hook()
    flags = [(p.requires_grad, p.grad is None, p.data_ptr(), p._version, p.stride()) for p in network.parameters()]
    streams = [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), np.random.get_state()[2], random.getstate()]
    kept = [sorted(vars(module)) for module in modules]
    return [[t.tolist() for t in tensors], hooks, bool(everywhere), flags, [m.training for m in modules], streams, kept]


class Drawing(Base):
    """Draws in evaluation too, from every stream there is."""

    def forward(self, images: Tensor) -> Tensor:
        random.random(), np.random.rand()
        return super().forward(images + 1e-12 * torch.rand_like(images))


@pytest.mark.parametrize("name", [*ANY, "drawing"])
def test_measuring_leaves_no_trace(name: str) -> None:
    network = made(Drawing if name == "drawing" else ANY[name][0]).train()
    if hasattr(network, "body"):
        network.body[2].eval()  # frozen on purpose
    out = network(images_of(PAST, 3)[0])
    (out["logits"] if isinstance(out, dict) else out).sum().backward()
    images, before = images_of(PAST, 1), state_of(network)
    make_probe().measure(network)
    if name in IN_CLOSED_FORM:
        make_probe().measure_all_layers(network)
    assert state_of(network) == before
    assert torch.is_grad_enabled()
    assert torch.equal(images[0], images_of(PAST, 1)[0])


def test_a_network_that_fails_is_left_as_it_was_too() -> None:
    network = made(Base)
    before = state_of(network)
    with pytest.raises(InputError, match=r"Base cannot be applied .* type torch.float32, its weights are torch.float64"):
        make_probe(prepare=Tensor.float).measure(network)
    assert state_of(network) == before


def test_an_encoder_that_is_passed_apart_is_put_into_evaluation_and_back() -> None:
    encoder, head = made(Base).body, nn.Linear(6, 5).double()
    values = expected(nn.Sequential(encoder, head), [*head.parameters()])

    class Apart(nn.Module):
        """Has no forward; or one that uses what it did not register."""

        def __init__(self) -> None:
            super().__init__()
            self.fc = head

    class Hiding(Apart):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [encoder]

        def forward(self, images: Tensor) -> Tensor:
            return self.fc(self.hidden[0](images))

    class Hidden(nn.Module):
        parts = (encoder, head)

        def forward(self, images: Tensor) -> Tensor:
            return self.parts[1](self.parts[0](images))

    encoder.train()
    before = state_of(encoder)
    measured = [
        make_probe().measure(Apart(), features=encoder, head=head),
        make_probe().measure(Apart(), features=lambda images: encoder(images), head=head),
        make_probe().measure(Hiding()),
        make_probe().measure(Hiding(), head=head),
        make_probe().measure(Hidden()),
    ]
    assert state_of(encoder) == before
    for found in measured:
        for name, value in values.items():
            torch.testing.assert_close(getattr(found.terms, name), value.detach(), rtol=1e-9, atol=1e-12)


def test_a_prepare_that_works_in_place_leaves_the_images_alone() -> None:
    network = made(Base)
    (past, past_labels), (new, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    before = past.clone(), new.clone()
    probe = fs.Probe(past, past_labels, KEPT, new, new_labels, 0.4, prepare=lambda images: images.mul_(0.5))
    first, again = probe.measure(network), probe.measure(network)
    probe.measure_all_layers(network)
    assert torch.equal(past, before[0])
    assert torch.equal(new, before[1])
    assert torch.equal(first.pairs, again.pairs)

    class InPlace(Base):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images.sub_(1))

    make_probe().measure(made(InPlace))
    fs.Probe(past, past_labels, KEPT, new, new_labels, 0.4).measure(made(InPlace))
    assert torch.equal(past, before[0])


def test_what_hangs_on_the_module_is_not_copied() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 5)
            self.memory = Memory()
            self.seen: list[object] = []

        def forward(self, images: Tensor) -> Tensor:
            self.memory.log.append(1)
            return self.fc(self.norm(self.conv(images)).relu().mean(dim=(2, 3)))

    class Memory:
        """Of images, in all the ways that people keep them; none may be pickled or copied."""

        def __init__(self) -> None:
            self.array, self.images, self.log = np.zeros(2**21), [Precious(8) for _ in range(3)], [0]
            self.picture = Image.new("RGB", (500, 500))

    class Precious(Tensor):
        @staticmethod
        def __new__(cls: type, *shape: int) -> Tensor:
            return torch.zeros(*shape).as_subclass(cls)

        def __deepcopy__(self, memo: object) -> Tensor:
            raise AssertionError("copied")

    network = Remembering().eval()
    images = torch.randn(10, 3, 4, 4)
    probe = fs.Probe(images, torch.arange(10) % 2, torch.arange(4), images, torch.arange(10) % 2 + 2, batch=5)
    probe.measure(network)
    tracemalloc.start()
    probe.measure(network)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**20  # the array alone has 16 MB
    assert not any(isinstance(entry, torch.fx.Proxy) for entry in network.memory.log)
    assert folded_module(network) is not None  # it is folded all the same
    assert network.memory.log.count(1) == len(network.memory.log) - 1


def test_arrays_lists_and_masks_of_every_kind_mean_the_same() -> None:
    network = made(Base)
    (past, past_labels), (new, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    expected_pairs = make_probe().measure(network).pairs
    mask = torch.zeros(len(past), dtype=torch.bool)
    mask[KEPT] = True
    kinds: list[Callable[[Tensor], object]] = [Tensor.numpy, Tensor.tolist, list, lambda t: tuple(t.numpy())]
    for kind in kinds:
        given = [kind(part) for part in (past, past_labels, KEPT, new, new_labels)]
        torch.testing.assert_close(fs.Probe(*given, 0.4, batch=4).measure(network).pairs, expected_pairs)
    for rehearsed in (mask, mask.tolist(), mask.numpy(), mask.long(), mask.to(torch.uint8).numpy(), KEPT.int(), KEPT.flip(0)):
        probe = fs.Probe(past, past_labels, rehearsed, new, new_labels.to(torch.int32), 0.4, batch=4)
        torch.testing.assert_close(probe.measure(network).pairs, expected_pairs)
    backwards = np.ascontiguousarray(past.numpy()[::-1])[::-1]  # negative strides
    backwards.flags.writeable = False
    torch.testing.assert_close(
        fs.Probe(backwards, past_labels, KEPT, new, new_labels, 0.4, batch=4).measure(network).pairs, expected_pairs
    )


PICTURES = [Image.new("RGB", (2, 2)) for _ in range(21)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"past_images": PICTURES}, "past_images is a list of Image. Give a tensor, .* turn them into tensors as you do"),
        ({"past_images": "birds/"}, "past_images is str. Give a tensor, an array, or a list"),
        ({"past_images": None}, "past_images is NoneType"),
        ({"past_images": [torch.zeros(2), *[torch.zeros(3)] * 20]}, "past_images: this list is no tensor .stack expects"),
        ({"past_images": [[1.0], *[[1.0, 2.0]] * 20]}, "past_images: this list is no tensor"),
        ({"past_labels": torch.arange(20) % 3}, r"past_images are \(21, 3, 2, 2\) for 20 labels"),
        ({"past_labels": torch.zeros(21)}, r"past_labels are \(21,\) of torch.float32. Give one whole number per image"),
        ({"past_labels": torch.zeros(21, 3, dtype=torch.int64)}, r"past_labels are \(21, 3\) of torch.int64"),
        ({"past_labels": torch.arange(21) % 3 - 1}, "past_labels hold -1. Labels are head nodes, counted from 0"),
        ({"new_labels": torch.full((14,), -1)}, "new_labels hold -1"),
        ({"new_images": torch.zeros(0, 3, 2, 2), "new_labels": torch.zeros(0, dtype=torch.int64)}, "new_images are empty"),
        ({"past_images": torch.zeros(0, 3, 2, 2), "past_labels": torch.zeros(0, dtype=torch.int64)}, "past_images are empty"),
        ({"rehearsed": torch.ones(20, dtype=torch.bool)}, "rehearsed is a mask of 20 for 21 past images"),
        ({"rehearsed": torch.tensor([3, 21])}, "rehearsed names position 21 of 21 past images"),
        ({"rehearsed": torch.tensor([-1])}, "rehearsed names position -1"),
        ({"rehearsed": torch.zeros(21)}, r"rehearsed is \(21,\) of torch.float32. Give a mask"),
        ({"rehearsed": []}, "rehearsed marks none of the 21 past images"),
        ({"alpha": "half"}, "alpha = half is not between 0 and 1"),
        ({"batch": 0}, "batch = 0 is no number of images"),
        ({"batch": True}, "batch = True is no number of images"),
        ({"alpha": torch.tensor([0.5, 0.5])}, "is not between 0 and 1"),
        ({"loss": "cross-entropy"}, "loss = 'cross-entropy' is no function"),
        ({"names": ["wren"]}, "names has no name for class 1"),
    ],
)
def test_what_is_not_clear_is_refused_in_a_sentence(change: dict[str, object], message: str) -> None:
    (past_images, past_labels), (new_images, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    given = {"past_images": past_images, "past_labels": past_labels, "rehearsed": KEPT, "new_images": new_images}
    with pytest.raises(InputError, match=message):
        fs.Probe(**{**given, "new_labels": new_labels, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_images_that_are_not_finite_are_named(value: float) -> None:
    (past, past_labels), (new, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    past[19, 0, 0, 0] = value
    with pytest.raises(InputError, match=r"past_images\[19\], of class 1, is not finite. Mend it or leave it out"):
        fs.Probe(past, past_labels, KEPT, new, new_labels)
    with pytest.raises(InputError, match=r"new_images\[19\], of class 1, is not finite"):
        fs.Probe(new, new_labels, [0], past, past_labels)
    past[19] = 100

    def breaking(images: Tensor) -> Tensor:
        return torch.where(images == 100, torch.tensor(value), images)

    for name in ("plain", "cosine"):
        with pytest.raises(
            InputError, match="The loss of class 1 is nan: what prepare or the network makes of one of its images"
        ):
            fs.Probe(past, past_labels, KEPT, new, new_labels, prepare=breaking).measure(made(ANY[name][0]))
    with pytest.raises(InputError, match="The output of Base is not finite: nan at node 0 for one of 4 images"):
        make_probe(prepare=lambda images: images * torch.nan).measure(made(Base))


def test_what_does_not_fit_together_is_refused_in_a_sentence() -> None:
    (past, past_labels), (new, new_labels) = images_of(PAST, 1), images_of(NEW, 2)
    network = made(Base)
    for other, message in (
        (new.float(), r"shape \(8, 3, 2, 2\) and type torch.float32, its weights are torch.float64"),
        (new[:, :2], r"cannot be applied to a batch of shape \(8, 2, 2, 2\)"),
    ):
        probe = fs.Probe(past, past_labels, KEPT, other, new_labels)
        for act in (probe.measure, probe.measure_all_layers):
            with pytest.raises(InputError, match=message):
                act(network)
    for prepare, message in (
        (lambda images: None, "prepare gives NoneType of 4 images. Return a tensor, an input per image"),
        (lambda images: images[:-1], r"prepare gives \(3, 3, 2, 2\) of 4 images"),
    ):
        with pytest.raises(InputError, match=message):
            make_probe(prepare=prepare).measure(network)
    given = fs.Probe(past, past_labels, KEPT, new, new_labels, torch.tensor(0.4), batch=4)  # type: ignore[arg-type]
    torch.testing.assert_close(given.measure(network).pairs, make_probe().measure(network).pairs, rtol=1e-6, atol=1e-9)
    with pytest.raises(InputError, match=r"rehearsed = \[1, 0\] of 2 past images could be a mask or positions. Give True and"):
        fs.Probe(past[:2], past_labels[:2], [1, 0], new, new_labels)


def test_a_head_that_has_grown_since_is_another_step() -> None:
    network = made(Base)
    probe = make_probe()
    probe.measure(network)
    network.fc = nn.Linear(6, 8).double()
    with pytest.raises(
        InputError, match=r"The head has 8 nodes and had 5 at the first probe: this is another step. Make a probe"
    ):
        probe.measure(network)
    assert len(probe.sums) == 1
    probe.sums.reset()
    probe.measure(network)  # begun anew


def test_another_probe_goes_on_where_a_checkpoint_ended() -> None:
    network = made(Base)
    first, second = make_probe(), make_probe()
    first.measure(network)
    saved = first.sums.state_dict()
    second.sums.load_state_dict(saved)
    second.measure(network)
    torch.testing.assert_close(second.coefficients.sic, 2 * first.coefficients.sic)
    older = make_probe()
    older.sums.load_state_dict({name: part for name, part in saved.items() if name != "head_nodes"})
    older.measure(network)
    assert len(older.sums) == len(second.sums) == 2
    network.fc = nn.Linear(6, 8).double()
    with pytest.raises(InputError, match="The head has 8 nodes and had 5 at the first probe"):
        second.measure(network)


@pytest.mark.parametrize("name", ["plain", "cosine"])
def test_where_past_images_are_the_memory_sic_and_cic_are_unknown(name: str) -> None:
    network = made(ANY[name][0])
    (past, labels), new = images_of(PAST, 1), images_of(NEW, 2)
    probe = fs.Probe(past[KEPT], labels[KEPT], torch.arange(9), *new, 0.4)
    measured = probe.measure(network)
    for values in (measured.terms.sic, measured.terms.cic, measured.pairs[:, :3], measured.bias_norm):
        assert values.isnan().all()
    assert measured.terms.nic.isfinite().all()
    assert "SIC and CIC are unknown, not 0: every past image is rehearsed" in repr(measured)
    assert "SIC and CIC are unknown" in repr(probe)
    known = measure(network, ProbeData(past[KEPT], labels[KEPT], torch.arange(9), *new, 0.4))  # a run that keeps everything
    assert known.terms.sic.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["plain", "cosine"])
def test_a_past_class_without_a_stored_image_is_measured_but_for_its_sic(name: str) -> None:
    network = made(ANY[name][0])
    (past, labels), new = images_of(PAST, 1), images_of(NEW, 2)
    stored = KEPT[labels[KEPT] != 1]
    probe = fs.Probe(past, labels, stored, *new, 0.4, names=["wren", "owl", "kite"])
    measured = probe.measure(network)
    whole = make_probe().measure(network).terms
    assert measured.terms.sic.isnan().tolist() == [False, True, False]
    assert measured.pairs.isnan().nonzero().tolist() == [[1, 1]]
    torch.testing.assert_close(measured.pairs[1, [0, 2]].sum(), measured.terms.cic[1])
    torch.testing.assert_close(measured.terms.nic, whole.nic)
    assert measured.pairs[0, 1] == measured.pairs[2, 1] == 0  # what is not rehearsed does nothing to others
    assert "SIC is unknown, not 0, without a stored image: owl." in repr(measured)
    assert probe.to_frame()["stored"].tolist() == [3, 0, 3]
    every = probe.measure_all_layers(network) if name == "plain" else measured
    assert every.terms.sic.isnan().tolist() == [False, True, False]
    assert every.terms.cic.isfinite().all()


def test_results_are_tables_with_names_that_are_escaped() -> None:
    names = {0: "wren", 1: "<b>owl</b>", 2: "kite"}
    probe = make_probe(names=names)
    assert repr(probe) == "Probe(3 past classes, 21 images, 9 rehearsed; 2 new classes, 14 images; alpha 0.4. 0 probes so far.)"
    assert "<table" not in probe._repr_html_()
    measured = probe.measure(made(Base))
    frame = measured.to_frame()
    assert frame["class"].tolist() == list(names.values())
    assert frame.index.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(frame["sic"], measured.terms.sic.numpy())
    np.testing.assert_array_equal(frame["loss_full"], measured.loss_full.numpy())
    assert probe.sums.to_frame()["class"].tolist() == list(names.values())
    assert list(make_probe().sums.nodes or ()) == [0, 1, 2]
    assert repr(probe.sums) == "Sums(1 probe of 3 past classes)"
    for shown in (measured, probe, probe.sums):
        assert "&lt;b&gt;owl" in shown._repr_html_()
        assert "<b>" not in shown._repr_html_()
        assert shown._repr_html_().count("<table") == 1
    assert "class" not in make_probe().measure(made(Base)).to_frame()
    assert (probe.sums + probe.sums).to_frame()["class"].tolist() == list(names.values())


def test_random_networks_do_not_move_the_streams_of_training() -> None:
    network = made(Drawing)
    torch.manual_seed(3)
    first = torch.rand(3)
    torch.manual_seed(3)
    make_probe().measure(copy.deepcopy(network))
    assert torch.equal(torch.rand(3), first)


class Moving(Base):
    """Changes buffers in any mode: in place, by another tensor, in a part of it, or only to what they are."""

    how = "count"

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Module()
        self.part.register_buffer("mean", torch.full((12,), torch.nan))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("large", torch.zeros(2**20 + 1))

    def forward(self, images: Tensor) -> Tensor:
        if self.how == "count":
            self.calls += 1
        elif self.how == "count anew":
            self.calls = self.calls + 1
        elif self.how == "average":
            self.part.mean.nan_to_num_().mul_(0.9).add_(images.detach().flatten(1).mean(dim=0), alpha=0.1)
        elif self.how == "large":
            self.large[0] += 1
        else:
            self.calls.zero_()
            self.part.mean = self.part.mean * 1
        return super().forward(images)


@pytest.mark.parametrize(
    ("how", "name"), [("count", "calls"), ("count anew", "calls"), ("average", "part.mean"), ("large", "large")]
)
def test_a_network_that_changes_its_buffers_in_evaluation_is_refused_and_gets_them_back(how: str, name: str) -> None:
    network = made(Moving)
    network.how = how
    network.train()(images_of(PAST, 3)[0])
    before, buffer = copy.deepcopy(network.state_dict()), network.calls
    with pytest.raises(InputError, match=f"Moving changes its buffer {name} in evaluation mode, so .* if self.training"):
        make_probe().measure(network)
    assert network.calls is buffer
    for key, value in network.state_dict().items():
        if key != "large":
            torch.testing.assert_close(value, before[key], rtol=0, atol=0, equal_nan=True)


def test_buffers_that_are_written_with_what_they_are_are_no_obstacle() -> None:
    network = made(Moving)
    network.how = "nothing"
    network(images_of(PAST, 3)[0])
    before = copy.deepcopy(network.state_dict())
    assert make_probe().measure(network).terms.sic.isfinite().all()
    assert all(torch.equal(value.nan_to_num(), before[key].nan_to_num()) for key, value in network.state_dict().items())


class Mixed(Base):
    """Makes its own mixed precision."""

    def forward(self, images: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(images)


class MixedFromOutside(Base):
    """By an autocast that was made before anybody measured."""

    @torch.autocast("cpu", torch.bfloat16)
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images)


@pytest.mark.parametrize("kind", [Base, Mixed, MixedFromOutside])
def test_measuring_between_two_forwards_of_one_autocast_block_changes_no_gradient(kind: type[Base]) -> None:
    """There autocast keeps what it cast, and the gradients of both forwards meet in it."""
    images, labels = images_of((*PAST, *NEW), 3)

    def gradients(measured: bool) -> list[Tensor]:
        network = made(kind).float().eval()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(network(images.float()), labels)
            if measured:
                make_probe(prepare=Tensor.float).measure(network)
            loss = loss + nn.functional.cross_entropy(network(2 * images.float()), labels)
        return [*torch.autograd.grad(loss, [*network.parameters()])]

    for one, other in zip(gradients(measured=True), gradients(measured=False), strict=True):
        assert torch.equal(one, other)
