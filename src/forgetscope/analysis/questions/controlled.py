"""Controlled experiments: per past class the rank correlation of NIC and SIC over runs that differ in their new classes alone.

That they differ in nothing else is read from the records of the runs, before any number is.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forgetscope.analysis.inputs.associations import over_reruns
from forgetscope.analysis.statistics.pooling import mean_of, spread_of
from forgetscope.benchmark.plans import Reruns
from forgetscope.errors import StoreError
from forgetscope.store import Store, StoredStep


@dataclass(frozen=True)
class ClassOverRuns:
    """One past class: Spearman's rho of its NIC and SIC over the runs in which both are known."""

    class_id: int
    class_name: str
    correlation: float
    runs: int


@dataclass(frozen=True)
class Spread:
    """The correlations of all classes of a step, where there is one. No interval: the classes share their runs."""

    classes: int
    mean: float  # Fisher-z, as all means of correlations
    deviation: float  # population standard deviation
    median: float
    quartiles: tuple[float, float]
    extremes: tuple[float, float]
    negative: float  # share of the classes
    positive: float


@dataclass(frozen=True)
class ControlledStep:
    """One picked step and its re-runs."""

    original: str
    step: int
    increment: float
    retention: float
    planned: int  # runs, the original one included
    runs: int  # of these: trained to their end
    diverged: int
    missing: int
    unproved: int  # runs whose record does not tell the weights that they started from
    classes: list[ClassOverRuns]
    spread: Spread


def controlled_results(store: Store, reruns: Sequence[Reruns]) -> list[ControlledStep]:
    """Raises StoreError if runs of one step differ in anything but their new classes."""
    return [_controlled_step(store, picked) for picked in reruns]


def check_unchanged(runs: Sequence[StoredStep]) -> None:
    """The same parent, seed, specification, rehearsal set and initial weights in all runs; only their new classes differ.

    The parent's id stands for everything before the step, data included; seed and step number for all random streams."""
    for run in runs[1:]:
        for (what, mine), first in zip(_facts(run).items(), _facts(runs[0]).values(), strict=True):
            _must_be_equal(run, runs[0], what, mine, first)
    recorded = [run for run in runs if run.start_weights is not None]
    for run in recorded[1:]:
        _must_be_equal(run, recorded[0], "digest of the initial weights", run.start_weights, recorded[0].start_weights)


def _must_be_equal(run: StoredStep, first: StoredStep, what: str, mine: object, theirs: object) -> None:
    if mine != theirs:
        raise StoreError(
            f"Step {run.id[:8]} is no re-run of step {first.id[:8]}: its {what} differs ({mine}, not {theirs}). See "
            "`forgetscope store verify`, delete the folder of the wrong one in steps/, and run the same command again."
        )


def _facts(run: StoredStep) -> dict[str, object]:
    """What must be equal in two runs, by name; initial weights apart, which not every record tells."""
    options, table = run.spec.model_dump(mode="json"), run.table("rehearsal")
    # Of what is in the table: the bytes of the file also tell which version of a library wrote it.
    rehearsed = "".join(f"{name} {table[name].to_pylist()}\n" for name in sorted(table.column_names))
    return {
        "parent": run.parent,
        "data": run.info["data"]["digest"],
        "number of new classes": len(options.pop("classes")),
        **options,
        "rehearsal set": hashlib.sha256(rehearsed.encode()).hexdigest(),
    }


def _controlled_step(store: Store, picked: Reruns) -> ControlledStep:
    ids = (picked.original, *picked.others)
    there = [store.step(id) for id in ids if id in store]
    check_unchanged(there)
    runs = [step for step in there if step.divergence is None]
    classes = _over_runs(runs)
    return ControlledStep(
        original=picked.original,
        step=picked.step,
        increment=picked.partition.increment,
        retention=picked.partition.retention,
        planned=len(ids),
        runs=len(runs),
        diverged=len(there) - len(runs),
        missing=len(ids) - len(there),
        unproved=sum(run.start_weights is None for run in runs),
        classes=classes,
        spread=_spread(classes),
    )


def _over_runs(runs: Sequence[StoredStep]) -> list[ClassOverRuns]:
    """In the order of the head's nodes, which is that of the past classes in every run."""
    if not runs:
        return []
    past = [run.past_classes("class_id", "class_name", "nic", "sic") for run in runs]
    nic, sic = (np.stack([columns[name].astype(np.float64) for columns in past]) for name in ("nic", "sic"))
    found = (past[0]["class_id"], past[0]["class_name"], *over_reruns(nic, sic))
    return [ClassOverRuns(*row) for row in zip(*(column.tolist() for column in found), strict=True)]


def _spread(classes: Sequence[ClassOverRuns]) -> Spread:
    ranked = [found for found in classes if not math.isnan(found.correlation)]
    if not ranked:
        return Spread(0, math.nan, math.nan, math.nan, (math.nan,) * 2, (math.nan,) * 2, math.nan, math.nan)
    rho = np.array([found.correlation for found in ranked])
    lower, median, upper = (float(value) for value in np.quantile(rho, [0.25, 0.5, 0.75]))
    return Spread(
        classes=len(rho),
        mean=mean_of("rho", rho, np.array([found.runs for found in ranked])).value,
        deviation=spread_of(rho),
        median=median,
        quartiles=(lower, upper),
        extremes=(float(rho.min()), float(rho.max())),
        negative=float((rho < 0).mean()),
        positive=float((rho > 0).mean()),
    )
