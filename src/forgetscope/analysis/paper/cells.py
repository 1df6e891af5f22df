"""The cells of the paper's tables, from samples: a tidy row per estimate or test, in the order of the paper."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.exhibits.exhibit import MODEL, Column, Exhibit
from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.inputs.associations import ASSOCIATIONS
from forgetscope.analysis.inputs.samples import POOLED, Collected, GridCell, Mask, Omitted, Sample, Subset, size_of_level
from forgetscope.analysis.paper.joint_model import JointModels
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics.anova import Coding, Effect, anova, benjamini_hochberg, holm
from forgetscope.analysis.statistics.pooling import Spreads, mean_of, spread_of

Values = NDArray[np.float64]
Controls = Literal["others", "paper"]  # of partial correlations in the overall table: see `Column.paper`

KEYS = ("benchmark", "subset", "rehearsal_pct", "class_pct", "quantity", "statistic", "factor", "response")
NUMBERS = ("mean", "mean_lo", "mean_hi", "sd", "sd_lo", "sd_hi", "F", "p", "eta2p")
ADDED = ("p_holm", "p_fdr", "n", "coding", "given", "reason", "policy", "simulated", *Omitted.__dataclass_fields__)
COLUMNS = ("table", *KEYS, *NUMBERS, *ADDED)
BY_NOISE = "by_noise"  # of FG-R and FG-HG, in tables that have them: what the noise of test images alone would show
COUNTS = ("n", *Omitted.__dataclass_fields__)
FACTORS = ("rehearsal", "classes", "interaction")  # of retention and increment, as the paper's data call them
TEXTS = ("table", *KEYS, "coding", "given", "reason", "policy")
GIVEN = {(asked.quantity, asked.statistic): ", ".join(asked.given) for asked in ASSOCIATIONS}


@dataclass
class Tabulation:
    """Builds tables; intervals of standard deviations are computed last, for all tables together."""

    collection: Collected
    joint: JointModels
    spreads: Spreads
    coding: Coding
    controls: Controls = "others"
    rows: dict[str, list[Row]] = field(default_factory=dict)
    pending: list[tuple[Row, Values]] = field(default_factory=list)

    def frames(self, labels: Iterable[str]) -> dict[str, pd.DataFrame]:
        wanted = [TABLES[label] for label in labels]
        if any(column.name[0] in (MODEL, "SIC_model") for table in wanted for column in table.columns):
            self.joint.add_to_values(self.collection.samples)
        for table in wanted:
            self.rows[table.label] = list(self._rows(table))
        for (row, _), spread in zip(self.pending, self.spreads.intervals([v for _, v in self.pending]), strict=True):
            row |= {"sd_lo": spread.low, "sd_hi": spread.high}
        self.pending.clear()
        return {table.label: tidy(table.label, self.rows[table.label]) for table in wanted}

    def _rows(self, table: Exhibit) -> Iterator[Row]:
        if table.layout == "controlled":
            yield from self._controlled(table)
            return
        rows: list[Row] = []
        for sample in self.collection.samples:
            if table.layout == "overall":
                parts = ((subset, column) for subset in sample.subsets for column in table.columns)
                rows += [self._estimate(table, sample, subset, column) for subset, column in parts]
            elif table.layout == "anova":
                for subset in sample.subsets:
                    for column in table.columns:
                        rows += self._anova(sample, subset, column)
            else:
                for step in sample.numbers:
                    rows += self._grid(table, sample, step)
        if table.layout == "anova":
            p = [row["p"] for row in rows]
            for row, strict, loose in zip(rows, holm(p), benjamini_hochberg(p), strict=True):
                row |= {"p_holm": strict, "p_fdr": loose}
        yield from rows

    def _grid(self, table: Exhibit, sample: Sample, step: int) -> Iterator[Row]:
        margins = () if table.layout == "weights" else (POOLED,)
        for retention in (*sample.retentions(step), *margins):
            for column in table.columns:
                for increment in (*sample.increments(step), *margins):
                    cell = GridCell(step, retention, increment)
                    if table.layout == "weights":
                        weight = self.joint.weights(sample, cell).get(column.quantity)
                        numbers = (
                            {} if weight is None else {"mean": weight.value, "mean_lo": weight.low, "mean_hi": weight.high}
                        )
                        yield _row(sample, cell, column, int(sample.mask(cell).sum()), **numbers)
                    elif (retention, increment) != (POOLED, POOLED):
                        yield self._estimate(table, sample, cell, column)

    def _estimate(self, table: Exhibit, sample: Sample, part: Subset | GridCell, column: Column) -> Row:
        mask, name = sample.mask(part), (column.paper if self.controls == "paper" else None) or column.name
        values = sample.values[name][mask]
        mean, known = mean_of(column.statistic, values, sample.ranked[mask]), values[~np.isnan(values)]
        row = _row(sample, part, column, len(known), mean=mean.value, sd=spread_of(known)) | {"given": GIVEN.get(name, "")}
        if (floor := sample.values.get((column.quantity, "floor"))) is not None:
            row |= {BY_NOISE: mean_of("value", floor[mask], sample.ranked[mask]).value}
        if table.intervals:
            row |= {"mean_lo": mean.low, "mean_hi": mean.high}
            self.pending.append((row, known))
        return row

    def _anova(self, sample: Sample, subset: Subset, column: Column) -> Iterator[Row]:
        mask = sample.mask(subset)
        if column.statistic == "rho-rho_p":
            values = sample.values[column.quantity, "rho"][mask] - sample.values[column.quantity, "rho_p"][mask]
        else:
            values = sample.values[column.name][mask]
        effects = _two_way(sample, mask, values, self.coding)
        response = column.quantity if column.statistic == "value" else column.statistic
        known = int(np.isfinite(values).sum())
        for factor in FACTORS:
            effect = effects[factor]
            numbers = {"F": effect.f, "p": effect.p, "eta2p": effect.partial_eta_squared}
            row = _row(sample, subset, Column(column.quantity, "anova"), known, **numbers)
            yield row | {"factor": factor, "response": response, "coding": self.coding, "reason": effect.reason}

    def _controlled(self, table: Exhibit) -> Iterator[Row]:
        (column,) = table.columns
        for runs in self.collection.reruns:
            rho, counts = runs.correlations()
            mean, known = mean_of("rho", rho, counts), rho[~np.isnan(rho)]
            numbers = {"mean": mean.value, "sd": spread_of(known), "n": len(known)}
            left_out = asdict(Omitted(diverged=runs.missing, no_value=len(rho) - len(known)))
            yield _keys(runs.sample, runs.cell, column) | numbers | left_out


def tidy(label: str, rows: Iterable[Row]) -> pd.DataFrame:
    """A frame with every column, whatever the rows hold; the table's name first."""
    kinds: dict[str, tuple[object, str]] = dict.fromkeys(COLUMNS, (math.nan, "float64"))  # what is missing, and the type
    kinds |= dict.fromkeys(TEXTS, ("", "str")) | dict.fromkeys(COUNTS, (0, "int64")) | {"simulated": (False, "bool")}
    listed = [{"table": label, **row} for row in rows]
    if any(BY_NOISE in row for row in listed):
        names = list(kinds)
        names.insert(names.index("F"), BY_NOISE)
        kinds = {name: kinds.get(name, (math.nan, "float64")) for name in names}
    return pd.DataFrame(
        {name: pd.Series([row.get(name, missing) for row in listed], dtype=kind) for name, (missing, kind) in kinds.items()}
    )


def _two_way(sample: Sample, mask: Mask, values: Values, coding: Coding) -> dict[str, Effect]:
    """What retention and increment do to values [S of the mask], by factor; clustered by experiment where steps share one.

    A factor with one level has no effect to test."""
    chosen = np.flatnonzero(mask)
    # The lowest level is the reference of treatment coding, so levels are ordered as numbers; budgets follow percentages.
    sizes = [(size_of_level(sample.cells[i].retention), size_of_level(sample.cells[i].increment)) for i in chosen]
    levels = np.array([[1e6 * counted + size for counted, size in pair] for pair in sizes]).reshape(-1, 2)
    clusters = [sample.root[i] for i in chosen] if sample.paired else None
    effects = anova(values, levels[:, 0], levels[:, 1], coding=coding, clusters=clusters, names=FACTORS)
    nothing = Effect(math.nan, 0, 0, math.nan, math.nan, "a factor has one level")
    return {factor: effects.get(factor, nothing) for factor in FACTORS}


def _row(sample: Sample, part: Subset | GridCell, column: Column, n: int, **numbers: float) -> Row:
    left_out = asdict(sample.omitted(part, n))
    return _keys(sample, part, column) | numbers | {"n": n} | left_out


def _keys(sample: Sample, part: Subset | GridCell, column: Column) -> Row:
    return sample.where(part) | {"quantity": column.quantity, "statistic": column.statistic}
