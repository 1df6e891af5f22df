"""Evening for anybody's network: `fs.evening`, and the same of a monitored step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from forgetscope.calibrating.evening import STRENGTH, Evening, Level, evening_from_keepsakes
from forgetscope.errors import InputError
from forgetscope.forecasting.features import Featured
from forgetscope.forecasting.forecast import Forecast
from forgetscope.forecasting.predictor import Predictor
from forgetscope.forecasting.written import TAKE_BACK, WrittenOffsets
from forgetscope.measuring.measurement import html_of

if TYPE_CHECKING:
    import pandas as pd

Look = Callable[[nn.Module], AbstractContextManager[Featured]]
Logits = TypeVar("Logits", Tensor, NDArray[np.floating])


class Evened:
    """Offsets on the logits of past classes, what they are expected to do, and a head that they can be written into.

    said: what is expected to be gained and what it costs, before anything is applied."""

    def __init__(self, found: Evening, nodes: Mapping[int, int], names: Mapping[int, str], look: Look, index: str) -> None:
        """nodes: of the head, by what a class is called (`index`), in the order of `found`."""
        self.offsets = dict(zip(nodes, found.offsets.tolist(), strict=True))
        self.said, self.shrinkage = found.said, found.shrinkage
        self._found, self._names, self._look, self._index = found, names, look, index
        self._by_node = {node: self.offsets[called] for called, node in nodes.items()}
        self._written: WrittenOffsets | None = None

    def of(self, logits: Logits) -> Logits:
        """[..., k] with the offsets added; the network stays as it is."""
        if logits.shape[-1] <= max(self._by_node):
            raise InputError(f"There are {logits.shape[-1]} logits of an image, and an offset for node {max(self._by_node)}.")
        vector = np.zeros(logits.shape[-1])
        vector[list(self._by_node)] = list(self._by_node.values())
        if isinstance(logits, Tensor):
            return logits + torch.from_numpy(vector).to(logits)
        return (logits + vector.astype(logits.dtype)).astype(logits.dtype)

    def write(self, network: nn.Module) -> None:
        """Add the offsets to the bias of its last layer, for predictions. Train from the head without them: take them back
        before training goes on, and before anything of the network is kept or measured."""
        if self._written is not None:
            raise InputError(f"These offsets were written already. {TAKE_BACK}")
        with self._look(network) as net:
            self._written = WrittenOffsets(net.last, net.name, self._by_node)

    def take_back(self, network: nn.Module) -> None:
        """The bias as it was before `write`, bit for bit."""
        if self._written is None:
            raise InputError("These offsets are written nowhere, so there is nothing to take back.")
        self._written.take_back(network)
        self._written = None

    def to_frame(self) -> pd.DataFrame:
        """A row per past class: its offset, its predicted forgetting as trained, and with the offsets."""
        import pandas as pd

        named = {"class": [self._names.get(called, str(called)) for called in self.offsets]} if self._names else {}
        columns = {"offset": list(self.offsets.values()), "forecast": self._found.before, "evened": self._found.after}
        return pd.DataFrame({**named, **columns}, index=pd.Index(list(self.offsets), name=self._index))

    def __repr__(self) -> str:
        return f"Evened({self.said})"

    def _repr_html_(self) -> str:
        return html_of((self.said,), self.to_frame())


def evening(
    network: nn.Module,
    forecast: Forecast,
    *,
    strength: float = STRENGTH,
    shrinkage: float | None = None,
    level: Level = "forgetting",
) -> Evened:
    """Offsets under which past classes would be forgotten alike, as far as the forecast of the running step can tell.

    network: as the step leaves it; forecast: as it was made when the step began. strength: 0 changes nothing, 1 makes predicted
    forgettings equal. shrinkage: share of their differences that is taken for real, by default what the forecast's own errors
    leave. level: what stays as trained, the mean of predicted "forgetting" or the "balance" between new and past classes on
    new images; or a mean forgetting to reach.

    An offset acts on predictions only. The next step, its forecast and its keepsakes are those of the head without: make
    `forecast.keepsakes(network)` before you write, or take back first.

    >>> import torch, forgetscope as fs
    >>> labels = torch.arange(80) % 4
    >>> images = torch.randn(80, 4, generator=torch.Generator().manual_seed(0)) + torch.eye(4)[labels]
    >>> past, new = (images[labels < 2], labels[labels < 2]), (images[labels >= 2], labels[labels >= 2])
    >>> network = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 4))
    >>> network[1].weight.data = 2 * torch.eye(4)
    >>> forecast = fs.Forecast(network, fs.keepsakes(network, *past), memory=(past[0][:6], past[1][:6]), new=new)
    >>> network[1].bias.data[0] -= 1  # your training of the step
    >>> found = fs.evening(network, forecast)  # when it has ended
    >>> print(found.said)  # doctest: +ELLIPSIS
    Expected: forgetting of past classes spreads by ..., its mean is ..., and new images are taken for new classes with ...
    >>> list(found.offsets), list(found.to_frame().columns)
    ([0, 1], ['offset', 'forecast', 'evened'])
    >>> found.write(network)  # predictions are evened
    >>> found.take_back(network)  # before training goes on
    """
    if not isinstance(forecast, Forecast):
        raise InputError(f"forecast is a {type(forecast).__name__}. Give the fs.Forecast that was made when the step began.")
    forecast.demand_known()
    with forecast.looking_at(network) as net:
        found = evened_network(net, forecast.predictor, strength=strength, shrinkage=shrinkage, level=level)
    nodes = forecast.past_nodes.tolist()
    return Evened(found, dict(zip(nodes, nodes, strict=True)), forecast.names, forecast.looking_at, "node")


def evened_network(net: Featured, predictor: Predictor, *, strength: float, shrinkage: float | None, level: Level) -> Evening:
    """As it is now. Past classes are in the order of `predictor.known`."""
    return evening_from_keepsakes(
        predictor.forecaster, *predictor.seen(net), strength=strength, shrinkage=shrinkage, level=level
    )
