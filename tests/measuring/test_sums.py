from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from forgetscope.errors import InputError
from forgetscope.experiment.course import Course
from forgetscope.measuring.coefficients import Coefficients
from forgetscope.measuring.measurement import Measurement
from forgetscope.measuring.probe import Probe
from forgetscope.measuring.quantities import COEFFICIENTS, QUANTITIES
from forgetscope.measuring.sums import Sums

PAST, NEW = 3, 2
NODES = (0, 2, 5)


def measurement(seed: int) -> Measurement:
    draws = torch.Generator().manual_seed(seed)

    def vector(*shape: int) -> Tensor:
        return torch.randn(*(shape or (PAST,)), generator=draws, dtype=torch.float64)

    terms = Coefficients(*(vector() for _ in COEFFICIENTS))
    return Measurement(terms, vector(PAST, PAST + NEW), *(vector() for _ in range(7)))


def sums_of(seeds: list[int], nodes: tuple[int, ...] | None = NODES) -> Sums:
    sums = Sums(nodes)
    for seed in seeds:
        sums.add(measurement(seed))
    return sums


def same(one: Sums, other: Sums) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


SEEDS = st.lists(st.integers(0, 10**6), max_size=6)


@settings(max_examples=30)
@given(first=SEEDS, second=SEEDS)
def test_the_sum_of_parts_is_the_whole(first: list[int], second: list[int]) -> None:
    parts, whole = sums_of(first) + sums_of(second), sums_of(first + second)
    assert len(parts) == len(whole) == len(first) + len(second)
    if not first + second:
        return
    assert torch.equal(parts.totals, whole.totals)
    assert parts.pairs is not None
    torch.testing.assert_close(parts.pairs, whole.pairs)
    assert torch.equal(parts.log_sim, measurement((first + second)[0]).new_logits)  # of the first probe


@settings(max_examples=30)
@given(first=SEEDS.filter(bool), second=SEEDS)
def test_adding_commutes_on_the_totals_and_leaves_its_parts_alone(first: list[int], second: list[int]) -> None:
    a, b = sums_of(first), sums_of(second)
    torch.testing.assert_close((a + b).totals, (b + a).totals)
    torch.testing.assert_close((a + b).pairs, (b + a).pairs)
    assert same(a, sums_of(first))
    assert same(b, sums_of(second))


@settings(max_examples=20)
@given(seeds=SEEDS)
def test_a_state_that_is_saved_and_loaded_is_the_same_and_goes_on(seeds: list[int]) -> None:
    file, loaded = io.BytesIO(), sums_of([99])
    torch.save(sums_of(seeds).state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert same(loaded, sums_of(seeds))
    before = {name: tensor.clone() for name, tensor in loaded.state_dict().items()}
    state = loaded.state_dict()
    loaded.add(measurement(1))
    assert torch.equal(loaded.totals, sums_of([*seeds, 1]).totals)
    assert all(torch.equal(before[name], state[name]) for name in before)  # what was saved does not move


@settings(max_examples=20)
@given(seeds=SEEDS)
def test_reset_gives_what_adds_nothing(seeds: list[int]) -> None:
    zero = sums_of([*seeds, 3])
    zero.reset()
    assert len(zero) == 0
    assert same(zero, Sums(NODES))
    assert same(zero + sums_of(seeds), sums_of(seeds))
    assert same(sums_of(seeds) + zero, sums_of(seeds))


def test_sums_of_a_probe_with_another_alpha_are_refused_with_both() -> None:
    images, labels = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2
    network = torch.nn.Linear(3, 4)
    half, quarter = (Probe(images, labels, torch.arange(4), images, labels + 2, alpha=alpha) for alpha in (0.5, 0.25))
    for probe in (half, quarter):
        probe.measure(network, features=torch.nn.Identity(), head=network)
    saved, before = half.sums.state_dict(), quarter.coefficients.sic.clone()
    for act in (lambda: quarter.sums.load_state_dict(saved), lambda: quarter.sums + half.sums):
        with pytest.raises(InputError, match=r"Sums measured with alpha = 0.5 are not sums with alpha = 0.25: .* alpha=0.5"):
            act()
    assert torch.equal(quarter.coefficients.sic, before)
    half.sums.reset()
    with pytest.raises(InputError, match=r"alpha = 0.5 are not sums with alpha = 0.25"):
        quarter.sums.load_state_dict(half.sums.state_dict())  # nothing measured yet, and told all the same
    old = {name: part for name, part in saved.items() if name != "alpha"}  # as earlier versions saved it
    quarter.sums.load_state_dict(old)
    half.sums.load_state_dict(saved)
    assert torch.equal(half.sums.totals, quarter.sums.totals)
    assert quarter.sums.alpha == 0.25


def test_a_frame_has_a_row_per_class_and_its_sums() -> None:
    sums = sums_of([1, 2])
    frame = sums.to_frame()
    assert frame.index.tolist() == list(NODES)
    expected = measurement(1).terms.cic + measurement(2).terms.cic
    assert frame["cic"].tolist() == pytest.approx(expected.tolist())
    assert frame["log_sim"].tolist() == measurement(1).new_logits.tolist()
    assert sums_of([1], None).to_frame().index.tolist() == [0, 1, 2]
    assert frame["nic"].tolist() == sums.coefficients.nic.tolist()


def test_sums_of_other_classes_are_refused_with_both() -> None:
    other = Sums((1, 2, 3))
    other.add(measurement(0))
    for act in (lambda: sums_of([1]) + other, lambda: Sums(NODES).load_state_dict(other.state_dict())):
        with pytest.raises(InputError, match=r"past classes \[1, 2, 3\] are not sums of past classes \[0, 2, 5\]"):
            act()
    with pytest.raises(InputError, match=r"A probe has \(8, 3\) quantities and past classes, expected \(8, 2\)"):
        Sums((0, 1)).add(measurement(0))
    with pytest.raises(InputError, match=r"\['epoch', 'model'\] are not the names of a state_dict of Sums"):
        Sums(NODES).load_state_dict({"epoch": torch.ones(1), "model": torch.ones(1)})
    with pytest.raises(InputError, match="Nothing has been measured yet"):
        _ = Sums(NODES).coefficients


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: {}, r"The state is \{\}, without sums. .* To begin anew, call reset\(\)"),
        (lambda state: {"probe": state}, r"\['probe'\] are not the names of a state_dict of Sums. Load what"),
        (lambda state: {"nodes": state["nodes"], "pairs": state["pairs"]}, r"\['nodes', 'pairs'\] are not the names"),
        (lambda state: list(state), r"<class 'list'>.* are not the names of a state_dict of Sums"),
        (lambda state: state | {"values": [1.0]}, r"values is \[1.0\], expected a tensor"),
        (lambda state: state | {"iterations": torch.arange(5)}, r"iterations has the shape \(5,\), expected \(2,\)"),
        (lambda state: state | {"nodes": torch.arange(4)}, r"nodes has the shape \(4,\), expected \(3,\)"),
        (lambda state: state | {"pairs": torch.ones(9, 9)}, r"pairs has the shape \(9, 9\), expected \(3, 9\)"),
        (lambda state: state | {"pairs": torch.ones(3)}, r"pairs has the shape \(3,\), expected \(3, 3\)"),
        (lambda state: state | {"log_sim": torch.ones(4)}, r"log_sim has the shape \(4,\), expected \(3,\)"),
        (lambda state: state | {"values": torch.ones(2, 8, 4)}, r"pairs has the shape \(3, 5\), expected \(4, 5\)"),
        (lambda state: state | {"values": torch.ones(3, 3)}, r"values has the shape \(3, 3\), expected \(3, 8, 3\)"),
        (lambda state: state | {"values": torch.tensor(1.0)}, r"values has the shape \(\), expected \(8, 0\)"),
        (lambda state: {"nodes": torch.tensor(3)}, r"nodes has the shape \(\), expected \(0,\)"),
    ],
)
def test_a_state_that_is_none_of_sums_is_refused_and_changes_nothing(change: Callable[..., Any], said: str) -> None:
    sums = sums_of([1, 2])
    with pytest.raises(InputError, match=said):
        sums.load_state_dict(change(sums.state_dict()))
    assert same(sums, sums_of([1, 2]))


def test_sums_without_nodes_take_their_own_empty_state() -> None:
    Course(torch.zeros(0)).load_measured(Course(torch.zeros(0)).measured_state())
    Sums().load_state_dict(Sums().state_dict())
    sums_of([1], None).load_state_dict(sums_of([1, 2]).state_dict())


def test_sums_are_added_to_sums_alone() -> None:
    whole = sum([sums_of([1]), sums_of([2])])
    assert isinstance(whole, Sums)
    assert same(whole, sums_of([1]) + sums_of([2]))
    for other in (1, measurement(1), torch.ones(3)):
        with pytest.raises(TypeError):
            _ = sums_of([1]) + other
        with pytest.raises(TypeError):
            _ = other + sums_of([1])


def test_a_snapshot_holds_the_sums_under_the_names_that_it_always_had() -> None:
    course = Course(torch.zeros(0))
    assert course.measured_state() == {}
    course.measured.add(measurement(1), 0)
    course.measured.add(measurement(2), 7)
    course.extra["all layers"].add_terms(torch.ones(len(QUANTITIES), PAST), 7)
    state = course.measured_state()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        "iterations": (2,),
        "values": (2, 8, 3),
        "pairs": (3, 5),
        "log_sim": (3,),
        "extra.all layers.iterations": (1,),
        "extra.all layers.values": (1, 8, 3),
    }
    other = Course(torch.zeros(0))
    other.load_measured(state)
    assert other.measured.iterations == [0, 7]
    assert other.measured_state().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in other.measured_state().items())
