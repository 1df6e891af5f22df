"""`python -m campaign.coverage`: how often intervals of the joint model's weights hold the truth, by the normal distribution
and by Student's t; a table of docs/analysis.md."""

import math

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.paper.joint_model import _fit
from forgetscope.analysis.statistics.estimates import t_quantile
from forgetscope.benchmark.truth import Truth

STEPS, CLASSES, PARTITIONS = (3, 5, 8, 15, 40), 20, 2000
DEVIATIONS = (0.0, 0.1, 0.3)  # of effects between steps


def errors(truth: Truth, steps: int, partitions: int, seed: int = 7) -> NDArray[np.float64]:
    """[partitions, 3]: how many standard errors the weights of SIC, CIC and NIC are away from the truth."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((partitions, steps, CLASSES, 3)) @ np.linalg.cholesky(truth.correlation).T
    intercepts = truth.intercept_sd * rng.standard_normal((partitions, steps, 1))
    effects = truth.effects + truth.slope_sd * rng.standard_normal((partitions, steps, 1, 3))
    y = intercepts + (z * effects).sum(axis=-1) + truth.noise * rng.standard_normal((partitions, steps, CLASSES))
    fitted = _fit(z[:, None], y)
    explained = truth.effects @ truth.correlation @ truth.effects
    variance = explained + 3 * truth.slope_sd**2 + truth.noise**2 + truth.intercept_sd**2
    away: NDArray[np.float64] = np.abs(fitted["weights"] - truth.effects / math.sqrt(variance)) / fitted["weight errors"]
    return away


if __name__ == "__main__":
    print("| steps | " + " | ".join(f"normal, {d:g} | t, {d:g}" for d in DEVIATIONS) + " |")
    print("|---|" + "---|---|" * len(DEVIATIONS))
    for steps in STEPS:
        cells = []
        for deviation in DEVIATIONS:
            away = errors(Truth(slope_sd=deviation), steps, PARTITIONS)
            held = [(away < reach).mean(axis=0) for reach in (t_quantile(math.inf), t_quantile(steps - 1))]
            cells += [", ".join(f"{share:.3f}" for share in shares) for shares in held]
        print(f"| {steps} | {' | '.join(cells)} |", flush=True)
