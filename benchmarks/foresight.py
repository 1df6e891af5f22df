"""How well final forgetting is predicted while a step trains, and the model that ships with forgetscope.

    forgetscope replication STORE                       # the packaged results
    python benchmarks/foresight.py tables STORE         # of fits on finished steps alike, and of the model that ships
    python benchmarks/foresight.py enough STORE         # by how many finished experiments such a fit has
    python benchmarks/foresight.py fit STORE            # writes src/forgetscope/underway/shipped.json

Everything is measured on experiments that the fit in question has not seen, and so are its intervals: those of the other
experiments come from leaving out each of them in turn. Rank correlations are within steps, averaged in Fisher's z.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import forgetscope as fs
import forgetscope.underway.shipped as shipped_module
from forgetscope.analysis.statistics.rank_correlation import spearman
from forgetscope.store import Setting, StoredStep, first_step
from forgetscope.underway.experience import HARDLY_LEARNED, by_probe
from forgetscope.underway.regression import (
    COURSE,
    FEATURES,
    MEASURED,
    Fit,
    bounded,
    features,
    fitted,
    interval,
    left_out,
    ridge,
)
from forgetscope.underway.shipped import MIDDLE, design, facts_of

Values = NDArray[np.float64]
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)  # of training
STRENGTH = 30.0  # ridge of the model that ships, which has many terms
DIGITS = 6
IS_MEASURED = np.array([name in MEASURED for name in FEATURES])


@dataclass(frozen=True)
class Case:
    """A finished step. experiment: its sequence of classes and seed, which steps of several retentions share."""

    setting: Setting
    step: int
    experiment: int
    course: Values
    forgetting: Values

    @property
    def partition(self) -> tuple[int, int, float]:
        options = self.setting.options
        return self.step, int(options["classes"]), float(options["retention"])

    def features(self, share: float) -> Values:
        """[P, MEASURED] after this share of training."""
        return features(self.course[: 1 + round(share * (len(self.course) - 1))])[: len(MEASURED)].T


def cases(store: fs.Store) -> list[Case]:
    steps = {step.id: step for step in store.steps()}
    parents = {id: step.parent for id, step in steps.items()}
    sequences: dict[int, int] = {}
    found = []
    for step in steps.values():
        if step.parent is not None and step.divergence is None:
            seed = steps[first_step(step.id, parents)].spec.seed
            found.append(case_of(step, sequences.setdefault(seed, len(sequences))))
    return found


def case_of(step: StoredStep, experiment: int) -> Case:
    past = step.past_classes("class_id", "forgetting")
    lost = np.where(past["forgetting"] >= HARDLY_LEARNED, past["forgetting"], np.nan)
    return Case(step.setting, step.number, experiment, by_probe(step.table("probes"), past["class_id"].tolist(), COURSE), lost)


@dataclass(frozen=True)
class Judgement:
    """Of one step that was held out: predicted [3, P], and what came; blind: the mean of the steps that were fitted on."""

    predicted: Values
    came: Values
    blind: float


def by_partition(found: Sequence[Case], share: float, most: int | None = None) -> Iterator[Judgement]:
    """As a store would, of finished steps alike. most: so many of the other experiments, chosen by draws that do not change."""
    draws = np.random.default_rng(0)
    for partition in sorted({case.partition for case in found}):
        alike = [case for case in found if case.partition == partition]
        experiments = sorted({case.experiment for case in alike})
        for own in experiments:
            others = draws.permutation([one for one in experiments if one != own])[:most].tolist()
            x, y, groups = rows([case for case in alike if case.experiment in others], share)
            fit = fitted(x, y, groups, IS_MEASURED)
            for case in alike:
                if case.experiment == own:
                    yield Judgement(fit.predicted(case.features(share)), case.forgetting, float(y.mean()))


def rows(found: Sequence[Case], share: float) -> tuple[Values, Values, list[int]]:
    x = np.concatenate([case.features(share) for case in found])
    y = np.concatenate([case.forgetting for case in found])
    known = np.isfinite(x).all(axis=1) & np.isfinite(y)
    groups = np.repeat([case.experiment for case in found], [len(case.forgetting) for case in found])
    return x[known], y[known], groups[known].tolist()


@dataclass(frozen=True)
class Pooled:
    """One fit on all partitions. error: of the logarithm of its size, by that of the number of new classes."""

    fit: Fit
    error: tuple[float, float]

    def predicted(self, case: Case, share: float) -> Values:
        value = self.fit.line.at(designed(case, share))
        return bounded(value, interval(spread(self.error, case.partition[1]), self.fit.experiments))


def spread(error: tuple[float, float], classes: int) -> float:
    return float(np.exp(error[0] + error[1] * np.log(classes / MIDDLE["classes"])))


def designed(case: Case, share: float) -> Values:
    step, classes, retention = case.partition
    return design(case.features(share).T, retention, classes, step)


def pooled(found: Sequence[Case], share: float) -> Pooled:
    x, y = np.concatenate([designed(case, share) for case in found]), np.concatenate([case.forgetting for case in found])
    sizes = [len(case.forgetting) for case in found]
    groups, classes = (
        np.repeat([of(case) for case in found], sizes) for of in (lambda c: c.experiment, lambda c: c.partition[1])
    )
    known = np.isfinite(x).all(axis=1) & np.isfinite(y)
    x, y, groups, classes = x[known], y[known], groups[known], classes[known]
    errors = left_out(x, y, groups.tolist(), STRENGTH) - y
    kinds = np.unique(classes)
    sizes_of = [0.5 * np.log(np.mean(errors[classes == kind] ** 2)) for kind in kinds]
    slope, base = np.polyfit(np.log(kinds / MIDDLE["classes"]), sizes_of, 1).tolist() if len(kinds) > 1 else (0.0, sizes_of[0])
    whole = float(np.sqrt(np.mean(errors**2)))
    return Pooled(Fit(ridge(x, y, STRENGTH), IS_MEASURED, whole, len(set(groups.tolist())), len(y)), (base, slope))


def by_pooled(found: Sequence[Case], share: float) -> Iterator[Judgement]:
    """Each experiment, with all of its partitions, by a fit on the others."""
    for own in sorted({case.experiment for case in found}):
        others = [case for case in found if case.experiment != own]
        model = pooled(others, share)
        for case in found:
            if case.experiment == own:
                alike = [other.forgetting for other in others if other.partition == case.partition]
                yield Judgement(model.predicted(case, share), case.forgetting, float(np.nanmean(np.concatenate(alike))))


def between(found: Sequence[Case], share: float) -> Iterator[Judgement]:
    """Steps of a retention that lies between those of the fit, of experiments that it has not seen."""
    retentions = sorted({case.partition[2] for case in found})
    for own in sorted({case.experiment for case in found}):
        others = [case for case in found if case.experiment != own and case.partition[2] not in retentions[1:-1]]
        model, mean = pooled(others, share), float(np.nanmean(np.concatenate([case.forgetting for case in others])))
        for case in found:
            if case.experiment == own and case.partition[2] in retentions[1:-1]:
                yield Judgement(model.predicted(case, share), case.forgetting, mean)


def judged(found: Iterator[Judgement]) -> list[str]:
    """Cells of a table: error of the mean, of the prediction, bias, rank correlation, coverage, half the interval."""
    all_of = list(found)
    predicted, came = np.concatenate([one.predicted for one in all_of], axis=1), np.concatenate([one.came for one in all_of])
    blind = np.concatenate([np.full(len(one.came), one.blind) for one in all_of])
    known = np.isfinite(predicted[0]) & np.isfinite(came)
    value, low, high, y = *predicted[:, known], came[known]
    ranks = [float(spearman(one.predicted[0], one.came)) for one in all_of]
    rank = float(np.tanh(np.mean(np.arctanh(np.clip([r for r in ranks if np.isfinite(r)], -0.999, 0.999)))))
    root = lambda errors: float(np.sqrt(np.mean(errors**2)))  # noqa: E731
    cells = [root(blind[known] - y), root(value - y), float(np.mean(value - y)), rank, float(np.mean((low <= y) & (y <= high)))]
    cells.append(float(np.mean(value - low)))
    formats = ("{:.3f}", "{:.3f}", "{:+.3f}", "{:.2f}", "{:.3f}", "{:.2f}")
    return [form.format(cell).replace("-", "−") for form, cell in zip(formats, cells, strict=True)]


HEAD = ("error of the mean", "error", "bias", "rank correlation", "in the interval", "half of it")


def printed(first: str, lines: Sequence[tuple[str, list[str]]]) -> None:
    print("|", " | ".join((first, *HEAD)), "|")
    print("|", " | ".join(["---"] * (len(HEAD) + 1)), "|")
    for name, cells in lines:
        print("|", " | ".join([name, *cells]), "|", flush=True)


def tables(found: Sequence[Case]) -> None:
    ways: dict[str, Callable[[Sequence[Case], float], Iterator[Judgement]]] = {
        **{"Fitted on the other experiments of a partition": by_partition, "The model that ships": by_pooled},
        "The same, of a retention between those of its fit": between,
    }
    if len({case.partition for case in found}) == 1:  # of which no model of several partitions can be made
        ways = dict(list(ways.items())[:1])
    for name, way in ways.items():
        print(f"\n{name}:\n")
        printed("of training", [(f"{100 * share:.0f} %", judged(way(found, share))) for share in SHARES])
    if len(ways) == 1:
        return
    print("\nThe model that ships, by partition, after half of training:\n")
    of = [(case.partition, one) for case, one in zip(in_order(found), by_pooled(found, 0.5), strict=True)]
    lines = []
    for step, classes, retention in sorted({partition for partition, _ in of}):
        own = [one for partition, one in of if partition == (step, classes, retention)]
        lines.append((f"step {step}, {classes} new classes, {100 * retention:.0f} % kept", judged(iter(own))))
    printed("partition", lines)


def in_order(found: Sequence[Case]) -> list[Case]:
    return [case for own in sorted({case.experiment for case in found}) for case in found if case.experiment == own]


def enough(found: Sequence[Case]) -> None:
    """Partitions of ten experiments only."""
    counts = {case.partition: 0 for case in found}
    for partition in counts:
        counts[partition] = len({case.experiment for case in found if case.partition == partition})
    whole = [case for case in found if counts[case.partition] >= 10]
    for share in (0.25, 1.0):
        print(f"\nAfter {100 * share:.0f} % of training:\n")
        printed("experiments", [(str(most), judged(by_partition(whole, share, most))) for most in (2, 3, 4, 5, 6, 7, 9)])


def fit(found: Sequence[Case]) -> None:
    """All that the model is, and where it holds."""
    probes = {len(case.course) for case in found}
    facts = [facts_of(case.setting) for case in found]
    if len(probes) > 1 or any(one != facts[0] for one in facts):
        sys.exit("These steps were not trained alike.")
    ends = range(probes.pop())
    models = [pooled(found, at / ends[-1]) for at in ends]
    steps = sorted({case.step for case in found})
    experiments = len({case.experiment for case in found})
    content = {
        "fitted_on": f"{len(found)} steps of {experiments} experiments on {facts[0]['dataset']} at "
        f"{facts[0]['shape'][1]}x{facts[0]['shape'][0]} with {facts[0]['network']}",
        "experiments": experiments,
        "settings": facts[0],
        "domain": {
            str(step): {
                "retention": ends_of([case.partition[2] for case in found if case.step == step]),
                "classes": ends_of([case.partition[1] for case in found if case.step == step]),
            }
            for step in steps
        },
        "probes": [
            {
                "intercept": float(f"{model.fit.line.intercept:.{DIGITS}g}"),
                "weights": [float(f"{weight:.{DIGITS}g}") for weight in model.fit.line.weights.tolist()],
                "error": [float(f"{part:.{DIGITS}g}") for part in model.error],
            }
            for model in models
        ],
    }
    path = Path(shipped_module.__file__).with_name(shipped_module.FILE)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size:,} bytes")


def ends_of(values: Sequence[float]) -> list[float]:
    return [min(values), max(values)]


if __name__ == "__main__":
    what, folder = sys.argv[1:]
    {"tables": tables, "enough": enough, "fit": fit}[what](cases(fs.Store.existing(folder)))
