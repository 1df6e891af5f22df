"""Measuring on data that are passed over once per probe and never held; two passes must give the same images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.forecasting.choice import Chosen, fingerprints, marks
from forgetscope.measuring.gradients import GradientSums, Loss
from forgetscope.measuring.probe_data import CHECKED, CHUNK, Counted, Images, batch_for
from forgetscope.monitor.streams import Stream, first_batch, nodes_of

PAST, KEPT, NEW = 0, 1, 2  # which part of a step's data; groups are in this order
Printed = tuple[Tensor, Tensor, Tensor]  # inputs, labels [n] = head nodes, fingerprints [n]
Wanted = Callable[[Tensor, Tensor], Tensor]  # fingerprints [n], nodes [n] -> which images [n]


class NothingPastError(InputError):
    """There is nothing to measure. Known only when everything was passed over."""


class Passes(Images):
    """past: all training images of the past classes, those in memory included, or None: then past images are the memory.

    The classes are known after the first pass, and so is a fingerprint of each class's images, which no order changes: another
    pass that gives other images is an error. Images in memory of new classes are left out. Those of the memory that do not
    occur in past are counted."""

    def __init__(
        self,
        past: Stream | None,
        memory: Stream | None,
        new: Stream,
        *,
        nodes: Mapping[int, int] | None = None,
        loss: Loss | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        given = {PAST: past, NEW: new, KEPT: memory}  # memory last: by then it is known which of its classes are new
        self._sources = {part: source for part, source in given.items() if source is not None}
        self._node_by_label = nodes
        self.alpha = 0.5  # a half of each: what is measured is weighted later, when alpha is known
        self.loss = loss
        known = names or {}
        self.names = dict(known) if nodes is None else {node: known.get(label, str(label)) for label, node in nodes.items()}
        self.apart = past is None
        self.device = torch.device("cpu")
        self.past_nodes = self.new_nodes = torch.empty(0, dtype=torch.long)
        self.kept = torch.empty(0, dtype=torch.float64)
        self.counts = (0, 0)
        self.memory: list[int] = []  # the head node of each image in memory, in the order of the first pass
        self.outside = 0  # images in memory that are not among past
        self._first: Tensor | None = None  # [2, groups]: counts and fingerprints of the first pass
        self._few: dict[int, Tensor] = {}
        self.head_nodes = 0
        self._most = 0  # images of a class that are chosen
        self._lists = False
        self.listed: dict[int, tuple[Tensor, Tensor]] = {}  # by part: fingerprint and node of each image, in order of a pass
        self.chosen: Chosen | None = None  # of the memory and of new classes, by (is new, node)
        self._begin()

    @property
    def known(self) -> bool:
        """Whether everything was passed over once."""
        return self._first is not None

    @property
    def only_memory(self) -> bool:
        if self._first is None or PAST not in self._sources:
            return PAST not in self._sources
        past = len(self.past_nodes)
        return past > 0 and torch.equal(self._first[:, :past], self._first[:, past : 2 * past])

    @property
    def rehearses(self) -> bool:
        return bool(self.kept.sum())

    @property
    def left_out(self) -> int:
        """Images in memory of classes that are new."""
        new = set(self.new_nodes.tolist())
        return sum(node in new for node in self.memory)

    @property
    def images(self) -> dict[int, int]:
        """How many there are of each class, by head node."""
        assert self._first is not None
        counts, past = self._first[0].tolist(), len(self.past_nodes)
        of_past = counts[past : 2 * past] if self.only_memory else counts[:past]
        return dict(zip(self.nodes.tolist(), [*of_past, *counts[2 * past :]], strict=True))

    @property
    def about(self) -> str:
        past, new = counted(len(self.past_nodes), "past class"), counted(len(self.new_nodes), "new class")
        out = f" {counted(self.left_out, 'image')} in memory of new classes left out." if self.left_out else ""
        kept = f"{int(self.kept.sum()):,} rehearsed"
        return f"{past}, {counted(self.counts[0], 'image')}, {kept}; {new}, {counted(self.counts[1], 'image')}.{out}"

    @property
    def unknown_said(self) -> tuple[str, ...]:
        if self.only_memory:
            others = "past images are those in memory, so nothing is known of the others"
            return (f"SIC, CIC and NIC are unknown, not 0: {others}. NIC is estimated.",)
        if not self.rehearses:
            return ("SIC and CIC are missing: nothing is rehearsed.",)
        return (*super().unknown_said, *([self.outside_said] if self.outside else []))

    @property
    def outside_said(self) -> str:
        return (
            f"{self.outside:,} of {counted(int(self.kept.sum()), 'image')} in memory are not among past=, bit for bit: if they "
            "are prepared in another way, SIC and CIC compare two kinds of images."
        )

    def label(self, node: int) -> int:
        by_node = {at: label for label, at in (self._node_by_label or {}).items()}
        return by_node.get(node, node)

    def node(self, label: int, otherwise: int) -> int:
        return (self._node_by_label or {}).get(label, otherwise)

    def look(self) -> None:
        """Before the first probe: fetch a few images twice, and keep some to look at networks with."""
        if self._few:
            return
        for part, source in self._sources.items():
            source.check_steady()
            inputs, labels = first_batch(source)
            if self.known:  # by a state: of another step, as far as a first batch tells
                self._groups(part, nodes_of(labels, self._node_by_label, source.which), source)
            self._few[part] = inputs[:CHECKED].clone()
        if self.loss is not None and not self.known:
            self.survey()  # a loss is tried on every class that occurs, before it is used

    def survey(self) -> None:
        """Pass over everything without a network, to know the classes."""
        for chunk in self.chunks():
            for _ in chunk:
                pass
        self._compare()

    def choose(self, most: int) -> None:
        """From the next pass on hold a fixed choice of images in memory and of new ones, at most so many of each class."""
        self._most = most

    def make_lists(self) -> None:
        """In the next pass: 16 bytes for each image, from which some of them can be chosen."""
        self._lists = True

    def chosen_of(self, part: int, wanted: Wanted) -> Iterator[Printed]:
        """Images of one part of the data, which are fetched alone where that is possible; else it is passed over whole.

        Either way they are held against the first pass."""
        source, (prints, nodes) = self._sources[part], self.listed[part]
        places = wanted(prints, nodes).nonzero()[:, 0]
        if not len(places):
            return
        fetched = source.some(places.tolist(), len(prints))
        if fetched is not None:
            yield from self._as_listed(part, fetched, prints[places], nodes[places])
            return
        self._begin()
        for inputs, of, _, found in self._noted(only=part):
            mask = wanted(found, of)
            if bool(mask.any()):
                yield inputs[mask.to(inputs.device)], of[mask], found[mask]
        self._demand_same(self._parts[part])

    def _as_listed(
        self, part: int, fetched: Iterator[tuple[Tensor, Tensor]], prints: Tensor, nodes: Tensor
    ) -> Iterator[Printed]:
        source, begin = self._sources[part], 0
        for inputs, labels in fetched:
            here, found = slice(begin, begin + len(labels)), fingerprints(inputs).cpu()
            begin += len(labels)
            if begin > len(nodes):
                break
            other = (nodes_of(labels, self._node_by_label, source.which) != nodes[here]) | (found != prints[here])
            if bool(other.any()):
                raise self._others(part, int(nodes[here][other][0]), "one of them was fetched again")
            yield inputs, nodes[here], found
        if begin != len(nodes):
            raise self._others(part, int(nodes[0]), f"{counted(begin, 'image')} where {len(nodes)} were asked for")

    def held(self) -> Chosen:
        """The choice; where a state was loaded, only a pass can find it again."""
        if self.chosen is None:
            self.survey()
        assert self.chosen is not None
        return self.chosen

    def of_new_classes(self) -> Iterator[Counted]:
        """One more pass, over those alone; held against the first, too."""
        self._begin()
        yield from self._batches(only=NEW)
        self._demand_same(self._parts[NEW])

    @property
    def _parts(self) -> dict[int, range]:
        """The groups of each."""
        past = len(self.past_nodes)
        return {PAST: range(past), KEPT: range(past, 2 * past), NEW: range(2 * past, self.groups)}

    def few(self, part: int = 0) -> Tensor:
        self.look()
        first = PAST if PAST in self._few else KEPT
        return self._few[NEW if part else first].to(self.device)

    def check_nodes(self, nodes: int, masked: tuple[int, ...] = ()) -> None:
        self.head_nodes = nodes  # for the labels that are still to come
        super().check_nodes(nodes, masked)

    def chunks(self) -> Iterator[Iterable[Counted]]:
        self._begin()
        batches = self._batches()
        for first in batches:
            yield _until_full(first, batches)

    def settled(self, sums: GradientSums) -> GradientSums:
        order = self._compare()
        if order is not None:
            sums.arrange(order)
        self.demand_past()
        return sums

    def demand_past(self) -> None:
        if not len(self.past_nodes):
            raise NothingPastError("There are no images of past classes: all in memory are of new ones.")

    def state_dict(self) -> dict[str, Tensor]:
        """What later passes are held against."""
        if self._first is None:
            return {}
        memory = torch.tensor(self.memory, dtype=torch.long)
        outside = torch.tensor(self.outside)
        return {"past": self.past_nodes, "new": self.new_nodes, "memory": memory, "first": self._first, "outside": outside}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if not state:
            return
        past, new, memory, first = (state[name].cpu().long() for name in ("past", "new", "memory", "first"))
        if first.shape != (2, 2 * len(past) + len(new)):
            raise InputError(f"first has the shape {tuple(first.shape)}, expected {(2, 2 * len(past) + len(new))}. {_LOAD}")
        self.memory, self.outside = memory.tolist(), int(state.get("outside", 0))
        self._take(past, new, first)
        self._begin()

    def _begin(self) -> None:
        """Another pass: nothing has been seen of it."""
        self._seen = torch.zeros(2, self.groups, dtype=torch.long)
        past, nodes = len(self.past_nodes), torch.cat([self.past_nodes, self.past_nodes, self.new_nodes]).tolist()
        parts = [PAST] * past + [KEPT] * past + [NEW] * len(self.new_nodes)
        if not self.known:
            self.memory, self.outside = [], 0
        self._sought: Sought | None = None
        self._choosing = Chosen(self._most) if self._most and self.chosen is None else None
        self._group_of = {key: group for group, key in enumerate(zip(parts, nodes, strict=True))} if self.known else {}
        self._listing: dict[int, list[tuple[Tensor, Tensor]]] | None = {} if self._lists and not self.listed else None

    def _batches(self, only: int | None = None) -> Iterator[Counted]:
        for inputs, nodes, groups, _ in self._noted(only):
            # The network may work in place, on what may be somebody's tensor.
            yield inputs.to(self.device, copy=True), nodes, groups

    def _noted(self, only: int | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """inputs, nodes, groups and fingerprints of what was seen of a pass."""
        if not self.known and PAST in self._sources and KEPT in self._sources:
            self._sought = Sought(fingerprints(inputs).cpu() for inputs, _ in self._sources[KEPT])
        for part, source in self._sources.items():
            for inputs, labels in source if only in (None, part) else ():
                nodes = nodes_of(labels, self._node_by_label, source.which)
                self._check_labels(nodes, labels, source)
                if part == KEPT and not self.known:
                    self.memory += nodes.tolist()
                groups, prints = self._groups(part, nodes, source), fingerprints(inputs).cpu()
                if self._listing is not None:
                    self._listing.setdefault(part, []).append((prints, nodes))
                if bool((groups < 0).any()):
                    counts = groups >= 0
                    inputs, nodes, groups = inputs[counts.to(inputs.device)], nodes[counts], groups[counts]
                    prints = prints[counts]
                size = batch_for(inputs[:1]) if len(nodes) else 1
                for piece in zip(*(torch.split(each, size) for each in (inputs, nodes, groups, prints)), strict=True):
                    self._note(part, *piece)
                    yield piece

    def _check_labels(self, nodes: Tensor, labels: Tensor, source: Stream) -> None:
        if self.head_nodes and int(nodes.max()) >= self.head_nodes:
            at = int(nodes.argmax())
            mapped = f", which nodes= maps to node {int(nodes[at])}" if self._node_by_label else ""
            raise InputError(
                f"{source.which}= gives label {int(labels[at])}{mapped}: that needs a head with {int(nodes[at]) + 1} nodes; it "
                f"has {self.head_nodes}. Grow the head before the step begins, or map labels to nodes with nodes=."
            )

    def _groups(self, part: int, nodes: Tensor, source: Stream) -> Tensor:
        """Where each image counts; -1 is left out. Of classes that were not seen before, in the first pass, anew."""
        found, place = torch.unique(nodes, return_inverse=True)
        groups = []
        for node in found.tolist():
            if (part, node) not in self._group_of:
                if part == KEPT and (NEW, node) in self._group_of:
                    groups.append(-1)
                    continue
                self._admit(part, node, source)
            groups.append(self._group_of[part, node])
        return torch.tensor(groups)[place]

    def _admit(self, part: int, node: int, source: Stream) -> None:
        if self.known:
            raise InputError(
                f"{source.which}= now gives images of class {self.label(node)}, and gave none at the first probe. Give the "
                "same images each time; classes that are learned later are another step."
            )
        if part == NEW and (PAST, node) in self._group_of:
            raise InputError(f"Class {self.label(node)} is both in past= and in new=. Give its images to one of the two.")
        if part == KEPT and PAST in self._sources and (PAST, node) not in self._group_of:
            raise InputError(
                f"memory= has images of class {self.label(node)}, which is neither in past= nor in new=. past= are all "
                "training images of the past classes, those in memory included."
            )
        self._group_of[part, node] = len(self._group_of)
        self._seen = torch.cat([self._seen, torch.zeros(2, 1, dtype=torch.long)], dim=1)

    def _note(self, part: int, inputs: Tensor, nodes: Tensor, groups: Tensor, found: Tensor) -> None:
        """found: their fingerprints."""
        self._seen[0].index_add_(0, groups, torch.ones_like(groups))
        self._seen[1].index_add_(0, groups, found)
        if part == PAST and self._sought is not None:
            self._sought.look_among(found)
        if part == KEPT and self._sought is not None:
            self.outside += self._sought.missing(found)
        if part != PAST and self._choosing is not None:
            self._choosing.add_each([(part == NEW, node) for node in nodes.tolist()], marks(inputs, found), inputs)

    def _compare(self) -> list[int | None] | None:
        """After a pass. The first: where each group of it belongs. Any other: that it gave the same images."""
        self.chosen = self._choosing or self.chosen
        if self._listing is not None:
            columns = {part: list(zip(*batches, strict=True)) for part, batches in self._listing.items()}
            self.listed = {part: (torch.cat(prints), torch.cat(nodes)) for part, (prints, nodes) in columns.items()}
        if self._first is not None:
            self._demand_same(range(self.groups))
            return None
        past = sorted({node for part, node in self._group_of if part in (PAST, KEPT)})
        new = sorted(node for part, node in self._group_of if part == NEW)
        keys = [*((PAST, node) for node in past), *((KEPT, node) for node in past), *((NEW, node) for node in new)]
        order = [self._group_of.get(key) for key in keys]
        first = torch.zeros(2, len(order), dtype=torch.long)
        for group, seen in enumerate(order):
            if seen is not None:
                first[:, group] = self._seen[:, seen]
        self._take(torch.tensor(past, dtype=torch.long), torch.tensor(new, dtype=torch.long), first)
        return order

    def _take(self, past: Tensor, new: Tensor, first: Tensor) -> None:
        self.past_nodes, self.new_nodes, self._first = past, new, first
        counts = first[0].double()
        self.kept = counts[len(past) : 2 * len(past)]
        of_past = self.kept if self.only_memory else counts[: len(past)]
        self.counts = (int(of_past.sum()), int(counts[2 * len(past) :].sum()))

    def _demand_same(self, passed: range) -> None:
        """passed: the groups that were passed over."""
        first = self._first
        assert first is not None
        other = [group for group in passed if bool((self._seen[:, group] != first[:, group]).any())]
        if not other:
            return
        (part, node), (before, now) = list(self._group_of)[other[0]], (first[0, other[0]], self._seen[0, other[0]])
        images = f"{counted(int(now), 'image')}, before {int(before)}" if now != before else f"{counted(int(now), 'image')}"
        raise self._others(part, node, images)

    def _others(self, part: int, node: int, images: str) -> InputError:
        remedy = (
            "Give a copy of the memory as it is when the step begins."
            if part == KEPT
            else "Give them without augmentation, and with a sampler that passes over each image once."
        )
        return InputError(
            f"{self._sources[part].which}= does not give the same images as at the first probe: others of class "
            f"{self.label(node)} ({images}). The numbers would not be of the same data. {remedy}"
        )


class Sought:
    """Images of the memory, by their fingerprints, and which of them have occurred elsewhere."""

    def __init__(self, of: Iterable[Tensor]) -> None:
        self._all = np.unique(torch.cat(list(of)).numpy())
        self._found = np.zeros(len(self._all), bool)

    def look_among(self, fingerprints: Tensor) -> None:
        at, known = self._places(fingerprints)
        self._found[at[known]] = True

    def missing(self, fingerprints: Tensor) -> int:
        at, known = self._places(fingerprints)
        return int((~(known & self._found[at])).sum())

    def _places(self, fingerprints: Tensor) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        values = fingerprints.numpy()
        at = np.searchsorted(self._all, values).clip(max=len(self._all) - 1)
        return at, self._all[at] == values


_LOAD = "Load what state_dict() gave."


def _until_full(first: Counted, others: Iterator[Counted]) -> Iterator[Counted]:
    """Batches of about as many images as features are kept of."""
    images = len(first[1])
    yield first
    while images < CHUNK and (batch := next(others, None)) is not None:
        images += len(batch[1])
        yield batch
