"""Accuracy of classes, forgetting of past ones, and how unevenly it is spread: FG, FG-R, FG-HG."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def class_accuracy(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of counts [true, predicted] of test images: the share of each class that is recognised. NaN for a class without any.

    >>> class_accuracy(np.array([[3, 1], [0, 0]])).tolist()
    [0.75, nan]
    """
    images = confusion.sum(axis=1)
    return np.diag(confusion) / np.where(images > 0, images, np.nan)


def forgetting(when_learned: ArrayLike, now: ArrayLike) -> NDArray[np.float64]:
    """FG: normalised loss of test accuracy since the class was learned; 1 is complete forgetting.

    Negative where accuracy improved. NaN where the class was never learned (initial accuracy 0).

    >>> forgetting([0.8, 0.5, 0.0], [0.2, 0.6, 0.1]).round(2).tolist()
    [0.75, -0.2, nan]
    """
    initial = np.asarray(when_learned, np.float64)
    current = np.asarray(now, np.float64)
    return (initial - current) / np.where(initial > 0, initial, np.nan)


def forgetting_range(fg: ArrayLike) -> float:
    """FG-R: most forgotten minus least forgotten class. NaN entries are left out; NaN below two classes.

    >>> forgetting_range([0.75, 0.25, 0.5, float("nan")])
    0.5
    """
    known = _sorted(fg)
    return float(known[-1] - known[0]) if len(known) >= 2 else float("nan")


def forgetting_half_gap(fg: ArrayLike) -> float:
    """FG-HG: mean of the most forgotten half minus mean of the least forgotten half.

    With an odd number the middle class counts to the upper half. NaN entries are left out; NaN below two classes.

    >>> forgetting_half_gap([0.75, 0.25, 0.5, 0.0])
    0.5
    """
    known = _sorted(fg)
    half = len(known) // 2
    return float(known[half:].mean() - known[:half].mean()) if len(known) >= 2 else float("nan")


def _sorted(fg: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(fg, np.float64)
    return np.sort(values[~np.isnan(values)])
