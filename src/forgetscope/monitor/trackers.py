"""Where series of numbers go: whatever a user logs to becomes a function log(values, step)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from forgetscope.errors import InputError

Log = Callable[[Mapping[str, float], int], object]


def tracker(target: Any) -> Log:
    """A function log(values, step) of what is logged to.

    target: anything with `log(values, step)` (a run of Weights & Biases, an `Accelerator`, accelerate's trackers), with
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
