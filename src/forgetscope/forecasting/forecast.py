"""Forgetting predicted in any training loop, without past images: `fs.Forecast`."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.forecasting.choice import Chosen, marks
from forgetscope.forecasting.features import Featured, featured
from forgetscope.forecasting.forecaster import IMAGES
from forgetscope.forecasting.kept import Keepsakes, keepsakes
from forgetscope.forecasting.predictor import Predictor
from forgetscope.forecasting.recognition import OTHER
from forgetscope.measuring.keepsakes import Spread
from forgetscope.measuring.measurement import frame_of
from forgetscope.measuring.probe_data import CHECKED, Given, Prepare, batch_for, checked_alpha, checked_names, prepared, whole
from forgetscope.measuring.quantities import FORECAST
from forgetscope.randomness import Streams

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

NAMED = 3  # classes without a forecast, in a representation
Pair = tuple[Given, Given]  # images [n, ...] and labels [n] = head nodes


class Forecast:
    """Made as a step begins, before its training; `measure` then predicts what each past class has lost so far.

    network: as the step begins; by the time that `measure` looks at it, its head has grown. keepsakes: what `fs.keepsakes` gave
    when the past classes were learned, or `forecast.keepsakes(network)` of the step before; those of another network are
    refused. memory: images and labels (= head nodes) that are rehearsed, or None; new: those of the new classes. alpha: the
    share of rehearsal images in a batch. prepare, head and names: as of `fs.Probe`. At most 50 images of each class are held,
    and 256 MB of all: a fixed choice, by what they are; one that is there several times counts once.

    >>> import torch, forgetscope as fs
    >>> labels = torch.arange(80) % 4
    >>> images = torch.randn(80, 8, generator=torch.Generator().manual_seed(0)) + 4 * torch.eye(8)[labels]
    >>> past, new = (images[labels < 2], labels[labels < 2]), (images[labels >= 2], labels[labels >= 2])
    >>> network = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
    >>> optimiser = torch.optim.Adam(network.parameters(), 0.05)
    >>> for _ in range(100):
    ...     optimiser.zero_grad()
    ...     torch.nn.functional.cross_entropy(network(past[0]), past[1]).backward()
    ...     optimiser.step()
    >>> kept = fs.keepsakes(network, *past)  # then the images can go, but for the memory
    >>> forecast = fs.Forecast(network, kept, memory=(past[0][:6], past[1][:6]), new=new)
    >>> forecast
    Forecast(2 past classes, 2 with a keepsake, 6 images in memory; 2 new classes, 40 images.)
    >>> list(forecast.measure(network).columns)  # after each epoch of your training
    ['forecast', 'forecast_low', 'forecast_high', 'accuracy', 'sic_estimate', 'cic_estimate', 'nic_estimate', 'missing']
    >>> forecast.keepsakes(network)  # when the step ends: for the next one
    Keepsakes(4 classes: mean and variance of 6 features)
    """

    def __init__(
        self,
        network: nn.Module,
        keepsakes: Keepsakes | Mapping[str, Tensor],
        *,
        new: Pair,
        memory: Pair | None = None,
        alpha: float | Tensor = 0.5,
        prepare: Prepare | None = None,
        head: nn.Module | None = None,
        names: Mapping[int, str] | Sequence[str] | None = None,
    ) -> None:
        if not isinstance(keepsakes, Mapping):
            what = f"keepsakes is a {type(keepsakes).__name__}"
            raise InputError(
                f"{what}. Give what fs.keepsakes(...) gave, or its state_dict(); fs.Keepsakes({{}}) where nothing was kept."
            )
        kept = keepsakes if isinstance(keepsakes, Keepsakes) else Keepsakes.from_state_dict(keepsakes)
        self.alpha, self._kept, self._prepare, self._head = checked_alpha(alpha), kept, prepare, head
        self._new, stored = _pair("new", new), None if memory is None else _pair("memory", memory)
        new_nodes = torch.unique(self._new[1])
        rehearsed = [] if stored is None else torch.unique(stored[1]).tolist()
        for which, nodes in (("keepsakes", list(kept)), ("memory", rehearsed)):
            if both := sorted({*nodes} & {*new_nodes.tolist()}):
                raise InputError(f"Class {both[0]} is both in {which} and in new. A class is past or new.")
        self.past_nodes, self.new_nodes = torch.tensor(sorted({*kept, *rehearsed}), dtype=torch.long), new_nodes
        if not len(self.past_nodes):
            raise InputError("There is no past class in keepsakes or memory, so there is nothing to predict.")
        self.names = checked_names(names, self.past_nodes.tolist())
        self.predictor = Predictor(
            {node: kept.get(node) for node in self.past_nodes.tolist()},
            _chosen(stored, self._new),
            lambda node: Streams(0, 0)("forecast", node),
            prepare,
        )
        self._other: str | None = None  # why nothing can be predicted of this network
        with self.looking_at(network) as net:
            self.predictor.begin(net)
            if kept.mark is not None and kept.mark.is_of(net) is False:
                self._other = f"{OTHER}. Where a step goes on, load_state_dict() what state_dict() gave when it had begun."

    def measure(self, network: nn.Module) -> pd.DataFrame:
        """As the network is now: a row per past class, named by its head node.

        forecast: predicted forgetting since the class was learned, 1 is complete, between forecast_low and forecast_high: an
        interval that is meant for 95 % and held 68 to 94 % of classes in tests, 51 to 85 % after a tenth of training;
        accuracy: what is left of it; estimates of the terms of SIC, CIC and NIC at this moment. missing: why there is no
        forecast; there is none before anything was trained. Without a keepsake there is `nic_estimate` alone, for which the
        memory has a direction of its own."""
        import pandas as pd

        self.demand_known()
        with self.looking_at(network) as net:
            found = self.predictor.measure(net, self.alpha)
        columns = dict(zip(FORECAST, found.values, strict=True))
        estimates = {name: columns.pop(name) for name in FORECAST[3:]}
        frame = frame_of(found.nodes, self.names, {**columns, "accuracy": found.accuracy, **estimates})
        return frame.assign(missing=pd.Series(list(found.missing), frame.index, dtype=object))

    def keepsakes(self, network: nn.Module) -> Keepsakes:
        """For the step after this one: of the past classes, where they are believed to lie under the network that this step
        leaves, and of the new ones, measured."""
        self.demand_known()
        with self.looking_at(network) as net:
            carried, then = self.predictor.carried(net), self.predictor.handed_on
        past = {
            node: replace(self._kept[node], mean=moved.mean, spread=moved.spread, probability=then[node], error=moved.error)
            for node, moved in carried.items()
            if node in then
        }
        kind: Spread = next((one.kind for one in self._kept.values()), "variance")
        return Keepsakes(past) | keepsakes(network, *self._new, kind=kind, prepare=self._prepare, head=self._head)

    def state_dict(self) -> dict[str, Tensor]:
        """Plain tensors, for your own checkpoint: where images lay when the step began."""
        self.demand_known()
        return self.predictor.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Where a training goes on: the network that this was made with now is not that of the step's beginning any more."""
        self.predictor.load_state_dict(state)
        self._other = None

    def __repr__(self) -> str:
        held = self.predictor.counts
        images = {is_new: sum(count for (of, _), count in held.items() if of == is_new) for is_new in (False, True)}
        past, new = counted(len(self.past_nodes), "past class"), counted(len(self.new_nodes), "new class")
        memory = f"{counted(images[False], 'image')} in memory"
        if self._other is not None:
            return f"Forecast({self._other})"
        lacking = {
            node: why for node in self.past_nodes.tolist() if node in self._kept and (why := self.predictor.missing(node))
        }
        said = "".join(f" No forecast of class {node}: {why}." for node, why in [*lacking.items()][:NAMED])
        more = f" Nor of {len(lacking) - NAMED:,} more." if len(lacking) > NAMED else ""
        about = f"{past}, {len(self._kept)} with a keepsake, {memory}; {new}, {counted(images[True], 'image')}."
        return f"Forecast({about}{said}{more})"

    def demand_known(self) -> None:
        """That this is a forecast of the network that keepsakes are of."""
        if self._other is not None:
            raise InputError(self._other)

    def looking_at(self, network: nn.Module) -> AbstractContextManager[Featured]:
        """As its last layer is fed, in evaluation mode, for a block."""
        few = next(prepared(self._new[0][:CHECKED], self._prepare, CHECKED))
        return featured(network, few, self._head, "fs.Forecast(network, ...")


def _pair(which: str, given: Pair) -> tuple[Tensor, Tensor]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(f"{which}= is a {type(given).__name__}. Give a pair: images [n, ...] and their labels.")
    if which == "memory" and isinstance(given[1], Sized) and not len(given[1]):
        raise InputError("memory= has no image. Where nothing is rehearsed, give memory=None.")
    return whole(which, *given, (f"{which}[0]", f"{which}[1]"))


def _chosen(memory: tuple[Tensor, Tensor] | None, new: tuple[Tensor, Tensor]) -> Chosen:
    chosen = Chosen(IMAGES)
    for is_new, pair in ((False, memory), (True, new)):
        if pair is not None:
            size = batch_for(pair[0])
            for images, nodes in zip(torch.split(pair[0], size), torch.split(pair[1], size), strict=True):
                chosen.add_each([(is_new, node) for node in nodes.tolist()], marks(images), images)
    return chosen
