"""Experiments and stores as tables on a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from forgetscope.analysis.experiments import MEASURES, Experiment, Overview
from forgetscope.analysis.statistics import Estimate

LISTED = 20  # experiments of a large store that are listed one by one


def experiment_view(experiment: Experiment, step: int | None = None) -> RenderableType:
    """The past classes of one step (default: the last), most forgotten first, and a line per step."""
    if not experiment.summaries:
        return Text("One step so far: there are no past classes yet, so nothing to forget.")
    return Group(classes_table(experiment, step), Text(), summary_table(experiment))


def classes_table(experiment: Experiment, step: int | None = None) -> Table:
    past = experiment.past_classes(step)
    number = int(past["step"].iloc[0])
    table = _table(f"Past classes after step {number}, most forgotten first")
    table.add_column("class")
    for name in ("accuracy when learned", "now", "forgetting", *MEASURES.values()):
        table.add_column(name, justify="right")
    for row in past.to_dict("records"):
        accuracies = [_percent(row["accuracy_when_learned"]), _percent(row["accuracy"])]
        table.add_row(
            Text(row["class_name"]), *accuracies, _number(row["forgetting"], 2), *[_number(row[m], 3) for m in MEASURES]
        )
    reasons = sorted({reason for reason in past["missing"] if not pd.isna(reason)})
    if reasons:
        table.caption = f"– : {'; '.join(reasons)}"
    return table


def summary_table(experiment: Experiment) -> Table:
    table = _table("How unevenly, and what saw it coming (rank correlation with forgetting)")
    table.add_column("step", justify="right")
    for name in ("accuracy", "mean FG", "FG-R", "FG-HG", *(f"ρ {name}" for name in MEASURES.values())):
        table.add_column(name, justify="right")
    for s in experiment.summaries:
        spread = (_number(value, 2) for value in (s.mean_forgetting, s.forgetting_range, s.forgetting_half_gap))
        table.add_row(str(s.step), _percent(s.accuracy), *spread, *(_number(s.correlations[m], 2) for m in MEASURES))
    return table


def experiments_table(found: Sequence[Experiment]) -> Table:
    """What a store holds: one line per experiment, latest last."""
    table = _table(
        f"{len(found)} experiment{'' if len(found) == 1 else 's'}" + (f", the latest {LISTED}" if len(found) > LISTED else "")
    )
    for name in ("id", "data", "network"):
        table.add_column(name)
    for name in ("steps", "classes", "retention", "epochs", "seed", "mean FG", "FG-R", "ρ SIC"):
        table.add_column(name, justify="right")
    for experiment in list(found)[-LISTED:]:
        last = experiment.steps[-1].spec
        summary = experiment.summaries[-1] if experiment.summaries else None
        results = (
            (summary.mean_forgetting, summary.forgetting_range, summary.correlations["sic"]) if summary else (math.nan,) * 3
        )
        table.add_row(
            experiment.id[:8],
            Text(f"{experiment.data['name']} {experiment.data['image_size']}px"),
            Text(experiment.network),
            str(len(experiment.steps)),
            "+".join(str(len(step.spec.classes)) for step in experiment.steps),
            f"{last.rehearsal.retention:.0%}" if last.rehearsal else "–",
            str(last.training.epochs),
            str(last.seed),
            *(_number(value, 2) for value in results),
        )
    return table


def overview_table(rows: Sequence[Overview]) -> Table:
    """Means over seeds with 95 % intervals."""
    table = _table("Means over experiments that differ in seed and classes only, with 95 % intervals")
    table.add_column("")
    for row in rows:
        table.add_column(f"step {row.step}, n = {row.experiments}", justify="right")
    quantities = {
        "accuracy when learned": [row.accuracy_when_learned for row in rows],
        "mean FG": [row.mean_forgetting for row in rows],
        "FG-R": [row.forgetting_range for row in rows],
        "FG-HG": [row.forgetting_half_gap for row in rows],
        **{f"ρ {name}": [row.correlations[m] for row in rows] for m, name in MEASURES.items()},
    }
    for name, estimates in quantities.items():
        table.add_row(name, *map(_estimate, estimates))
    table.caption = "\n".join(f"step {row.step}: {row.setting}" for row in rows)
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", caption_justify="left", title_style="bold", box=None, pad_edge=False)


def _number(value: float, decimals: int) -> str:
    return "–" if pd.isna(value) else f"{value:.{decimals}f}"


def _percent(value: float) -> str:
    return "–" if pd.isna(value) else f"{100 * value:.0f} %"


def _estimate(estimate: Estimate) -> str:
    interval = "" if math.isnan(estimate.low) else f" ({estimate.low:.2f}, {estimate.high:.2f})"
    return _number(estimate.value, 2) + interval
