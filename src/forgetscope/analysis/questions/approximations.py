"""What the paper's approximations cost, on the same runs: the last layer for all, epochs for iterations, NIC as released.

Each form of a coefficient is the plain sum of its terms over its probes. Two forms are compared by how well each ranks the past
classes by forgetting (paired over steps, in Fisher's z) and by how alike they rank the classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.experiments import MEASURES
from forgetscope.analysis.inputs.samples import kept_of
from forgetscope.analysis.statistics.estimates import Estimate, correlation_estimate, mean_estimate
from forgetscope.analysis.statistics.rank_correlation import spearman
from forgetscope.analysis.statistics.t_tests import Difference, paired_correlations
from forgetscope.errors import StoreError
from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.store import (
    ALL_LAYERS,
    EVERY_ITERATION,
    OF_METHOD,
    RELEASED,
    Recording,
    Setting,
    Store,
    StoredStep,
    TellLeftOut,
    first_step,
    trainings,
)

Values = NDArray[np.float64]

COUNTS = (2, 3, 5, 10, 20)  # probes of a thinned sum


@dataclass(frozen=True)
class Contrast:
    """A coefficient in the paper's form and in another, over steps of one setting."""

    coefficient: str
    form: str  # the other form: `all layers`, `every iteration`, `released` or `method`
    steps: int
    usual: Estimate  # rank correlation with forgetting
    other: Estimate
    difference: Difference  # other minus usual, in z
    agreement: Estimate  # rank correlation of the two forms over the past classes
    error: Estimate | None  # relative distance of the values, usual from other; None where they are not meant to be equal


@dataclass(frozen=True)
class Thinning:
    """A coefficient from some of the iterations, against its sum over all of them."""

    coefficient: str
    spacing: str
    probes: Estimate  # how many; the mean over steps
    agreement: Estimate  # rank correlation with the sum over every iteration
    error: Estimate  # relative distance of the values, scaled to the number of iterations
    rho: Estimate  # rank correlation with forgetting
    difference: Difference  # of that to what the sum over every iteration gives, in z


@dataclass(frozen=True)
class Cost:
    """One measure's time, as a multiple of the time that the step's training took."""

    measure: str
    probes: Estimate
    share: Estimate  # all of its probes together / training
    epoch: Estimate  # one of its probes / one epoch of training


@dataclass(frozen=True)
class Approximations:
    """Everything for the steps of one setting."""

    setting: str
    step: int
    steps: int
    contrasts: list[Contrast]
    thinnings: list[Thinning]
    costs: list[Cost]


def approximations(store: Store, left_out: TellLeftOut | None = None) -> list[Approximations]:
    """Per setting and step number; raises StoreError if no step of the store measured anything beside the probes.

    left_out: is told of damaged records; without it, the first is an error."""
    groups: dict[tuple[int, Setting], list[_Step]] = {}
    steps = {step.id: step for step in store.readable(left_out)}
    parents = {id: step.parent for id, step in steps.items()}
    records = [Recording.of(id, stored.info) for id, stored in steps.items()]
    named = trainings(records)
    for one in sorted(records, key=lambda one: (one.exactness, one.committed, one.id), reverse=True):
        stored = steps[one.id]
        if stored.has("extra") and stored.divergence is None:
            first = steps.get(first_step(one.id, parents), stored)
            setting = replace(one.setting, network_source=first.setting.network_source)
            groups.setdefault((stored.number, setting), []).append(_Step(stored, named[one.id]))
    if not groups:
        raise StoreError(
            f"No step in {store.path} measured anything beside the probes. Set all_layers_every, every_iteration, "
            "released_nic or method_interference in a run or a benchmark (`forgetscope config`), and run it."
        )
    titled = [((_title(setting), step), group) for (step, setting), group in groups.items()]
    return [
        Approximations(
            setting=title,
            step=step,
            steps=len({step.training for step in group}),
            contrasts=list(_contrasts(group)),
            thinnings=list(_thinnings(group)),
            costs=list(_costs(group)),
        )
        for (title, step), group in sorted(titled, key=lambda pair: pair[0])
    ]


class _Step:
    """A step's tables as arrays over the past classes whose forgetting is defined."""

    def __init__(self, stored: StoredStep, training: str) -> None:
        self.stored, self.training = stored, training
        past = stored.past_classes("class_id", "forgetting")
        known = ~np.isnan(past["forgetting"].astype(np.float64))
        self.class_ids = past["class_id"][known].tolist()
        self.forgetting = past["forgetting"][known].astype(np.float64)

    @cached_property
    def probes(self) -> pd.DataFrame:
        frame: pd.DataFrame = self.stored.table("probes").to_pandas()
        return frame

    @cached_property
    def extra(self) -> dict[str, pd.DataFrame]:
        frame: pd.DataFrame = self.stored.table("extra").to_pandas()
        return {str(measure): rows for measure, rows in frame.groupby("measure")}

    def terms(self, rows: pd.DataFrame, coefficient: str) -> tuple[NDArray[np.int64], Values]:
        """Iterations [probes], and terms [probes, classes]; NaN where a term is missing."""
        table = rows.pivot(index="iteration", columns="class_id", values=coefficient).sort_index()
        return table.index.to_numpy(np.int64), table[self.class_ids].to_numpy(np.float64)


def _with(form: str, group: Sequence[_Step]) -> list[_Step]:
    """Steps that measured in this form, each training once, by the first of these."""
    found = {step.training: step for step in reversed(group) if form in step.extra}
    return sorted(found.values(), key=lambda step: step.stored.id)


def _contrasts(group: Sequence[_Step]) -> Iterator[Contrast]:
    for form in (ALL_LAYERS, EVERY_ITERATION, RELEASED, OF_METHOD):
        coefficients = ("nic",) if form == RELEASED else COEFFICIENTS
        steps = _with(form, group)
        for coefficient in coefficients if steps else ():
            both = [_two_forms(step, form, coefficient) for step in steps]
            ranked = [len(step.class_ids) for step in steps]
            usual, other = (_rankings(steps, forms) for forms in zip(*both, strict=True))
            yield Contrast(
                coefficient=MEASURES[coefficient],
                form=form,
                steps=len(steps),
                usual=correlation_estimate(usual, ranked),
                other=correlation_estimate(other, ranked),
                difference=paired_correlations(other, usual, ranked),
                agreement=correlation_estimate([spearman(*pair) for pair in both], ranked),
                error=mean_estimate([_distance(*pair) for pair in both]) if form == EVERY_ITERATION else None,
            )


def _two_forms(step: _Step, form: str, coefficient: str) -> tuple[Values, Values]:
    """The paper's form and the other: at the probes that both have; for every iteration, both as means over training."""
    at, last = step.terms(step.probes, coefficient)
    there, other = step.terms(step.extra[form], coefficient)
    if form == EVERY_ITERATION:
        return last.mean(axis=0), other.mean(axis=0)
    return last[np.isin(at, there)].sum(axis=0), other[np.isin(there, at)].sum(axis=0)


def _thinnings(group: Sequence[_Step]) -> Iterator[Thinning]:
    steps = _with(EVERY_ITERATION, group)
    for coefficient in COEFFICIENTS if steps else ():
        every = [step.terms(step.extra[EVERY_ITERATION], coefficient)[1] for step in steps]
        ranked = [len(step.class_ids) for step in steps]
        full = _rankings(steps, [terms.sum(axis=0) for terms in every])
        ways = [spacings(len(t), step.stored.spec.training.epochs) for t, step in zip(every, steps, strict=True)]
        for spacing in ways[0]:
            chosen = [terms[way[spacing]] for terms, way in zip(every, ways, strict=True)]
            rho = _rankings(steps, [terms.sum(axis=0) for terms in chosen])
            pairs = [(some.mean(axis=0), terms.mean(axis=0)) for some, terms in zip(chosen, every, strict=True)]
            yield Thinning(
                coefficient=MEASURES[coefficient],
                spacing=spacing,
                probes=mean_estimate([len(some) for some in chosen]),
                agreement=correlation_estimate([spearman(*pair) for pair in pairs], ranked),
                error=mean_estimate([_distance(*pair) for pair in pairs]),
                rho=correlation_estimate(rho, ranked),
                difference=paired_correlations(rho, full, ranked),
            )


def _rankings(steps: Sequence[_Step], forms: Sequence[Values]) -> list[float]:
    """How well a form of a coefficient ranks the past classes of each step by forgetting."""
    return [float(spearman(form, step.forgetting)) for form, step in zip(forms, steps, strict=True)]


def spacings(iterations: int, epochs: int) -> dict[str, NDArray[np.int64]]:
    """Ways to pick some of the iterations 0 to T - 1 to measure before, by name; numbers that coincide count once."""
    last = iterations - 1
    found: dict[str, Values | NDArray[np.int64]] = {
        "before each epoch": np.arange(epochs) * (iterations // epochs),
        "first quarter of the epochs": np.arange(-(-epochs // 4)) * (iterations // epochs),
        "first quarter of the iterations": np.arange(-(-iterations // 4)),
    }
    for count in COUNTS:
        if count <= iterations:
            found[f"uniform, {count}"] = np.linspace(0, last, count)
            found[f"first quarter, {count}"] = np.linspace(0, -(-iterations // 4) - 1, count)
            found[f"geometric, {count}"] = np.geomspace(1, iterations, count) - 1
    return {name: np.unique(np.rint(chosen).astype(np.int64)) for name, chosen in found.items()}


def _costs(group: Sequence[_Step]) -> Iterator[Cost]:
    """Training is what a step's time leaves when all measurements are taken off: it includes evaluation and saving."""
    for measure, timing in (
        ("probes", "probe_seconds"),
        (ALL_LAYERS, "all_layers_seconds"),
        (EVERY_ITERATION, "every_iteration_seconds"),
    ):
        counts, shares, epochs = [], [], []
        for step in group:
            timings = step.stored.info["timings"]
            if timing in timings:
                training = timings["seconds"] - sum(value for name, value in timings.items() if name != "seconds")
                rows = step.probes if measure == "probes" else step.extra[measure]
                counts.append(rows["iteration"].nunique())
                shares.append(timings[timing] / training)
                epochs.append(shares[-1] * step.stored.spec.training.epochs / counts[-1])
        if counts:
            yield Cost(measure, mean_estimate(counts), mean_estimate(shares), mean_estimate(epochs))


def _distance(values: Values, reference: Values) -> float:
    """||values - reference|| / ||reference|| over the classes for which both are known."""
    known = ~np.isnan(values + reference)
    return float(np.linalg.norm((values - reference)[known]) / np.linalg.norm(reference[known]))


def _title(setting: Setting) -> str:
    options = setting.options
    kept = kept_of(options) if options["retention"] is None else f"retention {options['retention']:g}"
    kept += "" if options["quota"] is None else f" by {options['quota']}"
    new, epochs = f"{options['classes']} new classes", f"{options['epochs']} epochs"
    method = [] if options.get("method") is None else [setting.method[0]]
    return ", ".join((setting.data, setting.network, new, kept, options["policy"], *method, epochs))
