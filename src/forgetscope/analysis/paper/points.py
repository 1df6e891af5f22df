"""The data behind the paper's seven figures, and behind the same figures for any other data set."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.exhibits.exhibit import MODEL, Exhibit, Kind
from forgetscope.analysis.exhibits.figures import CONTROLLED, FIGURES, course_figure, swarm_figure
from forgetscope.analysis.inputs.associations import ASSOCIATIONS
from forgetscope.analysis.inputs.samples import Collected, GridCell, Sample, Subset
from forgetscope.analysis.paper.joint_model import JointModels
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics.pooling import means_along

Values = NDArray[np.float64]

SWARMS = 5  # steps that are drawn of each partition
WITHIN = 0.02  # of its final strength a ranking counts as just as good

SWARM = ("benchmark", "policy", "subset", "rehearsal_pct", "class_pct", "swarm", "step_id", "class_id", "forgetting")
COURSE = (
    *("benchmark", "policy", "subset", "quantity", "statistic", "probes", "share"),
    *("mean", "mean_lo", "mean_hi", "sd", "n"),
)
CONTROL = ("benchmark", "policy", "subset", "rehearsal_pct", "class_pct", "class_id", "rho", "runs")
COLUMNS: dict[Kind, tuple[str, ...]] = {"swarm": SWARM, "course": COURSE, "boxes": CONTROL}
BOXES = (*CONTROL[:5], "whisker_lo", "quartile_lo", "median", "quartile_hi", "whisker_hi", "n")
EARLINESS = ("benchmark", "policy", "subset", "quantity", "statistic", "final", "probes", "share", "strength", "n")


def figure_exhibits(collection: Collected) -> dict[str, Exhibit]:
    """By label; the paper's are there also when the store has nothing for them."""
    samples = collection.samples
    own = [course_figure(sample.dataset) for sample in samples]
    own += [swarm_figure(sample.dataset, step) for sample in samples for step in sample.numbers]
    return FIGURES | {exhibit.label: exhibit for exhibit in sorted(own, key=lambda exhibit: exhibit.label)}


def figures(collection: Collected) -> dict[str, pd.DataFrame]:
    """By label."""
    rows: dict[str, list[Row]] = {CONTROLLED.label: list(_control(collection))}
    for sample in collection.samples:
        for step in sample.numbers:
            rows.setdefault(swarm_figure(sample.dataset, step).label, []).extend(_swarms(sample, step))
        for subset in sample.subsets:
            rows.setdefault(course_figure(sample.dataset).label, []).extend(_course(sample, subset))
    return {
        label: pd.DataFrame(rows.get(label, []), columns=list(COLUMNS[exhibit.kind]))
        for label, exhibit in figure_exhibits(collection).items()
    }


def earliness(frames: Mapping[str, pd.DataFrame], exhibits: Mapping[str, Exhibit]) -> pd.DataFrame:
    """From which share of training on each ranking stays within 0.02 of its final strength; frames of figures, by label."""
    courses = [frame for label, frame in frames.items() if exhibits[label].kind == "course"]
    rows, keys = [], list(EARLINESS[:5])
    for key, curve in (group for course in courses for group in course.groupby(keys, sort=False)):
        strength, final = curve["mean"].to_numpy(), float(curve["mean"].iloc[-1])
        if np.isnan(final):
            continue
        away = np.flatnonzero(~(np.abs(strength - final) <= WITHIN))
        first = curve.iloc[int(away[-1]) + 1 if len(away) else 0]
        found = {"final": final, **{name: first[name] for name in ("probes", "share", "n")}, "strength": first["mean"]}
        rows.append({**dict(zip(keys, key, strict=True)), **found})
    return pd.DataFrame(rows, columns=list(EARLINESS))


def boxes(control: pd.DataFrame) -> pd.DataFrame:
    """Tukey's box per controlled step: quartiles of its classes' correlations; whiskers reach 1.5 times their distance."""
    rows, keys = [], list(CONTROL[:5])
    for key, group in control.dropna(subset="rho").groupby(keys, sort=False):
        rho = np.sort(group["rho"].to_numpy(np.float64))
        low, median, high = np.quantile(rho, (0.25, 0.5, 0.75))
        within = rho[(rho >= low - 1.5 * (high - low)) & (rho <= high + 1.5 * (high - low))]
        rows.append((*key, within[0], low, median, high, within[-1], len(rho)))
    return pd.DataFrame(rows, columns=list(BOXES))


def over_time(collection: Collected, joint: JointModels, read: Callable[[str], Values]) -> pd.DataFrame:
    """The joint model as a function of how many probes from the start enter the sums."""
    rows: list[Row] = []
    for sample in collection.samples:
        for subset in sample.subsets:
            cells = filter(subset.holds, sample.partitions(subset.step))
            found = [(sample.ranked[sample.mask(cell)], joint.course(sample, cell, read)) for cell in cells]
            known = [(ranked, course) for ranked, course in found if course is not None]
            if not known:
                continue
            ranked = np.concatenate([ranked for ranked, _ in known])
            rho, mae = (np.concatenate([course[i] for _, course in known], axis=1).T for i in (0, 1))  # [S, probes]
            curve = _curve(sample.where(subset), MODEL, "rho", rho, ranked)
            rows += [row | {"mae": error} for row, error in zip(curve, np.nanmean(mae, axis=0).tolist(), strict=True)]
    return pd.DataFrame(rows, columns=[*COURSE, "mae"])


def swarms(sample: Sample, step: int) -> Iterator[tuple[GridCell, list[int]]]:
    """The steps that are drawn of each partition, as positions in the sample. A step's id is a digest, so the first few by id
    are a random draw, and stay it while a store grows."""
    for cell in sample.partitions(step):
        positions = sorted(np.flatnonzero(sample.mask(cell)).tolist(), key=lambda i: sample.steps[i].facts.id)
        yield cell, positions[:SWARMS]


def _swarms(sample: Sample, step: int) -> Iterator[Row]:
    for cell, drawn in swarms(sample, step):
        where = sample.where(cell)
        for swarm, i in enumerate(drawn, start=1):
            measured = sample.steps[i]
            for class_id, fg in zip(measured.class_ids.tolist(), measured.forgetting.tolist(), strict=True):
                yield where | {"swarm": swarm, "step_id": measured.facts.id, "class_id": class_id, "forgetting": fg}


def _course(sample: Sample, subset: Subset) -> Iterator[Row]:
    chosen = [i for i in np.flatnonzero(sample.mask(subset)) if len(sample.steps[i].course)]
    if not chosen:
        return
    courses = np.stack([sample.steps[i].course for i in chosen])  # [S, probes, associations]
    for i, asked in enumerate(ASSOCIATIONS):
        strengths = courses[:, :, i].astype(np.float64)
        yield from _curve(sample.where(subset), asked.quantity, asked.statistic, strengths, sample.ranked[chosen])


def _curve(where: Row, quantity: str, statistic: str, strengths: Values, ranked: NDArray[np.int64]) -> Iterator[Row]:
    """Means of correlations [S, probes], a row per probe."""
    pooled, probes = means_along(strengths, ranked), strengths.shape[1]
    for probe, share in enumerate(np.arange(probes) / max(1, probes - 1)):
        numbers = {name: values[probe] for name, values in pooled.items()}
        yield {**where, "quantity": quantity, "statistic": statistic, "probes": probe + 1, "share": share, **numbers}


def _control(collection: Collected) -> Iterator[Row]:
    for runs in collection.reruns:
        rho, counts = runs.correlations()
        where = runs.sample.where(runs.cell)
        for class_id, value, n in zip(runs.runs[0].class_ids.tolist(), rho.tolist(), counts.tolist(), strict=True):
            yield where | {"class_id": class_id, "rho": value, "runs": n}
