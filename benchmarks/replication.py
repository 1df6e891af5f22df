"""The tables of docs/replication.md: python benchmarks/replication.py STORE [STORE-OF-CONTRASTS] > tables.md

The first store is what `forgetscope replication` unpacks, the second what the two contrasts in docs/replication.md make.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

import forgetscope as fs
from forgetscope.analysis.inputs.samples import GridCell, Sample
from forgetscope.analysis.statistics.estimates import Estimate, fisher_z, mean_estimate
from forgetscope.report.words.notation import PLAIN

RESAMPLES = 10_000  # of intervals of standard deviations, which these tables do not show


def main() -> None:
    analysis = fs.analyse(sys.argv[1], resamples=RESAMPLES)
    print("## How uneven, and how much of it is noise\n")
    print(table(("step", "increment", "retention", "n", *(title for title, _ in SEVERITY)), severity(analysis)))
    print("\n## What ranks the classes\n")
    print(table(("step", "increment", "retention", *RANKED, "ceiling"), ranking(analysis)))
    print("\n## The paper's claims\n")
    print(table(("claim", "verdict", "step 2", "step 3", "elsewhere"), claims(analysis)))
    if len(sys.argv) > 2:
        print("\n## Contrasts\n")
        other = fs.analyse(sys.argv[2], resamples=RESAMPLES)
        compared = contrasts(analysis, other)
        print(table(("retention", "setting", "n", "mean FG", *(title for title, _ in SEVERITY), *RANKED, "ceiling"), compared))
        print("\nDifferences to the replication on the same sequences and seeds, in Fisher's z:\n")
        print(table(("retention", "setting", "pairs", *RANKED[:3]), paired(analysis, other)))


SEVERITY = (
    *(("FG-R", "FG-R"), ("its floor", "FG-R_floor"), ("FG-HG", "FG-HG"), ("its floor", "FG-HG_floor")),
    *(("true spread", "spread"), ("reliability", "reliability")),
)
RANKED = ("SIC", "CIC", "NIC", "joint model")
MODEL = "all_coefficients"


def severity(analysis: fs.Analysis) -> Iterable[Sequence[str]]:
    for _, row in partitions(analysis).iterrows():
        yield [*place(row), str(row["n"]), *(cell(row, name) for _, name in SEVERITY)]


def ranking(analysis: fs.Analysis) -> Iterable[Sequence[str]]:
    for _, row in partitions(analysis).iterrows():
        yield [*place(row), *rhos(analysis, row), cell(row, "ceiling")]


def partitions(analysis: fs.Analysis) -> pd.DataFrame:
    noise = analysis.more["noise"]
    return noise[(noise["rehearsal_pct"] != "") & (noise["rehearsal_pct"] != "pooled")]


def rhos(analysis: fs.Analysis, row: pd.Series) -> list[str]:
    found = []
    for name in RANKED:
        label = "spearman_All_coef_SIC_fine_grained" if name == "joint model" else f"spearman_{name}"
        quantity = MODEL if name == "joint model" else name
        frame = analysis.table(label)
        here = (frame["quantity"] == quantity) & (frame["statistic"] == "rho")
        for key in ("benchmark", "subset", "rehearsal_pct", "class_pct"):
            here &= frame[key] == row[key]
        one = frame[here]
        found.append(PLAIN.estimate(Estimate(*one.iloc[0][["mean", "mean_lo", "mean_hi", "n"]])) if len(one) else PLAIN.missing)
    return found


def place(row: pd.Series) -> list[str]:
    return [str(row["subset"]), f"{row['class_pct']} %", f"{row['rehearsal_pct']} %"]


def cell(row: pd.Series, name: str) -> str:
    low, high = (row.get(f"{name}_{end}", np.nan) for end in ("lo", "hi"))
    return PLAIN.estimate(Estimate(row[name], low, high, int(row["n"])))


def claims(analysis: fs.Analysis) -> Iterable[Sequence[str]]:
    detail = analysis.more["claims_in_detail"]
    for _, claim in analysis.more["claims"].iterrows():
        asked = detail[detail["claim"] == claim["claim"]]
        in_steps = [asked[asked["subset"] == step] for step in ("2", "3")]
        rest = asked[~asked["subset"].isin(["2", "3"])]
        yield [claim["claim"], claim["verdict"], *("; ".join(map(told, rows(part))) for part in (*in_steps, rest))]


def rows(frame: pd.DataFrame) -> list[pd.Series]:
    return [row for _, row in frame.iterrows()]


def told(row: pd.Series) -> str:
    number = PLAIN.estimate(Estimate(row["value"], row["low"], row["high"], int(row["n"])))
    where = "" if row["subset"] in ("2", "3") else f"{row['subset']}: "
    return f"{where}{row['what']} {number}, {row['verdict']}"


def contrasts(analysis: fs.Analysis, other: fs.Analysis) -> Iterable[Sequence[str]]:
    """Second steps of 10 % increments, retention by retention: the replication, then each contrast."""
    for retention in ("8", "40"):
        for source in (analysis, other):
            found = partitions(source)
            chosen = (found["subset"] == "2") & (found["class_pct"] == "10") & (found["rehearsal_pct"] == retention)
            for _, row in found[chosen].iterrows():
                sample = next(sample for sample in source.collection.samples if sample.benchmark == row["benchmark"])
                chosen_steps = np.flatnonzero(sample.mask(GridCell(2, retention, "10")))
                mean = mean_estimate(np.array([np.nanmean(sample.steps[i].forgetting) for i in chosen_steps]))
                facts = [PLAIN.estimate(mean), *(cell(row, name) for _, name in SEVERITY), *rhos(source, row)]
                yield [f"{retention} %", row["benchmark"], str(row["n"]), *facts, cell(row, "ceiling")]


def paired(analysis: fs.Analysis, other: fs.Analysis) -> Iterable[Sequence[str]]:
    for retention in ("8", "40"):
        (usual,) = [by_seed(analysis, sample, retention) for sample in analysis.collection.samples]
        for sample in other.collection.samples:
            found = by_seed(other, sample, retention)
            pairs = [(usual[seed], found[seed]) for seed in found]
            if pairs:
                differences = [mean_estimate(np.array([new[name] - old[name] for old, new in pairs])) for name in RANKED[:3]]
                cells = [PLAIN.estimate(difference, signed=True) for difference in differences]
                yield [f"{retention} %", sample.benchmark, str(len(pairs)), *cells]


def by_seed(analysis: fs.Analysis, sample: Sample, retention: str) -> dict[int, dict[str, float]]:
    """Fisher's z of each coefficient in the second steps of 10 % increments."""
    chosen, store = np.flatnonzero(sample.mask(GridCell(2, retention, "10"))), fs.Store(analysis.store)
    return {
        store.step(sample.steps[i].facts.id).spec.seed: {
            name: float(fisher_z(sample.values[name, "rho"][i], int(sample.ranked[i]))) for name in RANKED[:3]
        }
        for i in chosen
    }


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
