"""One incremental step: from its parent's record to its own, resumable after every epoch."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from forgetscope.data.images import DataSet, demand_unchanged
from forgetscope.experiment.course import Course, Saver, measurements
from forgetscope.experiment.evaluation import evaluate
from forgetscope.experiment.forecast import StepForecast
from forgetscope.experiment.observation import Observer
from forgetscope.experiment.preparation import IMAGE_HISTORY, STORED_LOGITS, Prepared, kept_bytes, prepare, weights_digest
from forgetscope.experiment.resuming import fits
from forgetscope.experiment.settings import Settings
from forgetscope.experiment.stopping import Stop
from forgetscope.files import replace_durably, told
from forgetscope.learning.rsgd import Divergence, EpochEnd, make_optimiser, train_step
from forgetscope.learning.snapshots import Snapshot, load_snapshot, restore, snapshot_file
from forgetscope.measuring.forgetting import class_accuracy
from forgetscope.measuring.sums import Sums
from forgetscope.spec import StepSpec
from forgetscope.store import OF_METHOD, StepRecord, Store, StoredStep, TableName
from forgetscope.store.tables import (
    ClassFacts,
    carried_table,
    class_table,
    confusion_table,
    extra_table,
    keepsakes_table,
    pairs_table,
    predictions_table,
    probes_table,
    rehearsal_table,
)
from forgetscope.underway.progress import Beacon, Facts


def run_step(
    id: str,
    parent: StoredStep | None,
    spec: StepSpec,
    data: DataSet,
    store: Store,
    settings: Settings,
    on_epoch: Callable[[EpochEnd], None],
    note: Callable[[str], None] = lambda text: None,
    stop: Stop | None = None,
    first: StepSpec | None = None,
) -> StoredStep:
    """Train, measure and commit one step; goes on from its snapshot if there is one, with the settings recorded there."""
    started = time.monotonic()
    working, stop = store.working(id), stop or Stop()
    with told(working):
        working.mkdir(exist_ok=True)
        for part in working.glob(".*.tmp"):
            part.unlink(missing_ok=True)  # of a file that a crash cut short

    def put_aside(path: Path) -> None:
        note(f"{path} is damaged. Moved to {store.quarantine(path)}.")

    snapshot = load_snapshot(working, put_aside)
    asked, settings = settings, settings if snapshot is None else settings.continuing(snapshot.settings)
    if snapshot is None and parent is not None:
        # Whoever tidies up keeps the state that we start from.
        replace_durably(working / "parent", parent.id.encode(), missing_ok=True)
    with settings.applied():
        step = prepare(parent, spec, data, settings, first)
        if snapshot is not None and not fits(snapshot, step):
            put_aside(snapshot_file(working, snapshot))  # the other one, or the start of the step, takes over
            return run_step(id, parent, spec, data, store, asked, on_epoch, note, stop, first)
        forecast = StepForecast(step) if spec.rehearsal is not None and spec.rehearsal.forecast else None
        _note_missing(step, forecast, note)
        start = {"weights": weights_digest(step.network)}  # before a snapshot is restored into it
        with stop.deferred():
            course = _train(step, forecast, working, snapshot, settings, stop, on_epoch)
        results = _results(step, forecast, course)
        if forecast is not None:
            course.seconds["forecast_seconds"] = forecast.seconds
    record = StepRecord(
        id=id,
        parent=None if parent is None else parent.id,
        spec=spec,
        data=_recorded(data),
        environment=settings.environment(),
        timings=_timings(step, course, time.monotonic() - started),
        history=course.history,
        network=step.network_name,
        start=start,
        kept=kept_bytes(step),
        **results,
    )
    demand_unchanged(data)  # the test images too are what the step's id says
    return store.commit(record, datetime.now(UTC).isoformat(timespec="seconds"))


def _note_missing(step: Prepared, forecast: StepForecast | None, note: Callable[[str], None]) -> None:
    """Of which classes the step was to have keepsakes, or forecasts, and its parent has nothing to hand on."""
    unkept = [label for label, found in step.keepsakes.items() if found is None]
    unknown = [] if forecast is None else [step.past[node] for node, one in forecast.known.items() if one is None]
    unknown = [label for label in unknown if label not in unkept]
    for what, labels in (("keepsake", unkept), ("forecast", unknown)):
        if labels:
            names = ", ".join(step.data.classes[label] for label in labels[:5])
            more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
            parent = f"the parent of step {step.spec.step} was made without them"
            note(f"There is no {what} of {names}{more}: {parent}. They stay missing.")


def _results(step: Prepared, forecast: StepForecast | None, course: Course) -> dict[str, Any]:
    """Tables and state. Of a step that diverged: its probes so far and when it happened. Sums over a part of training are no
    coefficients."""
    probed, divergence = measurements(course.measured, course.extra.get(OF_METHOD)), course.divergence
    if divergence is None:
        predictions, measured, why = evaluate(step), probed, dict[str, Any]()
        rest: dict[str, Any] = {"state": _arrays({**step.network.state_dict(), **_beside(step, course)})}
    else:
        predictions, measured = None, None
        why = {"unmeasured": f"diverged at iteration {divergence.iteration}"}
        when = {"epoch": divergence.epoch, "iteration": divergence.iteration, "loss": str(divergence.loss)}
        rest = {"state": {}, "divergence": when}
    nothing = np.zeros((len(step.classes),) * 2, np.int64)
    confusion = nothing if predictions is None else predictions.confusion(len(step.classes))
    facts = _facts(step, class_accuracy(confusion))
    tables: dict[TableName, pa.Table] = {
        "classes": class_table(
            facts,
            step.rehearsal,
            measured,
            forecasts=course.forecast_array(divergence is None),
            probe_weight=step.spec.probe_weight,
            unforecast=None if forecast is None or divergence is not None else forecast.missing(course.forecasts),
            **why,
        ),
        "pairs": pairs_table(measured, step.classes, len(step.past)),
        "confusion": confusion_table(confusion, step.classes),
        "probes": probes_table(probed, step.past, course.forecast_array()),
        "rehearsal": rehearsal_table(step.rehearsal),
        "predictions": predictions_table(predictions, step.classes),
    }
    if step.spec.rehearsal is not None and (kind := step.spec.rehearsal.keepsake) is not None:
        if forecast is None:
            tables["keepsakes"] = keepsakes_table(step.keepsakes, kind)
        else:
            carried = forecast.carried() if divergence is None else dict.fromkeys(step.past)
            tables["keepsakes"] = keepsakes_table(forecast.keepsakes, kind, forecast=True)
            tables["carried"] = carried_table(carried, kind)
    if course.extra:
        tables["extra"] = extra_table(course.extra_arrays(), step.past)
    return {"tables": tables, **rest}


def _timings(step: Prepared, course: Course, whole: float) -> dict[str, float]:
    """Seconds of the whole step, and of what was done beside training; what a method took to get ready, where there is one."""
    named = step.spec.rehearsal is not None and step.spec.rehearsal.method is not None
    seconds = {"seconds": whole, **course.seconds, **({"method_seconds": step.objective.seconds} if named else {})}
    return {name: round(value, 3) for name, value in seconds.items()}


def _beside(step: Prepared, course: Course) -> dict[str, torch.Tensor]:
    """What the next step starts from besides the network."""
    stored, kept = step.objective.stored, sum(map(len, step.rehearsal.values()))
    return {IMAGE_HISTORY: course.image_history, **({} if stored is None else {STORED_LOGITS: stored[:kept]})}


def _train(
    step: Prepared,
    forecast: StepForecast | None,
    working: Path,
    snapshot: Snapshot | None,
    settings: Settings,
    stop: Stop,
    on_epoch: Callable[[EpochEnd], None],
) -> Course:
    """Train from the start or from the snapshot, with a probe and a new snapshot after each epoch."""
    spec, network = step.spec, step.network
    history = torch.zeros(len(step.new_set.nodes), dtype=torch.int16, device=step.new_set.images.device)
    course = Course(history, Sums(weight=spec.probe_weight))
    optimiser = make_optimiser(network, spec.training)
    if snapshot is not None:
        restore(snapshot, network, optimiser)
        course.load_measured(snapshot.measured)
        course.history = snapshot.history
        course.image_history.copy_(snapshot.images)
    beacon = _beacon(step, working, snapshot)
    saver = Saver(working, settings, stop, network, optimiser, course, snapshot, beacon)
    observer = Observer(step, forecast, course, working, saver.look_up)
    demand_unchanged(step.data)  # all images to train on and to measure have been copied by now
    if snapshot is None:
        observer.epoch_ended(0, 0)
    for end in train_step(
        network,
        optimiser,
        step.new_set,
        step.objective.memory,
        step.normalise,
        spec.training,
        spec.rehearsal.alpha if spec.rehearsal else 0.0,
        step.streams,
        course.image_history,
        epochs_done=snapshot.epoch if snapshot else 0,
        begun=saver.so_far,
        forward=torch.compile(network) if settings.compile else network,
        before_iteration=observer.before_iteration,
        on_iteration=saver.iteration_ended,
        loss=step.objective.loss,
    ):
        if isinstance(end, Divergence):
            course.divergence = end
            break
        observer.epoch_ended(end.epoch, end.iteration)
        saver.epoch_ended(end)
        on_epoch(end)
    return course


def _beacon(step: Prepared, working: Path, snapshot: Snapshot | None) -> Beacon:
    """Lit at once: a watcher sees the step before its first probe has ended."""
    names = [step.data.classes[label] for label in step.classes]
    made = {"spec": step.spec.model_dump(mode="json"), "data": _recorded(step.data), "network": step.network_name}
    facts = Facts(working.name, step.spec.step, len(step.past), step.classes, names, step.spec.training.epochs, made)
    done = [] if snapshot is None else [epoch["loss"] for epoch in snapshot.history]
    beacon = Beacon(working, facts, epoch=float(len(done)), losses=done)
    beacon.beat()
    return beacon


def _recorded(data: DataSet) -> dict[str, object]:
    return {
        **{"name": data.name, "image_size": data.image_size, "shape": data.shape},
        **{"digest": data.digest, "classes": len(data.classes)},
    }


def _facts(step: Prepared, accuracy: NDArray[np.float64]) -> ClassFacts:
    inherited = step.inherited
    return ClassFacts(
        ids=step.classes,
        names=[step.data.classes[label] for label in step.classes],
        introduced=(*(inherited.introduced if inherited else ()), *[step.spec.step] * len(step.spec.classes)),
        train_images=[len(step.images_of[label]) for label in step.classes],
        when_learned=np.concatenate([inherited.when_learned if inherited else [], accuracy[len(step.past) :]]),
        accuracy=accuracy,
    )


def _arrays(state: Mapping[str, torch.Tensor]) -> dict[str, NDArray[np.generic]]:
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in state.items()}
