"""A rehearsal policy of one's own: written, held to the contract, and compared with `uniform` on the same seeds.

    python examples/own_policy.py
    python examples/own_policy.py --seeds 5 --epochs 20

All policies of a seed start from the same first step, which is trained once. Results stay in the store: run it again, and
nothing is trained. Half a minute on one core. With more than a few runs use the command:

    cd examples && forgetscope compare glyphs.toml --policies uniform,own_policy:median_confident --pairs 5 --store results
"""

from __future__ import annotations

import argparse

import numpy as np

import forgetscope as fs
from forgetscope.testing import check_policy


def median_confident(candidates: fs.Candidates, quota: int, rng: np.random.Generator) -> np.ndarray:
    """Neither the easiest nor the hardest images: those of middling confidence first."""
    confidence = candidates.probabilities[:, candidates.node]
    return np.argsort(np.abs(confidence - np.median(confidence)), kind="stable")[:quota]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--store", default="own-policy-store")
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--epochs", type=int, default=6)
    options.add_argument("--classes", type=int, default=4, help="of each of the two steps")
    options.add_argument("--image-size", type=int, default=8)
    given = options.parse_args()

    check_policy(median_confident)  # in a project of your own this stands in a test
    print("median_confident keeps the contract\n")

    sequence = tuple(tuple(range(first, first + given.classes)) for first in (0, given.classes))
    print(f"{'policy':>28}  mean accuracy of the past classes, per seed")
    for policy in ("uniform", "own_policy:median_confident"):
        found = []
        for seed in range(given.seeds):
            training = {"epochs": given.epochs, "first_batch": 32, "batch": 32, "learning_rate": 0.1}
            spec = fs.RunSpec(policy=policy, seed=seed, sequence=sequence, image_size=given.image_size, **training)
            found.append(fs.run(spec, given.store, progress=False).past_classes()["accuracy"].mean())
        print(f"{policy:>28}  {'  '.join(f'{value:.3f}' for value in found)}")


if __name__ == "__main__":
    main()
