"""Results as plain values for JSON. Missing numbers are null; nothing is rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from forgetscope.analysis.experiments import Experiment, Overview
from forgetscope.analysis.observed import Observed, ObservedAnalysis
from forgetscope.analysis.questions.policies import PolicyComparison
from forgetscope.analysis.rows import records
from forgetscope.report.words.findings import unanalysed
from forgetscope.underway.alarms import Raised
from forgetscope.underway.running import Finished, UnderWay, Watched

if TYPE_CHECKING:
    from forgetscope.analysis.results import Analysis


def experiment_document(experiment: Experiment) -> dict[str, Any]:
    """Everything about one experiment: its settings, a summary per step, and every class after every step; then each step's
    calibrations with their summaries, and every class with each of them."""
    told = ("id", "status", "divergence", "spec", "timings")
    steps = [{name: step.info.get(name) for name in told} for step in experiment.chain]
    classes = experiment.classes.to_dict("records")
    calibrations = [
        {**{told: one.info[told] for told in ("calibration", "said", "held_out", "seconds")}, "summary": summary}
        for name, of in experiment.calibrations.items()
        for one, summary in zip(of, experiment.calibrated_summaries[name], strict=True)
    ]
    return study_document(
        **experiment_line(experiment),
        **{"steps": steps, "summaries": experiment.summaries, "classes": classes},
        **{"calibrations": calibrations, "calibrated": experiment.calibrated.to_dict("records")},
    )


def observed_document(observed: Observed) -> dict[str, Any]:
    """Everything about what one monitor saw: the record of each step, a summary per step, and every class after every step."""
    return study_document(**observed_line(observed), classes=observed.classes.to_dict("records"))


def observed_line(observed: Observed) -> dict[str, Any]:
    """Without the classes."""
    steps = [*observed.chain, *observed.running]
    return {"monitor": observed.name, "steps": [dict(step.info) for step in steps], "summaries": observed.summaries}


def observed_analysis_document(analysis: ObservedAnalysis) -> dict[str, Any]:
    """Means by settings, and what they rest on."""
    tables = {label: records(frame) for label, frame in analysis.tables.items()}
    left_out = {one.name: sentences for one in analysis.monitors if (sentences := unanalysed(one))}
    about = {"store": str(analysis.store), "cannot_know": analysis.cannot_know, "left_out": left_out}
    return study_document(**about, groups=analysis.groups, tables=tables)


def store_document(
    found: Sequence[Experiment],
    rows: Sequence[Overview],
    policies: Sequence[PolicyComparison],
    monitors: Sequence[Observed] = (),
    recorded_again: int = 0,
) -> dict[str, Any]:
    """What a store holds: a line per experiment, means over seeds, policies compared, and apart from them what monitors saw.

    recorded_again: how many steps record a training that counts by another one."""
    lines = [{**experiment_line(experiment), "summaries": experiment.summaries} for experiment in found]
    seen = [*map(observed_line, monitors)]
    return study_document(experiments=lines, overview=rows, policies=policies, observed=seen, recorded_again=recorded_again)


def study_document(**parts: object) -> dict[str, Any]:
    """The results of a study by name, such as `plan="...", variants=[...]`; all fields of each."""
    plain: dict[str, Any] = to_jsonable_python(parts, inf_nan_mode="null", fallback=lambda number: number.item())
    return plain


def analysis_document(analysis: Analysis) -> dict[str, Any]:
    """Everything but the figures."""
    from forgetscope.report.exhibited import exhibited  # all of the statistics, which documents of an experiment do without
    from forgetscope.report.words.reading import reading_lines

    about = {"store": str(analysis.store), **{name: getattr(analysis, name) for name in ("coding", "controls", "resamples")}}
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


def watch_document(
    found: Sequence[UnderWay], finished: Sequence[Finished], alarms: Sequence[Raised] | None = None
) -> dict[str, Any]:
    """Steps that are alive, those that are not (silent, or stopped), and the latest that are done; from what forecasts are.

    alarms: that went off since the document before; None where nobody asked for any."""
    alive = [_under_way(one) for one in found if one.is_alive]
    rest = [{**_under_way(one), "state": one.progress.state, "silent_seconds": one.silent} for one in found if not one.is_alive]
    off = {} if alarms is None else {"alarms": [{**asdict(one), "text": str(one)} for one in alarms]}
    return study_document(running=alive, silent=rest, finished=list(finished), forecasts_by=forecasts_by(found), **off)


def forecasts_by(found: Sequence[UnderWay]) -> str | None:
    """What is said of the forecasts of these steps, each sentence once."""
    return " ".join(dict.fromkeys(one.forecasts_by for one in found if one.forecasts_by)) or None


def _under_way(one: UnderWay) -> dict[str, Any]:
    names = ("step", "number", "epoch", "epochs", "loss", "seconds_left", "heartbeat")
    at_risk = [_at_risk(row) for row in one.at_risk]
    return {
        **{name: getattr(one.progress, name) for name in names},
        "at_risk": at_risk,
        "forecasts_by": one.forecasts_by or None,
    }


def _at_risk(row: Watched) -> dict[str, Any]:
    """forecast: of forgetting when the step ends, with its interval, where there is a model for it; so_far: of that by now."""
    expected = {name: getattr(row, name) for name in ("forecast", "forecast_low", "forecast_high", "so_far")}
    risk = row.risk
    return {
        **{"class_id": risk.label, "class_name": risk.name, "rank": risk.rank, "moved": risk.moved},
        **{"sic": risk.sic, "cic": risk.cic, "nic": risk.nic, "why": risk.why},
        **{"loss_all": row.loss_all, "loss_rehearsed": row.loss_rehearsed, **expected},
    }
