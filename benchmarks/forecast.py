"""What docs/forecast.md shows: forecasts of forgetting against every other predictor, on the same runs.

    python benchmarks/forecast.py run STORE FILE [--set NAME=VALUE ...] [--shard 1/2]
    python benchmarks/forecast.py tables STORE... [--only NAME]     # into docs/forecast.md, between its marks, and its figure
    python benchmarks/forecast.py accuracy STORE...                 # its table of accuracies when learned
    python benchmarks/forecast.py needs STORE                       # its table of what predictors need, on one second step
    python benchmarks/forecast.py guards STORE...                   # its table of the classes that would have no forecast

`run` trains what is missing of a benchmark, and keeps the network after every epoch in STORE-networks: all predictors are
computed from the same networks afterwards. A forecast changes nothing in training, so these are also the steps of runs without
it. `tables` writes everything with its interval, at every share of training, to STORE-networks/forecast.csv of the first store.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from matplotlib.figure import Figure

import forgetscope as fs
import judging
from forgetscope.analysis.inputs.training_shares import SHARES
from forgetscope.analysis.statistics.estimates import fisher_z, in_rho, mean_estimate
from forgetscope.analysis.statistics.rank_correlation import spearman
from forgetscope.benchmark.plans import Job
from forgetscope.forecasting.forecaster import LEAST_OF_TRAINING
from forgetscope.learning.snapshots import load_snapshot
from forgetscope.report.typeset import ink
from forgetscope.report.words.notation import PLAIN
from guards import accuracies, unpredicted
from judging import Judged, Measure, ceiling, difference, estimated
from needs import needs as what_they_need
from predictors import FORECAST, HELD_OUT, TRANSLATED, accuracies_when_learned, judged_steps
from replication import ROOT, fill, table
from seen import folder_of

PAGE = ROOT / "docs" / "forecast.md"
FIGURE = ROOT / "docs" / "images" / "forecast.png"
VARIANCE, COVARIANCE = FORECAST["variance"], FORECAST["covariance"]
MEMORY, LOSS = "memory, own probability", "memory loss"
HELD = (f"{HELD_OUT} held-out images, accuracy", f"{HELD_OUT} held-out images, probability")
PAST = "past images, accuracy"
WITHOUT = (VARIANCE, COVARIANCE, TRANSLATED, MEMORY, LOSS, *HELD, "learning speed", "LOG-SIM")
WITH = ("SIC", "CIC", "NIC", "joint model", PAST)
PREDICTING = (VARIANCE, COVARIANCE, TRANSLATED, MEMORY, *HELD, "joint model", PAST)  # forgetting itself, not only its order
LAST = len(SHARES) - 1
AFTER = tuple(f"after {share:.0%}".replace("%", " %") for share in SHARES)
MEASURES: dict[str, Measure] = {
    "rank correlation": judging.correlation,
    "precision": judging.precision,
    "area under the curve": judging.area,
    "bias": judging.bias,
    "mean absolute error": judging.absolute,
    "root mean square error": judging.squared,
    "without noise": judging.squared_without_noise,
    "covered": judging.covered,
}
DRAWN = {
    **{VARIANCE: (ink.BLUE, "-"), COVARIANCE: (ink.SKY, "-"), MEMORY: (ink.GREEN, "-"), HELD[0]: (ink.PURPLE, "-")},
    **{"SIC": (ink.VERMILION, "--"), "NIC": (ink.ORANGE, "--"), PAST: (ink.GREY, "--")},
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    train = commands.add_parser("run")
    train.add_argument("store")
    train.add_argument("file")
    train.add_argument("--set", action="append", default=[])
    train.add_argument("--shard")
    train.set_defaults(command=run)
    for command in (tables, accuracy, needs, guards):
        one = commands.add_parser(command.__name__)
        one.add_argument("stores", nargs="+")
        one.set_defaults(command=command)
        if command is tables:
            one.add_argument("--only", help="the name of one table, for stores that lack some of the runs of others")
    given = vars(parser.parse_args(arguments))
    torch.set_num_threads(1)
    given.pop("command")(**given)


class Keeper(fs.Watcher):
    """Keeps the network after every epoch: steps save a snapshot then, and drop it when they are done."""

    def __init__(self, store: fs.Store) -> None:
        self.store = store

    def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
        snapshot = load_snapshot(self.store.working(job.id), lambda path: None)
        if snapshot is None or snapshot.epoch != epoch:
            raise SystemExit(
                f"There is no snapshot of step {job.id[:8]} after epoch {epoch}: the network is too large for this."
            )
        folder = folder_of(self.store, job.id)
        folder.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(snapshot.network, folder / f"{epoch}.safetensors")

    def ended(self, job: Job) -> None:
        print(f"step {job.spec.step} {job.id[:8]}", flush=True)

    def ended_badly(self, job: Job, message: str, blocked: int) -> None:
        print(f"step {job.spec.step} {job.id[:8]}: {message}", flush=True)

    def note(self, text: str) -> None:
        print(text, flush=True)


def run(store: str, file: str, set: Sequence[str], shard: str | None) -> None:
    settings = {name: value for setting in set for name, value in tomllib.loads(setting).items()}
    opened = fs.Store(store)
    fs.run(fs.BenchmarkSpec.load(file, settings), opened, on=fs.Here(threads=1), watch=Keeper(opened), shard=shard)


def tables(stores: Sequence[str], only: str | None) -> None:
    opened = [fs.Store.existing(store) for store in stores]
    steps = [step for store in opened for step in judged_steps(store)]
    if only is not None:
        fill(PAGE, {name: block for name, block in blocks(steps) if name == only})
        return
    groups = grouped(steps)
    written = opened[0].path.with_name(f"{opened[0].path.name}-networks") / "forecast.csv"
    everything({**partitioned(steps), **groups}).to_csv(written, index=False)
    fill(PAGE, dict(blocks(steps)))
    draw(groups, FIGURE)
    print(f"{len(steps)} steps. {PAGE}, {FIGURE}, {written}")


def partitioned(steps: Iterable[Judged]) -> dict[str, list[Judged]]:
    """By partition, in the order of tables."""
    found: dict[str, list[Judged]] = {}
    for step in sorted(steps, key=lambda step: (step.partition[0], step.partition[3], step.partition[1] != "uniform")):
        found.setdefault(_title(*step.partition), []).append(step)
    return found


def grouped(steps: Iterable[Judged]) -> dict[str, list[Judged]]:
    """All second, or third, steps of a data set, whatever was kept and how."""
    found: dict[str, list[Judged]] = {}
    for step in sorted(steps, key=lambda step: (step.partition[0], step.partition[3])):
        found.setdefault(f"{NAMES[step.partition[0]]}, {ORDINALS[step.partition[3]]} steps", []).append(step)
    return found


NAMES, ORDINALS = {"cifar100": "CIFAR-100", "glyphs": "glyphs"}, {1: "first", 2: "second", 3: "third"}


def _title(data: str, policy: str, retention: str, number: int) -> str:
    return f"{NAMES[data]}, {ORDINALS[number]}, {f'{retention} %' if data == 'cifar100' else policy}"


def blocks(steps: Sequence[Judged]) -> Iterator[tuple[str, str]]:
    """By the name of its marks, everything on the page that is made of steps."""
    places, groups = partitioned(steps), grouped(steps)
    yield "there", table(("", "experiments", "mean FG", "its spread without noise", "ceiling"), there(places))
    for data in ("cifar100", "glyphs"):
        own = {name: part for name, part in places.items() if name.startswith(NAMES[data])}
        yield f"errors {data}", _by_predictor(own, PREDICTING, _errors)
        yield f"early errors {data}", table(("", "experiments", *AFTER), early_errors(own))
        yield (
            f"ranking {data}",
            _by_predictor(own, (*WITHOUT, *WITH), lambda part, name: _cell(part, judging.correlation, name)),
        )
    others = [name for name in (*WITHOUT, *WITH) if name != VARIANCE]
    yield (
        "differences",
        _by_predictor(groups, others, lambda part, name: PLAIN.estimate(difference(part, VARIANCE, name, LAST), signed=True)),
    )
    for name in ("rank correlation", "precision", "area under the curve"):
        yield (
            f"early {name}",
            _by_predictor(groups, (*WITHOUT, *WITH), lambda part, own, name=name: _course(part, MEASURES[name], own)),
        )
    for name in ("precision", "area under the curve"):
        yield name, _by_predictor(groups, (*WITHOUT, *WITH), lambda part, own, name=name: _cell(part, MEASURES[name], own))
    yield ("calibration", table(("", "predictor", *AFTER), calibration(places)))


def there(places: dict[str, list[Judged]]) -> Iterable[Sequence[str]]:
    for name, part in places.items():
        lost = judging.over_experiments(part, [float(np.nanmean(step.forgetting)) for step in part])
        spread = judging.over_experiments(part, [step.true_variance for step in part])
        yield (
            name,
            str(lost.n),
            PLAIN.estimate(lost),
            PLAIN.number(max(0.0, spread.value) ** 0.5),
            PLAIN.estimate(ceiling(part)),
        )


def early_errors(places: dict[str, list[Judged]]) -> Iterable[Sequence[str]]:
    for name, part in places.items():
        count = str(len({step.experiment for step in part}))
        yield name, count, *(_errors(part, VARIANCE, share) for share in range(len(SHARES)))


def calibration(places: dict[str, list[Judged]]) -> Iterable[Sequence[str]]:
    for name, part in places.items():
        for predictor in (VARIANCE, COVARIANCE):
            found = (estimated(part, judging.covered, predictor, share) for share in range(len(SHARES)))
            yield name, predictor, *(PLAIN.estimate(one) for one in found)


def everything(parts: dict[str, list[Judged]]) -> pd.DataFrame:
    rows = []
    for name, part in parts.items():
        for predictor in (*WITHOUT, *WITH):
            for measure in asked_of(predictor):
                for position, share in enumerate(SHARES):
                    if predictor == "joint model" and position < LAST and measure not in [*MEASURES][:3]:
                        continue  # it predicts what the step will end with, not what is so far
                    found = estimated(part, MEASURES[measure], predictor, position)
                    rows.append((name, predictor, measure, share, found.value, found.low, found.high, found.n))
    return pd.DataFrame(rows, columns=["steps", "predictor", "measure", "share", "value", "low", "high", "n"])


def asked_of(predictor: str) -> list[str]:
    """What can be measured of a predictor."""
    every = list(MEASURES)
    return every if predictor in (VARIANCE, COVARIANCE) else every[:-1] if predictor in PREDICTING else every[:3]


def draw(groups: dict[str, list[Judged]], path: Path) -> None:
    """Rank correlation with the forgetting that a step ends with, by how much of training is over."""
    with ink.printing():
        figure = Figure(figsize=(7.16, 2.2 * -(-len(groups) // 2)), layout="constrained")
        panels = figure.subplots(-(-len(groups) // 2), 2, sharex=True, sharey=True, squeeze=False).ravel()
        for panel, (name, part) in zip(panels, groups.items(), strict=False):
            panel.set_title(f"{name}, n = {len({step.experiment for step in part})}")
            panel.axhline(ceiling(part).value, color=ink.GREY, linewidth=0.8, linestyle=":", label="noise ceiling")
            for shift, (predictor, (colour, dashes)) in enumerate(DRAWN.items()):
                found = [estimated(part, judging.correlation, predictor, share) for share in range(len(SHARES))]
                x = 100 * np.array(SHARES) + 0.8 * (shift - 3)
                reach = np.abs([[one.value - one.low, one.high - one.value] for one in found]).T
                panel.errorbar(
                    x,
                    [one.value for one in found],
                    reach,
                    color=colour,
                    linestyle=dashes,
                    linewidth=1,
                    marker="o",
                    markersize=2,
                    elinewidth=0.5,
                    label=predictor,
                )
            panel.set_xticks([100 * share for share in SHARES])
        for panel in panels[-2:]:
            panel.set_xlabel("training that is over, %")
        figure.supylabel("rank correlation with forgetting", fontsize=ink.TEXT)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        with path.open("wb") as file:
            ink.save(figure, file, "png")


def accuracy(stores: Sequence[str]) -> None:
    """How near accuracies when learned are that come from training images alone."""
    rows = []
    for store in stores:
        found = pd.DataFrame(accuracies_when_learned(fs.Store.existing(store)))
        for (data, number, against), part in found.groupby(["data", "step", "against"]):
            for estimate in ("training accuracy", "leave-one-out"):
                off = part[estimate] - part["held out"]
                error = float((off**2 - part["noise"]).mean())
                mean = mean_estimate(off.groupby(part["experiment"]).mean().to_numpy())
                ranks = {
                    key: float(fisher_z(spearman(own[estimate], own["held out"]), len(own)))
                    for key, own in part.groupby(["experiment", "network"])
                }
                rank = in_rho(mean_estimate(pd.Series(ranks).groupby(level=0).mean().to_numpy()))
                facts = PLAIN.estimate(mean, 3, signed=True), PLAIN.number(max(0.0, error) ** 0.5, 3), PLAIN.estimate(rank)
                rows.append((NAMES[data], ORDINALS[number], against, estimate, str(mean.n), *facts))
    head = (
        "",
        "learned in steps",
        "against",
        "estimate",
        "n",
        "bias",
        "root mean square error without noise",
        "rank correlation",
    )
    fill(PAGE, {"accuracy": table(head, rows)})


def needs(stores: Sequence[str]) -> None:
    """On the first second step, in the order of ids, of those that keep least."""
    store = fs.Store.existing(stores[0])
    step = min((step for step in store.steps() if step.number == 2), key=lambda step: step.spec.rehearsal.retention)
    head = ("predictor", "past images?", "what else", "bytes per class", "seconds")
    fill(PAGE, {"needs": table(head, what_they_need(store, step))})
    print(f"{step.id}: {step.info['data']['name']}, {step.spec.rehearsal.retention}")


def guards(stores: Sequence[str]) -> None:
    """Which classes the rules of when there is no forecast concern: how near those that steps learned are to the rule on
    leave-one-out accuracy, and what is missing where networks are there."""
    opened, rows = [fs.Store.existing(store) for store in stores], []
    every = pd.concat([accuracies(store) for store in opened])
    for (data, number, classes), part in every.groupby(["data", "step", "classes"]):
        ratios = {name: part[name] / part["training"] for name in ("test", "left out")}
        least = (PLAIN.number(float(ratio.min())) for ratio in ratios.values())
        known = int(part["left out"].notna().sum())
        below = f"{int((ratios['left out'] < LEAST_OF_TRAINING).sum())} of {known}" if known else "–"
        counts = str(classes), str(part["id"].nunique()), str(len(part))
        rows.append((NAMES[str(data)], ORDINALS[int(number)], *counts, *least, below))
    head = ("", "learned in steps", "of classes", "steps", "classes", "least test / training accuracy")
    fill(PAGE, {"guards": table((*head, "least leave-one-out / training accuracy", "below half"), rows)})
    for one in (found for store in opened for found in unpredicted(store)):
        title = f"{NAMES[one.data]}, {ORDINALS[one.number]} steps ({one.steps})"
        print(f"{title}: {len(one.reasons)} of {one.wanted} forecasts missing", *one.reasons, sep="\n  ")


def _by_predictor(
    places: dict[str, list[Judged]], predictors: Sequence[str], shown: Callable[[Sequence[Judged], str], str]
) -> str:
    lines = [[name, *(shown(part, name) for part in places.values())] for name in predictors]
    return table(("", *places), lines)


def _cell(part: Sequence[Judged], measure: Measure, predictor: str) -> str:
    return PLAIN.estimate(estimated(part, measure, predictor, LAST))


def _errors(part: Sequence[Judged], predictor: str, share: int = LAST) -> str:
    """Bias, mean absolute error, and root mean square error without the noise of test images."""
    signed = PLAIN.number(estimated(part, judging.bias, predictor, share).value, signed=True)
    absolute = PLAIN.number(estimated(part, judging.absolute, predictor, share).value)
    squared = PLAIN.estimate(estimated(part, judging.squared_without_noise, predictor, share))
    return f"{signed}, {absolute}, {squared}"


def _course(part: Sequence[Judged], measure: Measure, predictor: str) -> str:
    """After 10, 25, 50 and 100 %."""
    return " ".join(PLAIN.number(estimated(part, measure, predictor, share).value) for share in range(len(SHARES)))


if __name__ == "__main__":
    main()
