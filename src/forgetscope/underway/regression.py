"""Final forgetting of a class from what is known of it in training: a ridge regression, with an interval that is measured.

The error is that of classes of experiments that a fit has not seen, each left out in turn: classes of one experiment share
their network and their new classes, so that leaving out one class alone would flatter.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from forgetscope.measuring.quantities import QUANTITIES

Values = NDArray[np.float64]

# Of a class at a probe: mean terms so far, the last term of NIC; mean loss on all of its images, above that on its rehearsed
# ones and before training; what its keepsake forecasts of its forgetting so far.
FEATURES = ("sic", "cic", "nic", "nic_now", "loss_gap", "loss_all", "loss_before", "so_far")
MEASURED = FEATURES[:-1]
COURSE = (*QUANTITIES, "forecast")  # what a course has of each probe
RIDGE = 1.0  # on coefficients of standardised features, beside the sum of squares of as many classes as are fitted on
NORMAL = NormalDist().inv_cdf(0.975)


def features(course: Values) -> Values:
    """[features, P] at the last of these probes; NaN where unknown. course: [probes, COURSE, P]."""
    means, last = course.mean(axis=0), dict(zip(COURSE, course[-1], strict=True))
    known = {name: means[COURSE.index(name)] for name in ("sic", "cic", "nic")}
    known |= {"nic_now": last["nic"], "loss_all": last["loss_full"], "loss_gap": last["loss_full"] - last["loss_rehearsal"]}
    known |= {"loss_before": course[0, COURSE.index("loss_full")], "so_far": last["forecast"]}
    return np.stack([known[name] for name in FEATURES])


@dataclass(frozen=True)
class Linear:
    """y = intercept + x · weights."""

    intercept: float
    weights: Values  # [features]

    def at(self, x: Values) -> Values:
        """x [rows, features]"""
        found: Values = self.intercept + x @ self.weights
        return found


@dataclass(frozen=True)
class Fit:
    """error: root mean square over classes of left-out experiments; by: which of the features x has."""

    line: Linear
    by: NDArray[np.bool_]
    error: float
    experiments: int
    classes: int

    def predicted(self, x: Values) -> Values:
        """[3, rows]: forgetting, and the ends of the interval that holds 95 % of what is measured. Forgetting is at most 1."""
        value = self.line.at(x)
        return bounded(value, interval(self.error, self.experiments))


def bounded(value: Values, reach: float | Values) -> Values:
    return np.minimum(np.stack([value, value - reach, value + reach]), 1.0)


def interval(error: float, experiments: int) -> float:
    """To either side. A fit on few experiments is itself uncertain: by one in so many of the errors' variance."""
    return float(NORMAL * error * np.sqrt(1 + 1 / experiments))


def ridge(x: Values, y: Values, strength: float = RIDGE) -> Linear:
    """x [rows, features]; what does not vary has no weight."""
    centre, scale, mean = x.mean(axis=0), x.std(axis=0), float(y.mean())
    scale = np.where(scale > 1e-12 * (1 + np.abs(centre)), scale, np.inf)
    z = (x - centre) / scale
    # Not z.T @ z, for which a library wakes its threads: beside a training they wait for a core.
    gram, moment = np.einsum("ri,rj->ij", z, z), np.einsum("ri,r->i", z, y - mean)
    weights = np.linalg.solve(gram + strength * np.eye(z.shape[1]), moment) / scale
    return Linear(mean - float(centre @ weights), weights)


def left_out(x: Values, y: Values, groups: Sequence[Hashable], strength: float = RIDGE) -> Values:
    """[rows]: predicted by a fit on the rows of all other groups."""
    names = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    of, found = np.array([names[name] for name in groups]), np.full(len(y), np.nan)
    for i in range(len(names)):
        found[of == i] = ridge(x[of != i], y[of != i], strength).at(x[of == i])
    return found


def fitted(x: Values, y: Values, groups: Sequence[Hashable], by: NDArray[np.bool_]) -> Fit:
    """Of two groups at least."""
    error = float(np.sqrt(np.mean((left_out(x, y, groups) - y) ** 2)))
    return Fit(ridge(x, y), by, error, len(set(groups)), len(y))
