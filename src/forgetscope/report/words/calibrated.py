"""A step as trained, and with what acts on its predictions alone, side by side wherever a step is shown."""

from __future__ import annotations

from dataclasses import dataclass

from forgetscope.analysis.experiments import Experiment, StepSummary
from forgetscope.report.words.findings import Shown
from forgetscope.report.words.notation import PLAIN

HEADS = ("accuracy", "new classes", "mean FG", "FG-R", "FG-HG", "worst class", "spread")
TITLE = "as trained, and with what acts on its predictions alone"
AS_TRAINED = "as trained"


@dataclass(frozen=True)
class Beside:
    """By name, the cells under `HEADS`; and what each calibration was expected to gain and to cost."""

    rows: dict[str, tuple[str, ...]]
    said: list[str]


def beside(experiment: Shown, shown: StepSummary) -> Beside | None:
    """Of one step; None where it has no calibration."""
    found = experiment.calibrated_summaries if isinstance(experiment, Experiment) else {}
    of_step = {name: s for name, of in found.items() for s in of if s.step == shown.step}
    if not isinstance(experiment, Experiment) or not of_step:
        return None
    made = [one for of in experiment.calibrations.values() for one in of if one.number == shown.step]
    rows = {name: _cells(summary) for name, summary in {AS_TRAINED: shown, **of_step}.items()}
    return Beside(rows, [f"{one.calibration}: {one.info['said']}" for one in made])


def one_column(experiment: Shown) -> str | None:
    """The calibration whose forgetting stands beside that of each class as trained."""
    return (
        experiment.calibration if isinstance(experiment, Experiment) and "calibrated_forgetting" in experiment.classes else None
    )


def _cells(s: StepSummary) -> tuple[str, ...]:
    uneven = (s.mean_forgetting, s.forgetting_range, s.forgetting_half_gap, s.worst_forgetting, s.beyond_noise["spread"])
    return (PLAIN.percent(s.accuracy), PLAIN.percent(s.new_accuracy), *map(PLAIN.number, uneven))
