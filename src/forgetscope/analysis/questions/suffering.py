"""Which classes suffer: the mean forgetting of each class over the steps in which it is a past class."""

import numpy as np
import pandas as pd

from forgetscope.analysis.inputs.samples import Collected, Sample, Subset
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics.estimates import mean_estimate
from forgetscope.analysis.statistics.pooling import per_experiment
from forgetscope.store import Store

COLUMNS = ("benchmark", "policy", "subset", "class_id", "class_name", "mean", "mean_lo", "mean_hi", "n", "simulated")


def class_forgetting(collection: Collected, store: Store) -> pd.DataFrame:
    """Per benchmark, step number and class, most forgotten first; means and t intervals over experiments, each over its steps.
    store: to look up names."""
    rows = []
    for sample in collection.samples:
        names = _names(sample, store)
        rows += [row for number in sample.numbers for row in _classes(sample, number, names)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _names(sample: Sample, store: Store) -> dict[int, str]:
    """Of all past classes, by id, from as few steps as hold them."""
    names: dict[int, str] = {}
    for step in sample.steps:
        if not names.keys() >= set(step.class_ids.tolist()):
            table = store.step(step.facts.id).table("classes", ["class_id", "class_name"])
            names |= dict(zip(table["class_id"].to_pylist(), table["class_name"].to_pylist(), strict=True))
    return names


def _classes(sample: Sample, number: int, names: dict[int, str]) -> list[Row]:
    values: dict[int, list[tuple[float, str]]] = {}
    for i in np.flatnonzero(sample.mask(Subset(number))):
        step = sample.steps[i]
        for id, forgetting in zip(step.class_ids.tolist(), step.forgetting.tolist(), strict=True):
            values.setdefault(id, []).append((forgetting, sample.root[i]))
    found = [(id, mean_estimate(per_experiment(*zip(*of, strict=True)))) for id, of in values.items()]
    found.sort(key=lambda pair: (-pair[1].value if pair[1].n else np.inf, pair[0]))
    numbers = ({"mean": mean.value, "mean_lo": mean.low, "mean_hi": mean.high, "n": mean.n} for _, mean in found)
    where = sample.where(Subset(number))
    return [where | {"class_id": id, "class_name": names[id]} | own for (id, _), own in zip(found, numbers, strict=True)]
