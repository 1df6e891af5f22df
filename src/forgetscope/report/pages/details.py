"""All about the classes of one step, as a page holds it: trajectories, losses, accuracies, sources, what is taken for what."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.report.pages.packing import number, numbers
from forgetscope.store import COEFFICIENTS, StoredTables

Values = NDArray[np.float64]

DIGITS = 4  # significant, of final values
MOMENTS = 21  # of a trajectory that are kept at most, first and last included
SOURCES = 6  # classes that interfered most, for better or worse
UNITS = 500  # that the largest value of a trajectory has; twice what a chart shows
LOSSES = ("loss_full", "loss_rehearsal")
UNKNOWN = "Its loss on all images is unknown: of past classes nothing was at hand but what is in memory."


def detail(step: StoredTables, classes: Sequence[int], before: Sequence[StoredTables], *, simulated: bool) -> dict[str, Any]:
    """Of these past classes of a step; before: the steps that it was built on, as far as they are there."""
    return {
        **_trajectories(step, classes, simulated=simulated),
        "accuracies": _accuracies([*before, step], classes),
        "new": list(step.new_classes),
        "sources": _sources(step.table("pairs").to_pandas(), classes),
        "matrix": _matrix(step),
    }


def trace(line: Values) -> list[float | int | None]:
    """A line of numbers as a unit, and its values in such units, each as the difference to the known one before it; null where
    missing. Small whole numbers are what compresses best, and lines are most of a page."""
    known = np.isfinite(line)
    unit = (number(float(np.abs(line[known]).max()) / UNITS, DIGITS) if known.any() else None) or 1.0
    whole = np.round(line[known] / unit).astype(np.int64)
    found: list[float | int | None] = [None] * len(line)
    for place, difference in zip(np.flatnonzero(known).tolist(), np.diff(whole, prepend=0).tolist(), strict=True):
        found[place] = difference
    return [unit, *found]


def _trajectories(step: StoredTables, classes: Sequence[int], *, simulated: bool) -> dict[str, Any]:
    """Each coefficient so far, once a term is missing missing for good; the mean losses on all images of a class and on its
    rehearsed ones, or why there are none; and its forecast, where there is one. Moments are spread evenly over training."""
    iterations, sums = step.partial_sums(classes)
    count = len(iterations)
    if not count:
        return {"iterations": [], "no_losses": "Nothing was measured along training, so its losses are unknown."}
    kept = np.unique(np.linspace(0, count - 1, min(count, MOMENTS)).round().astype(int))
    lines = dict(zip(COEFFICIENTS, sums[kept].transpose(1, 2, 0), strict=True))  # one per class
    probes = step.table("probes").to_pandas()
    for name in ("forecast",) if simulated else (*LOSSES, "forecast"):
        if name in probes and probes[name].notna().any():
            table = probes.pivot(index="probe", columns="class_id", values=name)  # of an observed step some may be missing
            values = table.reindex(columns=list(classes)).to_numpy(np.float64)
            lines[name] = values[kept].T
    traces = {name: [trace(line) for line in own] for name, own in lines.items()}
    why = {"no_losses": "Losses are not simulated." if simulated else UNKNOWN} if "loss_full" not in lines else {}
    return {"iterations": iterations[kept].tolist(), **traces, **why}


def _accuracies(steps: Sequence[StoredTables], classes: Sequence[int]) -> list[list[float | None]]:
    """Per class: its test accuracy after every step so far, null before it was learned and where a step is not there."""
    columns = [dict[int, float]() for _ in range(steps[-1].number)]
    for step in steps:
        table = step.table("classes")
        columns[step.number - 1] = dict(zip(table["class_id"].to_pylist(), table["accuracy"].to_pylist(), strict=True))
    return [numbers((np.nan if (found := column.get(id)) is None else found for column in columns), DIGITS) for id in classes]


def _sources(pairs: pd.DataFrame, classes: Sequence[int]) -> list[list[list[float | None]]]:
    """Per class: the source classes with the largest terms of either sign, strongest first."""
    found: dict[int, list[list[float | None]]] = {}
    if not pairs.empty:
        order = pairs["term"].abs().sort_values(ascending=False, kind="stable").index
        strongest = pairs.loc[order].dropna(subset="term").groupby("class_id").head(SOURCES)
        rows = strongest[["class_id", "source_class_id", "term"]].to_numpy(np.float64).tolist()
        for id, source, term in rows:
            found.setdefault(int(id), []).append(numbers((source, term), DIGITS))
    return [found.get(id, []) for id in classes]


def _matrix(step: StoredTables) -> dict[str, list[int]]:
    """Test images of each class by what they are taken for: cells with images, from left to right and line by line, as how many
    cells further and how many images. Lines and columns are the classes in the order of the head."""
    rows = step.table("classes", ["class_id", "head_node"]).to_pandas().sort_values("head_node")
    classes, counts = rows["class_id"].tolist(), step.table("confusion").to_pandas()
    place = {id: i for i, id in enumerate(classes)}
    counts = counts[counts["count"].gt(0) & counts["true"].isin(place) & counts["predicted"].isin(place)]
    at = counts["true"].map(place).to_numpy(np.int64) * len(classes) + counts["predicted"].map(place).to_numpy(np.int64)
    order = np.argsort(at)
    further = np.diff(at[order], prepend=-1).tolist()
    return {"classes": classes, "further": further, "images": counts["count"].to_numpy()[order].tolist()}
