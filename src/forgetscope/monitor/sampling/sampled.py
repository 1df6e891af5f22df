"""Some images of a step's data, others at each probe: which ones follows from what they are, whatever their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial

import torch
from torch import Tensor

from forgetscope.forecasting.choice import mixed
from forgetscope.measuring.probe_data import CHUNK, Counted, Images, batch_for
from forgetscope.measuring.subsampled.quotas import new_quota, quotas
from forgetscope.monitor.passes import KEPT, NEW, PAST, Passes

NONE, EVERY = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max


class Selection:
    """How many images of each group are looked at, of data that were passed over once.

    An image of a past class that is in memory too, bit for bit, counts as rehearsed. Where the memory holds others of a class
    than these, the class is `foreign`: what is rehearsed of it and its own images are then drawn apart."""

    def __init__(self, passes: Passes, images: int) -> None:
        self.passes, past = passes, len(passes.past_nodes)
        nothing = torch.empty(0, dtype=torch.long)
        memory, past_images = passes.listed.get(KEPT, (nothing, nothing)), passes.listed.get(PAST, (nothing, nothing))
        self._rehearsed = torch.unique(memory[0])
        stored = torch.isin(past_images[0], self._rehearsed)
        held, among = (
            _sums(*images, passes.past_nodes) for images in (memory, (past_images[0][stored], past_images[1][stored]))
        )
        self.foreign = (held != among).any(dim=0) & (PAST in passes.listed)
        groups = [self.groups_of(part, *listed) for part, listed in passes.listed.items()]
        every = torch.cat(groups)
        self.population = torch.bincount(every[every >= 0], minlength=passes.groups).double()
        self.wanted = torch.full((passes.groups,), new_quota(images, len(passes.new_nodes)))
        for c in range(past):
            few, rest = quotas(images, int(self.population[past + c]), int(self.population[c]))
            self.wanted[c], self.wanted[past + c] = rest, few
        self.is_everything = bool((self.wanted >= self.population).all())

    def groups_of(self, part: int, prints: Tensor, nodes: Tensor) -> Tensor:
        """[n]: where images count; -1 of those that are rehearsed, among the past ones, and of new classes in memory."""
        passes, past = self.passes, len(self.passes.past_nodes)
        place, known = _places(nodes, passes.new_nodes if part == NEW else passes.past_nodes)
        if part == PAST:
            known &= ~torch.isin(prints, self._rehearsed) | self.foreign[place]
        return (place + {PAST: 0, KEPT: past, NEW: 2 * past}[part]).masked_fill(~known, -1)

    def drawn(self, draws: str) -> Sampled:
        """draws: from which the choice follows. Of images that are the same all are taken, or none."""
        salt = int.from_bytes(hashlib.sha256(draws.encode()).digest()[:8], signed=True)
        values = torch.cat([mixed(prints + salt) for prints, _ in self.passes.listed.values()])
        groups = torch.cat([self.groups_of(part, *listed) for part, listed in self.passes.listed.items()])
        most = torch.full((len(self.wanted),), EVERY)
        for group in (self.wanted < self.population).nonzero()[:, 0].tolist():
            number = int(self.wanted[group])
            most[group] = values[groups == group].kthvalue(number).values if number else NONE
        return Sampled(self, salt, most)


class Sampled(Images):
    """What is looked at in one probe: of each group the images whose values, by this choice, are at most so large."""

    def __init__(self, selection: Selection, salt: int, most: Tensor) -> None:
        self._selection, self._passes, self._salt, self._most = selection, selection.passes, salt, most
        for name in ("past_nodes", "new_nodes", "kept", "counts", "alpha", "loss", "names", "apart"):
            setattr(self, name, getattr(selection.passes, name))
        self.population, self.foreign = selection.population, selection.foreign

    @property
    def only_memory(self) -> bool:
        return self._passes.only_memory

    @property
    def rehearses(self) -> bool:
        return self._passes.rehearses

    @property
    def about(self) -> str:
        return self._passes.about

    @property
    def unknown_said(self) -> tuple[str, ...]:
        return self._passes.unknown_said

    def few(self, part: int = 0) -> Tensor:
        return self._passes.few(part)

    def check_nodes(self, nodes: int, masked: tuple[int, ...] = ()) -> None:
        self._passes.check_nodes(nodes, masked)

    def chunks(self) -> Iterator[Iterable[Counted]]:
        chunk: list[Counted] = []
        for batch in self._batches():
            chunk.append(batch)
            if sum(len(nodes) for _, nodes, _ in chunk) >= CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _batches(self) -> Iterator[Counted]:
        """As many images at a time as suit the network, however few of each of somebody's batches are wanted."""
        for part in self._passes.listed:
            waiting: list[Counted] = []
            for inputs, nodes, prints in self._passes.chosen_of(part, partial(self._is_wanted, part)):
                waiting.append((inputs, nodes, self._selection.groups_of(part, prints, nodes)))
                if sum(len(of) for _, of, _ in waiting) >= batch_for(inputs[:1]):
                    yield self._together(waiting)
                    waiting = []
            if waiting:
                yield self._together(waiting)

    def _together(self, batches: list[Counted]) -> Counted:
        inputs, nodes, groups = (torch.cat(each) for each in zip(*batches, strict=True))
        # The network may work in place, on what may be somebody's tensor: of one batch `cat` may give that itself.
        return inputs.to(self._passes.device, copy=len(batches) == 1), nodes, groups

    def _is_wanted(self, part: int, prints: Tensor, nodes: Tensor) -> Tensor:
        groups = self._selection.groups_of(part, prints, nodes)
        return (groups >= 0) & (mixed(prints + self._salt) <= self._most[groups.clamp(min=0)])


def _sums(prints: Tensor, nodes: Tensor, of: Tensor) -> Tensor:
    """[2, classes]: how many images of each class, and the sum of their fingerprints: the same images have the same."""
    place, known = _places(nodes, of)
    counts = torch.zeros(2, len(of), dtype=torch.long)
    counts[0].index_add_(0, place[known], torch.ones_like(place[known]))
    counts[1].index_add_(0, place[known], prints[known])
    return counts


def _places(nodes: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
    """Where in these ascending nodes each is, and whether it is there."""
    place = torch.searchsorted(of, nodes).clamp(max=len(of) - 1)
    return place, of[place] == nodes
