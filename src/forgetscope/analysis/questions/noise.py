"""How much of uneven forgetting is noise of the test images: floors, true spread, reliability and the ceiling of a ranking."""

from collections import defaultdict
from dataclasses import astuple
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from forgetscope.analysis.inputs.cache import Cache, content_of
from forgetscope.analysis.inputs.measured_steps import MeasuredStep
from forgetscope.analysis.inputs.samples import Collected, GridCell, Sample, Subset
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics.estimates import Estimate, correlation_estimate, fisher_z, in_rho, mean_estimate
from forgetscope.analysis.statistics.noise import ceiling_estimate, reliability_estimate, spread_estimate
from forgetscope.analysis.statistics.pooling import per_experiment
from forgetscope.analysis.statistics.rank_correlation import spearman

ESTIMATED = ("variance", "spread", "reliability", "ceiling")
COLUMNS = (
    *("benchmark", "policy", "subset", "rehearsal_pct", "class_pct", "FG-R", "FG-R_floor", "FG-HG", "FG-HG_floor"),
    *(f"{name}{end}" for name in ESTIMATED for end in ("", "_lo", "_hi")),
    *("SIC_rho", "between_runs", "between_runs_lo", "between_runs_hi", "parents"),
    *("images", "n", "paired_n", "basis", "simulated"),
)
PAIRS, COUNTS = "the same test images before and after", "counts of test images, before and after taken as independent"
Values = NDArray[np.float64]
Runs = dict[tuple[str, GridCell, str | None, tuple[int, ...]], dict[str, MeasuredStep]]


def noise(collection: Collected, cache: Cache) -> pd.DataFrame:
    """Per benchmark, policy and step number, over all partitions and in each: what it would look like without any unevenness,
    and how much of it is there. Means over experiments, each over its steps; of correlations in Fisher's z."""
    runs = _runs(collection)
    rows = []
    for sample in collection.samples:
        for step in sample.numbers:
            parts: list[Subset | GridCell] = [Subset(step), *sample.partitions(step)]
            rows += [_row(sample, part, runs, cache) for part in parts]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(sample: Sample, part: Subset | GridCell, runs: Runs, cache: Cache) -> Row:
    mask = sample.mask(part)
    chosen = [sample.steps[i] for i in np.flatnonzero(mask)]
    known = [step for step in chosen if np.isfinite(step.noise).all()]
    roots = sample.roots(mask)

    def per_root(values: ArrayLike) -> Values:
        return per_experiment(values, roots)

    severity = [(quantity, of) for quantity in ("FG-R", "FG-HG") for of in ("value", "floor")]
    values = {name: mean_estimate(per_root(sample.values[name][mask])) for name in severity}
    without, observed = (per_root(sample.values["FG", name][mask]) for name in ("variance", "observed"))
    variance = mean_estimate(without)
    noises = [step.variances for step in known]
    content = content_of(*astuple(variance), *noises)
    ceiling = cache.get("ceiling", content, lambda: {"ends": np.array(astuple(ceiling_estimate(variance, noises))[:3])})["ends"]
    again = _between_runs(chosen, sample, runs)
    found = {
        "variance": variance,
        "spread": spread_estimate(variance),
        "reliability": reliability_estimate(without, observed),
        "ceiling": Estimate(float(ceiling[0]), float(ceiling[1]), float(ceiling[2]), variance.n),
        "between_runs": again,
    }
    paired = sum(bool(step.paired.all()) for step in known)
    images = np.concatenate([step.images for step in known]) if known else np.empty(0)
    return {
        **{"rehearsal_pct": "", "class_pct": "", **sample.where(part)},
        **{quantity if of == "value" else f"{quantity}_{of}": mean.value for (quantity, of), mean in values.items()},
        **{
            f"{name}{end}": value
            for name, one in found.items()
            for end, value in zip(("", "_lo", "_hi"), astuple(one)[:3], strict=True)
        },
        "SIC_rho": in_rho(mean_estimate(per_root(fisher_z(sample.values["SIC", "rho"], sample.ranked)[mask]))).value,
        "parents": again.n,
        "images": float(images.mean()) if len(images) else np.nan,
        "n": variance.n,
        "paired_n": paired,
        "basis": _basis(paired, len(known)),
    }


def _basis(paired: int, steps: int) -> str:
    """What the noise was estimated from."""
    if paired == steps:
        return PAIRS if steps else ""
    return f"{COUNTS}: more noise than there is" + (f" ({steps - paired} of {steps} steps)" if paired else "")


def _runs(collection: Collected) -> Runs:
    """Steps from the same parent to the same new classes, with as much kept: they differ in memory and batches alone."""
    found: Runs = defaultdict(dict)
    for sample in collection.samples:
        for step, cell in zip(sample.steps, sample.cells, strict=True):
            found[sample.benchmark, cell, step.facts.parent, step.facts.new_classes][step.facts.id] = step
    return {key: steps for key, steps in found.items() if len(steps) > 1}


def _between_runs(chosen: list[MeasuredStep], sample: Sample, runs: Runs) -> Estimate:
    """The mean rank correlation of forgetting between such runs, each parent counting once."""
    ids = {step.facts.id for step in chosen}
    rhos, classes = [], []
    for (benchmark, *_), steps in runs.items():
        if benchmark == sample.benchmark and ids & steps.keys():
            pairs = [pair for pair in combinations(steps.items(), 2) if ids & {id for id, _ in pair}]
            rhos.append(np.mean([spearman(one.forgetting, other.forgetting) for (_, one), (_, other) in pairs]))
            classes.append(len(next(iter(steps.values())).forgetting))
    return correlation_estimate(rhos, classes)
