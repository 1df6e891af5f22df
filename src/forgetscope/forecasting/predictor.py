"""Forecasts of one step under any network, from images that are held: what `fs.Forecast` and the monitor have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forgetscope.errors import InputError
from forgetscope.forecasting.choice import Chosen, Group
from forgetscope.forecasting.features import Featured
from forgetscope.forecasting.forecaster import UNTRAINED, Forecaster, Head, KnownClass
from forgetscope.forecasting.stand_ins import SeenImages, estimated_terms
from forgetscope.measuring.keepsakes import Carried
from forgetscope.measuring.probe_data import Prepare, batch_for, prepared
from forgetscope.measuring.quantities import FORECAST

Values = NDArray[np.float64]
LOAD = "Load what state_dict() gave."
UNKNOWN = "there is no keepsake of it"


@dataclass(frozen=True)
class Predicted:
    """Of P past classes, NaN where nothing tells."""

    nodes: tuple[int, ...]
    values: Values  # [forecast, P]
    accuracy: Values  # [P]: expected now
    missing: tuple[str | None, ...]  # why there is no forecast


class Predictor:
    """known: by head node, of all past classes; chosen: images in memory and of new classes; prepare: as of `fs.Probe`.

    What is done first is to see the network as the step begins (`begin`), or to load a state of then."""

    def __init__(
        self,
        known: Mapping[int, KnownClass | None],
        chosen: Chosen,
        stream: Callable[[int], np.random.Generator],
        prepare: Prepare | None = None,
    ) -> None:
        self.known, self._chosen, self._stream, self._prepare = dict(known), chosen, stream, prepare
        self._keys = sorted(chosen.held)
        self.new = tuple(node for is_new, node in self._keys if is_new)
        self._rows = {node: at for at, node in enumerate([*self.known, *self.new])}
        self._before: Values | None = None
        self._head: Head | None = None
        self._forecaster: Forecaster | None = None
        self._build: tuple[tuple[int, ...], ...] | None = None  # of the network, when it was first seen

    @property
    def counts(self) -> Mapping[Group, int]:
        """Images that there are, of which some are held."""
        return self._chosen.counts

    @property
    def prints(self) -> Tensor:
        """Fingerprints of the images, in the order of features."""
        return torch.cat([self._chosen.held[key][0][:, 1] for key in self._keys])

    def begin(self, net: Featured) -> None:
        """As the network is when the step begins. Its head may have grown already."""
        head = net.head(tuple(self.known))
        self._take(self._features(net), head)

    def measure(self, net: Featured, alpha: float) -> Predicted:
        """As the network is now."""
        now, head = self.seen(net)
        found = self.forecaster.forecast(now, head)
        values = np.full((len(FORECAST), len(self.known)), np.nan)
        values[:3] = found.forgetting, found.low, found.high
        values[3:] = self._estimates(now, head, alpha, biased=net.last.bias is not None)
        untrained = UNTRAINED if self.forecaster.is_untrained(now, head) else None
        return Predicted(
            tuple(self.known), values, found.accuracy, tuple(self.missing(node) or untrained for node in self.known)
        )

    def missing(self, node: int) -> str | None:
        """Why there is no forecast of a class at any time."""
        return UNKNOWN if self.known[node] is None else self.forecaster.missing.get(self._rows[node])

    def _estimates(self, now: Values, head: Head, alpha: float, *, biased: bool) -> Values:
        """[estimates, P]. Of a class that nothing is kept of but its memory, f_c is that of the memory: it has a direction for
        NIC, and says nothing about SIC, nor about anybody's CIC."""
        counts, rows, past = self._chosen.counts, self._rows, len(self.known)
        kept = {rows[node]: counts.get((False, node), 0) for node in self.known}
        rest = {rows[node]: 0 if one is None else max(one.images - kept[rows[node]], 0) for node, one in self.known.items()}
        new = {rows[node]: counts[True, node] for node in self.new}
        seen = SeenImages(torch.from_numpy(now), torch.from_numpy(self._row_of_each), kept, new, rest)
        draws = {at: torch.from_numpy(features) for at, features in self.forecaster.draws(now).items()}
        weight, bias = (torch.from_numpy(np.asarray(part, np.float64)) for part in head)
        terms = estimated_terms(seen, draws, weight, bias, alpha, biased=biased)
        unknown = np.array([one is None for one in self.known.values()])
        memory = np.array(list(kept.values())) > 0
        sic = np.where(unknown, np.nan, terms.sic.numpy())
        cic = np.full(past, np.nan) if (unknown & memory).any() or not memory.any() else terms.cic.numpy()
        return np.stack([sic, np.where(unknown, np.nan, cic), terms.nic.numpy()])

    def carried(self, net: Featured) -> dict[int, Carried]:
        """What the next step starts from, by node, if this network is what this step leaves."""
        now, head = self.seen(net)
        found = self.forecaster.carried(now, head)
        return {node: found[at] for node, at in self._rows.items() if at in found}

    @property
    def handed_on(self) -> dict[int, float]:
        """p_then of the classes that later steps can start from, by node."""
        found = self.forecaster.handed_on
        return {node: found[at] for node, at in self._rows.items() if at in found}

    @property
    def forecaster(self) -> Forecaster:
        if self._forecaster is None:
            assert self._before is not None
            assert self._head is not None
            rows = self._row_of_each
            self._forecaster = Forecaster(
                {self._rows[node]: one for node, one in self.known.items()},
                self._before,
                rows,
                rows >= len(self.known),
                {self._rows[node]: self._chosen.counts[is_new, node] for is_new, node in self._keys if not is_new},
                self._head,
                lambda at: self._stream([*self.known][at]),
            )
        return self._forecaster

    def state_dict(self) -> dict[str, Tensor]:
        """Plain tensors: where the images lay when the step began, and the head of then."""
        if self._before is None or self._head is None:
            return {}
        before = torch.from_numpy(self._before)
        single = before.float()
        weight, bias = map(torch.tensor, self._head)
        return {
            "prints": self.prints,
            "before": single if torch.equal(single.double(), before) else before,
            **{"weight": weight, "bias": bias},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        check_state(state)
        if (rows := len(state["bias"])) != len(self.known):
            raise InputError(f"The state is of a head with {rows} past classes, and there are {len(self.known)} here. {LOAD}")
        if not torch.equal(state["prints"].cpu(), self.prints):
            raise InputError(
                f"The state is of {len(state['prints']):,} images, and these {len(self.prints):,} are others. Give the memory "
                "and the new images that the step was begun with."
            )
        self._take(state["before"].cpu().double().numpy(), (state["weight"].cpu().numpy(), state["bias"].cpu().numpy()))

    def _take(self, before: Values, head: Head) -> None:
        width = before.shape[1]
        for node, one in self.known.items():
            if one is not None and len(one.mean) != width:
                raise InputError(
                    f"The keepsake of class {node} is of {len(one.mean)} features, and the network has {width}: it is of "
                    "another network."
                )
        self._before, self._head, self._forecaster = before, head, None

    def seen(self, net: Featured) -> tuple[Values, Head]:
        """Features of the images and the head's rows of past and new classes, as the network is now."""
        now = self._features(net)
        if not np.isfinite(now).all():
            raise InputError("Features of the network are not finite. Look whether the loss of the training became NaN.")
        return now, net.head([*self.known, *self.new])

    def _features(self, net: Featured) -> Values:
        found = net.of_all(self._batches(net))
        self._build = net.build if self._build is None else self._build
        width = found.shape[1] if self._before is None else self._before.shape[1]
        if found.shape[1] != width or net.build != self._build:
            how = f"it gives {found.shape[1]} features, and that one {width}" if found.shape[1] != width else "other parameters"
            raise InputError(
                f"{net.name} is not built as the network that the step began with: {how}. Measure the one that the step trains."
            )
        return found

    def _batches(self, net: Featured) -> Iterator[Tensor]:
        for key in self._keys:
            images = self._chosen.held[key][1]
            for inputs in prepared(images, self._prepare, batch_for(images)):
                yield inputs.to(net.device)

    @property
    def _row_of_each(self) -> NDArray[np.int64]:
        """[n]: of the class of each image that is held, past ones first."""
        sizes = [len(self._chosen.held[key][0]) for key in self._keys]
        return np.repeat(np.array([self._rows[node] for _, node in self._keys], np.int64), sizes)


def check_state(state: Mapping[str, Tensor]) -> None:
    """That it is one, before anything is taken from it."""
    names = {"prints", "before", "weight", "bias"}
    if not isinstance(state, Mapping) or set(state) != names or not all(isinstance(part, Tensor) for part in state.values()):
        found = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
        raise InputError(f"{found} is not the state of a forecast. {LOAD}")
    shapes = {name: tuple(part.shape) for name, part in state.items()}
    images, width = shapes["prints"], shapes["before"][-1:]
    expected = {"before": (*images, *width), "weight": (*shapes["bias"], *width)}
    for name, shape in expected.items():
        if shapes[name] != shape or len(shape) != 2:
            raise InputError(f"{name} of the state has the shape {shapes[name]}, expected {shape}. {LOAD}")
    for name, part in state.items():
        if part.is_floating_point() == (name == "prints") or part.is_complex():
            raise InputError(f"{name} of the state is of {part.dtype}. {LOAD}")
        if not bool(part.isfinite().all()):
            raise InputError(f"{name} of the state is not finite. {LOAD}")
