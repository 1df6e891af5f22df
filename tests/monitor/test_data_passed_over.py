"""Data in any form, order and batches give the same numbers; other images are refused, with what and which."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset
from watched import Pair, Pictures, loaders, observed, pairs, terms

import forgetscope as fs
from forgetscope.errors import InputError
from forgetscope.forecasting.choice import fingerprints
from measuring.test_heads import ALPHA, Base, Cosine, made


class Iterated(IterableDataset[Any]):
    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(*self.pair, strict=True)


FORMS = {
    "pairs": lambda pair: pair,
    "arrays": lambda pair: [each.numpy() for each in pair],
    "data sets": lambda pair: TensorDataset(*pair),
    "items that are longer": Pictures,
    "mappings": lambda pair: Pictures(pair, dict),
    "iterated": Iterated,
    "loaders": lambda pair: DataLoader(TensorDataset(*pair), 5, shuffle=True),
    "loaders that drop nothing": lambda pair: DataLoader(TensorDataset(*pair), len(pair[1]), drop_last=True),
    "functions": lambda pair: lambda: iter(DataLoader(TensorDataset(*pair), 3)),
    "own loaders": lambda pair: range_of_batches(pair),
}


def range_of_batches(pair: Pair) -> Any:
    class Batches:
        def __iter__(self) -> Iterator[Pair]:
            return zip(*(torch.split(each, 2) for each in pair), strict=True)

    return Batches()


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_gives_the_same_numbers(form: str, tmp_path: Path) -> None:
    network = made(Base)
    probe = fs.Probe(*pairs()["past"], torch.arange(9) * 2, *pairs()["new"], ALPHA).measure(network).terms
    found = observed(tmp_path, network, **{name: FORMS[form](pair) for name, pair in pairs().items()}).coefficients
    for name in ("sic", "cic", "nic", "all_nic"):
        torch.testing.assert_close(getattr(found, name), getattr(probe, name), rtol=1e-9, atol=0)


@settings(max_examples=10)
@given(batch=st.integers(1, 30), seed=st.integers(0, 9), worker=st.just(0))
def test_batches_and_order_change_nothing(tmp_path_factory: pytest.TempPathFactory, batch: int, seed: int, worker: int) -> None:
    network = made(Base)
    expected = terms(observed(tmp_path_factory.mktemp("one"), network, **pairs()))
    torch.manual_seed(seed)
    found = terms(observed(tmp_path_factory.mktemp("other"), network, **loaders(batch)))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


def test_augmentation_is_found_before_the_first_number(tmp_path: Path) -> None:
    class Augmented(Pictures):
        def __getitem__(self, at: int) -> Any:
            image, *rest = super().__getitem__(at)
            return image + torch.rand(()), *rest

    for data in (Augmented(pairs()["past"]), DataLoader(Augmented(pairs()["past"]), 4)):
        with pytest.raises(InputError, match=r"past= gives something else when image 0 is fetched again: it is augmented"):
            observed(tmp_path, made(Base), past=data)
    assert fs.Monitor(tmp_path, "test").steps[0].table("probes").num_rows == 0


def test_passes_that_give_other_images_are_an_error_with_the_class(tmp_path: Path) -> None:
    network, given = made(Base), pairs()

    def changed() -> Iterator[Pair]:
        images, labels = given["past"]
        yield images + (torch.rand_like(images) * (labels == 1)[:, None, None, None] if passes else 0), labels

    def shorter() -> Iterator[Pair]:
        images, labels = given["new"]
        yield images[passes:], labels[passes:]

    for name, data, message in (
        ("past", changed, r"past= does not give the same images as at the first probe: others of class 1 \(7 images\)"),
        ("new", shorter, r"new= does not give the same images .* others of class 3 \(6 images, before 7\)"),
    ):
        passes = 0
        step = fs.Monitor(tmp_path / name, "test", strict=True).step(network, **{**loaders(), name: data}, alpha=ALPHA).open()
        before = terms(step)
        step.epoch_ended()
        passes = 1
        with pytest.raises(InputError, match=message):
            step.epoch_ended()
        assert len(step.sums) == 2
        assert torch.allclose(terms(step), 2 * before)


@given(st.integers(0, 3), st.sampled_from([torch.float32, torch.float64, torch.uint8, torch.float16, torch.int64]))
def test_fingerprints_know_every_bit_and_no_order(at: int, dtype: torch.dtype) -> None:
    images = torch.randint(0, 200, (6, 3, 5), generator=torch.Generator().manual_seed(at)).to(dtype)
    whole = fingerprints(images)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(at))
    assert torch.equal(fingerprints(images[order]), whole[order])
    assert len(set(whole.tolist())) == 6
    signs = images.clone()
    signs[at] = -signs[at]
    swapped = images.clone()
    swapped[0, 0, 0], swapped[1, 0, 0] = images[1, 0, 0], images[0, 0, 0] + (images[1, 0, 0] == images[0, 0, 0])
    for other in (signs, swapped):
        assert fingerprints(other).sum() != whole.sum()


REFUSED = {
    "a generator": (lambda pair: iter([pair]), "past= is a list_iterator, which can be passed over only once. Give a function"),
    "one tensor": (lambda pair: pair[0], "past= is a Tensor. Give a pair of tensors, a Dataset"),
    "three": (lambda pair: (*pair, 0), "past= is a tuple of 3. Give a pair of tensors"),
    "text": (lambda pair: "images", "past= is a str. Give a pair"),
    "nothing in it": (lambda pair: (pair[0][:0], pair[1][:0]), "past= gives no images. Give those of at least one class"),
    "an empty loader": (lambda pair: DataLoader(TensorDataset(pair[0][:0], pair[1][:0])), "past= gives no images"),
    "an empty data set": (lambda pair: TensorDataset(pair[0][:0], pair[1][:0]), "past= gives no images"),
    "a dropped batch": (
        lambda pair: DataLoader(TensorDataset(*pair), 4, drop_last=True),
        "past= is a DataLoader with drop_last=True, which leaves out 1 of 21 images, others each time",
    ),
    "drawn again": (
        lambda pair: DataLoader(TensorDataset(*pair), sampler=RandomSampler(pair[1].tolist(), replacement=True)),
        "past= is a DataLoader whose RandomSampler draws with replacement",
    ),
    "float labels": (lambda pair: (pair[0], pair[1].double()), r"The labels of past= are \(21,\) of torch.float64. Give one"),
    "label -1": (lambda pair: (pair[0], pair[1] - 1), "The labels of past= hold -1. Labels are head nodes"),
    "other lengths": (lambda pair: (pair[0], pair[1][:-1]), r"The inputs of past= are \(21, 3, 2, 2\) for 20 labels"),
    "label beyond the head": (lambda pair: (pair[0], pair[1] + 9), "past= gives label 11: that needs a head with 12 nodes; it"),
    "not finite": (
        lambda pair: (torch.where(torch.arange(21)[:, None, None, None] == 5, torch.nan, pair[0]), pair[1]),
        "Image 5 of past=, of class 2, is not finite. Mend it or leave it out",
    ),
    "batches of one thing": (lambda pair: lambda: iter([pair[0]]), "past= gives batches that are a Tensor. Give"),
    "a number": (lambda pair: lambda: 3, "past= is a function that returns int"),
    "strange mappings": (lambda pair: lambda: iter([{"x": 1}]), "past= gives batches that are a dict of x. Give"),
    "pictures": (lambda pair: Pictures(([object()] * 21, pair[1])), r"past= cannot be passed over \(TypeError: .*Give what"),
    "both past and new": (lambda pair: (pair[0], pair[1] + 1), r"Class 3 is both in past= and in new="),
    "what fails": (lambda pair: lambda: 1 / 0, r"past= cannot be passed over \(ZeroDivisionError: division by zero\)"),
    "a memory that is not of it": (
        lambda pair: (pair[0][pair[1] > 0], pair[1][pair[1] > 0]),
        "memory= has images of class 0, which is neither in past= nor in new=",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused_with_its_value(case: str, tmp_path: Path) -> None:
    make, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        observed(tmp_path, made(Base), past=make(pairs()["past"]))


def test_images_in_memory_of_new_classes_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    given, network = pairs(), made(Base)
    filled = tuple(torch.cat([given["memory"][i], given["new"][i][:4]]) for i in range(2))
    step = observed(tmp_path, network, memory=filled)
    assert torch.allclose(terms(step), terms(observed(tmp_path / "other", network)), rtol=1e-12)
    assert "4 images in memory of new classes left out" in repr(step)
    images = fs.Monitor(tmp_path, "test").steps[0].table("rehearsal").to_pandas()
    assert np.sort(images["image"]).tolist() == list(range(9))


@pytest.mark.parametrize("kind", [Base, Cosine])
def test_images_are_let_go_as_they_are_passed_over(kind: type[Base], tmp_path: Path) -> None:
    alive: set[int] = set()
    most = 0

    def fresh() -> Iterator[Pair]:
        nonlocal most
        for i in range(200):
            images = torch.full((3, 3, 2, 2), i / 50, dtype=torch.float64)
            alive.add(i)
            weakref.finalize(images, alive.discard, i)
            most = max(most, len(alive))
            yield images, torch.tensor([0, 1, 2])

    observed(tmp_path, made(kind), past=fresh)
    assert most <= 4
