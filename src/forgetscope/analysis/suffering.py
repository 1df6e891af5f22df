"""Which classes suffer: the mean forgetting of each class over the steps in which it is a past class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from forgetscope.analysis.samples import Collection, Sample, Subset
from forgetscope.analysis.statistics import mean_estimate

COLUMNS = ("benchmark", "policy", "subset", "class_id", "mean", "mean_lo", "mean_hi", "n", "simulated")


def class_forgetting(collection: Collection) -> pd.DataFrame:
    """Per benchmark, step number and class, most forgotten first; t intervals over steps."""
    rows = [row for sample in collection.samples for number in sample.numbers for row in _classes(sample, number)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _classes(sample: Sample, number: int) -> list[dict[str, Any]]:
    values: dict[int, list[float]] = {}
    for i in np.flatnonzero(sample.mask(Subset(number))):
        step = sample.steps[i]
        for id, forgetting in zip(step.class_ids.tolist(), step.forgetting.tolist(), strict=True):
            values.setdefault(id, []).append(forgetting)
    where = {"benchmark": sample.benchmark, "policy": sample.policy, "subset": str(number)}
    found = [(id, mean_estimate(forgetting)) for id, forgetting in values.items()]
    return [
        {
            **where,
            "class_id": id,
            **{"mean": estimate.value, "mean_lo": estimate.low, "mean_hi": estimate.high, "n": estimate.n},
            "simulated": sample.simulated is not None,
        }
        for id, estimate in sorted(found, key=lambda pair: (-pair[1].value if pair[1].n else np.inf, pair[0]))
    ]
