"""A fixed choice of images, by what they are: the same in whatever order and batches they come, and found again later."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

ROOM = 256 * 2**20  # bytes that are held
Group = tuple[bool, int]  # whether the class is new, and its head node


class Chosen:
    """Of each group at most `most` images, those whose fingerprints are the lowest; fewer where they would not fit in `room`.

    What is held of an image is a row of any kind, its input or its features. Groups come as they occur: the more there are, the
    fewer images of each have room, the same number of all and at least one.

    >>> chosen, owls = Chosen(most=2), (False, 7)
    >>> chosen.add(owls, torch.tensor([5, 3, 9]), torch.tensor([[0.5], [0.3], [0.9]]))
    >>> chosen.add(owls, torch.tensor([1]), torch.tensor([[0.1]]))
    >>> chosen.held[owls][0].tolist(), chosen.counts[owls]
    ([1, 3], 4)
    """

    def __init__(self, most: int | None, room: int = ROOM) -> None:
        self._most, self._room = most, room
        self.counts: dict[Group, int] = {}  # how many there were of each group
        self.held: dict[Group, tuple[Tensor, Tensor]] = {}  # fingerprints, ascending, and rows, on the CPU

    def add(self, group: Group, fingerprints: Tensor, rows: Tensor) -> None:
        """fingerprints [n], on the CPU, and rows [n, ...] of some more images of a group."""
        if not len(rows):
            return
        known, before = group in self.held, self.held.get(group, (fingerprints[:0], rows[:0].cpu()))
        self.counts[group] = self.counts.get(group, 0) + len(rows)
        limit = self._limit(rows, len(self.held) + (not known))
        if len(before[0]) >= limit:  # nearly always, and then hardly any image is closer
            close = fingerprints < before[0][limit - 1]
            fingerprints, rows = fingerprints[close], rows[close.to(rows.device)]
        found = torch.cat([before[0], fingerprints]), torch.cat([before[1], rows.detach().cpu()])
        self.held[group] = found
        for of in [group] if known else list(self.held):
            self.held[of] = _lowest(*self.held[of], limit)

    def add_each(self, groups: Sequence[Group], fingerprints: Tensor, rows: Tensor) -> None:
        """The same of images of several groups; groups: that of each."""
        for group in dict.fromkeys(groups):
            of = torch.tensor([other == group for other in groups])
            self.add(group, fingerprints[of], rows[of.to(rows.device)])

    def _limit(self, rows: Tensor, groups: int) -> int:
        fits = max(self._room // (max(rows[0].numel(), 1) * rows.element_size() * groups), 1)
        return fits if self._most is None else min(fits, self._most)


def _lowest(fingerprints: Tensor, rows: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    order = torch.argsort(fingerprints, stable=True)[:limit]
    return fingerprints[order], rows[order]


def fingerprints(inputs: Tensor) -> Tensor:
    """[n] int64, of the bits of each image: a sum of these tells in any order whether the images are the same.

    Words of 64 bits are weighted by their place, with the upper half folded into the lower, so that no bit is lost; then
    mixed, so that values which change places between images are noticed."""
    flat = inputs.detach().contiguous().flatten(1)
    bits = flat if flat.dtype == torch.uint8 else flat.view(torch.uint8)
    if bits.shape[1] % 8:
        bits = torch.nn.functional.pad(bits, (0, -bits.shape[1] % 8))
    words = bits.view(torch.int64)
    found = ((words ^ (words >> 32)) * _weights(words.shape[1], words.device)).sum(dim=1)
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        found = (found ^ (found >> shift)) * factor
    return found ^ (found >> 31)


@lru_cache(maxsize=8)
def _weights(words: int, device: torch.device) -> Tensor:
    draws = torch.Generator().manual_seed(words)
    return (torch.randint(-(2**62), 2**62, (words,), generator=draws) * 2 + 1).to(device)
