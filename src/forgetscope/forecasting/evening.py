"""Offsets on the logits of past classes, under which they would be forgotten alike: as far as a forecast can tell.

An offset acts on predictions only. Which classes it helps is known no better than the forecast knows it, so differences between
predicted forgettings are first shrunk towards their mean by the share that is error; and only a part of what is left is taken
away, because the last of it costs accuracy more than it gains.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from forgetscope.errors import InputError
from forgetscope.forecasting.forecaster import Forecaster, Head, Outlook

STRENGTH = 0.65  # of the predicted differences, what is taken away
MOST = 5.0  # of an offset: by 150 in odds
ROUNDS = 200
STEP = 2.0  # in logits per forgetting; its own slope is at most 1 / 4 of an accuracy
CLOSE = 1e-4

Level = Literal["forgetting", "balance"] | float


@dataclass(frozen=True)
class Evening:
    """Offsets of P past classes in the order of `nodes`, and what they are expected to do; NaN of a class without a forecast.

    new: mean probability of the new classes on new images, as trained and with the offsets."""

    nodes: tuple[int, ...]
    offsets: NDArray[np.float64]
    before: NDArray[np.float64]  # predicted forgetting as trained
    after: NDArray[np.float64]  # and with the offsets
    new: tuple[float, float]
    shrinkage: float  # share of the predicted differences that is not error

    @property
    def said(self) -> str:
        """What is expected, in a sentence, before anything is applied."""
        spread = [float(np.nanstd(part)) for part in (self.before, self.after)]
        mean = [float(np.nanmean(part)) for part in (self.before, self.after)]
        return (
            f"Expected: forgetting of past classes spreads by {spread[1]:.2f} where it spread by {spread[0]:.2f} as trained, "
            f"its mean is {mean[1]:.2f} where it was {mean[0]:.2f}, and new images are taken for new classes with probability "
            f"{self.new[1]:.2f} where it was {self.new[0]:.2f}."
        )


def evening(
    forecaster: Forecaster,
    now: NDArray[np.floating],
    head: Head,
    *,
    strength: float = STRENGTH,
    shrinkage: float | None = None,
    level: Level = "forgetting",
) -> Evening:
    """now and head: as of `Forecaster.forecast`.

    strength: 0 changes nothing, 1 makes predicted forgettings equal. shrinkage: share of their differences that is taken for
    real, by default 1 - error variance / variance. level: what stays as trained, the mean of predicted "forgetting" or the
    "balance" between new and past classes on new images; or a mean forgetting to reach. Past classes without a forecast move
    with the mean of the others.

    >>> import numpy as np
    >>> from forgetscope.forecasting.forecaster import KnownClass
    >>> draws = np.random.default_rng(0)
    >>> features, nodes = draws.random((40, 3)), np.arange(40) % 4  # classes 0 and 1 are past, 2 and 3 new
    >>> known = {node: KnownClass(np.full(3, 0.5), np.full(3, 0.1), "variance", 100, 0.8) for node in (0, 1)}
    >>> head = np.array([[4.0, 0, 0], [0, 4, 0], [0, 0, 4], [2, 2, 0]]), np.zeros(4)
    >>> forecaster = Forecaster(known, features, nodes, nodes > 1, {0: 10, 1: 10}, head, np.random.default_rng)
    >>> worse = head[0], np.array([-1.0, 0, 0, 0])  # class 0 has lost
    >>> found = evening(forecaster, features, worse, strength=1, shrinkage=1)
    >>> bool(found.offsets[0] > 0 > found.offsets[1]), round(float(np.ptp(found.after)), 2)
    (True, 0.0)
    """
    if not 0 <= strength <= 1:
        raise InputError(f"strength = {strength} is not between 0 and 1: the share of predicted differences to take away.")
    if shrinkage is not None and not 0 <= shrinkage <= 1:
        raise InputError(f"shrinkage = {shrinkage} is not between 0 and 1: it is the share of differences taken for real.")
    outlook, forecasts = forecaster.outlook(now, head), forecaster.forecast(now, head)
    known = np.isfinite(forecasts.forgetting)
    share = _share_of_truth(forecasts.forgetting[known], forecasts.error[known]) if shrinkage is None else shrinkage
    nodes = [node for node, one in zip(forecasts.nodes, known, strict=True) if one]
    offsets = strength * share * _equalising(outlook, nodes) if len(nodes) > 1 else np.zeros(len(nodes))

    def all_of(given: NDArray[np.float64], shift: float) -> dict[int, float]:
        return {**dict.fromkeys(forecasts.nodes, shift), **dict(zip(nodes, (given + shift).tolist(), strict=True))}

    shift = _shift(lambda constant: _reached(outlook, all_of(offsets, constant), level), _reached(outlook, {}, level), level)
    found = all_of(offsets, shift)
    after = outlook.forgetting(found)
    return Evening(
        nodes=forecasts.nodes,
        offsets=np.array([found[node] for node in forecasts.nodes]),
        before=forecasts.forgetting,
        after=np.array([after.get(node, np.nan) for node in forecasts.nodes]),
        new=(outlook.new({}), outlook.new(found)),
        shrinkage=share,
    )


def _share_of_truth(forgetting: NDArray[np.float64], error: NDArray[np.float64]) -> float:
    """Of the variance of predicted forgetting; 1 where the error is not known."""
    if len(forgetting) < 2 or not np.isfinite(error).all() or not (variance := float(forgetting.var(ddof=1))):
        return 1.0
    return max(0.0, 1 - float(np.square(error).mean()) / variance)


def _equalising(outlook: Outlook, nodes: list[int]) -> NDArray[np.float64]:
    """Offsets under which these classes are predicted to be forgotten as all are on average now, as far as MOST allows."""
    offsets: NDArray[np.float64] = np.zeros(len(nodes))
    mean = float(np.mean(list(outlook.forgetting().values())))
    for _ in range(ROUNDS):
        forgetting = outlook.forgetting(dict(zip(nodes, offsets.tolist(), strict=True)))
        apart = np.array([forgetting[node] for node in nodes]) - mean
        if np.abs(apart).max() < CLOSE:
            break
        offsets = np.clip(offsets + STEP * apart, -MOST, MOST)
    offsets -= offsets.mean()
    return offsets


def _reached(outlook: Outlook, offsets: Mapping[int, float], level: Level) -> float:
    """What `level` is about: it falls as offsets of past classes rise."""
    return outlook.new(offsets) if level == "balance" else float(np.mean(list(outlook.forgetting(offsets).values())))


def _shift(reached: Callable[[float], float], as_trained: float, level: Level) -> float:
    """One constant on all past logits, by bisection."""
    target, low, high = as_trained if isinstance(level, str) else float(level), -MOST, MOST
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) > target else (low, middle)
    return (low + high) / 2
