"""A small data set of one's own, of noise."""

from __future__ import annotations

import numpy as np

from forgetscope.data.acquisition import add_arrays
from forgetscope.data.images import DataSet


def own(name: str = "mine", shape: tuple[int, int] = (16, 16)) -> DataSet:
    rng = np.random.default_rng(0)
    train, test = (rng.integers(256, size=(n, *shape, 3), dtype=np.uint8) for n in (7, 3))
    return add_arrays(name, train, [0, 0, 0, 0, 1, 1, 2], test, [0, 1, 2], ["a", "b", "c"])
