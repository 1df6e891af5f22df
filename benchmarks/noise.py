"""Coverage of the intervals of true spread, reliability and noise ceiling, over simulated stores in which the truth is known.

    python benchmarks/noise.py [STORES]

Each store holds second steps of ten classes after ten others in the shape of CIFAR-100 (100 test images per class), eight of
them; 200 stores per truth by default, some minutes. The truth is the mean over all steps of all stores: of the variance of true
forgetting, of its share in the observed variance, and of the rank correlation of true with observed forgetting (in Fisher's z).
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.inputs.cache import Cache
from forgetscope.analysis.inputs.measured_steps import read_steps
from forgetscope.analysis.inputs.recognised import recognised
from forgetscope.analysis.inputs.samples import collect
from forgetscope.analysis.questions.noise import noise
from forgetscope.analysis.statistics.estimates import fisher_z
from forgetscope.analysis.statistics.noise import Recognised, noise_of_step, rank_ceiling, sampling_variances
from forgetscope.analysis.statistics.rank_correlation import spearman
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.truth import Truth
from forgetscope.outputs import unheard
from forgetscope.store import Store

Values = NDArray[np.float64]
SHAPE = {"increments": [0.1], "retentions": [0.2], "steps": 2, "epochs": 2}
STEPS = 8  # in a store
SPREADS = (0.15, 0.05, 0.0)  # of the truth
PRINTED = (  # partition, past classes, test images, printed FG-HG, and assumed accuracies when learned and now
    ("C100, 8 %, 10 %", 10, 100, 0.31, 0.8, 0.45),
    ("C100, 20 %, 10 %", 10, 100, 0.25, 0.8, 0.55),
    ("C100, 40 %, 10 %", 10, 100, 0.17, 0.8, 0.65),
    ("C100, 40 %, 20 %", 20, 100, 0.18, 0.8, 0.65),
    ("TIN, 8 %, 20 %", 40, 50, 0.31, 0.7, 0.4),
)
KEYS = ("variance", "reliability", "ceiling")


def one_store(seed: int, spread: float) -> tuple[dict[str, float], list[tuple[Values, Values]], list[float]]:
    """The row of its only partition, true and observed forgetting of its steps, and floors of FG-R from counts alone."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        simulate(BenchmarkSpec.load("cifar100", {**SHAPE, "experiments": STEPS}), store, seed, Truth(spread=spread), reruns=0)
        read = read_steps(store, Cache(None), unheard)
        row = noise(collect(store, read), Cache(None)).iloc[-1].to_dict()
        pairs = [(np.array(step.facts.simulated["forgetting"]), step.forgetting) for step in read.measured.values()]
        counts = [noise_of_step(recognised(store.step(id), {})[0]).range_floor for id in read.measured]
    return row, pairs, counts


def case(spread: float, stores: int) -> None:
    rows, pairs, counts = [], [], []
    for seed in range(stores):
        row, own, floors = one_store(seed, spread)
        rows.append(row)
        pairs += own
        counts += floors
    true, observed = (np.array([values.var(ddof=1) for values in side]) for side in zip(*pairs, strict=True))
    z = fisher_z([spearman(*pair) for pair in pairs], len(pairs[0][0])) if spread else np.zeros(1)
    truths = {"variance": true.mean(), "reliability": true.mean() / observed.mean(), "ceiling": np.tanh(np.nanmean(z))}
    print(f"spread {spread}, {STEPS} steps, {stores} stores", flush=True)
    means = {name: np.mean([row[name] for row in rows]) for name in ("FG-R", "FG-R_floor", "FG-HG", "FG-HG_floor")}
    told = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
    print(f"  {told}; from counts FG-R_floor {np.mean(counts):.3f}")
    for key in KEYS:
        low, value, high = (np.array([row[f"{key}{end}"] for row in rows]) for end in ("_lo", "", "_hi"))
        covered = ((low <= truths[key] + 1e-12) & (truths[key] - 1e-12 <= high)).mean()
        print(
            f"  {key}: true {truths[key]:.4f}, mean estimate {value.mean():.4f}, covered {covered:.3f}, "
            f"wide {(high - low).mean():.4f}"
        )
    negative = np.mean([row["variance"] < 0 for row in rows])
    spreads = np.array([(row["spread_lo"], row["spread_hi"]) for row in rows])
    inside = ((spreads[:, 0] <= np.sqrt(true.mean()) + 1e-12) & (np.sqrt(true.mean()) - 1e-12 <= spreads[:, 1])).mean()
    print(f"  spread: true {np.sqrt(true.mean()):.4f}, covered {inside:.3f}; mean variance below 0 in {negative:.3f} of stores")


def printed() -> None:
    """What the paper's printed FG-HG say at its sample sizes, for assumed accuracies; before and after correlated or not."""
    for name, classes, images, half_gap, learned, now in PRINTED:
        drawn = np.sort(np.random.default_rng(0).normal(size=(20_000, classes)), axis=1)
        gap = drawn[:, classes // 2 :].mean() - drawn[:, : classes // 2].mean()
        observed = (half_gap / gap) ** 2
        for phi in (0, 0.3):
            both = learned * now + phi * np.sqrt(learned * (1 - learned) * now * (1 - now))
            found = Recognised(*(np.full(classes, float(share)) for share in (images, learned, now, both)))
            step, noises = noise_of_step(found), sampling_variances(found)
            true = observed - float(noises.mean())
            told = f"floors {step.range_floor:.2f} and {step.half_gap_floor:.2f}, spread {np.sqrt(max(0, true)):.2f}"
            print(f"{name}, {phi}: {told}, reliability {true / observed:.2f}, ceiling {rank_ceiling(true, [noises]):.2f}")


if __name__ == "__main__":
    stores = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    printed()
    for spread in SPREADS:
        case(spread, stores)
