"""One constant on all past logits, so that past classes lose as much as they do elsewhere: on plain arrays.

Adding a constant to all past logits trades accuracy on new classes for forgetting, and its range, half gap and worst class go
along. What is left of a difference at equal mean forgetting is not that trade."""

import math

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def offset_for(mean_forgetting: float, margin: Values, gain: Values) -> float:
    """The constant with which mean forgetting comes nearest to this one, and of all such constants the one nearest to 0.

    margin [n]: largest past minus largest new logit of test images whose largest past logit is that of their own class, which
    are recognised where margin + constant is not negative. gain [n]: by how much mean forgetting falls with each that is
    recognised; it is 1 with none. NaN where it stays further off than the image that counts most.

    >>> import numpy as np
    >>> offset_for(0.5, np.array([2.0, 1.0, -1.0, -3.0]), np.full(4, 0.25))  # two of four are recognised as they are
    0.0
    >>> offset_for(0.25, np.array([2.0, 1.0, -1.0, -3.0]), np.full(4, 0.25))
    1.0
    """
    if math.isnan(mean_forgetting) or not len(margin):
        return math.nan
    order = np.argsort(-margin, kind="stable")
    sorted_margin, reached = margin[order], 1 - np.concatenate([[0.0], np.cumsum(gain[order])])
    ends = np.concatenate([[True], sorted_margin[:-1] != sorted_margin[1:], [True]])  # equal ones move together
    lowest = np.concatenate([[-np.inf], -sorted_margin])[ends]  # of the constants with which these and no more are recognised
    highest = np.concatenate([lowest[1:], [np.inf]])  # which is one too high
    distance = np.abs(reached[ends] - mean_forgetting)
    if distance.min() > gain.max():
        return math.nan
    nearest = np.where(lowest > 0, lowest, np.where(highest > 0, 0.0, np.nextafter(highest, -np.inf)))
    closest = np.flatnonzero(distance <= distance.min() + 1e-12)
    return float(nearest[closest[np.argmin(np.abs(nearest[closest]))]])
