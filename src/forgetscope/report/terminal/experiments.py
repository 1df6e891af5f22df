"""Experiments and stores as tables on a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from forgetscope.analysis.experiments import MEASURES, Experiment, Overview, policy_names
from forgetscope.analysis.questions.policies import QUANTITIES, PolicyComparison
from forgetscope.data.images import DataSet
from forgetscope.report.terminal.tables import lines, make_table, plain, titled
from forgetscope.report.words.findings import budget, finding
from forgetscope.report.words.notation import PLAIN

LISTED = 20  # experiments of a large store that are listed one by one
COLUMNS = 3  # means side by side


def experiment_view(experiment: Experiment, step: int | None = None) -> RenderableType:
    """The past classes of one step (default: the last), most forgotten first, and a line per step."""
    if not experiment.summaries:
        return plain(finding(experiment, None))
    shown = experiment.summaries[-1 if step is None else step - 2]  # summaries begin with step 2
    return Group(_classes(experiment, shown.step), Text(), _summary(experiment), Text(), plain(finding(experiment, shown)))


def store_view(found: Sequence[Experiment]) -> RenderableType:
    """What a store holds: one line per experiment, latest last."""
    table = make_table(
        ("id", "data", "network"), ("steps", "classes", "policy", "kept", "epochs", "seed", "mean FG", "FG-R", "ρ SIC")
    )
    policies = policy_names(found)
    for experiment in list(found)[-LISTED:]:
        last = experiment.chain[-1].spec
        summary = experiment.summaries[-1] if experiment.summaries else None
        results = (
            (summary.mean_forgetting, summary.forgetting_range, summary.correlations["sic"]) if summary else (math.nan,) * 3
        )
        table.add_row(
            experiment.id[:8],
            experiment.data_title,
            experiment.network,
            f"{len(experiment.chain)}{'*' if experiment.diverged else ''}",
            "+".join(str(len(step.spec.classes)) for step in experiment.chain),
            policies.get(experiment.chain[-1].setting.policy, PLAIN.missing),
            budget(last.rehearsal) if last.rehearsal else PLAIN.missing,
            str(last.training.epochs),
            str(last.seed),
            *(PLAIN.number(value) for value in results),
        )
    title = "1 experiment" if len(found) == 1 else f"{len(found)} experiments"
    diverged = sum(experiment.diverged is not None for experiment in found)
    remarks = [f"*  the last step diverged and is excluded from all statistics ({diverged})"] if diverged else []
    return titled(title + (f", the latest {LISTED}" if len(found) > LISTED else ""), table, *remarks)


def overview_view(rows: Sequence[Overview]) -> RenderableType:
    """Means over seeds with 95 % intervals, a column per setting and step; what all have in common is said once."""
    common = [part for part in rows[0].setting if all(part in row.setting for row in rows)]
    tables: list[RenderableType] = []
    for start in range(0, len(rows), COLUMNS):
        shown = rows[start : start + COLUMNS]
        own = ([part for part in row.setting if part not in common] for row in shown)
        heads = (lines(f"step {row.step}, {_n(row)}", *parts) for row, parts in zip(shown, own, strict=True))
        table = make_table(("",), heads)
        quantities = {
            "accuracy when learned": [row.accuracy_when_learned for row in shown],
            "mean FG": [row.mean_forgetting for row in shown],
            "FG-R": [row.forgetting_range for row in shown],
            "FG-HG": [row.forgetting_half_gap for row in shown],
            **{f"ρ {name}": [row.correlations[measure] for row in shown] for measure, name in MEASURES.items()},
        }
        for name, estimates in quantities.items():
            table.add_row(name, *map(PLAIN.estimate, estimates))
        tables.append(table)
    title = Text("Means over experiments that differ in seed and classes only, with 95 % intervals", style="bold")
    return Group(title, *tables, plain(" ".join(common), "dim"))


def comparison_view(rows: Sequence[PolicyComparison]) -> RenderableType:
    """Policies against the baseline, a table per step: means, and below each the mean paired difference, with intervals."""
    tables: list[RenderableType] = []
    for step in dict.fromkeys(row.step for row in rows):
        table = make_table(("policy",), ("pairs", *(Text(name.replace(", ", "\n")) for name in QUANTITIES.values())))
        shown = [row for row in rows if row.step == step]
        for row in shown:
            lost = f" (and {row.diverged} diverged)" if row.diverged else ""
            table.add_row(row.policy, f"{row.pairs}{lost}", *(PLAIN.estimate(row.means[name], 3) for name in QUANTITIES))
            if row.policy != row.baseline:
                differences = (PLAIN.estimate(row.differences[name], 3, signed=True) for name in QUANTITIES)
                table.add_row("", "", *differences, style="dim")
        title = f"Policies in step {step}, in pairs that share their first step, with 95 % intervals"
        tables.append(titled(title, table, f"Below each policy: the paired difference to {shown[0].baseline}"))
    return Group(*tables)


def _n(row: Overview) -> str:
    return f"n = {row.experiments}" + (f" (and {row.diverged} diverged)" if row.diverged else "")


def data_view(here: Sequence[tuple[DataSet, int]], known: Mapping[str, str], cache: Path) -> RenderableType:
    """Data sets that are here, with their size in bytes, and those that can be fetched."""
    table = make_table(("name",), ("classes", "training images", "test images", "pixels", "on disk"))
    for data, size in here:
        pixels = f"{data.shape[1]} x {data.shape[0]}"
        counts = (f"{len(data.classes)}", f"{len(data.train.labels):,}", f"{len(data.test.labels):,}")
        table.add_row(data.name, *counts, pixels, f"{size / 1e6:,.0f} MB")
    remarks = [] if here else ["None yet. Add your own images with `forgetscope data add NAME PATH`, or use one of these:"]
    remarks += ["glyphs: embedded, drawn when needed"]
    remarks += [f"{name}: {summary}; fetch it with `forgetscope data get {name}`" for name, summary in known.items()]
    return titled(f"Data sets in {cache}", table, *remarks)


def _classes(experiment: Experiment, step: int) -> RenderableType:
    past = experiment.past_classes(step)
    table = make_table(("class",), ("learned", "now", "forgetting", *MEASURES.values()))
    for row in past.to_dict("records"):
        accuracies = (PLAIN.percent(row["accuracy_when_learned"]), PLAIN.percent(row["accuracy"]))
        measures = (PLAIN.number(row[measure], 3) for measure in MEASURES)
        table.add_row(row["class_name"], *accuracies, PLAIN.number(row["forgetting"]), *measures)
    reasons = sorted({reason for reason in past["missing"] if not pd.isna(reason)})
    title = f"Past classes after step {step}, most forgotten first (accuracy when learned and now)"
    return titled(title, table, *(f"–  {reason}" for reason in reasons))


def _summary(experiment: Experiment) -> RenderableType:
    table = make_table((), ("step", "accuracy", "mean FG", "FG-R", "FG-HG", *(f"ρ {name}" for name in MEASURES.values())))
    for s in experiment.summaries:
        spread = (PLAIN.number(value) for value in (s.mean_forgetting, s.forgetting_range, s.forgetting_half_gap))
        table.add_row(str(s.step), PLAIN.percent(s.accuracy), *spread, *(PLAIN.number(s.correlations[m]) for m in MEASURES))
    return titled("How unevenly, and what saw it coming (ρ: rank correlation with forgetting)", table)
