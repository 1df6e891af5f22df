"""What a notebook shows of an experiment, or of what a monitor saw."""

import html
from typing import Any

from forgetscope.analysis.experiments import MEASURES, StepFrames, StepSummary
from forgetscope.report.words.notation import PLAIN


def shown_in_a_notebook(experiment: StepFrames[Any]) -> str:
    """A paragraph per step, then the past classes of the last one, most forgotten first. HTML, whatever names hold."""
    columns = ["class_name", "accuracy_when_learned", "accuracy", "forgetting", *MEASURES]
    table = experiment.past_classes()[columns].rename(columns=MEASURES)
    rows = table.to_html(float_format=lambda value: PLAIN.number(value, 3), na_rep=PLAIN.missing, index=False)
    return f"<b>{html.escape(repr(experiment), quote=False)}</b>{''.join(map(_paragraph, experiment.summaries))}{rows}"


def _paragraph(step: StepSummary) -> str:
    names = ("mean_forgetting", "forgetting_range", "range_floor", "forgetting_half_gap", "half_gap_floor")
    mean, extent, by_noise, gap, gap_by_noise = (PLAIN.number(getattr(step, name)) for name in names)
    correlations = ", ".join(f"{MEASURES[name]} {PLAIN.number(rho)}" for name, rho in step.correlations.items())
    return (
        f"<p>Step {step.step}: mean FG {mean}, FG-R {extent} ({by_noise} by noise alone), FG-HG {gap} ({gap_by_noise}); "
        f"rank correlation with forgetting: {correlations} (at most about {PLAIN.number(step.beyond_noise['ceiling'])})</p>"
    )
