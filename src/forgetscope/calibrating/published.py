"""Calibrations between past and new classes that treat all past classes alike: a constant, weight aligning, bias correction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forgetscope.calibrating.adjustment import Adjustment, Calibration, Values, demand_past
from forgetscope.errors import InputError

LOGITS = 0.5  # of the constant
RIDGE = 1e-4  # on (scale - 1, offset): where held-out images are separated without an error the loss alone has no minimum
LEAST = 0.01  # of a scale
CLOSE = 1e-10  # of the gradient
ROUNDS = 200


def offset(size: int, past: int, logits: float = LOGITS) -> Calibration:
    """One constant on the logits of all past classes: the control of whatever else makes them likelier.

    It trades accuracy on new classes for mean forgetting, and says nothing about which class is forgotten.

    >>> offset(4, 2).adjustment.offsets.tolist()
    [0.5, 0.5, 0.0, 0.0]
    """
    demand_past(size, past)
    if not np.isfinite(logits):
        raise InputError(f"logits = {logits} is not a finite number: it is added to the logits of all past classes.")
    gain, cost = ("past", "new") if logits > 0 else ("new", "past")
    said = (
        f"The odds of each past class against each new one become {np.exp(logits):.2f} times what they were. Expected: more "
        f"images of {gain} classes are recognised, and fewer of {cost} ones; how many, nothing here tells."
    )
    adjustment = Adjustment.by_node(size, dict.fromkeys(range(past), logits))
    return Calibration(adjustment=adjustment, said="Nothing changes." if not logits else said, numbers={"logits": logits})


def weight_aligning(weight: NDArray[np.floating], bias: NDArray[np.floating] | None, past: int) -> Calibration:
    """New rows of the head as long as past ones are on average (Zhao et al. 2020, equations 6 and 7).

    weight [k, d]; bias [k], or None. It acts on w x and not on the bias b: a new logit z becomes g (z - b) + b with
    g = mean norm of past rows / mean norm of new rows.

    >>> found = weight_aligning(np.array([[3.0, 4.0], [6.0, 8.0]]), np.array([0.0, 1.0]), 1)
    >>> found.adjustment.scales.tolist(), found.adjustment.offsets.tolist()
    ([1.0, 0.5], [0.0, 0.5])
    """
    rows = np.asarray(weight, np.float64)
    demand_past(len(rows), past)
    biases = np.zeros(len(rows)) if bias is None else np.asarray(bias, np.float64)
    norms = np.sqrt(np.square(rows).sum(axis=1))
    of_past, of_new = float(norms[:past].mean()), float(norms[past:].mean())
    if not (np.isfinite(norms).all() and np.isfinite(biases).all() and of_past > 0 and of_new > 0):
        raise InputError(
            f"Rows of the head are {of_past:g} long for past classes and {of_new:g} for new ones: nothing to align."
        )
    scale = of_past / of_new
    is_new = np.arange(len(rows)) >= past
    side = "past" if scale < 1 else "new"
    said = (
        f"Rows of past classes are {of_past:.2f} long on average and those of new ones {of_new:.2f}, which are scaled by "
        f"{scale:.2f}. Expected: predictions move towards {side} classes wherever new logits are positive; how many, "
        "nothing here tells."
    )
    return Calibration(
        adjustment=Adjustment(np.where(is_new, scale, 1.0), np.where(is_new, (1 - scale) * biases, 0.0)),
        said=said,
        numbers={"scale": scale, "past_norm": of_past, "new_norm": of_new},
    )


def bias_correction(logits: NDArray[np.floating], nodes: NDArray[np.integer], past: int) -> Calibration:
    """A scale a and an offset b of all new logits, a z + b, that fit held-out images best (BiC: Wu et al. 2019, equation 4).

    logits [n, k], nodes [n]: of images that training has never seen. The cross-entropy is over all classes, and each counts
    the same whatever the number of its images. It is convex in (a, b) and solved by Newton's method to its minimum, where
    the source takes steps of SGD; with a ridge of 1e-4 on (a - 1, b), and a at least 0.01.

    Of two past images one is taken for a new one:

    >>> logits, nodes = np.array([[2.0, 1], [2, 3], [0, 3], [0, 4]]), np.array([0, 0, 1, 1])
    >>> found = bias_correction(logits, nodes, past=1)
    >>> logits.argmax(axis=1).tolist(), found.adjustment.of(logits).argmax(axis=1).tolist()
    ([0, 1, 1, 1], [0, 0, 1, 1])
    """
    given, labels = np.asarray(logits, np.float64), np.asarray(nodes, np.int64)
    weights = balanced(given, labels, past)
    problem = _Correction(given, labels, past, weights)
    scale, shift = problem.solved()
    is_new = np.arange(given.shape[1]) >= past
    adjustment = Adjustment(np.where(is_new, scale, 1.0), np.where(is_new, shift, 0.0))
    losses = [problem.loss(np.array(at)) for at in ((1.0, 0.0), (scale, shift))]
    right = [_recognised(values, labels, past, weights) for values in (given, adjustment.of(given))]
    said = (
        f"New logits are scaled by {scale:.2f} and moved by {shift:+.2f}. Expected, from {len(labels):,} held-out images: "
        f"{right[1][0]:.3f} of past images are recognised where it was {right[0][0]:.3f}, and {right[1][1]:.3f} of new ones "
        f"where it was {right[0][1]:.3f}."
    )
    numbers = {"scale": scale, "offset": shift, "images": float(len(labels)), "loss_before": losses[0], "loss": losses[1]}
    for name, (of_past, of_new) in zip(("_before", ""), right, strict=True):
        numbers |= {f"past{name}": of_past, f"new{name}": of_new}
    return Calibration(adjustment=adjustment, said=said, numbers=numbers)


def balanced(logits: Values, nodes: NDArray[np.int64], past: int) -> Values:
    """[n]: weights under which every class counts the same, 1 together. Held-out images that cannot be used are refused."""
    if logits.ndim != 2 or nodes.shape != logits.shape[:1]:
        raise InputError(f"Logits {logits.shape} and nodes {nodes.shape} are not [n, k] and [n].")
    demand_past(logits.shape[1], past)
    if len(nodes) and not 0 <= nodes.min() <= nodes.max() < logits.shape[1]:
        raise InputError(f"Nodes from {nodes.min()} to {nodes.max()} are not all among the {logits.shape[1]} of the head.")
    counts = np.bincount(nodes, minlength=logits.shape[1])
    if not counts.all():
        without = int(np.flatnonzero(counts == 0)[0])
        raise InputError(f"Class {without} of the head has no held-out image, and all need one. Hold out more of each class.")
    if not np.isfinite(logits).all():
        raise InputError("Logits of held-out images are not finite. Look whether the loss of the training became NaN.")
    found: Values = 1 / counts[nodes] / len(counts)
    return found


class _Correction:
    """The loss as a function of (a, b)."""

    def __init__(self, logits: Values, nodes: NDArray[np.int64], past: int, weights: Values) -> None:
        self._logits, self._weights = logits, weights
        self._is_new = np.arange(logits.shape[1]) >= past
        self._rows, self._nodes = np.arange(len(nodes)), nodes

    def loss(self, at: Values) -> float:
        own = self._log_probabilities(at)[self._rows, self._nodes]
        return float(-(self._weights * own).sum())

    def _log_probabilities(self, at: Values) -> Values:
        found = np.where(self._is_new, at[0] * self._logits + at[1], self._logits)
        found = found - found.max(axis=1, keepdims=True)
        logs: Values = found - np.log(np.exp(found).sum(axis=1, keepdims=True))
        return logs

    def _ridged(self, at: Values) -> float:
        return self.loss(at) + RIDGE / 2 * float((at[0] - 1) ** 2 + at[1] ** 2)

    def _slopes(self, at: Values) -> tuple[Values, Values]:
        """Gradient [2] and Hessian [2, 2]."""
        odds = np.exp(self._log_probabilities(at)) * self._is_new
        of_logit = self._logits * self._is_new
        first = np.stack([(odds * of_logit).sum(axis=1), odds.sum(axis=1)])  # of each image: the mean of (z, 1)
        own = np.stack([of_logit[self._rows, self._nodes], self._is_new[self._nodes].astype(float)])
        ridge = RIDGE * np.array([at[0] - 1, at[1]])
        gradient = (self._weights * (first - own)).sum(axis=1) + ridge
        square, cross = (odds * of_logit**2).sum(axis=1), first[0]
        second = np.array([[square, cross], [cross, first[1]]]) - first[:, None] * first[None]
        hessian: Values = (self._weights * second).sum(axis=2) + RIDGE * np.eye(2)
        return gradient, hessian

    def solved(self) -> tuple[float, float]:
        """The minimum. As the loss is convex, that with a at least LEAST is on the border if the one without is beyond it."""
        found = self._newton(np.array([1.0, 0.0]), free=slice(0, 2))
        if found[0] < LEAST:
            found = self._newton(np.array([LEAST, 0.0]), free=slice(1, 2))
        return float(found[0]), float(found[1])

    def _newton(self, at: Values, free: slice) -> Values:
        for _ in range(ROUNDS):
            gradient, hessian = (part[free] for part in self._slopes(at))
            if np.abs(gradient).max() < CLOSE:
                break
            step, size, here = np.zeros(2), 1.0, self._ridged(at)
            step[free] = np.linalg.solve(hessian[:, free], gradient)
            while size > 1e-12 and self._ridged(at - size * step) > here - 1e-4 * size * float(gradient @ step[free]):
                size /= 2
            if size <= 1e-12:  # rounding is all that is left
                break
            at = at - size * step
        return at


def _recognised(logits: Values, nodes: NDArray[np.int64], past: int, weights: Values) -> tuple[float, float]:
    """Mean accuracy over past and over new classes."""
    right, is_new = logits.argmax(axis=1) == nodes, nodes >= past
    of_past, of_new = (float((weights * right)[part].sum() / weights[part].sum()) for part in (~is_new, is_new))
    return of_past, of_new
