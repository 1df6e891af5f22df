"""Which classes would have no forecast by the rules of docs/forecast.md, on the steps of a store: a part of `forecast.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

import forgetscope as fs
from forgetscope.forecasting.accuracy import leave_one_out
from forgetscope.store import StoredStep
from predictors import KINDS, Forecast, forecast_of
from seen import features_of, folder_of, head_of, images_of, kept_network, opened_data, seen_by


@dataclass(frozen=True)
class Unpredicted:
    """Of the past classes of steps of one number: how many times a forecast was wanted, and why there was none."""

    data: str
    number: int
    steps: int
    wanted: int
    reasons: tuple[str, ...]


def accuracies(store: fs.Store) -> pd.DataFrame:
    """A row per step and class that it learned: on training images, on these with each left out, and on test images.

    Without a state there is no network to leave images out of; then training accuracies are those that later steps kept."""
    steps, rows = sorted(store.steps(), key=lambda step: step.id), []
    later = {(step.parent, label): one for step in steps if step.parent for label, one in step.keepsakes().items() if one}
    for step in steps:
        tested = step.table("classes").to_pandas().set_index("class_id")["accuracy"]
        measured = {} if step.state_freed else _measured(store, step)
        for label in step.spec.classes:
            kept = later.get((step.id, label))
            training, left_out = measured.get(label, (np.nan if kept is None else kept.training_accuracy, np.nan))
            rows.append((*_place(step), step.id, training, left_out, tested[label]))
    found = pd.DataFrame(rows, columns=["data", "step", "classes", "id", "training", "left out", "test"])
    return found[found["training"].notna()]


def _place(step: StoredStep) -> tuple[str, int, int]:
    return step.info["data"]["name"], step.number, len(step.spec.classes)


def _measured(store: fs.Store, step: StoredStep) -> dict[int, tuple[float, float]]:
    """Training and leave-one-out accuracy of the classes that a step learned, under the network that it left."""
    data, normalise = opened_data(step)
    network, (images, place) = kept_network(store, step, None), images_of(step, data, step.spec.classes)
    features, (weight, bias) = features_of(network, normalise, data.train.images[images]), head_of(network)
    nodes = place + len(bias) - len(step.spec.classes)
    right = (features @ weight.T + bias).argmax(axis=1) == nodes, leave_one_out(features, nodes, weight, bias)
    return {
        label: (float(right[0][place == at].mean()), float(right[1][place == at].mean()))
        for at, label in enumerate(step.spec.classes)
    }


def unpredicted(store: fs.Store) -> Iterator[Unpredicted]:
    """Of steps whose networks are there."""
    made: dict[str, Forecast] = {}
    steps = [step for step in store.steps() if step.parent is not None and any(folder_of(store, step.id).glob("*.safetensors"))]
    for number in sorted({step.number for step in steps}):
        reasons, wanted, own = list[str](), 0, [step for step in steps if step.number == number]
        for step in own:
            before = made.get(str(step.parent))
            made[step.id] = forecast_of(step, seen_by(store, step), KINDS[0], {} if before is None else before.known)
            reasons += made[step.id].missing.values()
            wanted += made[step.id].forgetting.shape[1]
        yield Unpredicted(_place(own[0])[0], number, len(own), wanted, tuple(reasons))
