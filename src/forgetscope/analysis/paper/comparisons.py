"""Differences: between second and third steps, between data sets, between coefficients of the same steps, within pairs.

Correlations are compared in Fisher's z, everything else as it is.
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.exhibits.exhibit import MODEL
from forgetscope.analysis.inputs.samples import Collected, GridCell, Mask, Name, Sample, Subset
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics import pooling
from forgetscope.analysis.statistics.estimates import Estimate, fisher_z, mean_estimate
from forgetscope.analysis.statistics.t_tests import Difference, paired, welch

Values = NDArray[np.float64]

COMPARED: tuple[Name, ...] = (
    ("FG-R", "value"),
    ("FG-HG", "value"),
    *((name, statistic) for name in ("SIC", "CIC", "NIC", "ALL-NIC", "LOG-SIM") for statistic in ("rho", "rho_p")),
    ("SIC-NIC", "rho"),
    (MODEL, "rho"),
    (MODEL, "mae"),
)
COLUMNS = (
    *("comparison", "test", "scale", "benchmark", "against", "policy", "subset", "rehearsal_pct", "class_pct"),
    *("quantity", "statistic", "difference", "low", "high", "p", "n", "simulated"),
)


def on_its_scale(sample: Sample, name: Name) -> Values:
    """[S]: correlations in z, other values as they are."""
    values = sample.values[name]
    return fisher_z(values, sample.ranked) if name[1].startswith("rho") else values


def between_steps(sample: Sample, earlier: Subset, later: Subset, name: Name) -> Difference:
    """Later minus earlier, Welch's test."""
    values = on_its_scale(sample, name)
    return welch(*(per_experiment(sample, sample.mask(part), values) for part in (later, earlier)))


def between_samples(sample: Sample, against: Sample, subset: Subset, name: Name) -> Difference:
    """Sample minus the other, Welch's test."""
    return welch(*(per_experiment(own, own.mask(subset), on_its_scale(own, name)) for own in (sample, against)))


def within_steps(sample: Sample, subset: Subset, name: Name, against: Name) -> Estimate:
    """The mean difference of two quantities of the same steps."""
    change = on_its_scale(sample, name) - on_its_scale(sample, against)
    return mean_estimate(per_experiment(sample, sample.mask(subset), change))


def steadiness(sample: Sample, subset: Subset, name: Name, against: Name) -> Estimate:
    """By how much less the first varies from step to step: the mean difference of absolute deviations from the median, which
    the test of Brown and Forsythe (1974) compares, here in pairs. Correlations as they are. Unknown below three steps."""
    both = np.stack([sample.values[name], sample.values[against]])
    known = sample.mask(subset) & np.isfinite(both).all(axis=0)
    if known.sum() < 3:
        return Estimate(np.nan, np.nan, np.nan, int(known.sum()))
    own, other = np.abs(both - np.median(both[:, known], axis=1, keepdims=True))
    return mean_estimate(per_experiment(sample, known, other - own))


def between_levels(sample: Sample, subset: Subset, factor: str, levels: tuple[str, str], values: Values) -> Difference:
    """The first level of `retention` or `increment` minus the second. Values [S] of one experiment count once in a level, and
    experiments that have both, as in a paired design, are compared with themselves."""
    own = np.array([getattr(cell, factor) for cell in sample.cells])
    masks = [sample.mask(subset) & (own == level) for level in levels]
    parts = [pooling.by_experiment(values[mask], sample.roots(mask)) for mask in masks]
    both = [root for root in parts[0] if root in parts[1]]
    if both:
        return paired([parts[0][root] for root in both], [parts[1][root] for root in both])
    return welch(list(parts[0].values()), list(parts[1].values()))


def per_experiment(sample: Sample, mask: Mask, values: Values) -> Values:
    """Of values [S]: those of the mask, one mean per experiment."""
    return pooling.per_experiment(values[mask], sample.roots(mask))


def neighbours(sample: Sample) -> Iterator[tuple[Subset, Subset]]:
    """Steps and those that follow, with the same increments in both."""
    for number in sample.numbers[:-1]:
        if number + 1 in sample.numbers:
            yield sample.in_common(number, number + 1), sample.in_common(number + 1, number)


def comparable(collection: Collected) -> Iterator[tuple[Sample, Sample]]:
    """Pairs of samples with different data sets, both trained or both simulated, under the same policy."""
    for one, other in combinations(collection.samples, 2):
        same = one.policy == other.policy and (one.simulated is None) == (other.simulated is None)
        if same and one.dataset != other.dataset:
            yield other, one


def comparisons(collection: Collected) -> pd.DataFrame:
    rows = [*_steps(collection), *_data_sets(collection), *_pairs(collection)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _steps(collection: Collected) -> Iterator[Row]:
    for sample in collection.samples:
        for earlier, later in neighbours(sample):
            where = {"subset": f"{later} against {earlier}"}
            for name in _known(sample):
                yield _row("steps", "Welch", sample, name, between_steps(sample, earlier, later, name), where)
                yield _row("steps", "paired by experiment", sample, name, _paired(sample, earlier, later, name), where)


def _data_sets(collection: Collected) -> Iterator[Row]:
    for sample, against in comparable(collection):
        for subset in sample.subsets:
            for name in _known(sample) if subset in against.subsets else ():
                found = between_samples(sample, against, subset, name)
                yield _row("data sets", "Welch", sample, name, found, subset.keys, against.benchmark)


def _pairs(collection: Collected) -> Iterator[Row]:
    """Where designs are paired: retentions, and policies, of the same sequence and seed."""
    for sample in collection.samples:
        if sample.paired:
            for step in sample.numbers:
                for increment in sample.increments(step):
                    for low, high in combinations(sample.retentions(step), 2):
                        cells = [GridCell(step, level, increment) for level in (high, low)]
                        where = GridCell(step, f"{high} against {low}", increment).keys
                        yield from _paired_rows("retentions", (sample, sample), cells, where, sample.benchmark)
    for one, other in combinations(collection.samples, 2):
        if one.benchmark == other.benchmark:
            for step in one.numbers:
                for cell in one.partitions(step):
                    yield from _paired_rows("policies", (other, one), [cell, cell], cell.keys, one.policy)


def _paired_rows(
    comparison: str, samples: tuple[Sample, Sample], cells: list[GridCell], where: Row, against: str
) -> Iterator[Row]:
    masks = (sample.mask(cell) for sample, cell in zip(samples, cells, strict=True))
    parts = [{own.root[i]: int(i) for i in np.flatnonzero(mask)} for own, mask in zip(samples, masks, strict=True)]
    roots = [root for root in parts[0] if root in parts[1]]
    for name in _known(samples[0]) if roots else ():
        values = [on_its_scale(s, name)[[part[root] for root in roots]] for s, part in zip(samples, parts, strict=True)]
        yield _row(comparison, "paired", samples[0], name, paired(*values), where, against)


def _paired(sample: Sample, earlier: Subset, later: Subset, name: Name) -> Difference:
    """Over experiments that have both steps."""
    values, parents = on_its_scale(sample, name), {step.facts.id: i for i, step in enumerate(sample.steps)}
    before = sample.mask(earlier)
    pairs = [
        (values[i], values[parent])
        for i in np.flatnonzero(sample.mask(later))
        if (parent := parents.get(str(sample.steps[i].facts.parent))) is not None and before[parent]
    ]
    return paired(np.array([after for after, _ in pairs]), np.array([before for _, before in pairs]))


def _known(sample: Sample) -> list[Name]:
    return [name for name in COMPARED if name in sample.values]


def _row(
    comparison: str, test: str, sample: Sample, name: Name, found: Difference, where: Row, against: str | None = None
) -> Row:
    """against: what the sample is compared with, where that is not of the same benchmark and policy."""
    return {
        **{"comparison": comparison, "test": test, "scale": "z" if name[1].startswith("rho") else "value"},
        **{"benchmark": sample.benchmark, "against": against or sample.benchmark, "policy": sample.policy},
        **{"quantity": name[0], "statistic": name[1], "difference": found.estimate.value},
        **{"low": found.estimate.low, "high": found.estimate.high, "p": found.p, "n": found.estimate.n},
        **{"simulated": sample.simulated is not None, "rehearsal_pct": "", "class_pct": "", **where},
    }
