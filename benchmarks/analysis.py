"""The statistics of `forgetscope.analysis` against the libraries that define them: seconds and agreement, in one run.

Mixed models in the paper's shape (40 steps, 10 or 50 past classes, three coefficients), partial rank correlations, and standard
deviations with BCa intervals. No data set is needed.
"""

from __future__ import annotations

import statistics
import time
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from forgetscope.analysis.statistics.bootstrap import sd_bca
from forgetscope.analysis.statistics.mixed_models import fit, group_sums, leave_one_out
from forgetscope.analysis.statistics.rank_correlation import partial_spearman
from interleaved import Rounds

Array = NDArray[np.float64]
STEPS, EFFECTS = 40, np.array([0.75, 0.15, 0.2])
CORRELATIONS = np.array([[1, 0.05, 0.65], [0.05, 1, 0.25], [0.65, 0.25, 1]])


def partition(seed: int, classes: int, slope_sd: float) -> tuple[Array, Array]:
    """Standardised coefficients [steps, classes, 3] and forgetting [steps, classes]."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(STEPS, classes, 3)) @ np.linalg.cholesky(CORRELATIONS).T
    slopes = EFFECTS + slope_sd * rng.normal(size=(STEPS, 3))
    y = 0.3 * rng.normal(size=(STEPS, 1)) + np.einsum("sck,sk->sc", x, slopes) + 0.4 * rng.normal(size=(STEPS, classes))
    return x, y


def mixed_models() -> None:
    from statsmodels.regression.mixed_linear_model import MixedLM

    warnings.simplefilter("ignore")  # about convergence, which is counted below; importing statsmodels switches them on
    print("Mixed model, restricted maximum likelihood")
    for classes, slope_sd in ((10, 0.1), (50, 0.1), (50, 0.0)):
        ratios, left_out, gaps, ours_converged, theirs_converged = [], [], [], 0, 0
        for seed in range(3):
            x, y = partition(seed, classes, slope_sd)
            design = np.concatenate([np.ones((STEPS, classes, 1)), x], axis=-1).reshape(-1, 4)
            model = MixedLM(y.ravel(), design, np.repeat(np.arange(STEPS), classes), exog_re=design)
            started = time.perf_counter()
            found = fit(group_sums(x, y))
            between = time.perf_counter()
            theirs = model.fit(reml=True)
            after = time.perf_counter()
            leave_one_out(x, y)
            every = (time.perf_counter() - after) / STEPS
            ratios.append((after - between) / (between - started))
            left_out.append((every, (after - between) / every))
            gaps.append(float(found.log_likelihood) - theirs.llf)
            ours_converged += bool(found.converged)
            theirs_converged += bool(theirs.converged)
        each, times = (statistics.median(column) for column in zip(*left_out, strict=True))
        print(
            f"  {classes} classes, slopes' sd {slope_sd}: statsmodels takes {statistics.median(ratios):.0f} times a fit alone,"
        )
        print(f"    and {times:.0f} times one of {STEPS} left-out fits of {1e3 * each:.2f} ms (wanted 100)")
        print(f"    log-likelihood above statsmodels' by {min(gaps):.2g} to {max(gaps):.3g} (wanted >= -1e-6)")
        print(f"    converged: {ours_converged} of 3, statsmodels {theirs_converged} of 3")


def partial_correlations() -> None:
    import pandas as pd
    import pingouin

    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 2000, 50))
    values[1] = np.round(values[1], 1)
    few = 20

    def theirs() -> list[float]:
        frames = [pd.DataFrame(values[:, i].T, columns=list("xyab")) for i in range(few)]
        return [float(pingouin.partial_corr(f, "x", "y", ["a", "b"], method="spearman")["r"].iloc[0]) for f in frames]

    def ours() -> Array:
        return partial_spearman(values[0], values[1], [values[2], values[3]])

    rounds = Rounds({"pingouin": theirs, "ours": ours}, 5)
    gap = np.abs(ours()[:few] - theirs()).max()
    times = rounds.ratio("pingouin", "ours") * 2000 / few
    print(f"Partial Spearman: pingouin takes {times:.0f} times as long; apart by {gap:.1g}")


def intervals() -> None:
    samples = np.random.default_rng(1).normal(size=(64, STEPS))
    resamples = 200_000

    def theirs() -> object:
        return stats.bootstrap((samples[0],), np.std, n_resamples=resamples, method="BCa", batch=10_000, rng=0)

    rounds = Rounds({"scipy": theirs, "ours": lambda: sd_bca(samples, resamples=resamples)}, 3)
    print(
        f"BCa of a standard deviation: scipy takes {rounds.ratio('scipy', 'ours') * len(samples):.1f} times as long per sample"
    )
    drawn = np.random.default_rng(3).integers(0, STEPS, (5000, STEPS))
    same = stats.bootstrap((samples[0],), np.std, n_resamples=5000, method="BCa", rng=3).confidence_interval
    print(f"  with the same resamples apart by {np.abs(sd_bca(samples[0], indices=drawn) - same).max():.1g}")


if __name__ == "__main__":
    mixed_models()
    partial_correlations()
    intervals()
