"""Results as plain values for JSON. Missing numbers are null; nothing is rounded."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from forgetscope.analysis.experiments import Experiment, Overview
from forgetscope.analysis.paper.tables import records
from forgetscope.analysis.questions.approximations import Approximations
from forgetscope.analysis.questions.controlled import ControlledStep
from forgetscope.analysis.questions.policies import PolicyComparison
from forgetscope.analysis.questions.variants import VariantComparison
from forgetscope.analysis.results import Analysis
from forgetscope.report.exhibited import exhibited
from forgetscope.report.words.reading import reading_lines


def experiment_document(experiment: Experiment) -> dict[str, Any]:
    """Everything about one experiment: its settings, a summary per step, and every class after every step."""
    return _plain_dict(
        {
            **experiment_line(experiment),
            "steps": [
                {name: step.info.get(name) for name in ("id", "status", "divergence", "spec", "timings")}
                for step in experiment.chain
            ],
            "summaries": [dataclasses.asdict(summary) for summary in experiment.summaries],
            "classes": experiment.classes.to_dict("records"),
        }
    )


def store_document(
    found: Sequence[Experiment], rows: Sequence[Overview], policies: Sequence[PolicyComparison]
) -> dict[str, Any]:
    """What a store holds: a line per experiment, means over seeds, and policies compared."""
    lines = [
        {**experiment_line(experiment), "summaries": [dataclasses.asdict(s) for s in experiment.summaries]}
        for experiment in found
    ]
    return _plain_dict(
        {
            "experiments": lines,
            "overview": [dataclasses.asdict(row) for row in rows],
            "policies": [dataclasses.asdict(row) for row in policies],
        }
    )


def controlled_document(plan: str, steps: Sequence[ControlledStep]) -> dict[str, Any]:
    """Every class of every picked step, and their spread."""
    return _plain_dict({"plan": plan, "steps": [dataclasses.asdict(step) for step in steps]})


def comparison_document(plan: str, rows: Sequence[PolicyComparison]) -> dict[str, Any]:
    return _plain_dict({"plan": plan, "policies": [dataclasses.asdict(row) for row in rows]})


def approximations_document(found: Sequence[Approximations]) -> dict[str, Any]:
    return _plain_dict({"settings": [dataclasses.asdict(group) for group in found]})


def variants_document(plan: str, rows: Sequence[VariantComparison]) -> dict[str, Any]:
    return _plain_dict({"plan": plan, "variants": [dataclasses.asdict(row) for row in rows]})


def analysis_document(analysis: Analysis) -> dict[str, Any]:
    """Everything but the figures."""
    found = exhibited(analysis)
    return {
        "store": str(analysis.store),
        "coding": analysis.coding,
        "resamples": analysis.resamples,
        "reading": reading_lines(analysis),
        **{
            part: {one.exhibit.label: rows_of(one.frame) for one in found if one.exhibit.part == part}
            for part in ("tables", "more")
        },
    }


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [_plain_dict(row) for row in records(frame)]


def experiment_line(experiment: Experiment) -> dict[str, Any]:
    return {
        "id": experiment.id,
        "data": experiment.data,
        "network": experiment.network,
        "seed": experiment.chain[0].spec.seed,
        "simulated": experiment.simulated,
    }


def _plain_dict(value: dict[str, Any]) -> dict[str, Any]:
    return {key: _plain(item) for key, item in value.items()}


def _plain(value: Any) -> Any:
    """JSON knows no NaN."""
    if isinstance(value, dict):
        return _plain_dict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
