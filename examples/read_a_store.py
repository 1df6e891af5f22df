"""What is in a store, as data frames: every experiment, its classes, and what correlates with their forgetting.

    python examples/read_a_store.py results          # a store that `forgetscope run` or `bench run` filled
    python examples/read_a_store.py                  # makes a small one first, a few seconds

Every table of a step is a Parquet file (docs/store.md), so other tools can read a store too; this is the short way in Python.
"""

from __future__ import annotations

import argparse
import tempfile

import pandas as pd

import forgetscope as fs


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("store", nargs="?", help="a folder")
    given = options.parse_args()
    if given.store:
        read(given.store)
        return
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(2):
            spec = fs.RunSpec(seed=seed, image_size=8, sequence=((0, 1, 2, 3), (4, 5, 6, 7)), epochs=2)
            fs.run(spec, f"{folder}/store", progress=False)
        read(f"{folder}/store")


def read(store: str) -> None:
    experiments = [fs.Experiment(steps) for steps in fs.Store.existing(store).experiments()]
    for experiment in experiments:
        print(f"{experiment.id[:8]}  {experiment.data_title}, {experiment.network}, {len(experiment.steps)} steps")

    classes = pd.concat({experiment.id[:8]: experiment.classes for experiment in experiments}, names=["experiment"])
    past = classes.dropna(subset=["forgetting"]).reset_index("experiment")
    columns = ["experiment", "step", "class_name", "accuracy_when_learned", "accuracy", "forgetting", "sic", "nic"]
    print("\nThe most forgotten classes:\n")
    print(past.sort_values("forgetting", ascending=False)[columns].head(8).round(3).to_string(index=False))

    print("\nMean over experiments and steps of the rank correlation with forgetting:\n")
    by_step = past.groupby(["experiment", "step"])
    for measure in ("sic", "cic", "nic"):
        rho = by_step.apply(lambda step, measure=measure: step[measure].corr(step["forgetting"], method="spearman"))
        known = rho.dropna()  # a ranking takes three classes
        print(f"  {measure.upper()}  {f'{known.mean():+.2f}' if len(known) else '–'}  over {len(known)}")


if __name__ == "__main__":
    main()
