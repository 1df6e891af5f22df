"""A fixed choice of images, by what they are: the same in whatever order and batches they come, and found again later."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

ROOM = 256 * 2**20  # bytes that are held
TURNS = 4  # images of a class differ by about 1 in the projection of their direction
PARTS = 64  # of fingerprints, before they are put together
Group = tuple[bool, int]  # whether the class is new, and its head node


class Chosen:
    """Of each group at most `most` images, those whose places are the lowest; fewer where they would not fit in `room`.

    What is held of an image is a row of any kind, its input or its features. An image that comes again counts once. Groups come
    as they occur: the more there are, the fewer images of each have room, the same number of all and at least one.

    >>> chosen, owls = Chosen(most=2), (False, 7)
    >>> chosen.add(owls, torch.tensor([[5, 50], [3, 30], [9, 90]]), torch.tensor([[0.5], [0.3], [0.9]]))
    >>> chosen.add(owls, torch.tensor([[1, 10], [3, 30]]), torch.tensor([[0.1], [0.3]]))
    >>> chosen.held[owls][0][:, 1].tolist(), chosen.counts[owls]
    ([10, 30], 4)
    """

    def __init__(self, most: int | None, room: int = ROOM) -> None:
        self._most, self._room = most, room
        self._prints: dict[Group, list[Tensor]] = {}  # of all images of a group, in parts
        self.held: dict[Group, tuple[Tensor, Tensor]] = {}  # marks, by place, and rows, on the CPU

    @property
    def counts(self) -> dict[Group, int]:
        """How many different images there were of each group."""
        return {group: len(self._known(group)) for group in self._prints}

    def add(self, group: Group, marks: Tensor, rows: Tensor) -> None:
        """`marks` [n, 2], on the CPU, and rows [n, ...] of some more images of a group."""
        if not len(rows):
            return
        self._prints.setdefault(group, []).append(marks[:, 1])
        if len(self._prints[group]) > PARTS:
            self._known(group)
        known, before = group in self.held, self.held.get(group, (marks[:0], rows[:0].cpu()))
        limit = self._limit(rows, len(self.held) + (not known))
        if len(before[0]) >= limit:  # nearly always, and then hardly any image is closer
            close = marks[:, 0] < before[0][limit - 1, 0]
            marks, rows = marks[close], rows[close.to(rows.device)]
        found = torch.cat([before[0], marks]), torch.cat([before[1], rows.detach().cpu()])
        self.held[group] = found
        for of in [group] if known else list(self.held):
            self.held[of] = _lowest(*self.held[of], limit)

    def add_each(self, groups: Sequence[Group], marks: Tensor, rows: Tensor) -> None:
        """The same of images of several groups; groups: that of each."""
        for group in dict.fromkeys(groups):
            of = torch.tensor([other == group for other in groups])
            self.add(group, marks[of], rows[of.to(rows.device)])

    def _limit(self, rows: Tensor, groups: int) -> int:
        fits = max(self._room // (max(rows[0].numel(), 1) * rows.element_size() * groups), 1)
        return fits if self._most is None else min(fits, self._most)

    def _known(self, group: Group) -> Tensor:
        self._prints[group] = [torch.unique(torch.cat(self._prints[group]))]
        return self._prints[group][0]


def _lowest(marks: Tensor, rows: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """Each image once."""
    order = torch.argsort(marks[:, 1], stable=True)
    sorted_prints = marks[order, 1]
    once = torch.ones(len(order), dtype=torch.bool)
    once[1:] = sorted_prints[1:] != sorted_prints[:-1]
    order = order[once]
    order = order[torch.argsort(marks[order, 0], stable=True)][:limit]
    return marks[order], rows[order]


def marks(images: Tensor, prints: Tensor | None = None) -> Tensor:
    """[n, 2] int64, on the CPU: where each image has its place in a choice, and its fingerprint, if that is not given.

    The place is continuous in the pixels: a projection of their direction, and the logarithm of their length, which go around
    a circle a few times. So images that are rounded, or come in another float type, have nearly the same places; the
    choice then differs only where two of a class are as near to each other at its edge."""
    flat = images.detach().cpu().flatten(1).double()
    length = flat.norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
    turns = TURNS * ((flat @ _directions(flat.shape[1])) / length + length.log())
    places = ((turns - turns.floor()) * 2**53).long()
    return torch.stack([places, fingerprints(images).cpu() if prints is None else prints], dim=1)


def fingerprints(inputs: Tensor) -> Tensor:
    """[n] int64, of the bits of each image: a sum of these tells in any order whether the images are the same.

    Words of 64 bits are weighted by their place, with the upper half folded into the lower, so that no bit is lost; then
    mixed, so that values which change places between images are noticed."""
    flat = inputs.detach().contiguous().flatten(1)
    bits = flat if flat.dtype == torch.uint8 else flat.view(torch.uint8)
    if bits.shape[1] % 8:
        bits = torch.nn.functional.pad(bits, (0, -bits.shape[1] % 8))
    words = bits.view(torch.int64)
    return mixed(((words ^ (words >> 32)) * _weights(words.shape[1], words.device)).sum(dim=1))


def mixed(found: Tensor) -> Tensor:
    """[n] int64, of which every bit depends on all bits of the value that it was."""
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        found = (found ^ (found >> shift)) * factor
    return found ^ (found >> 31)


@lru_cache(maxsize=8)
def _weights(words: int, device: torch.device) -> Tensor:
    draws = torch.Generator().manual_seed(words)
    return (torch.randint(-(2**62), 2**62, (words,), generator=draws) * 2 + 1).to(device)


@lru_cache(maxsize=8)
def _directions(pixels: int) -> Tensor:
    return torch.randn(pixels, generator=torch.Generator().manual_seed(pixels), dtype=torch.float64)
