"""How much of each past class will have been forgotten when a running step ends: from finished steps of its store that are like
it where these are enough, else from the model that ships with forgetscope where the step is within its domain, else not at all.

docs/watch.md says how good that is. What is predicted is forgetting as test images will show it; no test image of the running
step, or of when its classes were learned, has a part in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetscope.characters import counted
from forgetscope.store import Store
from forgetscope.underway.experience import Experience, FinishedCourse, Values, kind_of_observed, kind_of_step
from forgetscope.underway.progress import Progress
from forgetscope.underway.regression import FEATURES, Fit, features, fitted
from forgetscope.underway.shipped import Shipped

Mask = NDArray[np.bool_]

IS_MEASURED = np.array([name != "so_far" for name in FEATURES])
EXPERIMENTS, CLASSES = 5, 50  # that a fit needs: with fewer its errors are clearly larger (docs/watch.md)
NEEDED = f"{EXPERIMENTS} experiments with {CLASSES} past classes are needed"


@dataclass(frozen=True)
class Foreseen:
    """values [3, P]: final forgetting of each past class and its interval, NaN where there is none; by: from what, or why not,
    in sentences."""

    values: Values
    by: str


class Foreseer:
    """Of one store. What was fitted is kept until a finished step joins the store, or goes."""

    def __init__(self, store: Store) -> None:
        self._experience, self._shipped = Experience(store), Shipped()
        self._fits: dict[tuple[object, ...], Fit | None] = {}
        self._fitted_at = 0

    @property
    def changes(self) -> int:
        """How often what is fitted on has changed."""
        return self._experience.changes

    def look(self) -> None:
        """Whether the store has other finished steps than before."""
        self._experience.look()
        if self._fitted_at != self.changes:
            self._fits, self._fitted_at = {}, self.changes

    def of(self, progress: Progress, observed: Mapping[str, Any] | None, course: Values) -> Foreseen:
        """observed: the record of a monitor's step; course [probes, COURSE, P]: of its past classes so far."""
        values = np.full((3, course.shape[2]), np.nan)
        kind, unknown = _kind(progress, observed)
        if kind is None:
            return Foreseen(values, f"No forecast: {unknown}.")
        alike = self._experience.like(kind, progress.past, len(progress.classes) - progress.past)
        alike = [one for one in alike if len(one.course) >= len(course)]
        x, used = features(course), list[Fit]()
        known = np.isfinite(x)
        for pattern in np.unique(known, axis=1).T:
            fit = self._fit(kind, alike, course.shape, pattern) or self._fit(kind, alike, course.shape, pattern & IS_MEASURED)
            of = (known == pattern[:, None]).all(axis=0)
            if fit is not None:
                values[:, of] = fit.predicted(x[fit.by][:, of].T)
                used.append(fit)
        if used:
            return Foreseen(values, _fitted_on(max(used, key=lambda fit: fit.classes), values))
        here = f"this store has {_counts(alike)} like this one, and {NEEDED}"
        if progress.made is None:
            return Foreseen(values, f"No forecast: {here}; the model that ships with forgetscope is of its own training.")
        refused = self._shipped.refuses(progress.made, len(course))
        if refused is not None:
            return Foreseen(values, f"No forecast: {here}; {refused}.")
        return Foreseen(self._shipped.predicted(progress.made, x, len(course)), f"{self._shipped.said}: {here}.")

    def _fit(self, kind: Hashable, alike: list[FinishedCourse], shape: tuple[int, ...], by: Mask) -> Fit | None:
        """By these features, on classes of which they are known; None where these are too few. shape: of the step's course."""
        key = (kind, shape, by.tobytes())
        if key not in self._fits:
            rows = [(features(one.course[: shape[0]]).T, one.forgetting, [one.experiment] * shape[2]) for one in alike]
            self._fits[key] = fit_on(rows, by)
        return self._fits[key]


def fit_on(rows: Sequence[tuple[Values, Values, Sequence[str]]], by: Mask) -> Fit | None:
    """rows: of each step features [P, FEATURES], forgetting [P] and the experiment of each class."""
    if not rows or not by.any():
        return None
    x, y = np.concatenate([one[0] for one in rows])[:, by], np.concatenate([one[1] for one in rows])
    known = np.isfinite(x).all(axis=1) & np.isfinite(y)
    groups = [name for name, of in zip((name for one in rows for name in one[2]), known.tolist(), strict=True) if of]
    if len(set(groups)) < EXPERIMENTS or len(groups) < CLASSES:
        return None
    return fitted(x[known], y[known], groups, by)


def _kind(progress: Progress, observed: Mapping[str, Any] | None) -> tuple[Hashable | None, str]:
    """What finished steps must be equal in, or why that is unknown."""
    if observed is not None:
        if progress.epochs is None:
            return None, "how long the step is was not told (`monitor.step(..., epochs=20)`)"
        return kind_of_observed(observed, progress.epochs), ""
    try:
        return (None if progress.made is None else kind_of_step(progress.made)), "the step does not say how it is trained"
    except (KeyError, TypeError, ValueError, AttributeError):
        return None, "what the step says of how it is trained cannot be read"


def _fitted_on(fit: Fit, values: Values) -> str:
    without = int(np.isnan(values[0]).sum())
    classes = counted(fit.classes, "past class")
    but = f" There is none of {counted(without, 'class')} of which less is known." if without else ""
    return f"Forecasts are fitted on {counted(fit.experiments, 'experiment')} like this one in this store ({classes}).{but}"


def _counts(alike: list[FinishedCourse]) -> str:
    classes = sum(int(np.isfinite(one.forgetting).sum()) for one in alike)
    experiments = len({one.experiment for one in alike})
    return f"{counted(experiments, 'finished experiment')} ({counted(classes, 'past class')})" if alike else "no finished step"
