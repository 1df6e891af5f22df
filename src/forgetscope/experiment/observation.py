"""What is measured during a step, and when: the probes, and beside them whatever the specification asks for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch

from forgetscope.experiment.course import Course, measurements
from forgetscope.experiment.forecast import StepForecast
from forgetscope.experiment.preparation import Prepared
from forgetscope.files import replace_durably, replace_soon
from forgetscope.measuring.coefficients import Coefficients
from forgetscope.measuring.measurement import Measurement, ProbeData, measure, measure_all_layers, measure_with_method
from forgetscope.measuring.method_gradients import MethodBatches
from forgetscope.measuring.quantities import QUANTITIES
from forgetscope.measuring.subsampled.drawing import subsampled
from forgetscope.measuring.sums import quantities_of
from forgetscope.store import ALL_LAYERS, EVERY_ITERATION, OF_METHOD, RELEASED, parquet_bytes
from forgetscope.store.tables import pairs_table, probes_table

RELEASED_STEP = 2  # in later steps the released scripts read the right entry


class Observer:
    """Measures the network of a step in training, into its course; the training cannot tell.

    `working`: where the tables of the probes so far are kept for whoever looks on. `look_up` is called before each batch of
    images: a probe may take minutes, and somebody may want it to stop."""

    def __init__(
        self, step: Prepared, forecast: StepForecast | None, course: Course, working: Path, look_up: Callable[[], None]
    ) -> None:
        self._step, self._forecast, self._course, self._working = step, forecast, course, working
        self._data = _probe_data(step, look_up)

    def epoch_ended(self, epoch: int, iteration: int) -> None:
        """After this epoch, or before training if it is 0; iteration: how many are done."""
        spec, course = self._step.spec, self._course
        if self._data is None or spec.rehearsal is None:
            return
        # Before anything is added: a stop in here saves the course so far, and then all of this epoch is measured again.
        if spec.is_probed_in_all_layers(epoch):
            with self._timed("all_layers_seconds"):
                whole = quantities_of(measure_all_layers(self._step.network, self._data, trusted=True))
        if spec.is_probed(epoch):
            with self._timed("probe_seconds"):
                measurement, of_method = self._measured(epoch)
            if self._forecast is not None:
                course.forecasts.append(self._forecast.measure())
            with self._timed("probe_seconds"):
                course.measured.add(measurement, iteration)
                if spec.rehearsal.released_nic and spec.step == RELEASED_STEP:
                    # NIC alone: the scripts compute everything else as the paper has it.
                    course.extra[RELEASED].add_terms(_terms(nic=measurement.released_nic), iteration)
                if of_method is not None:
                    course.extra[OF_METHOD].add_terms(_terms(**vars(of_method)), iteration)
                self._write_tables()
        if spec.is_probed_in_all_layers(epoch):
            course.extra[ALL_LAYERS].add_terms(whole, iteration)

    def _write_tables(self) -> None:
        """Of the probes so far. Pairs first: whoever reads the probes finds those of at least as many."""
        found, step = measurements(self._course.measured), self._step
        pairs = pairs_table(found, step.classes, len(step.past))
        with suppress(OSError):  # for onlookers alone: no reason to stop
            replace_soon(self._working / "pairs.parquet", parquet_bytes(pairs, "pairs"))
        probes = probes_table(found, step.past, self._course.forecast_array())
        replace_durably(self._working / "probes.parquet", parquet_bytes(probes), missing_ok=True)

    def _measured(self, epoch: int) -> tuple[Measurement, Coefficients | None]:
        """One probe, and what the method's own loss does at it, if that is asked for."""
        rehearsal, network = self._step.spec.rehearsal, self._step.network
        assert self._data is not None
        if rehearsal is not None and rehearsal.method_interference:
            return measure_with_method(network, self._data, _method_batches(self._step, epoch))
        return measure(network, self._looked_at(epoch), trusted=True), None

    def _looked_at(self, epoch: int) -> ProbeData:
        """All images, or some of each class: at each probe others, so that what one overlooks another sees."""
        step, images = self._step, self._step.spec.rehearsal.probe_images if self._step.spec.rehearsal else None
        assert self._data is not None
        if images is None:
            return self._data
        return subsampled(self._data, images, lambda node: step.streams("probe-images", f"{step.classes[node]}/{epoch}"))

    def before_iteration(self, iteration: int) -> None:
        """The paper's sums run over the weights before each update, so never over those that training ends with."""
        rehearsal = self._step.spec.rehearsal
        if self._data is not None and rehearsal is not None and rehearsal.every_iteration:
            with self._timed("every_iteration_seconds"):
                terms = quantities_of(measure(self._step.network, self._data, trusted=True))
                self._course.extra[EVERY_ITERATION].add_terms(terms, iteration)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self._course.seconds[name] = self._course.seconds.get(name, 0.0) + time.monotonic() - begin


def _probe_data(step: Prepared, look_up: Callable[[], None]) -> ProbeData | None:
    if step.spec.rehearsal is None or step.spec.rehearsal.probe_every == 0:
        return None
    full = step.full_past()
    rehearsed = np.concatenate([np.isin(step.images_of[label], step.rehearsal[label]) for label in step.past])

    def inputs(images: torch.Tensor) -> torch.Tensor:
        look_up()
        return step.normalise(images)

    marks = torch.from_numpy(rehearsed)
    new, alpha = step.new_set, step.spec.rehearsal.alpha
    return ProbeData(full.images, full.nodes, marks, new.images, new.nodes, alpha, prepare=inputs)


def _method_batches(step: Prepared, epoch: int) -> MethodBatches:
    """As training draws them, composed anew at each probe. All that the memory stream has is among the probe's images."""
    rehearsal, batch, stream = step.spec.rehearsal, step.spec.training.batch, step.objective.stream
    assert rehearsal is not None
    starts = np.cumsum([0, *(len(step.images_of[label]) for label in step.classes)])
    memory = [
        starts[step.classes.index(label)] + np.searchsorted(step.images_of[label], images) for label, images in stream.items()
    ]
    return MethodBatches(
        loss=step.objective.loss,
        memory=torch.from_numpy(np.concatenate([np.empty(0, np.int64), *memory])),
        new_per_batch=batch - round(rehearsal.alpha * batch),
        memory_per_batch=round(rehearsal.alpha * batch),
        rng=step.streams("method-batches", epoch),
    )


def _terms(**of: torch.Tensor) -> torch.Tensor:
    """[quantities, P]: these quantities [P] alone."""
    values = torch.full((len(QUANTITIES), len(next(iter(of.values())))), torch.nan, dtype=torch.float64)
    for name, terms in of.items():
        values[QUANTITIES.index(name)] = terms
    return values
