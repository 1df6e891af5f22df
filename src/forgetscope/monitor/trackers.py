"""Where series of numbers go: whatever a user logs to becomes a function log(values, step)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetscope.errors import InputError
from forgetscope.measuring.coefficients import Coefficients
from forgetscope.measuring.quantities import ESTIMATES
from forgetscope.monitor.risk import AtRisk

LOGGED = ("sic", "cic", "nic")
PREDICTED = ("forecast", *ESTIMATES)
CLASSES = 3  # that have series of their own at a time
Log = Callable[[Mapping[str, float], int], object]


def series(totals: Coefficients, worst: AtRisk, forecasts: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Means over the past classes, and the sums of those most at risk, by the names of the classes: "sic/owl"; of forgetting as
    far as it is predicted, and of estimates, likewise."""
    found = {name: getattr(totals, name).numpy() for name in LOGGED}
    found |= {name: values for name, values in forecasts.items() if name in PREDICTED}
    known = {name: values[np.isfinite(values)] for name, values in found.items()}
    means = {f"mean_{name}": float(values.mean()) for name, values in known.items() if len(values)}
    return means | {f"{name}/{_plain(row.name)}": getattr(row, name) for name in (*LOGGED, "forecast") for row in worst}


def _plain(name: str) -> str:
    """Without what a tracker refuses in the name of a series, or takes for a folder."""
    return re.sub(r"[^\w .-]", "_", name)


def tracker(target: Any) -> Log:
    """A function log(values, step) of what is logged to.

    target: anything with `log(values, step)` (an `Accelerator`, accelerate's trackers), a run of Weights & Biases, with
    `log_metrics(values, step)` (Lightning's loggers, `mlflow`, Comet), with `add_scalar` (TensorBoard's `SummaryWriter`), with
    `track` (a run of aim), a logger of Python's, a function, or a list of these.

    >>> seen = []
    >>> log = tracker([lambda values, step: seen.append((step, values)), logging.getLogger("training")])
    >>> _ = log({"forgetscope/sic": 0.5}, 3)
    >>> seen
    [(3, {'forgetscope/sic': 0.5})]
    """
    if isinstance(target, list | tuple):
        logs = [tracker(one) for one in target]
        return lambda values, step: [log(values, step) for log in logs]
    if hasattr(target, "define_metric"):
        return _weights_and_biases(target)
    if isinstance(target, logging.Logger):
        return lambda values, step: target.info(
            "%d: %s", step, ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        )
    if hasattr(target, "log_metrics"):
        return lambda values, step: target.log_metrics(dict(values), step=step)
    if hasattr(target, "add_scalar"):
        return lambda values, step: [target.add_scalar(name, value, step) for name, value in values.items()]
    if hasattr(target, "track"):
        return lambda values, step: [target.track(value, name=name, step=step) for name, value in values.items()]
    if hasattr(target, "log"):
        return lambda values, step: target.log(dict(values), step=step)
    if callable(target):
        return lambda values, step: target(dict(values), step)
    raise InputError(
        f"log= is {type(target).__name__}, which has none of log, log_metrics, add_scalar and track. Give a run, a logger, "
        "a writer, or a function of values and step."
    )


def _weights_and_biases(target: Any) -> Log:
    """Of a run, or of the module `wandb`, whose run may begin later.

    A run has one count of rows, which only grows: what is logged below it is dropped. So epochs are a series of their own.
    Values join the row that the training is writing, whose own steps stay as they are; where it wrote none since the epoch
    before, that row is finished first, or its values would be lost.
    """
    last: dict[str, int] = {}

    def log(values: Mapping[str, float], epoch: int) -> None:
        run = getattr(target, "run", None) or target
        if not last:
            run.define_metric("forgetscope/*", step_metric="forgetscope/epoch")
        elif last["row"] == run.step and last["epoch"] != epoch:
            run.log({}, commit=True)
        run.log({**values, "forgetscope/epoch": epoch}, commit=False)
        last.update(row=run.step, epoch=epoch)

    return log
