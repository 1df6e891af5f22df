"""Offsets on the logits of past classes, under which they would be forgotten alike: as far as anything tells.

An offset acts on predictions only. Which classes it helps is known no better than forgetting is, so differences between
predicted forgettings are first shrunk towards their mean by the share that is error; and only a part of what is left is taken
away, because the last of it costs accuracy more than it gains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from forgetscope.calibrating.adjustment import Adjustment, Calibration, Values
from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.forecasting.forecaster import Forecaster, Head

STRENGTH = 0.65  # of the predicted differences, what is taken away
MOST = 5.0  # of an offset beside the others, and of a constant on all past logits: by 150 in odds
ROUNDS = 300
STEP = 3.0  # in logits per accuracy, whose slope is 1 / 2 at most, all past classes together
CLOSE = 1e-4
TURNS = 10  # between offsets that equalise and the constant of the level
REACHED = 0.005  # of a mean forgetting that is asked for: as two decimals say it

Kept = Literal["forgetting", "balance"]
Level = Kept | float


class Foresight(Protocol):
    """What a head is expected to do to past classes, by node, if offsets were put on its logits."""

    @property
    def size(self) -> int:
        """Logits of an image."""

    @property
    def learned(self) -> Mapping[int, float]:
        """How well each past class was recognised when it was learned."""

    def forgetting(self, offsets: Mapping[int, float] | None = None) -> Mapping[int, float]:
        """Of those of which it can be told."""

    def new(self, offsets: Mapping[int, float] | None = None) -> float:
        """Mean probability of the new classes together on new images; NaN without any."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Evening(Calibration):
    """Offsets of P past classes in the order of `nodes`, and what they are expected to do; NaN where nothing tells.

    new: mean probability of the new classes on new images, as trained and with the offsets."""

    nodes: tuple[int, ...]
    offsets: Values
    before: Values  # predicted forgetting as trained
    after: Values  # and with the offsets
    new: tuple[float, float]
    shrinkage: float  # share of the predicted differences that is taken for real


def evening_from_keepsakes(
    forecaster: Forecaster,
    now: NDArray[np.floating],
    head: Head,
    *,
    strength: float = STRENGTH,
    shrinkage: float | None = None,
    level: Level = "forgetting",
) -> Evening:
    """now and head: as of `Forecaster.forecast`. The other options: as of `evened`.

    >>> import numpy as np
    >>> from forgetscope.forecasting.forecaster import KnownClass
    >>> draws = np.random.default_rng(0)
    >>> features, nodes = draws.random((40, 3)), np.arange(40) % 4  # classes 0 and 1 are past, 2 and 3 new
    >>> known = {node: KnownClass(np.eye(3)[node], np.full(3, 0.1), "variance", 100, 0.8) for node in (0, 1)}
    >>> head = np.array([[4.0, 0, 0], [0, 4, 0], [0, 0, 4], [2, 2, 0]]), np.zeros(4)
    >>> forecaster = Forecaster(known, features, nodes, nodes > 1, {0: 10, 1: 10}, head, np.random.default_rng)
    >>> worse = head[0], np.array([-1.0, 0, 0, 0])  # class 0 has lost
    >>> found = evening_from_keepsakes(forecaster, features + 1e-3, worse, strength=1, shrinkage=1)
    >>> bool(found.offsets[0] > 0 > found.offsets[1]), round(float(np.ptp(found.after)), 2)
    (True, 0.0)
    """
    forecasts = forecaster.forecast(now, head)
    errors = dict(zip(forecasts.nodes, forecasts.error.tolist(), strict=True))
    return evened(forecaster.outlook(now, head), errors, strength=strength, shrinkage=shrinkage, level=level)


def evened(
    foresight: Foresight,
    errors: Mapping[int, float],
    *,
    strength: float = STRENGTH,
    shrinkage: float | None = None,
    level: Level = "forgetting",
) -> Evening:
    """errors: of predicted forgetting, by node, of all past classes; NaN where they are not known.

    strength: 0 changes nothing, 1 makes predicted forgettings equal, at any level. shrinkage: share of their differences that
    is taken for real, by default 1 - error variance / variance. level: what stays as trained, the mean of predicted
    "forgetting" or the "balance" between new and past classes on new images; or a mean forgetting to reach. Past classes of
    which nothing tells move with the mean of the others."""
    _demand_options(strength, shrinkage, level)
    before, trained = foresight.forgetting(), foresight.new()
    if level == "balance" and not np.isfinite(trained):
        raise InputError('level = "balance" looks at new images, and there are none. Give some, or level = "forgetting".')
    known = [node for node in errors if node in before]
    forgetting, error = (np.array([of[node] for node in known]) for of in (before, errors))
    share = _share_of_truth(forgetting, error) if shrinkage is None else shrinkage
    part = strength * share if len(known) > 1 else 0.0
    found = _offsets(_Past(foresight, tuple(errors), known), part, level)
    after, new = foresight.forgetting(found), (trained, foresight.new(found))
    then, now = (np.array([of.get(node, np.nan) for node in errors]) for of in (before, after))
    return Evening(
        adjustment=Adjustment.by_node(foresight.size, found),
        said=_said(then, now, new, level) if any(found.values()) else _idle(then, strength, shrinkage, share),
        numbers={**_summary(then, now, new), "shrinkage": share, "strength": strength},
        nodes=tuple(errors),
        offsets=np.array(list(found.values())),
        before=then,
        after=now,
        new=new,
        shrinkage=share,
    )


def _demand_options(strength: float, shrinkage: float | None, level: Level) -> None:
    if not (_is_number(strength) and 0 <= strength <= 1):
        raise InputError(
            f"strength = {strength!r} is not a number from 0 to 1: the share of predicted differences to take away."
        )
    if shrinkage is not None and not (_is_number(shrinkage) and 0 <= shrinkage <= 1):
        raise InputError(f"shrinkage = {shrinkage!r} is not a number from 0 to 1: the share of differences taken for real.")
    known = " or ".join(f'"{name}"' for name in get_args(Kept))
    if level not in get_args(Kept) if isinstance(level, str) else not (_is_number(level) and -np.inf < level <= 1):
        raise InputError(f"level = {level!r} is not {known}, nor a mean forgetting to reach, at most 1.")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _share_of_truth(forgetting: Values, error: Values) -> float:
    """Of the variance of predicted forgetting; 1 where the error is not known."""
    if len(forgetting) < 2 or not np.isfinite(error).all() or not (variance := float(forgetting.var(ddof=1))):
        return 1.0
    return max(0.0, 1 - float(np.square(error).mean()) / variance)


@dataclass(frozen=True)
class _Past:
    """The past classes of a step, by node, and those of them of which anything can be told."""

    foresight: Foresight
    nodes: tuple[int, ...]
    known: list[int]

    def moved(self, relative: Values, shift: float) -> dict[int, float]:
        """Offsets of all: relative to one another of those that are known, and one constant."""
        own = zip(self.known, (relative + shift).tolist(), strict=True)
        return {**dict.fromkeys(self.nodes, shift), **dict(own)}

    def mean(self, offsets: Mapping[int, float] | None) -> float:
        return float(np.mean(list(self.foresight.forgetting(offsets).values())))

    def reached(self, offsets: Mapping[int, float], level: Level) -> float:
        """What `level` is about: it falls as offsets of past classes rise."""
        return self.foresight.new(offsets) if level == "balance" else self.mean(offsets)


def _offsets(past: _Past, part: float, level: Level) -> dict[int, float]:
    """part: of the offsets that equalise, what is applied.

    Which offsets these are depends on the constant on all past logits at which they do: classes that are hardly recognised move
    less than others. So where the level decides the constant, they are found again there, until it stays."""
    relative, shift = np.zeros(len(past.known)), 0.0
    for turn in range(1 if level == "forgetting" else TURNS):
        if part:
            relative = part * _equalising(past, shift, past.mean(None) if not turn else None)
        if past.known and (relative.any() or not isinstance(level, str)):
            before, shift = shift, _shift(past, relative, level)
            if abs(shift - before) < CLOSE:
                break
    return past.moved(relative, shift)


def _equalising(past: _Past, constant: float, mean: float | None) -> Values:
    """Offsets beside this constant under which the classes that are known are predicted to be forgotten alike, by this much
    each or by whatever they then are on average, as far as MOST allows; less their mean."""
    offsets: Values = np.zeros(len(past.known))
    learned = np.array([past.foresight.learned[node] for node in past.known])
    for _ in range(ROUNDS):
        of = past.foresight.forgetting(past.moved(offsets, constant))
        forgetting = np.array([of[node] for node in past.known])
        apart = forgetting - (forgetting.mean() if mean is None else mean)
        before, offsets = offsets, np.clip(offsets + STEP * learned * apart, -MOST, MOST)
        if np.abs(offsets - before).max() < CLOSE:
            break
    offsets -= offsets.mean()
    return offsets


def _shift(past: _Past, relative: Values, level: Level) -> float:
    """One constant on all past logits, by bisection."""
    low, high = -MOST, MOST
    target = past.reached({}, level) if isinstance(level, str) else float(level)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if past.reached(past.moved(relative, middle), level) > target else (low, middle)
    return (low + high) / 2


def _summary(before: Values, after: Values, new: tuple[float, float]) -> dict[str, float]:
    found = dict[str, float]()
    for name, of_class, of_new in (("_before", before, new[0]), ("", after, new[1])):
        known = of_class[np.isfinite(of_class)]
        spread, mean = (float(known.std()), float(known.mean())) if len(known) else (np.nan, np.nan)
        found |= {f"mean_forgetting{name}": mean, f"spread{name}": spread, f"new{name}": of_new}
    return found


def _said(before: Values, after: Values, new: tuple[float, float], level: Level) -> str:
    """What is expected, before anything is applied."""
    found = _summary(before, after, new)
    price = (
        f", and new images are taken for new classes with probability {new[1]:.2f} where it was {new[0]:.2f}"
        if np.isfinite(new).all()
        else "; what it costs on new classes cannot be told without new images"
    )
    unknown = int(np.isnan(before).sum())
    others = (
        f" Nothing tells of {counted(unknown, 'past class')}, which {'moves' if unknown == 1 else 'move'} with the others."
        if unknown
        else ""
    )
    spread, mean = ((found[name], found[f"{name}_before"]) for name in ("spread", "mean_forgetting"))
    return (
        f"Expected: forgetting of past classes spreads by {spread[0]:.2f} where it spread by {spread[1]:.2f} as trained, "
        f"its mean is {mean[0]:.2f} where it was {mean[1]:.2f}{price}.{others}{_out_of_reach(after, level)}"
    )


def _out_of_reach(after: Values, level: Level) -> str:
    """Where a mean forgetting was asked for that these offsets do not reach."""
    mean = float(np.nanmean(after))
    if isinstance(level, str) or abs(mean - level) < REACHED:
        return ""
    asked, reached = (f"{value:.2f}".replace("-", "−") for value in (level, mean))
    return f" A mean of {asked} is out of reach of a constant up to {MOST:g} on all past logits: it becomes {reached}."


def _idle(before: Values, strength: float, shrinkage: float | None, share: float) -> str:
    """Why all offsets are 0."""
    known = int(np.isfinite(before).sum())
    if not known:
        return (
            "Nothing tells how much any past class was forgotten: of none anything was kept that tells, none was recognised "
            "when it was learned, or nothing has been trained yet. So nothing changes."
        )
    if known < 2:
        why = "nothing tells of two past classes how much they were forgotten"
    elif not strength:
        why = "strength = 0 takes no difference away"
    elif not share:
        estimated = "the predicted differences between past classes are no larger than their errors"
        why = estimated if shrinkage is None else "shrinkage = 0 takes no difference for real"
    else:
        why = "past classes are predicted to be forgotten alike already"
    return f"Nothing changes, because {why}."
