"""Data as people have them: a pair of tensors, a `Dataset`, a `DataLoader` or a function, passed over batch by batch.

To be passed over within `watching.undisturbed`: a loader draws from the global random stream. What comes out is what the
network eats; nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset

from forgetscope.characters import counted
from forgetscope.errors import ForgetscopeError, InputError
from forgetscope.measuring.all_layers import Batch
from forgetscope.measuring.probe_data import CHECKED, batch_for, images_and_labels
from forgetscope.monitor.loaders import order_of, own_data, own_loader

Data = Any  # one of: (inputs, labels), Dataset, DataLoader, function that returns an iterator of batches
INPUTS, LABELS = ("pixel_values", "inputs", "images"), ("labels", "label")  # keys of batches that are mappings
TAKEN = "Give a pair of tensors, a Dataset, a DataLoader, or a function that returns an iterator of (inputs, labels)."


class Stream:
    """One of a step's data: `which` is its name in what is told about it."""

    def __init__(self, which: str, data: Data) -> None:
        self.which = which
        self._data = data
        self._batches = self._way_to_pass()

    def __iter__(self) -> Iterator[Batch]:
        """Inputs, and labels as int64 on the CPU, of all images once."""
        images = 0
        for inputs, labels in self._taken(self._batches):
            images += len(labels)
            yield inputs, labels
        if not images:
            otherwise = "" if self.which in ("new", "test") else f", or leave {self.which}= out"
            raise InputError(f"{self.which}= gives no images. Give those of at least one class{otherwise}.")

    def some(self, places: Sequence[int], images: int) -> Iterator[Batch] | None:
        """Those at these places of a pass alone, which had so many images; None where they cannot be fetched alone."""
        data = self._data
        if isinstance(data, DataLoader):
            order = order_of(data)
            if order is None or len(order) != images:
                return None
            indices = [int(order[place]) for place in places]
            return self._taken(lambda: own_loader(data, indices))
        if isinstance(data, tuple | list) and len(data) == 2:
            whole, labels = images_and_labels(data[0], data[1], self._names)
            at = torch.tensor(places, dtype=torch.long)
            return iter([(whole[at.to(whole.device)], labels[at])])
        if _is_data_set(data) and not isinstance(data, IterableDataset) and len(data) == images:
            return self._taken(lambda: self._loader_of(Subset(data, places)))
        return None

    def check_steady(self) -> None:
        """That a few items of a data set are the same when they are fetched again: what is random is found here."""
        data: Any = self._data.dataset if isinstance(self._data, DataLoader) else self._data
        if not _is_map(data) or not len(data):
            return
        for i in {round(at) for at in np.linspace(0, len(data) - 1, CHECKED)}:
            try:
                one, other = (_first_of(data[i]) for _ in range(2))
            except Exception:  # anything: keys may be no numbers; what is wrong in earnest is told by the pass
                return
            if not _same(one, other):
                raise InputError(
                    f"{self.which}= gives something else when image {i} is fetched again: it is augmented, or random. "
                    "Give the images as you evaluate on them, without augmentation."
                )

    @property
    def _names(self) -> tuple[str, str]:
        return f"The inputs of {self.which}=", f"The labels of {self.which}="

    def _taken(self, given: Callable[[], Iterable[object]]) -> Iterator[Batch]:
        """The batches as they are measured, whatever fails on the way told as somebody else's."""
        batches, end, before = self._own_code(lambda: iter(given())), object(), 0
        while (batch := self._own_code(lambda: next(batches, end))) is not end:
            inputs, labels = self._inputs_and_labels(batch)
            self._check_finite(inputs, labels, before)
            before += len(labels)
            if len(labels):
                yield inputs, labels

    def _own_code(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except ForgetscopeError:
            raise
        except Exception as error:  # anything: this is a user's code
            told = " ".join(str(error).split())[:300].removesuffix(".")
            raise InputError(
                f"{self.which}= cannot be passed over ({type(error).__name__}: {told}). Give what your training loop takes."
            ) from error

    def _way_to_pass(self) -> Callable[[], Iterable[object]]:
        """Checked as far as that is possible before anything is read."""
        which, data = self.which, self._data
        if isinstance(data, DataLoader):
            self._check_loader(data)
            return lambda: own_loader(data)
        if _is_data_set(data):
            return lambda: self._loader_of(data)
        if isinstance(data, tuple | list) and len(data) == 2:
            images, labels = images_and_labels(data[0], data[1], self._names)
            size = batch_for(images) if len(labels) else 1
            return lambda: zip(torch.split(images, size), torch.split(labels, size), strict=True)
        if callable(data):
            return self._from_function
        if isinstance(data, Iterator):
            raise InputError(
                f"{which}= is a {type(data).__name__}, which can be passed over only once. Give a function that returns it."
            )
        if not isinstance(data, Iterable) or isinstance(data, list | tuple | Mapping | Tensor | np.ndarray | str):
            of = f" of {len(data)}" if isinstance(data, list | tuple) else ""
            raise InputError(f"{which}= is a {type(data).__name__}{of}. {TAKEN}")
        return lambda: data

    def _from_function(self) -> Iterable[object]:
        batches = self._data()
        if not isinstance(batches, Iterable):
            raise InputError(f"{self.which}= is a function that returns {type(batches).__name__}. {TAKEN}")
        return own_loader(batches) if isinstance(batches, DataLoader) else batches

    def _loader_of(self, data: Dataset[object]) -> Iterable[object]:
        if isinstance(data, IterableDataset):
            return DataLoader(own_data(data), batch_size=64)
        first = _first_of(data[0]) if len(data) else None  # type: ignore[arg-type]
        size = batch_for(first[None]) if isinstance(first, Tensor) else 64
        return DataLoader(data, batch_size=size) if len(data) else ()  # type: ignore[arg-type]

    def _check_loader(self, loader: DataLoader[object]) -> None:
        batches = loader.batch_sampler
        sampler: Any = getattr(batches, "sampler", loader.sampler)
        size = getattr(batches, "batch_size", None) if batches is not None else loader.batch_size
        told = f"{self.which}= is a DataLoader"
        if getattr(batches, "drop_last", loader.drop_last) and size and hasattr(sampler, "__len__") and len(sampler) % size:
            raise InputError(
                f"{told} with drop_last=True, which leaves out {len(sampler) % size} of {len(sampler)} images, others each "
                "time. Give one with drop_last=False."
            )
        if getattr(sampler, "replacement", False):
            raise InputError(
                f"{told} whose {type(sampler).__name__} draws with replacement: some images come twice, others not at all. "
                "Give one that passes over each image once."
            )
        if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
            raise InputError(
                f"{told} whose DistributedSampler gives each of {sampler.num_replicas} processes a part of the images. Give "
                "one that passes over all of them."
            )

    def _inputs_and_labels(self, batch: object) -> Batch:
        found: tuple[object, object] | None = None
        if isinstance(batch, Mapping):
            keys = [next((key for key in known if key in batch), None) for known in (INPUTS, LABELS)]
            found = (batch[keys[0]], batch[keys[1]]) if None not in keys else None
        elif isinstance(batch, tuple | list) and len(batch) >= 2:
            found = (batch[0], batch[1])
        if found is None:
            keyed = f" of {', '.join(map(str, list(batch)[:4]))}" if isinstance(batch, Mapping) else ""
            raise InputError(
                f"{self.which}= gives batches that are a {type(batch).__name__}{keyed}. Give (inputs, labels), whatever else "
                f'follows, or a mapping with "{INPUTS[0]}" or "{INPUTS[1]}" and "{LABELS[0]}".'
            )
        return images_and_labels(*found, self._names)

    def _check_finite(self, inputs: Tensor, labels: Tensor, before: int) -> None:
        if not inputs.is_floating_point() or bool(inputs.sum().isfinite()):
            return  # a sum costs next to nothing; it may also be too large for its type
        odd = (~inputs.isfinite().flatten(1).all(dim=1)).nonzero()
        if len(odd):
            at = int(odd[0])
            raise InputError(
                f"Image {before + at} of {self.which}=, of class {int(labels[at])}, is not finite. Mend it or leave it out."
            )

    def __repr__(self) -> str:
        return f"{self.which}: {type(self._data).__name__}"


def first_batch(source: Stream) -> Batch:
    """To look at; a loader's workers end with it."""
    for batch in source:
        return batch
    raise AssertionError("a stream without images says so itself")


def nodes_of(labels: Tensor, nodes: Mapping[int, int] | None, which: str) -> Tensor:
    """Head nodes of a batch's labels; nodes: by label, where these are not the same."""
    if nodes is None:
        return labels
    found, place = torch.unique(labels, return_inverse=True)
    missing = [label for label in found.tolist() if label not in nodes]
    if missing:
        raise InputError(
            f"{which}= gives label {missing[0]}, and nodes= has no head node for it. It names "
            f"{counted(len(nodes), 'label')}: {str(sorted(nodes))[:100]}."
        )
    return torch.tensor([nodes[label] for label in found.tolist()])[place]


def checked_nodes(nodes: Mapping[int, int] | None) -> dict[int, int] | None:
    if nodes is None:
        return None
    if not isinstance(nodes, Mapping):
        raise InputError(f"nodes = {nodes!r:.60} is no mapping. Give {{label: head node}}.")
    for value in (*nodes, *nodes.values()):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise InputError(f"nodes= has {value!r:.60}, which is no integer. Give {{label: head node}}.")
    found = {int(label): int(node) for label, node in nodes.items()}
    large = [label for label in found if not 0 <= label < 2**31]
    if large:
        raise InputError(f"nodes= has label {large[0]}. Labels are kept as integers from 0 to {2**31 - 1}: number the classes.")
    twice = [node for node in found.values() if list(found.values()).count(node) > 1]
    if twice:
        raise InputError(f"nodes= maps two labels to node {twice[0]}. Each class has a node of its own.")
    if min(found.values(), default=0) < 0:
        raise InputError(f"nodes= maps a label to node {min(found.values())}. Nodes are counted from 0.")
    return found


def _is_data_set(data: object) -> bool:
    """Of items that are no batches."""
    return isinstance(data, Dataset) or (_is_map(data) and not isinstance(data, Sequence | Mapping | Tensor | np.ndarray))


def _is_map(data: object) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, tuple | list)


def _first_of(item: object) -> object:
    """The input of one item of a data set."""
    if isinstance(item, Mapping):
        return next((item[key] for key in INPUTS if key in item), None)
    return item[0] if isinstance(item, tuple | list) and item else None


def _same(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and bool(((one == other) | (one != one)).all())
    if hasattr(one, "__array_interface__"):  # arrays and pictures
        return np.array_equal(np.asarray(one), np.asarray(other))
    return True
