"""What docs/replication.md shows, and the files that `forgetscope replication` unpacks, from a store.

    python benchmarks/replication.py tables STORE [STORE-OF-CONTRASTS]    # into docs/replication.md, between its marks
    python benchmarks/replication.py bundle STORE [20=2 ...]              # a file per increment, into the package

STORE holds steps of `examples/replication.toml`, the second store those of the two contrasts that docs/replication.md
describes; without it their tables stay as they are. 20=2: the file of 20 % increments has keepsakes up to second steps only.
The same steps give files of the same bytes.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import forgetscope as fs
from forgetscope.analysis.inputs.samples import POOLED, GridCell, Sample
from forgetscope.analysis.statistics.estimates import Estimate, fisher_z, mean_estimate
from forgetscope.benchmark.records import recorded_plans, steps_of_plan
from forgetscope.housekeeping.exporting import chains, export_steps
from forgetscope.report.words.notation import PLAIN

RESAMPLES = 10_000  # of intervals of standard deviations, which these tables do not show
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "replication.md"
PACKAGED = ROOT / "src" / "forgetscope" / "housekeeping" / "replicated"
LIMIT = 15_000_000  # bytes of all files together


def main() -> None:
    command, store, *more = sys.argv[1:]
    if command == "tables":
        fill(PAGE, dict(blocks(store, *more)))
    else:
        bundle(fs.Store.existing(store), {name: int(step) for name, step in (setting.split("=") for setting in more)})


def fill(page: Path, made: Mapping[str, str]) -> None:
    """Put what was made between the marks of its name."""
    text = page.read_text(encoding="utf-8")
    for name, block in made.items():
        mark = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = mark.subn(lambda found, block=block: f"{found[1]}\n{block}\n\n{found[2]}", text)
        if count != 1:
            raise SystemExit(f"{page} has {count} places for {name}, expected 1.")
    page.write_text(text, encoding="utf-8")


def blocks(store: str, contrasts_store: str | None = None) -> Iterator[tuple[str, str]]:
    """By the name of its marks, everything on the page that is made here."""
    analysis = fs.analyse(store, resamples=RESAMPLES)
    yield "there", table(("increment", "retention", "second steps", "third steps", "further runs of one step"), there(analysis))
    yield "verdicts", verdicts(analysis)
    yield "severity", table(("step", "increment", "retention", "n", *(title for title, _ in SEVERITY)), severity(analysis))
    yield "ranking", table(("step", "increment", "retention", *RANKED, "ceiling"), ranking(analysis))
    yield "weights", table(("step", "increment", "retention", "n", *RANKED[:3]), weights(analysis))
    yield "controlled", table(("step", "increment", "retention", "runs", "classes", "mean", "rising"), controlled(analysis))
    yield "claims", table(("claim", "verdict", "step 2", "step 3", "elsewhere"), claims(analysis))
    if contrasts_store is not None:
        other = fs.analyse(contrasts_store, resamples=RESAMPLES)
        head = ("retention", "setting", "n", "mean FG", *(title for title, _ in SEVERITY), *RANKED, "ceiling")
        yield "contrasts", table(head, contrasts(analysis, other))
        yield "differences", table(("retention", "setting", "pairs", *RANKED[:3]), paired(analysis, other))


def bundle(store: fs.Store, keepsakes: Mapping[str, int]) -> None:
    """Every plan's steps that are done, a file per increment: what its partitions have in common takes space once.

    keepsakes: by increment, of steps up to which number; where it says nothing, of all."""
    by_increment: dict[str, list[str]] = {}
    for plan in recorded_plans(store):
        increments = tomllib.loads(plan["benchmark"])["increments"]
        by_increment.setdefault("-".join(f"{100 * share:g}" for share in increments), []).append(plan["id"])
    for name, plans in by_increment.items():
        steps = chains(store, list(dict.fromkeys(id for plan in plans for id in steps_of_plan(store, plan))))
        files = [store.path / "plans" / plan / "plan.json" for plan in plans]
        path = PACKAGED / f"{name}.tar.xz"
        size = export_steps(steps, path, plans=files, states=False, keepsakes=keepsakes.get(name))
        print(f"{path.name}: {len(steps)} steps, {size:,} bytes")
    sizes = {path.name: path.stat().st_size for path in sorted(PACKAGED.glob("*.tar.xz"))}
    others = [name for name in sizes if name.removesuffix(".tar.xz") not in by_increment]
    print(
        f"{sum(sizes.values()):,} of {LIMIT:,} bytes. Not made now, delete what these replace: {', '.join(others) or 'none'}."
    )


def there(analysis: fs.Analysis) -> Iterable[Sequence[str]]:
    (sample,) = analysis.collection.samples
    for increment in sample.increments(2):
        for retention in sample.retentions(2):
            steps = [int(sample.mask(GridCell(number, retention, increment)).sum()) for number in (2, 3)]
            again = [
                runs
                for runs in analysis.collection.reruns
                if (runs.cell.retention, runs.cell.increment) == (retention, increment)
            ]
            told = ", ".join(f"{len(runs.runs) - 1} of a step {runs.cell.step}" for runs in again)
            yield [f"{increment} %", f"{retention} %", *map(str, steps), told]


def verdicts(analysis: fs.Analysis) -> str:
    counts = analysis.more["claims"]["verdict"].value_counts()
    told = ", ".join(f"{int(counts.get(word, 0))} {word}" for word in ("confirmed", "contested", "undecided"))
    return f"Of the claims that can be asked: {told}."


def weights(analysis: fs.Analysis) -> Iterable[Sequence[str]]:
    keys = ["subset", "class_pct", "rehearsal_pct"]
    for _, rows_here in analysis.table("coefficients").groupby(keys, sort=False):
        found = {row["quantity"]: Estimate(*row[["mean", "mean_lo", "mean_hi", "n"]]) for row in rows(rows_here)}
        if not np.isnan(found["SIC"].value):
            yield [
                *place(rows_here.iloc[0]),
                str(rows_here.iloc[0]["n"]),
                *(PLAIN.estimate(found[name]) for name in RANKED[:3]),
            ]


def controlled(analysis: fs.Analysis) -> Iterable[Sequence[str]]:
    for row, runs in zip(rows(analysis.table("controlled_experiments")), analysis.collection.reruns, strict=True):
        rising = int((runs.correlations()[0] > 0).sum())
        yield [*place(row), str(len(runs.runs)), str(row["n"]), PLAIN.number(row["mean"]), str(rising)]


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
    single = ~noise[["rehearsal_pct", "class_pct"]].isin(["", POOLED]).any(axis=1)
    return noise[single]


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
