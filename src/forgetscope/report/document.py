"""Results as plain values for JSON. Missing numbers are null; nothing is rounded."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from forgetscope.analysis.experiments import Experiment, Overview
from forgetscope.analysis.paper.tables import records
from forgetscope.analysis.questions.policies import PolicyComparison
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
            "summaries": experiment.summaries,
            "classes": experiment.classes.to_dict("records"),
        }
    )


def store_document(
    found: Sequence[Experiment], rows: Sequence[Overview], policies: Sequence[PolicyComparison]
) -> dict[str, Any]:
    """What a store holds: a line per experiment, means over seeds, and policies compared."""
    lines = [{**experiment_line(experiment), "summaries": experiment.summaries} for experiment in found]
    return study_document(experiments=lines, overview=rows, policies=policies)


def study_document(**parts: object) -> dict[str, Any]:
    """The results of a study by name, such as `plan="...", variants=[...]`; all fields of each."""
    return _plain_dict(parts)


def analysis_document(analysis: Analysis) -> dict[str, Any]:
    """Everything but the figures."""
    about = {"store": str(analysis.store), "coding": analysis.coding, "resamples": analysis.resamples}
    found: dict[str, dict[str, Any]] = {"tables": {}, "more": {}}
    for one in exhibited(analysis):
        if one.exhibit.part in found:
            found[one.exhibit.part][one.exhibit.label] = records(one.frame)
    return study_document(**about, reading=reading_lines(analysis), **found)


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
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return _plain_dict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
