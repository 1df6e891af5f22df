"""What a step's training leaves behind on its way, and when that is saved."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from forgetscope.characters import counted
from forgetscope.errors import Interrupted
from forgetscope.experiment.settings import Settings
from forgetscope.experiment.stopping import Stop
from forgetscope.files import replace_durably
from forgetscope.learning.rsgd import Divergence, EpochEnd, EpochSoFar
from forgetscope.learning.snapshots import Snapshot, momentum_of, save_snapshot
from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.measuring.sums import Sums
from forgetscope.store.tables import Measurements, Values
from forgetscope.underway.progress import Beacon

FORECASTS = "forecasts"  # among what was measured, in a snapshot
SAVE_SECONDS = 300.0  # the longest stretch of training without a snapshot
SMALL = 4e6  # bytes of a snapshot that is saved after every epoch, however short
BYTES_PER_SECOND = 3e6  # of larger ones, on average: so 64 steps at a time write 0.2 GB/s to a shared file system


@dataclass
class Course:
    """Up to the last epoch that came to its end; a snapshot holds all of it."""

    image_history: Tensor
    measured: Sums = field(default_factory=Sums)
    extra: dict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))  # by the name of what is measured beside it
    forecasts: list[Tensor] = field(default_factory=list)  # of each probe [forecast, P], where the step makes any
    history: list[dict[str, float]] = field(default_factory=list)  # loss and accuracy per epoch
    seconds: dict[str, float] = field(default_factory=lambda: {"probe_seconds": 0.0})  # by what was measured
    divergence: Divergence | None = None

    def measured_state(self) -> dict[str, Tensor]:
        """Of all sums, for a snapshot; small, and empty before the first probe."""
        beside = {f"extra.{name}.{part}": t for name, sums in self.extra.items() for part, t in sums.state_dict().items()}
        return {**self.measured.state_dict(), **beside, **({FORECASTS: torch.stack(self.forecasts)} if self.forecasts else {})}

    def load_measured(self, state: Mapping[str, Tensor]) -> None:
        self.forecasts = list(state.get(FORECASTS, ()))
        own = {name: t for name, t in state.items() if not name.startswith("extra.") and name != FORECASTS}
        self.measured.load_state_dict(own)
        for measure in {name.split(".")[1] for name in state if name.startswith("extra.")}:
            before = f"extra.{measure}."
            parts = {name.removeprefix(before): t for name, t in state.items() if name.startswith(before)}
            self.extra[measure].load_state_dict(parts)

    def extra_arrays(self) -> dict[str, tuple[list[int], Values]]:
        """For the table, in the order of the measures' names: iterations, and values [probes, quantities, P]."""
        return {name: (sums.iterations, torch.stack(sums.values).numpy()) for name, sums in sorted(self.extra.items())}

    def forecast_array(self, known: bool = True) -> Values | None:
        """For the tables [probes, forecast, P]; None where the step makes none. known: else they are all missing."""
        found = torch.stack(self.forecasts).numpy() if self.forecasts else None
        return found if known or found is None else np.full_like(found, np.nan)


def measurements(sums: Sums, of_method: Sums | None = None) -> Measurements | None:
    """As arrays for the tables; None before the first probe. of_method: what its own loss does, where that is measured, too."""
    if sums.pairs is None:
        return None
    own = None if of_method is None else sums.weight * of_method.totals[: len(COEFFICIENTS)].numpy()
    return Measurements(**sums.arrays(), of_method=own)


class Saver:
    """Saves a snapshot after each epoch, every few minutes within one, and when a stop is asked for: then it also stops.

    A large network's snapshots are not saved more often than its share of the disk allows: 90 MB every half minute."""

    def __init__(
        self,
        working: Path,
        settings: Settings,
        stop: Stop,
        network: nn.Module,
        optimiser: torch.optim.SGD,
        course: Course,
        last: Snapshot | None,
        beacon: Beacon,
    ) -> None:
        self._beacon = beacon
        self._working, self._settings, self._stop = working, settings, stop
        self._network, self._optimiser, self._course = network, optimiser, course
        self._serial = 0 if last is None else last.serial
        self._saved = time.monotonic()
        size = 2 * sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())  # and momentum
        self._pause = size / BYTES_PER_SECOND if size > SMALL else 0.0
        self.so_far: EpochSoFar | None = None  # of the epoch that is under way, or ended and is not measured yet
        if last is not None and last.begun:
            device = next(network.parameters()).device
            losses, correct = (last.begun[name].to(device) for name in ("losses", "correct"))
            self.so_far = EpochSoFar(last.epoch, last.iterations, losses, correct)

    def iteration_ended(self, so_far: EpochSoFar) -> None:
        self.so_far = so_far
        self._beacon.beat(so_far.epoch + so_far.done / len(so_far.losses))
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self._save()
        self.look_up()

    def epoch_ended(self, end: EpochEnd) -> None:
        """The epoch has been trained and measured."""
        self.so_far = None
        self._course.history.append({"epoch": end.epoch, "loss": end.loss, "accuracy": end.accuracy})
        self._beacon.epoch_ended(end.epoch, end.loss)
        if not self._serial or time.monotonic() - self._saved >= self._pause:
            self._save()

    def look_up(self) -> None:
        """Stop here if that is asked for; else a sign of life."""
        self._beacon.beat()
        if not self._stop.requested:
            return
        epochs, done = len(self._course.history), 0 if self.so_far is None else self.so_far.done
        where = "before training began"
        if self._serial or self.so_far is not None:
            self._save()
            where = f"after {counted(epochs, 'epoch')} and {counted(done, 'iteration')}"
        self._beacon.stopped()
        raise Interrupted(f"Stopped and saved {where}. Run the same command again to continue.")

    def _save(self) -> None:
        so_far, course = self.so_far, self._course
        self._serial += 1
        snapshot = Snapshot(
            serial=self._serial,
            epoch=len(course.history),
            iterations=0 if so_far is None else so_far.done,
            settings=self._settings.recorded(),
            history=course.history,
            network=self._network.state_dict(),
            momentum=momentum_of(self._optimiser),
            measured=course.measured_state(),
            begun={} if so_far is None else {"losses": so_far.losses, "correct": so_far.correct},
            images=course.image_history,
        )
        # The folder may be gone: another process, which no lock held back, has committed the step. Nobody will go on from here.
        save_snapshot(self._working, snapshot, partial(replace_durably, missing_ok=True))
        self._saved = time.monotonic()
