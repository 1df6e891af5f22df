"""What is measured during a step, and when: the probes, and beside them whatever the specification asks for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from forgetscope.experiment.course import Course
from forgetscope.experiment.measured import quantities_of
from forgetscope.experiment.preparation import Prepared
from forgetscope.files import replace_durably
from forgetscope.measuring.probe import Measurement, Probe
from forgetscope.store import ALL_LAYERS, EVERY_ITERATION, RELEASED, parquet_bytes
from forgetscope.store.tables import QUANTITIES, probes_table

RELEASED_STEP = 2  # in later steps the released scripts read the right entry


class Observer:
    """Measures the network of a step in training, into its course; the training cannot tell.

    `so_far`: where the probes so far are kept for whoever looks on. `look_up` is called before each batch of images: a probe
    may take minutes, and somebody may want it to stop."""

    def __init__(self, step: Prepared, course: Course, so_far: Path, look_up: Callable[[], None]) -> None:
        self._step, self._course, self._so_far = step, course, so_far
        self._probe = _make_probe(step, look_up)

    def epoch_ended(self, epoch: int, iteration: int) -> None:
        """After this epoch, or before training if it is 0; iteration: how many are done."""
        spec, course = self._step.spec, self._course
        if self._probe is None or spec.rehearsal is None:
            return
        # Before anything is added: a stop in here saves the course so far, and then all of this epoch is measured again.
        if spec.is_probed_in_all_layers(epoch):
            with self._timed("all_layers_seconds"):
                whole = quantities_of(self._probe.measure_all_layers(self._step.network))
        if spec.is_probed(epoch):
            with self._timed("probe_seconds"):
                measurement = self._probe.measure(self._step.network)
                course.measured.add(iteration, measurement)
                if spec.rehearsal.released_nic and spec.step == RELEASED_STEP:
                    course.extra.add(RELEASED, iteration, _released(measurement))
                table = probes_table(course.measured.measurements(), self._step.past)
                replace_durably(self._so_far, parquet_bytes(table), missing_ok=True)
        if spec.is_probed_in_all_layers(epoch):
            course.extra.add(ALL_LAYERS, iteration, whole)

    def before_iteration(self, iteration: int) -> None:
        """The paper's sums run over the weights before each update, so never over those that training ends with."""
        if self._probe is not None and self._step.spec.rehearsal is not None and self._step.spec.rehearsal.every_iteration:
            with self._timed("every_iteration_seconds"):
                measurement = self._probe.measure(self._step.network)
                self._course.extra.add(EVERY_ITERATION, iteration, quantities_of(measurement))

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self._course.seconds[name] = self._course.seconds.get(name, 0.0) + time.monotonic() - begin


def _make_probe(step: Prepared, look_up: Callable[[], None]) -> Probe | None:
    if step.spec.rehearsal is None or step.spec.rehearsal.probe_every == 0:
        return None
    full = step.full_past()
    rehearsed = np.concatenate([np.isin(step.images_of[label], step.rehearsal[label]) for label in step.past])

    def inputs(images: torch.Tensor) -> torch.Tensor:
        look_up()
        return step.normalise(images.float() / 255)

    marks = torch.from_numpy(rehearsed)
    new, alpha = step.new_set, step.spec.rehearsal.alpha
    return Probe(full.images, full.nodes, marks, new.images, new.nodes, alpha, prepare=inputs)


def _released(measurement: Measurement) -> torch.Tensor:
    """NIC alone: the scripts compute everything else as the paper has it."""
    values = torch.full((len(QUANTITIES), len(measurement.released_nic)), torch.nan, dtype=torch.float64)
    values[QUANTITIES.index("nic")] = measurement.released_nic
    return values
