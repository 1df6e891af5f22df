"""A loader of our own from somebody's: passing over theirs would move what their training draws from.

`iter(loader)` resets the workers that persist, draws from `generator=`, and starts another pass of a sampler that counts them.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
)

RANDOM = np.random.Generator | np.random.RandomState | random.Random


def own_loader(loader: DataLoader[Any], indices: Sequence[int] | None = None) -> DataLoader[Any]:
    """One pass over the same batches, in whatever order, by workers that end with it. The data set is shared.

    indices: of the data set, to fetch those alone, in batches of the same size."""
    own = copy.copy(loader)  # of its class, which may make batches in a way of its own
    draws = torch.Generator()
    draws.seed()  # another one for each pass: what workers draw must not look steady
    changed = {
        "dataset": own_data(loader.dataset),
        "sampler": _own_order(loader.sampler),
        "batch_sampler": _own_order(loader.batch_sampler),
        "generator": draws,
        "persistent_workers": False,
        "pin_memory": False,
        "_iterator": None,
    }
    if indices is not None:
        assert isinstance(loader.batch_sampler, BatchSampler)
        changed |= {"sampler": indices, "batch_sampler": BatchSampler(indices, loader.batch_sampler.batch_size, False)}
    for name, value in changed.items():
        object.__setattr__(own, name, value)  # a loader lets nobody assign them; this one is new, and nobody else's
    return own


def order_of(loader: DataLoader[Any]) -> Sequence[int] | None:
    """The index of each image in a pass of `own_loader`; None where that is not known, or some cannot be fetched alone."""
    batches: Any = loader.batch_sampler
    if type(loader).__iter__ is not DataLoader.__iter__ or isinstance(loader.dataset, IterableDataset):
        return None
    if type(batches) is not BatchSampler:  # one of their own, or none: then the data set makes batches
        return None
    sampler: Any = batches.sampler
    images = len(loader.dataset)  # type: ignore[arg-type]
    whole = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    some: Sequence[int] | None = sampler.indices if type(sampler) is SubsetRandomSampler else None
    return range(images) if whole and len(sampler) == len(sampler.data_source) == images else some


def own_data(data: Any) -> Any:
    """One that is iterated may count its passes; items of any other are fetched by their place."""
    return _apart(data) if isinstance(data, IterableDataset) else data


def _own_order(sampler: Any) -> Iterable[Any] | None:
    """Order changes nothing here, so nothing is drawn where the indices are known."""
    if type(sampler) is RandomSampler and len(sampler) == len(sampler.data_source):
        return range(len(sampler))
    if type(sampler) is SubsetRandomSampler:
        return sampler.indices
    own: Any = _apart(sampler)
    if type(sampler) is BatchSampler:
        own.sampler = _own_order(sampler.sampler)
    return own  # type: ignore[no-any-return]


def _apart(thing: Any) -> Any:
    """A copy that shares what it reads, and nothing that a pass over it changes."""
    own, held = copy.copy(thing), vars(thing) if hasattr(thing, "__dict__") else {}
    for name, value in held.items():
        if isinstance(value, torch.Generator):
            setattr(own, name, torch.Generator(value.device).set_state(value.get_state()))
        elif isinstance(value, RANDOM):
            setattr(own, name, copy.deepcopy(value))
        elif isinstance(value, Sampler):
            setattr(own, name, _apart(value))
        elif isinstance(value, list | dict | set):
            setattr(own, name, copy.copy(value))
    return own
