"""What to measure on: images, labels and which of them are rehearsed, in whatever form they come, checked once."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.measuring.all_layers import Batch
from forgetscope.measuring.gradients import GradientSums, Loss

Given = Tensor | np.ndarray | Sequence[Any]
Prepare = Callable[[Tensor], Tensor]  # images as they are held -> what the network eats
Counted = tuple[Tensor, Tensor, Tensor]  # inputs, labels [n] = head nodes, groups [n]
CHUNK = 1000  # images whose features are kept at a time; a GPU is waited for once per chunk
CHECKED = 8  # images on which a network is looked at before it is measured
SAID = 10  # classes that a sentence names


class Images(ABC):
    """Of past and new classes, to measure on: what is known of them, whether they are held or passed over.

    Each image counts in a group: c is the c-th past class, P + c what is rehearsed of it, 2 P + c the c-th new class. `apart`:
    whether what is rehearsed is not among the images of group c; then it is added to them."""

    past_nodes: Tensor
    new_nodes: Tensor
    kept: Tensor  # [P] images that are rehearsed
    counts: tuple[int, int]  # images of past and of new classes
    alpha: float
    loss: Loss | None
    names: Mapping[int, str]
    apart = True
    population: Tensor | None = None  # [groups] images in all, where some of them stand for the others; and then
    foreign: Tensor | None = None  # [P] of which classes what is rehearsed is not among their images

    @property
    def groups(self) -> int:
        return 2 * len(self.past_nodes) + len(self.new_nodes)

    @property
    def shares(self) -> Tensor:
        """[P] p_c"""
        return self.kept / self.kept.sum().clamp(min=1)

    @property
    def only_memory(self) -> bool:
        """Whether past images are but the memory, and nothing is known of others. In a run, classes may be kept whole."""
        return False

    @property
    def rehearses(self) -> bool:
        """Whether any image of a past class is rehearsed, as far as that is to be told apart: without, there is no CIC."""
        return True

    @property
    def nodes(self) -> Tensor:
        """All that occur."""
        return torch.cat([self.past_nodes, self.new_nodes])

    @property
    def about(self) -> str:
        """What is measured on, in a sentence."""
        past, new = counted(len(self.past_nodes), "past class"), counted(len(self.new_nodes), "new class")
        images = [counted(number, "image") for number in self.counts]
        return f"{past}, {images[0]}, {int(self.kept.sum())} rehearsed; {new}, {images[1]}; alpha {self.alpha:g}."

    @property
    def unknown_said(self) -> tuple[str, ...]:
        """What cannot be known of these images, in sentences."""
        bare = self.past_nodes[self.kept == 0].tolist()
        named = ", ".join(self.names.get(node, str(node))[:100] for node in bare[:SAID])
        more = f" and {len(bare) - SAID:,} more" if len(bare) > SAID else ""
        said = f"SIC is unknown, not 0, without a stored image: {named}{more}." if bare else ""
        if self.only_memory:
            said = "SIC and CIC are unknown, not 0: every past image is rehearsed, so nothing is known of the others."
        return (said,) if said else ()

    def check_nodes(self, nodes: int, masked: tuple[int, ...] = ()) -> None:
        """That the head has a node for every label, and none of them is -inf."""
        highest = max(self.nodes.tolist(), default=-1)
        if highest >= nodes:
            raise InputError(
                f"Label {highest} needs a head with {highest + 1} nodes; it has {nodes}. Grow the head before measuring."
            )

        used = [node for node in self.nodes.tolist() if node in masked]
        if used:
            raise InputError(
                f"The output of node {used[0]} is -inf for every image, but images of class {used[0]} are measured: their loss "
                "is infinite. Mask only nodes without images, or with a large negative number, such as -1e9."
            )

    def check_losses(self, losses: Tensor) -> None:
        """That those of each group are finite."""
        odd = (~losses.isfinite()).nonzero()[:, 0]
        if len(odd):
            node = int(torch.cat([self.past_nodes, self.past_nodes, self.new_nodes])[odd[0]])
            raise InputError(
                f"The loss of class {node} is {float(losses[odd[0]])}: what prepare or the network makes of one of its images "
                "is not finite. Look at its images one by one."
            )

    @abstractmethod
    def few(self, part: int = 0) -> Tensor:
        """A few inputs, to look at the network with, of past classes; part 1: of new ones."""

    @abstractmethod
    def chunks(self) -> Iterator[Iterable[Counted]]:
        """All images once, some batches at a time."""

    def settled(self, sums: GradientSums) -> GradientSums:
        """What was summed over all chunks, group by group as above."""
        return sums


class ProbeData(Images):
    """What to measure on, as `forgetscope.Probe` describes it."""

    def __init__(
        self,
        past_images: Given,
        past_labels: Given,
        rehearsed: Given,
        new_images: Given,
        new_labels: Given,
        alpha: float | Tensor = 0.5,
        *,
        prepare: Prepare | None = None,
        batch: int | None = None,
        loss: Loss | None = None,
        names: Mapping[int, str] | Sequence[str] | None = None,
    ) -> None:
        alpha = checked_alpha(alpha)
        if loss is not None and not callable(loss):
            raise InputError(f"loss = {loss!r} is no function of logits and labels. Pass the one that you train with.")
        if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int | np.integer) or batch < 1):
            raise InputError(f"batch = {batch!r} is no number of images: it is how many go through the network at a time.")
        past_images, past_labels = whole("past", past_images, past_labels)
        new_images, new_labels = whole("new", new_images, new_labels)
        self.past_nodes = torch.unique(past_labels)
        self.new_nodes = torch.unique(new_labels)
        both = self.past_nodes[torch.isin(self.past_nodes, self.new_nodes)]
        if len(both):
            raise InputError(f"Classes {both.tolist()} are both past and new. Give each class's images to one of the two.")
        mask = _mask(rehearsed, len(past_labels))
        if not mask.any():
            raise InputError(
                f"rehearsed marks none of the {counted(len(mask), 'past image')}, but alpha = {alpha} of a batch is rehearsed."
            )
        self.kept = (past_labels[mask][:, None] == self.past_nodes).sum(dim=0).double()  # images that are rehearsed
        self.all_kept = bool(mask.all())
        self.alpha = alpha
        self.names = checked_names(names, self.past_nodes.tolist())
        self.loss = loss
        # Where each image counts: past classes without what is rehearsed, past classes' rehearsed images, new classes.
        past = len(self.past_nodes)
        past_groups = torch.searchsorted(self.past_nodes, past_labels) + past * mask
        new_groups = torch.searchsorted(self.new_nodes, new_labels) + 2 * past
        self.counts = (len(past_labels), len(new_labels))
        self.parts = ((past_images, past_labels, past_groups), (new_images, new_labels, new_groups))
        self._prepare = prepare
        self._batch = batch or batch_for(past_images)

    def few(self, part: int = 0) -> Tensor:
        """From all over the images."""
        images = self.parts[part][0]
        count = min(len(images), CHECKED, self._batch)
        positions = torch.linspace(0, len(images) - 1, count, dtype=torch.float64).long()
        return next(self.inputs(images[positions.to(images.device)]))

    def chunks(self) -> Iterator[Iterable[Counted]]:
        for images, labels, groups in self.parts:
            for start in range(0, len(labels), CHUNK):
                chunk = slice(start, start + CHUNK)
                parts = (torch.split(each[chunk], self._batch) for each in (labels, groups))
                yield zip(self.inputs(images[chunk]), *parts, strict=True)

    def batches_of(self, group: int) -> Iterator[Batch]:
        images, labels, groups = self.parts[int(group >= 2 * len(self.past_nodes))]
        positions = torch.nonzero(groups == group)[:, 0]
        return self.batches(images[positions.to(images.device)], labels[positions])

    def batches(self, images: Tensor, labels: Tensor) -> Iterator[Batch]:
        return zip(self.inputs(images), torch.split(labels, self._batch), strict=True) if len(labels) else iter(())

    def inputs(self, images: Tensor) -> Iterator[Tensor]:
        return prepared(images, self._prepare, self._batch)


def prepared(images: Tensor, prepare: Prepare | None, batch: int) -> Iterator[Tensor]:
    """What a network eats, so many images at a time."""
    for part in torch.split(images, batch):
        own = part.clone()  # `prepare`, or the network itself, may work in place
        inputs = own if prepare is None else prepare(own)
        if not isinstance(inputs, Tensor) or inputs.shape[:1] != part.shape[:1]:
            found = f"{tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
            raise InputError(f"prepare gives {found} of {counted(len(part), 'image')}. Return a tensor, an input per image.")
        yield inputs


def images_and_labels(images: object, labels: object, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """As tensors, labels on the CPU; names: what messages call the two."""
    pixels, nodes = _tensor(names[0], images), _tensor(names[1], labels).cpu()
    if nodes.ndim != 1 or nodes.is_floating_point() or nodes.is_complex() or nodes.dtype == torch.bool:
        found = f"{tuple(nodes.shape)} of {nodes.dtype}"
        raise InputError(f"{names[1]} are {found}. Give one whole number per image: the head node of its class.")
    if pixels.ndim < 2 or len(pixels) != len(nodes):
        found = f"{tuple(pixels.shape)}"
        raise InputError(f"{names[0]} are {found} for {counted(len(nodes), 'label')}. Give [images, ...], one per label.")
    nodes = nodes.long()
    if len(nodes) and int(nodes.min()) < 0:
        raise InputError(f"{names[1]} hold {int(nodes.min())}. Labels are head nodes, counted from 0; leave out others.")
    return pixels, nodes


def whole(which: str, images: object, labels: object, called: tuple[str, str] | None = None) -> tuple[Tensor, Tensor]:
    """All images of past or new classes; finite, and one at least. called: how messages call images and labels."""
    of_images, of_labels = called or (f"{which}_images", f"{which}_labels")
    pixels, nodes = images_and_labels(images, labels, (of_images, of_labels))
    if not len(nodes):
        raise InputError(f"{of_images} are empty. Give the images of at least one {which} class.")
    for start in range(0, len(nodes) if pixels.is_floating_point() else 0, 1000):  # so many at a time: masks cost memory
        odd = (~pixels[start : start + 1000].isfinite().flatten(1).all(dim=1)).nonzero()
        if len(odd):
            position = start + int(odd[0])
            raise InputError(
                f"{of_images}[{position}], of class {int(nodes[position])}, is not finite. Mend it or leave it out."
            )
    return pixels, nodes


def _mask(rehearsed: object, images: int) -> Tensor:
    """A mask, one of 0 and 1, or positions."""
    given = _tensor("rehearsed", rehearsed).cpu()
    told = "Give a mask of one entry per past image, or the positions of those that are rehearsed."
    if given.ndim != 1 or given.is_complex() or (given.is_floating_point() and len(given)):
        raise InputError(f"rehearsed is {tuple(given.shape)} of {given.dtype}. {told}")
    if given.dtype != torch.bool and len(given) == images > 1 and bool(((given == 0) | (given == 1)).all()):
        if images == 2:
            raise InputError(
                f"rehearsed = {given.tolist()} of 2 past images could be a mask or positions. Give True and False."
            )
        given = given.bool()  # as positions it would name two images again and again
    if given.dtype == torch.bool:
        if len(given) != images:
            raise InputError(f"rehearsed is a mask of {len(given)} for {counted(images, 'past image')}. {told}")
        return given
    positions = given.long()
    outside = positions[(positions < 0) | (positions >= images)]
    if len(outside):
        raise InputError(f"rehearsed names position {int(outside[0])} of {counted(images, 'past image')}. {told}")
    mask = torch.zeros(images, dtype=torch.bool)
    mask[positions] = True
    return mask


def _tensor(name: str, value: object) -> Tensor:
    """Of tensors, arrays, and lists of numbers, arrays or tensors of one shape."""
    if isinstance(value, Tensor):
        return value.detach()
    remedy = "Give a tensor, an array, or a list of those of one shape."
    first = value[0] if isinstance(value, list | tuple) and len(value) else value
    if not isinstance(first, Tensor | np.ndarray | np.generic | Real | list | tuple):
        what = f"a {type(value).__name__} of {type(first).__name__}" if first is not value else f"{type(value).__name__}"
        raise InputError(f"{name} is {what}. {remedy} Images of files: turn them into tensors as you do for training.")
    try:
        if isinstance(first, Tensor) and first is not value:
            return torch.stack([torch.as_tensor(part) for part in value]).detach()  # type: ignore[attr-defined]
        with warnings.catch_warnings():  # that an array cannot be written to: nobody does
            warnings.simplefilter("ignore")
            return torch.from_numpy(np.ascontiguousarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        told = " ".join(str(error).split())[:200].removesuffix(".")
        raise InputError(f"{name}: this {type(value).__name__} is no tensor ({told}). {remedy}") from error


def checked_alpha(alpha: float | Tensor) -> float:
    """The share of rehearsal images in a batch."""
    if isinstance(alpha, Tensor) and alpha.numel() == 1:
        alpha = alpha.item()
    if not isinstance(alpha, int | float | np.floating) or not 0 < alpha < 1:
        raise InputError(f"alpha = {alpha} is not between 0 and 1: it is the share of rehearsal images in a batch.")
    return float(alpha)


def checked_names(names: Mapping[int, str] | Sequence[str] | None, past: list[int]) -> dict[int, str]:
    """Of past classes by node, empty if nobody named any."""
    if names is None:
        return {}
    if not isinstance(names, Iterable) or isinstance(names, str):
        raise InputError(
            f"names = {names!r} is no mapping or list. Give a name for each past class: {{node: name}}, or a list."
        )
    given = names if isinstance(names, Mapping) else dict(enumerate(names))
    missing = [node for node in past if node not in given]
    if missing:
        raise InputError(f"names has no name for class {missing[0]}. Give one for each past class: {{node: name}}, or a list.")
    return {node: str(given[node]) for node in past}


def batch_for(images: Tensor) -> int:
    """Small batches stay in a CPU's cache: 64 images of 32 x 32 pixels, in proportion for others; large ones fill a GPU."""
    return min(max(64 * 3072 // max(images[0].numel(), 1), 16), 500) if images.device.type == "cpu" else 500
