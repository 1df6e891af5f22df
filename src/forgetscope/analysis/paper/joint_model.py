"""SIC, CIC and NIC together: every step's forgetting predicted by a mixed model of the other steps of its partition."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.exhibits.exhibit import MODEL, THREE
from forgetscope.analysis.inputs.cache import Arrays, Cache, content_of
from forgetscope.analysis.inputs.measured_steps import MeasuredStep
from forgetscope.analysis.inputs.samples import GridCell, Sample
from forgetscope.analysis.statistics.estimates import Estimate, t_quantile
from forgetscope.analysis.statistics.mixed_models import fit, group_sums, leave_one_out
from forgetscope.analysis.statistics.rank_correlation import spearman
from forgetscope.threads import available_cores

Values = NDArray[np.float64]

PROBES = 32  # fitted at a time
FITTED = tuple((name, statistic) for name in (MODEL, "SIC_model") for statistic in ("rho", "mae"))  # values of a step
FEWEST = 3  # steps of a partition: with one left out, two are the least that show a variance between steps


@dataclass
class JointModels:
    """Fits per partition, each made once."""

    cache: Cache
    progress: Callable[[str, int, int], None]
    held_out: dict[tuple[str, str], list[Values]] = field(default_factory=dict)  # [S] of [shares, C]: predictions
    _fits: dict[tuple[str, ...], Arrays] = field(default_factory=dict)

    def add_to_values(self, samples: Iterable[Sample]) -> None:
        """Rank correlation and mean absolute error of each held-out step, into the samples' values."""
        waiting = [sample for sample in samples if (sample.benchmark, sample.policy) not in self.held_out]
        cells = [(sample, cell) for sample in waiting for step in sample.numbers for cell in sample.partitions(step)]
        for sample in waiting:
            sample.values |= {name: np.full(len(sample.steps), np.nan) for name in FITTED}
            self.held_out[sample.benchmark, sample.policy] = [np.full((0, len(s.ranked)), np.nan) for s in sample.steps]
        with ThreadPoolExecutor(available_cores()) as pool:  # partitions with many steps are long stretches without the lock
            fits = pool.map(lambda place: self._fitted(_steps(*place)), cells)
            for done, ((sample, cell), found) in enumerate(zip(cells, fits, strict=True), start=1):
                if found is not None:
                    self._add(sample, cell, found)
                self.progress("partitions fitted", done, len(cells))

    def predictions(self, sample: Sample, i: int) -> Values:
        """[shares, C] for a step by the others of its partition; [0, C] where these are too few, or nothing was fitted."""
        held_out = self.held_out.get((sample.benchmark, sample.policy))
        return held_out[i] if held_out else np.empty((0, len(sample.steps[i].ranked)))

    def weights(self, sample: Sample, cell: GridCell) -> dict[str, Estimate]:
        """Standardised fixed effects in a partition; n counts its steps. Empty where there are too few.

        Intervals are Wald's with Student's t of steps - 1: the normal distribution's are too narrow for few steps
        (docs/analysis.md has their coverage)."""
        steps = _steps(sample, cell)
        found = self._fitted(steps)
        if found is None:
            return {}
        numbers = zip(THREE, found["weights"].tolist(), found["weight errors"].tolist(), strict=True)
        reach = t_quantile(len(steps) - 1)
        return {name: Estimate(w, w - reach * error, w + reach * error, len(steps)) for name, w, error in numbers}

    def course(self, sample: Sample, cell: GridCell, read: Callable[[str], Values]) -> tuple[Values, Values] | None:
        """[probes, groups] each: rank correlation and mean absolute error of held-out steps, from the first probes only.

        read: partial sums [probes, 3, C] of a step by its id. None where there are too few steps, or nothing was measured."""
        steps = _steps(sample, cell)
        if len(steps) < FEWEST or not min(len(step.course) for step in steps):
            return None
        content = content_of([step.facts.id for step in steps], *padded(steps))
        found = self.cache.get("joint-course", content, lambda: _fit_course(steps, read))
        return found["rho"].astype(np.float64), found["mae"].astype(np.float64)

    def _add(self, sample: Sample, cell: GridCell, found: Arrays) -> None:
        positions = np.flatnonzero(sample.mask(cell))
        for name in FITTED:
            sample.values[name][positions] = found[" ".join(name)]
        held_out = self.held_out[sample.benchmark, sample.policy]
        for group, position in enumerate(positions):
            held_out[position] = found["predictions"][:, group, : len(sample.steps[position].ranked)].astype(np.float64)

    def _fitted(self, steps: list[MeasuredStep]) -> Arrays | None:
        if len(steps) < FEWEST:
            return None
        ids = tuple(step.facts.id for step in steps)
        if ids not in self._fits:
            x, y = padded(steps)
            self._fits[ids] = self.cache.get("joint", content_of(x, y), lambda: _fit(x, y))
        return self._fits[ids]


def padded(steps: list[MeasuredStep]) -> tuple[Values, Values]:
    """x [shares, groups, rows, 3] and y [groups, rows], NaN where a step has fewer classes."""
    rows = max(len(step.ranked) for step in steps)
    x = np.full((len(steps[0].early), len(steps), rows, len(THREE)), np.nan)
    y = np.full((len(steps), rows), np.nan)
    for group, step in enumerate(steps):
        y[group, : len(step.ranked)] = step.ranked
        x[:, group, : len(step.ranked)] = step.early.transpose(0, 2, 1)
    return x, y


def _fit(x: Values, y: Values) -> Arrays:
    """Of one partition, or of many [..., shares, groups, rows, 3] and [..., groups, rows] at once. The last share is all of
    training; the others are only predicted from."""
    predictions, last = leave_one_out(x, y[..., None, :, :]).predictions, x[..., -1, :, :, :]
    alone = leave_one_out(last[..., :1], y).predictions
    whole = fit(group_sums(last, y))
    scale = whole.standardised / np.where(whole.fixed[..., 1:] == 0, np.nan, whole.fixed[..., 1:])
    errors = np.abs(scale) * np.sqrt(np.diagonal(whole.fixed_covariance, axis1=-2, axis2=-1)[..., 1:])
    found: Arrays = {"predictions": predictions, "weights": whole.standardised, "weight errors": errors}
    for name, predicted in ((MODEL, predictions[..., -1, :, :]), ("SIC_model", alone)):
        found[f"{name} rho"] = spearman(predicted, y)
        found[f"{name} mae"] = _mean_absolute(predicted - y)
    return found


def _fit_course(steps: list[MeasuredStep], read: Callable[[str], Values]) -> Arrays:
    _, y = padded(steps)
    x = np.full((len(steps[0].course), *y.shape, len(THREE)), np.nan)
    for group, step in enumerate(steps):
        x[:, group, : len(step.ranked)] = read(step.facts.id).transpose(0, 2, 1)
    predictions = np.concatenate(
        [leave_one_out(x[start : start + PROBES], y).predictions for start in range(0, len(x), PROBES)]
    )
    return {"rho": spearman(predictions, y), "mae": _mean_absolute(predictions - y)}


def _mean_absolute(errors: Values) -> Values:
    """[groups]: over the rows that are known."""
    known = np.isfinite(errors)
    total = np.where(known, np.abs(errors), 0.0).sum(axis=-1)
    return np.where(known.any(axis=-1), total / np.maximum(known.sum(axis=-1), 1), np.nan)


def _steps(sample: Sample, cell: GridCell) -> list[MeasuredStep]:
    return [sample.steps[i] for i in np.flatnonzero(sample.mask(cell))]
