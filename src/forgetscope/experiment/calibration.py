"""Calibrations of a trained step: offsets or scales on its logits, found without test images. The step stays as it is, and so
does the network from which the next one goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from forgetscope.calibrating.adjustment import Calibration
from forgetscope.calibrating.evening import Evening
from forgetscope.calibrating.held_out import evening_from_held_out
from forgetscope.calibrating.published import bias_correction, offset, weight_aligning
from forgetscope.choices import named_calibration
from forgetscope.data.images import DataSet, demand_unchanged
from forgetscope.experiment.evaluation import BATCH, evaluate, logits_of
from forgetscope.experiment.forecast import StepForecast
from forgetscope.experiment.preparation import Prepared, held_out_images, load_trained, prepare
from forgetscope.experiment.settings import Settings
from forgetscope.files import locked
from forgetscope.learning.networks import build_network, head_of
from forgetscope.learning.plugins import blaming_own_code
from forgetscope.spec import StepSpec
from forgetscope.store import CalibrationRecord, Store, StoredCalibration, StoredStep, commit_calibration, stored_calibration
from forgetscope.store.tables import Indices

Values = NDArray[np.float64]


@blaming_own_code()
def calibrate_locked(
    step: StoredStep,
    parent: StoredStep,
    calibration: str,
    data: DataSet,
    store: Store,
    settings: Settings,
    note: Callable[[str], None] = lambda text: None,
    first: StepSpec | None = None,
) -> StoredCalibration:
    """Make one calibration of a step, unless it is there; one process at a time. calibration: in its canonical form."""
    made = stored_calibration(store, step, calibration)
    waiting = f"Another process is making {calibration} of step {step.id[:8]}; waiting for it."
    with locked(store.lock_file(made.id), note, waiting, done=lambda: made.there):
        if made.there:
            return made
        began = time.monotonic()
        with settings.applied():
            record = _calibrate(step, parent, calibration, data, store, settings, first)
        demand_unchanged(data)
        record = replace(record, seconds=time.monotonic() - began)
        return commit_calibration(store, record, datetime.now(UTC).isoformat(timespec="seconds"))


def _calibrate(
    step: StoredStep,
    parent: StoredStep,
    calibration: str,
    data: DataSet,
    store: Store,
    settings: Settings,
    first: StepSpec | None,
) -> CalibrationRecord:
    """The step as it began, then with the weights that training left. Test images are looked at last."""
    begun = prepare(parent, step.spec, data, settings, first, trained=step)
    (name, options), held_out = named_calibration(calibration), 0
    found: Calibration
    if name == "evening" and options["source"] == "keepsakes":
        forecast = StepForecast(begun)  # which looks at the network as the step begins
        load_trained(begun.network, step)
        found = forecast.evening(**_evening_options(options))
    else:
        load_trained(begun.network, step)
        images, nodes = _held_out(begun)
        held_out = 0 if name in ("offset", "weight-aligning") else _bytes_of_past(begun, images, nodes)
        match name:
            case "offset":
                found = offset(len(begun.classes), len(begun.past), float(options["logits"]))
            case "weight-aligning":
                found = weight_aligning(*head_of(begun.network), len(begun.past))
            case "bias-correction":
                found = bias_correction(_logits(begun, images), nodes, len(begun.past))
            case _:
                learned, counted = _when_learned(begun, parent, store, first)
                own = _evening_options(options)
                found = evening_from_held_out(_logits(begun, images), nodes, learned, counted=counted, **own)
    expected = {"expected_as_trained": found.before, "expected": found.after} if isinstance(found, Evening) else {}
    return CalibrationRecord(
        step=step,
        calibration=calibration,
        scales=found.adjustment.scales,
        offsets=found.adjustment.offsets,
        predictions=evaluate(begun, found.adjustment.of),
        said=found.said,
        expected=expected,
        held_out=held_out,
        seconds=0.0,
        environment=settings.environment(),
    )


def _evening_options(options: Mapping[str, float | str]) -> dict[str, Any]:
    shrinkage = options["shrinkage"]
    return {
        "strength": options["strength"],
        "shrinkage": None if shrinkage == "estimated" else shrinkage,
        "level": options["level"],
    }


def _held_out(step: Prepared) -> tuple[Indices, NDArray[np.int64]]:
    """Training images that no step trains on, of all classes, and their nodes."""
    found = [held_out_images(step.spec, step.data, label) for label in step.classes]
    return np.concatenate(found), np.repeat(np.arange(len(found)), [len(images) for images in found])


def _bytes_of_past(step: Prepared, images: Indices, nodes: NDArray[np.int64]) -> int:
    return int((nodes < len(step.past)).sum()) * int(step.data.train.images[images[:1]].nbytes)


def _logits(step: Prepared, images: Indices) -> Values:
    """[n, k] of training images."""
    parts = np.split(images, range(BATCH, len(images), BATCH))
    return np.concatenate([logits_of(step, step.data.train, part) for part in parts])


def _when_learned(step: Prepared, parent: StoredStep, store: Store, first: StepSpec | None) -> tuple[Values, NDArray[np.int64]]:
    """[P]: the share of each past class's held-out images that the network recognised which had just learned it, and of how
    many."""
    accuracy, counted, nodes = np.full(len(step.past), np.nan), np.zeros(len(step.past), np.int64), 0
    source = None if first is None else first.network_source
    for before in store.chain(parent.id):
        nodes += len(before.spec.classes)
        network = build_network(step.network_name, nodes, None, source).to(step.normalise.mean.device)
        load_trained(network, before)
        for node in range(nodes - len(before.spec.classes), nodes):
            images = held_out_images(step.spec, step.data, step.past[node])
            counted[node] = len(images)
            if len(images):
                accuracy[node] = _accuracy(network, step, images, node)
    return accuracy, counted


@torch.no_grad()
def _accuracy(network: torch.nn.Module, step: Prepared, images: Indices, node: int) -> float:
    network.eval()
    inputs = torch.from_numpy(step.data.train.images[images]).to(step.normalise.mean.device)
    return float((network(step.normalise(inputs)).argmax(dim=1) == node).double().mean())
