"""Loaders that the training uses too: it draws, counts and gets what it would without a monitor, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator
from torch.nn import functional as F
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from watched import loaders, observed, pairs, terms

import forgetscope as fs
from forgetscope.monitor.loaders import own_loader
from measuring.test_heads import ALPHA, Base, made

DATA = TensorDataset(*pairs()["new"])


class Counting(Sampler[int]):
    """Shuffles by the number of the pass, as samplers that are set to an epoch do."""

    def __init__(self, numbers: Any = None) -> None:
        self.epoch, self.passes, self.numbers = 0, {"made": 0}, numbers

    def __len__(self) -> int:
        return len(DATA)

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        self.passes["made"] += 1
        if self.numbers is not None:
            return iter(self.numbers.permutation(len(DATA)).tolist())
        return iter(torch.randperm(len(DATA), generator=Generator().manual_seed(self.epoch)).tolist())


class Counted(IterableDataset[Any]):
    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        self.epoch += 1
        order = torch.randperm(len(DATA), generator=Generator().manual_seed(self.epoch)).tolist()
        return (DATA[i] for i in order)


class Reversed(DataLoader[Any]):
    """A loader that makes batches in its own way, and counts."""

    made = 0

    def __iter__(self) -> Any:
        self.made += 1
        return iter([[each.flip(0) for each in batch] for batch in super().__iter__()])


LOADERS = {
    "workers that persist": lambda g: DataLoader(DATA, 4, shuffle=True, num_workers=1, persistent_workers=True),
    "generator": lambda g: DataLoader(DATA, 4, shuffle=True, generator=g),
    "generator and workers": lambda g: DataLoader(DATA, 4, shuffle=True, generator=g, num_workers=1),
    "subset": lambda g: DataLoader(DATA, 4, sampler=SubsetRandomSampler(range(len(DATA)), generator=g)),
    "weighted": lambda g: DataLoader(
        DATA, 4, sampler=WeightedRandomSampler([1.0] * len(DATA), len(DATA), replacement=False, generator=g)
    ),
    "counting": lambda g: DataLoader(DATA, 4, sampler=Counting()),
    "numpy": lambda g: DataLoader(DATA, 4, sampler=Counting(np.random.default_rng(0))),
    "batches": lambda g: DataLoader(DATA, batch_sampler=BatchSampler(Counting(), 4, False)),
    "batches drawn": lambda g: DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA, generator=g), 4, False)),
    "iterated": lambda g: DataLoader(Counted(), 4),
    "of its own": lambda g: Reversed(DATA, 4, shuffle=True, generator=g),
}


def trained(kind: str, folder: Path | None, as_given: Any) -> tuple[Any, ...]:
    """Somebody's loop over the loader that the monitor is given, too."""
    torch.manual_seed(0)
    draws, network = Generator().manual_seed(7), Base().double()
    loader = LOADERS[kind](draws)
    optimiser = torch.optim.SGD(network.parameters(), 0.1)
    step = None
    if folder is not None:
        monitor = fs.Monitor(folder, "shared", strict=True)
        step = monitor.step(network, **{**loaders(), "new": as_given(loader)}, alpha=ALPHA).open()
    seen = []
    for _ in range(2):
        for at, (images, labels) in enumerate(loader):
            optimiser.zero_grad()
            F.cross_entropy(network(images), labels).backward()
            optimiser.step()
            seen.append(images.flatten()[:2].tolist())
            if step is not None and at == 1:
                step.epoch_ended()  # also in the middle of a pass
    if step is not None:
        step.evaluate(loader)
        step.close()
        assert step.incomplete is None
    counters = [
        (getattr(one, "epoch", 0), getattr(one, "passes", {}), getattr(one, "made", 0))
        for one in (loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None), loader.dataset)
    ]
    return seen, network.state_dict(), draws.get_state(), torch.get_rng_state(), counters


@pytest.mark.parametrize("kind", LOADERS)
def test_a_training_over_the_same_loader_cannot_tell(kind: str, tmp_path: Path) -> None:
    torch.testing.assert_close(trained(kind, tmp_path, lambda loader: loader), trained(kind, None, None), rtol=0, atol=0)


def test_nor_over_a_loader_or_an_iterated_data_set_that_a_function_or_the_user_gives(tmp_path: Path) -> None:
    expected = trained("generator", None, None)
    found = trained("generator", tmp_path, lambda loader: lambda: loader)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    expected = trained("iterated", None, None)
    torch.testing.assert_close(trained("iterated", tmp_path / "i", lambda loader: loader.dataset), expected, rtol=0, atol=0)


def test_an_iterator_that_the_user_keeps_goes_on_where_it_was(tmp_path: Path) -> None:
    memory = TensorDataset(*pairs()["memory"])
    loader = DataLoader(memory, 2, num_workers=1, persistent_workers=True)
    kept, expected = iter(loader), [labels.tolist() for _, labels in DataLoader(memory, 2)]
    found = [next(kept)[1].tolist()]
    with fs.Monitor(tmp_path, "kept", strict=True).step(made(Base), **{**loaders(), "memory": loader}, alpha=ALPHA) as step:
        found.append(next(kept)[1].tolist())
        step.epoch_ended()
        found += [labels.tolist() for _, labels in kept]
    assert found == expected


@pytest.mark.parametrize("kind", LOADERS)
def test_the_numbers_are_those_of_the_images(kind: str, tmp_path: Path) -> None:
    network = made(Base)
    found = terms(observed(tmp_path, network, new=LOADERS[kind](Generator())))
    torch.testing.assert_close(found, terms(observed(tmp_path / "pairs", network)), rtol=1e-9, atol=0)


def test_a_part_of_the_data_set_stays_that_part() -> None:
    for sampler in (SubsetRandomSampler([3, 1, 2]), [3, 1, 2]):
        own = own_loader(DataLoader(DATA, 2, sampler=sampler))
        assert torch.equal(torch.cat([images for images, _ in own]), DATA.tensors[0][[3, 1, 2]])
    draws = Generator().manual_seed(1)
    some = DataLoader(DATA, 2, sampler=RandomSampler(DATA, num_samples=4, generator=draws))
    expected = torch.cat([images for images, _ in own_loader(some)])
    assert torch.equal(torch.cat([images for images, _ in some]), expected)
    one_by_one = DataLoader(DATA, batch_size=None, shuffle=True, generator=draws)
    assert torch.equal(torch.stack([image for image, _ in own_loader(one_by_one)]), DATA.tensors[0])
