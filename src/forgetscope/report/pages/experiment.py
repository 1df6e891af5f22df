"""The report page of one experiment: a single HTML file that makes no network request and computes no statistic.

Python says what was found and embeds the numbers as one JSON document; `experiment.js` draws from it, so that charts follow the
reader's step, screen and colour scheme. Class names are untrusted: they reach the page through autoescaping, `tojson` and
`textContent` only, and the page's Content-Security-Policy runs no script but the two whose digests it names.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import asdict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.experiments import MEASURES, Experiment, StepSummary
from forgetscope.analysis.observed import Observed
from forgetscope.errors import StoreError
from forgetscope.report.pages.explorer import Explorer
from forgetscope.report.pages.packing import asset, number, numbers, page, script_digest
from forgetscope.report.words import calibrated, own_loss
from forgetscope.report.words.findings import PREDICTED, Shown, budget, finding
from forgetscope.report.words.notation import PLAIN
from forgetscope.store import COEFFICIENTS, StoredObserved, StoredStep, StoredTables

SUMMARISED = (
    *("mean_forgetting", "forgetting_range", "range_floor", "forgetting_half_gap", "half_gap_floor"),
    *("accuracy", "new_accuracy"),
)

STYLES = ("base.css", "terms.css", "explorer.css", "print.css")
LISTED = 10  # other monitors of the store


def render_page(experiment: Shown, thumbnails: Mapping[int, bytes], explorer: Explorer | None = None) -> str:
    """The whole page. `thumbnails` holds a PNG strip of sample images per class id; classes without one show none.

    explorer: of the experiment's steps, for a section about one class at a time."""
    if not experiment.steps:
        raise StoreError(f"{experiment.label} has nothing to show. {finding(experiment, None)}")
    from plotly.offline import get_plotlyjs

    exploring = explorer is not None and bool(experiment.summaries)
    own = ["core.js", "terms.js", "downloads.js", "experiment.js", *(["panel.js", "explorer.js"] if exploring else [])]
    scripts = [get_plotlyjs(), "\n".join([*map(asset, own), *(["startExplorer();"] if exploring else [])])]
    return page(
        "experiment.html.j2",
        experiment=experiment,
        subject=_seen(experiment) if isinstance(experiment, Observed) else f"on {experiment.data['name']}",
        digest=None if isinstance(experiment, Observed) else experiment.data["digest"],
        finding=finding(experiment, experiment.summaries[-1] if experiment.summaries else None),
        facts=_observed_facts(experiment) if isinstance(experiment, Observed) else _facts(experiment),
        settings=_settings(experiment),
        measures=MEASURES,
        calibrated=calibrated,
        own_loss=own_loss,
        images=bool(thumbnails),
        document=_document(experiment, thumbnails),
        css="".join(map(asset, STYLES)),
        packs=explorer.embedded() if explorer is not None and exploring else {},
        scripts=scripts,
        digests=[script_digest(script) for script in scripts],
    )


def _facts(experiment: Experiment) -> dict[str, str]:
    """What was run, for the header; where steps differ, every value that occurs."""
    specs = [step.spec for step in experiment.steps]
    facts = {
        "Data set": experiment.data_title,
        "Network": experiment.network,
        "Steps": str(len(specs)),
        "Classes per step": _distinct(len(spec.classes) for spec in specs),
        "Kept for rehearsal": _distinct(budget(spec.rehearsal) for spec in specs if spec.rehearsal),
        "Policy": _distinct(spec.rehearsal.policy for spec in specs if spec.rehearsal),
        "Method": _distinct(spec.rehearsal.method or "replay" for spec in specs if spec.rehearsal),
        "Epochs": _distinct(spec.training.epochs for spec in specs),
        "Seed": _distinct(spec.seed for spec in specs),
        "Id": experiment.id[:8],
    }
    return {label: text for label, text in facts.items() if text}


def _seen(observed: Observed) -> str:
    """Which steps the page is about, and whose."""
    numbers = [step.step for step in observed.summaries] or [step.number for step in observed.steps]
    steps = f"step {numbers[0]}" if len(numbers) == 1 else f"steps {numbers[0]} to {numbers[-1]}"
    return f"in {steps}, seen by the monitor {observed.name}"


def _observed_facts(observed: Observed) -> dict[str, str]:
    steps = observed.steps
    settings = dict.fromkeys(f"{name} = {_text(value)}" for step in steps for name, value in step.settings.items())
    facts = {
        "Monitor": observed.name,
        "Network": _distinct(step.info["network"] for step in steps),
        "Steps": str(len(steps)),
        "Classes per step": _distinct(len(step.new_classes) for step in steps),
        "Weight of rehearsal": _distinct(_text(step.info["alpha"]) for step in steps if step.info["alpha"] is not None),
        "Epochs": _distinct(step.info["epochs"] for step in steps),
        "Settings": ", ".join(settings),
        "Incomplete steps": _distinct(step.number for step in observed.incomplete),
        "Other monitors in the store": ", ".join(f"{name} (report --observed {name})" for name in observed.others()[:LISTED]),
    }
    return {label: text for label, text in facts.items() if text}


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))


def _settings(experiment: Shown) -> dict[str, dict[str, list[str]]]:
    """Per group and setting: its value in each step, empty where a step has none."""
    steps = [
        _observed_settings(step) if isinstance(step, StoredObserved) else _step_settings(step) for step in experiment.steps
    ]
    groups: dict[str, dict[str, list[str]]] = {}
    for group in steps[0]:
        labels = dict.fromkeys(label for step in steps for label in step[group])
        groups[group] = {label: [_text(step[group].get(label, "")) for step in steps] for label in labels}
    return groups


def _observed_settings(step: StoredObserved) -> dict[str, dict[str, object]]:
    info = step.info
    facts = ("epochs", "alpha", "alpha_from", "past", "network", "head_nodes")
    return {
        "Observed": {
            "new classes": len(step.new_classes),
            **{name: "" if info[name] is None else info[name] for name in facts},
        },
        "Settings": dict(step.settings),
        "Measured": {str(i): sentence for i, sentence in enumerate(info["said"], start=1)},
        "Time": {**info["timings"], "committed": info["committed"]},
        "Made with": {"forgetscope": info["forgetscope"], **info["environment"]},
    }


def _step_settings(step: StoredStep) -> dict[str, dict[str, object]]:
    spec, info = step.spec, step.info
    last_epoch = info["history"][-1] if info["history"] else {}
    return {
        "Step": {"id": step.id, "new classes": len(spec.classes), "seed": spec.seed, "protocol": spec.protocol},
        "Training": {**spec.training.model_dump(exclude={"augmentation"}), **spec.training.augmentation.model_dump()},
        "Rehearsal": spec.rehearsal.model_dump() if spec.rehearsal else {},
        "Last epoch": last_epoch,
        "Time": {**info["timings"], "committed": info["committed"]},
        "Made with": info["environment"],
        "Simulated": (step.simulated or {}).get("truth", {}),
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return PLAIN.significant(value, 4) if isinstance(value, float) else str(value)


def _document(experiment: Shown, thumbnails: Mapping[int, bytes]) -> dict[str, object]:
    """Everything that the charts show. Missing numbers are null; class ids are the keys of `classes`."""
    rows = experiment.classes[experiment.classes["step"] == experiment.steps[-1].number]
    ids = rows["class_id"].tolist()
    accuracies = experiment.classes.pivot(index="class_id", columns="step", values="accuracy").loc[ids]
    return {
        "counted": "Epoch" if isinstance(experiment, Observed) else "Iteration",
        "measures": MEASURES,
        "predicted": PREDICTED if experiment.forecasts else "",
        "calibrated": calibrated.one_column(experiment),
        "coefficients": COEFFICIENTS,
        "classes": {
            str(id): {"name": name, "introduced": introduced, "thumbnail": _data_uri(thumbnails.get(id))}
            for id, name, introduced in zip(ids, rows["class_name"].tolist(), rows["introduced_step"].tolist(), strict=True)
        },
        "accuracies": {"classes": ids, "steps": accuracies.columns.tolist(), "values": _numbers(accuracies.to_numpy())},
        "steps": [_step(experiment, summary) for summary in experiment.summaries],
    }


def _step(experiment: Shown, summary: StepSummary) -> dict[str, object]:
    past = experiment.past_classes(summary.step)
    order = past["class_id"].tolist()
    columns = ["accuracy_when_learned", "accuracy", "forgetting", *MEASURES]
    columns += ["forecast", "forecast_low", "forecast_high"] if experiment.forecasts else []
    columns += [] if calibrated.one_column(experiment) is None else ["calibrated_forgetting"]
    beside, own = calibrated.beside(experiment, summary), own_loss.own_loss_table(experiment, summary.step)
    return {
        "step": summary.step,
        "finding": finding(experiment, summary),
        **{name: number(getattr(summary, name)) for name in SUMMARISED},
        **{name: number(value) for name, value in summary.beyond_noise.items()},
        "barely_learned": summary.barely_learned,
        "basis": "" if summary.paired else "; from counts, so that noise is overstated",
        "correlations": {name: number(rho) for name, rho in summary.correlations.items()},
        "past": [
            {"id": id, "missing": reason if isinstance(reason, str) else None, **dict(zip(columns, values, strict=True))}
            for id, reason, values in zip(order, past["missing"], _numbers(past[columns].to_numpy()), strict=True)
        ],
        "beside": None if beside is None else asdict(beside),
        "own": None if own is None else asdict(own),
        "curves": _curves(experiment.numbered(summary.step), order),
        "matrix": _matrix(experiment.numbered(summary.step), order),
    }


def _curves(step: StoredTables, order: list[int]) -> dict[str, object] | None:
    """Each coefficient so far at every probe, per class in `order`; once a term is missing, so is every later sum."""
    iterations, sums = step.partial_sums(order)
    curves = {name: _numbers(sums[:, i].T) for i, name in enumerate(COEFFICIENTS)}
    return {"iterations": iterations.tolist(), **curves} if len(iterations) else None


def _matrix(step: StoredTables, order: list[int]) -> dict[str, object] | None:
    """Summed terms: rows are past classes in `order`, columns the same classes and then the new ones. Of an observed
    step some may not have been measured."""
    pairs: pd.DataFrame = step.table("pairs").to_pandas()
    if pairs.empty:
        return None
    past, sources, known = set(pairs["class_id"]), set(pairs["source_class_id"]), {*order, *step.new_classes}
    whole = isinstance(step, StoredObserved) or (past == set(order) and sources == known)
    if not whole or not past <= set(order) or not sources <= known:
        raise step.damaged("pairs.parquet", "not the classes of this step")
    new = pairs.loc[pairs["source_is_new"], "source_class_id"].unique().tolist()
    terms = pairs.pivot(index="class_id", columns="source_class_id", values="term").reindex(index=order, columns=[*order, *new])
    return {"past": order, "new": new, "terms": _numbers(terms.to_numpy())}


def _numbers(rows: NDArray[np.float64]) -> list[list[float | None]]:
    return [numbers(row) for row in rows.astype(np.float64).tolist()]


def _data_uri(png: bytes | None) -> str | None:
    return None if png is None else f"data:image/png;base64,{base64.b64encode(png).decode()}"
