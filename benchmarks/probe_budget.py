"""What cheap probes cost, and how well they agree with exact ones after every epoch.

    python benchmarks/probe_budget.py run FOLDER [resnet8 | resnet32]    # trains; stopped, the same command goes on
    python benchmarks/probe_budget.py show FOLDER                        # tables, and docs/images/probe-budget.png

Second steps of ten classes of CIFAR-100 after ten others (`forgetscope data get cifar100`), uniform policy, one thread:
ResNet-8 at 16 x 16 for 20 epochs, ResNet-32 at 32 x 32 for 10. One training per experiment: after each epoch it is measured on
all images and, at the same weights, on some, several times with other draws. Fewer probes are some of these. A setting's cost
is its probes' processor time divided by that of all epochs of the same training. Agreement is with the exact sums over all
epochs, over the ten past classes: rank correlation and Pearson's, mean over draws, then over experiments with 95 % t intervals,
in Fisher's z.

Sizes and seeds were fixed before any of these runs; the table of probes = "auto" is from runs with other seeds (901 to 903).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import forgetscope as fs
from forgetscope.analysis.statistics.estimates import Estimate, in_rho, mean_estimate
from forgetscope.analysis.statistics.rank_correlation import spearman
from forgetscope.experiment.observation import Observer
from forgetscope.measuring.measurement import Measurement, measure
from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.measuring.subsampled.drawing import subsampled

Values = NDArray[np.float64]
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "probe-budget.png"
IMAGES = (15, 30, 60, 100, 130, 250)
PROBES = {20: (2, 3, 6, 11, 21), 10: (2, 3, 6, 11)}  # by epochs
WANTED = {"sic": 0.95, "cic": 0.9, "nic": 0.9}
BUDGET = 0.05


@dataclass(frozen=True)
class Experiment:
    network: str
    side: int
    epochs: int
    draws: int
    retention: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.network}-{self.retention:g}-{self.seed}"

    @property
    def spec(self) -> fs.RunSpec:
        return fs.RunSpec(
            **{"dataset": "cifar100", "image_size": self.side, "network": self.network, "increment": 0.1, "steps": 2},
            **{"epochs": self.epochs, "retention": self.retention, "seed": self.seed},
        )


EXPERIMENTS = [Experiment("resnet8", 16, 20, 3, retention, seed) for seed in range(100, 106) for retention in (0.08, 0.4)]
EXPERIMENTS += [Experiment("resnet32", 32, 10, 1, retention, 100) for retention in (0.08, 0.4)]


def run(folder: Path, network: str | None) -> None:
    torch.set_num_threads(1)
    for experiment in EXPERIMENTS:
        if network in (None, experiment.network):
            with_probes_beside(experiment, folder / experiment.name)
            fs.run(experiment.spec, folder / f"store-{experiment.network}", device="cpu", threads=1)


def with_probes_beside(experiment: Experiment, folder: Path) -> None:
    """From now on every epoch of a second step leaves a file there."""
    folder.mkdir(parents=True, exist_ok=True)
    ended = [time.process_time()]
    plain = PLAIN

    def epoch_ended(self: Observer, epoch: int, iteration: int) -> None:
        training = time.process_time() - ended[0]
        plain(self, epoch, iteration)
        data, network = self._data, self._step.network
        if data is not None:
            found: dict[str, object] = {"training": training, "exact": timed(lambda: measure(network, data, trusted=True))}
            for images, draw in product(IMAGES, range(experiment.draws)):

                def stream(node: int, draw: int = draw) -> np.random.Generator:
                    return np.random.default_rng([experiment.seed, draw, epoch, node])

                def some(images: int = images, stream: Callable[[int], np.random.Generator] = stream) -> Measurement:
                    return measure(network, subsampled(data, images, stream), trusted=True)

                found[f"{images}/{draw}"] = timed(some)
            (folder / f"{epoch}.json").write_text(json.dumps(found))
            print(f"{experiment.name}: epoch {epoch}, {training:.1f} s", flush=True)
        ended[0] = time.process_time()

    Observer.epoch_ended = epoch_ended  # type: ignore[method-assign]


PLAIN = Observer.epoch_ended


def timed(work: Callable[[], Measurement]) -> dict[str, object]:
    begin = time.process_time()
    measured = work()
    seconds = time.process_time() - begin
    rows = {"terms": measured.terms, "variances": measured.variances}
    values = {name: [getattr(row, c).tolist() for c in COEFFICIENTS] for name, row in rows.items() if row is not None}
    return {"seconds": seconds, **values}


@dataclass(frozen=True)
class Cell:
    """One setting in the experiments of one network and retention."""

    images: int | None
    probes: int
    cost: float  # median over experiments
    ranks: dict[str, Estimate]
    pearson: dict[str, Estimate]
    told: dict[str, float]  # root mean square error / root mean standard error, over experiments, draws and classes


def finished(folder: Path, network: str, retention: float) -> list[tuple[Experiment, list[dict[str, Any]]]]:
    found = []
    for one in EXPERIMENTS:
        files = [folder / one.name / f"{epoch}.json" for epoch in range(one.epochs + 1)]
        if (one.network, one.retention) == (network, retention) and all(file.exists() for file in files):
            found.append((one, [json.loads(file.read_text()) for file in files]))
    return found


def cells(runs: list[tuple[Experiment, list[dict[str, Any]]]]) -> Iterator[Cell]:
    epochs = runs[0][0].epochs
    for images, probes in product((*IMAGES, None), PROBES[epochs]):
        at = [round(i * epochs / (probes - 1)) for i in range(probes)]
        cost, ranks, pearson, errors = [], [], [], []
        for one, records in runs:
            exact = np.array([record["exact"]["terms"] for record in records]).sum(axis=0)[:3]
            training = np.median([record["training"] for record in records[1:]]) * epochs  # the first is what precedes training
            names = ["exact"] if images is None else [f"{images}/{draw}" for draw in range(one.draws)]
            found = [np.mean([records[epoch][name]["terms"] for epoch in at], axis=0)[:3] * (epochs + 1) for name in names]
            cost.append(np.mean([sum(records[epoch][name]["seconds"] for epoch in at) for name in names]) / training)
            ranks.append(np.mean([z(spearman(values, exact), len(exact[0])) for values in found], axis=0))
            pearson.append(
                np.mean([z([np.corrcoef(a, b)[0, 1] for a, b in zip(v, exact, strict=True)]) for v in found], axis=0)
            )
            if images is not None and probes == epochs + 1:
                variances = [np.sum([record[name]["variances"] for record in records], axis=0)[:3] for name in names]
                errors += [[(v - exact) ** 2, variance] for v, variance in zip(found, variances, strict=True)]
        rank, product_moment = (
            {name: in_rho(mean_estimate(column)) for name, column in zip(WANTED, np.transpose(rows), strict=True)}
            for rows in (ranks, pearson)
        )
        squares = np.mean(errors, axis=(0, 3)) if errors else np.full((2, 3), np.nan)
        told = dict(zip(WANTED, np.sqrt(squares[0] / squares[1]).tolist(), strict=True))
        yield Cell(images, probes, float(np.median(cost)), rank, product_moment, told)


def z(correlations: object, classes: int | None = None) -> Values:
    """Fisher's; a perfect rank correlation as everywhere in this project."""
    most = 1 - 6 / (classes**3 - classes) if classes else 1 - 1e-9
    found: Values = np.arctanh(np.clip(np.asarray(correlations, np.float64), -most, most))
    return found


def show(folder: Path) -> None:
    shown: dict[str, list[Cell]] = {}
    for network, retention in dict.fromkeys((one.network, one.retention) for one in EXPERIMENTS):
        runs = finished(folder, network, retention)
        if not runs:
            continue
        title = f"{network.replace('resnet', 'ResNet-')}, {100 * retention:g} % kept, n = {len(runs)}"
        shown[title] = list(cells(runs))
        print(f"\n{title}\n\n| images | probes | cost | SIC | CIC | NIC | Pearson: SIC, CIC, NIC | error / standard error |")
        print("|---|---|---|---|---|---|---|---|")
        for cell in sorted(shown[title], key=lambda cell: (cell.images or 10**9, cell.probes)):
            ranks = " | ".join(interval(cell.ranks[name]) for name in WANTED)
            pearson = ", ".join(f"{cell.pearson[name].value:.2f}" for name in WANTED)
            told = ", ".join("" if np.isnan(value) else f"{value:.2f}" for value in cell.told.values()).strip(", ")
            print(f"| {cell.images or 'all'} | {cell.probes} | {cell.cost:.1%} | {ranks} | {pearson} | {told} |")
    draw(shown)


def interval(found: Estimate) -> str:
    return f"{found.value:.2f}" + ("" if np.isnan(found.low) else f" ({found.low:.2f}, {found.high:.2f})")


def draw(shown: dict[str, list[Cell]]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(shown), 3, figsize=(10, 2.6 * len(shown)), sharex=True, sharey=True, squeeze=False)
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.95, len(IMAGES) + 1))
    for row, (title, found) in zip(axes, shown.items(), strict=True):
        for axis, name in zip(row, WANTED, strict=True):
            for colour, images in zip(colours, (*IMAGES, None), strict=True):
                mine = sorted((cell for cell in found if cell.images == images), key=lambda cell: cell.cost)
                costs, values = [100 * cell.cost for cell in mine], [cell.ranks[name].value for cell in mine]
                axis.plot(costs, values, "o-", color=colour, markersize=3, linewidth=1, label=f"{images or 'all'} images")
            axis.axvline(100 * BUDGET, color="grey", linewidth=0.8, linestyle=":")
            axis.axhline(WANTED[name], color="grey", linewidth=0.8, linestyle=":")
            axis.set_title(f"{name.upper()}: {title}", fontsize=8)
            axis.set_xscale("log")
            axis.set_ylim(0, 1.02)
    for axis in axes[-1]:
        axis.set_xlabel("cost, % of training", fontsize=8)
        axis.set_xticks([0.1, 1, 5, 25], ["0.1", "1", "5", "25"])
    for axis in axes[:, 0]:
        axis.set_ylabel("rank correlation with exact", fontsize=8)
    axes[0, 0].legend(fontsize=6, title="of each past class", title_fontsize=6, loc="lower right")
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=110)
    print(f"\n{FIGURE}")


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
    else:
        show(Path(sys.argv[2]))
