"""How early the most forgotten classes can be named, out of sample, and how far predicted forgetting can be trusted."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.exhibits.exhibit import MODEL, THREE
from forgetscope.analysis.inputs.measured_steps import MeasuredStep
from forgetscope.analysis.inputs.samples import Collected, GridCell, Sample, Subset
from forgetscope.analysis.inputs.training_shares import SHARES, seen_shares
from forgetscope.analysis.paper.joint_model import JointModels
from forgetscope.analysis.paper.points import swarms
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics.bootstrap import cluster_bca, cluster_mean_bca
from forgetscope.analysis.statistics.detection import most_forgotten, precision_at_k, roc_auc
from forgetscope.analysis.statistics.estimates import share_estimate

Values = NDArray[np.float64]

GROUPS = {"most forgotten tenth": 0.1, "most forgotten quarter": 0.25}
BINS = 10
RESAMPLES = 2_000  # of whole experiments

WARNING = (
    *("benchmark", "policy", "subset", "group", "share", "predictor"),
    *("precision", "precision_lo", "precision_hi", "chance", "auc", "auc_lo", "auc_hi", "n", "simulated"),
)
FLAGGED = (
    *("benchmark", "policy", "subset", "rehearsal_pct", "class_pct", "swarm", "step_id", "share"),
    *("predictor", "class_id", "score", "forgetting", "flagged", "hit"),
)
CALIBRATION = (
    *("benchmark", "policy", "subset", "bin", "predicted", "observed", "observed_lo", "observed_hi", "classes", "n"),
    "simulated",
)


def early_warning(collection: Collected, joint: JointModels) -> pd.DataFrame:
    """Precision at k and area under the ROC curve, mean over steps with intervals from resampled experiments.

    A share of 0 is the probe before training, where a store has no other within the first of the shares. chance: the precision
    of flags that know nothing, which is not what the group is called by: a quarter of ten classes is two of them. Coefficients
    alone need no fit; all of them together are predictions for a step that the model has not seen."""
    rows = [row for sample in collection.samples for subset in sample.subsets for row in _warnings(sample, subset, joint)]
    return pd.DataFrame(rows, columns=list(WARNING))


def flagged(collection: Collected, joint: JointModels) -> pd.DataFrame:
    """Every past class of the steps that swarm figures draw: its score after a share of training, and what became of it.

    A class is `flagged` if its score is among the highest quarter of its step, and `hit` if its forgetting is. Scores are
    predictions for an unseen step, or SIC where a partition has too few steps for the joint model; `predictor` says which."""
    rows = [
        row
        for sample in collection.samples
        for step in sample.numbers
        for cell, drawn in swarms(sample, step)
        for swarm, i in enumerate(drawn, start=1)
        for row in _flags(sample, cell, swarm, i, joint)
    ]
    return pd.DataFrame(rows, columns=list(FLAGGED))


def calibration(collection: Collected, joint: JointModels) -> pd.DataFrame:
    """Held-out predictions in ten groups of equal size: what was predicted, and what came. Slope and intercept are those of
    observed on predicted forgetting; 1 and 0 are perfect."""
    rows = [row for sample in collection.samples for subset in sample.subsets for row in _calibrated(sample, subset, joint)]
    return pd.DataFrame(rows, columns=list(CALIBRATION))


def _warnings(sample: Sample, subset: Subset, joint: JointModels) -> Iterator[Row]:
    chosen = [i for i in np.flatnonzero(sample.mask(subset)).tolist() if len(sample.steps[i].ranked)]
    if not chosen:
        return
    predictors = (MODEL, *THREE)
    scores = [_scores(sample.steps[i], joint.predictions(sample, i)) for i in chosen]
    roots = [sample.root[i] for i in chosen]
    for group, part in GROUPS.items():
        found = _measured(scores, [sample.steps[i].ranked for i in chosen], part)
        ends = _ends(found, roots)  # [shares, predictors, 2, 2]
        blind = np.array([_group_size(part, n) / n for n in (len(sample.steps[i].ranked) for i in chosen)])
        for k, share in seen_shares(sample.probes(subset.step)).items():
            for p, predictor in enumerate(predictors):
                own = found[:, k, p]
                known = own[np.isfinite(own[:, 0])]
                row = {**sample.where(subset), "group": group, "share": share, "predictor": predictor, "n": len(known)}
                row["chance"] = float(blind[np.isfinite(own[:, 0])].mean()) if len(known) else np.nan
                for m, name in enumerate(("precision", "auc")):
                    row[name] = float(known[:, m].mean()) if len(known) else np.nan
                    row[f"{name}_lo"], row[f"{name}_hi"] = ends[k, p, m].tolist()
                yield row


def _ends(found: Values, roots: list[str]) -> Values:
    """[..., 2], of means over found [steps, ...]. Where all are 1, or all 0, nothing can be resampled: the mean is then at
    least, or at most, what a share of that many hits can be, because no more values are 1 than their mean says."""
    ends = cluster_mean_bca(found, roots, resamples=RESAMPLES)
    for place in np.argwhere(np.isnan(ends[..., 0])):
        own = found[(slice(None), *place)]
        known = np.isfinite(own)
        if known.any() and set(own[known].tolist()) in ({0.0}, {1.0}):
            share = share_estimate(own, len({roots[i] for i in np.flatnonzero(known)}))
            ends[tuple(place)] = share.low, share.high
    return ends


def _flags(sample: Sample, cell: GridCell, swarm: int, i: int, joint: JointModels) -> Iterator[Row]:
    step = sample.steps[i]
    held_out = joint.predictions(sample, i)
    scores = held_out if len(held_out) else step.early[:, THREE.index("SIC")]
    classes = len(step.ranked)
    k = _group_size(GROUPS["most forgotten quarter"], classes)
    if k >= classes:
        return
    hits = most_forgotten(step.ranked, k)
    where = {**sample.where(cell), "swarm": str(swarm), "step_id": step.facts.id}
    for position, share in seen_shares(sample.probes(cell.step)).items():
        score = scores[position]
        if not np.isfinite(score).all():
            continue
        chosen = most_forgotten(score, k)
        for c, id in enumerate(step.class_ids[step.complete].tolist()):
            yield {
                **where,
                **{"share": share, "predictor": MODEL if len(held_out) else "SIC"},
                **{"class_id": id, "score": float(score[c])},
                **{"forgetting": float(step.ranked[c]), "flagged": bool(chosen[c]), "hit": bool(hits[c])},
            }


def _group_size(part: float, classes: int) -> int:
    """How many of so many classes are this part of them: at least one."""
    return max(1, round(part * classes))


def _scores(step: MeasuredStep, held_out: Values) -> Values:
    """[shares, predictors, C]: the joint model's prediction where there is one, then each coefficient."""
    model = held_out if len(held_out) else np.full((len(SHARES), len(step.ranked)), np.nan)
    return np.concatenate([model[:, None], step.early], axis=1)


def _measured(scores: list[Values], truths: list[Values], part: float) -> Values:
    """[steps, shares, predictors, 2]: precision and area under the curve. The group never has all classes."""
    found = np.full((len(truths), *scores[0].shape[:2], 2), np.nan)
    alike: dict[int, list[int]] = {}  # steps with as many classes are measured at once
    for i, truth in enumerate(truths):
        alike.setdefault(len(truth), []).append(i)
    for classes, steps in alike.items():
        k = _group_size(part, classes)
        if k < classes:
            score, truth = np.stack([scores[i] for i in steps]), np.stack([truths[i] for i in steps])[:, None, None]
            found[steps, ..., 0] = precision_at_k(score, truth, k)
            found[steps, ..., 1] = roc_auc(score, most_forgotten(truth, k))
            found[steps] = np.where(np.isfinite(score).all(axis=-1, keepdims=True), found[steps], np.nan)
    return found


def _calibrated(sample: Sample, subset: Subset, joint: JointModels) -> Iterator[Row]:
    chosen = [i for i in np.flatnonzero(sample.mask(subset)).tolist() if len(joint.predictions(sample, i))]
    if not chosen:
        return
    predicted = np.concatenate([joint.predictions(sample, i)[-1] for i in chosen])
    observed = np.concatenate([sample.steps[i].ranked for i in chosen])
    roots = np.repeat([sample.root[i] for i in chosen], [len(sample.steps[i].ranked) for i in chosen])
    known = np.isfinite(predicted)
    predicted, observed = predicted[known], observed[known]
    if len(predicted) < BINS:
        return
    clusters = np.unique(roots[known], return_inverse=True)[1]
    for number, rows in enumerate(np.array_split(np.argsort(predicted, kind="stable"), BINS), start=1):
        low, high = cluster_mean_bca(observed[rows], clusters[rows], resamples=RESAMPLES)
        yield {
            **sample.where(subset),
            **{"bin": str(number), "predicted": float(predicted[rows].mean()), "observed": float(observed[rows].mean())},
            **{"observed_lo": low, "observed_hi": high, "classes": len(rows), "n": len(np.unique(clusters[rows]))},
        }
    middle = predicted.mean(), observed.mean()
    x, y = predicted - middle[0], observed - middle[1]
    sums = np.zeros((int(clusters.max()) + 1, 5))
    np.add.at(sums, clusters, np.column_stack([np.ones(len(x)), x, y, x * x, x * y]))

    def line(total: Values) -> Values:
        """[many, 2]: slope and intercept, from sums of 1, x, y, x² and xy."""
        n, sx, sy, sxx, sxy = total.T
        variance = n * sxx - sx**2
        slope = (n * sxy - sx * sy) / np.where(variance > 0, variance, np.nan)
        return np.stack([slope, middle[1] + sy / n - slope * (middle[0] + sx / n)], axis=-1)

    for name, value, (low, high) in zip(
        ("slope", "intercept"), line(sums.sum(axis=0)[None])[0], cluster_bca(sums, line, resamples=RESAMPLES), strict=True
    ):
        counts = {"classes": len(x), "n": len(sums)}
        yield sample.where(subset) | {"bin": name, "observed": value, "observed_lo": low, "observed_hi": high} | counts
