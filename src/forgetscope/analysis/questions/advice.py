"""What a store lacks, what was left out, and how many more experiments narrower intervals would take."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd

from forgetscope.analysis.exhibits.exhibit import PAPER_ORDER
from forgetscope.analysis.inputs.samples import Collected, GridCell, Omitted, Sample, Subset
from forgetscope.analysis.inputs.training_shares import EARLY, probes_within
from forgetscope.analysis.paper.joint_model import FEWEST
from forgetscope.analysis.paper.printed import deviations
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics.estimates import fisher_z, mean_estimate, needed_samples
from forgetscope.characters import counted

HALF_WIDTHS = (0.05, 0.02)  # of 95 % intervals that may be wanted
ADVISED = (("FG-R", "value"), ("FG-HG", "value"), ("SIC", "rho"), ("CIC", "rho"), ("NIC", "rho"))
SIZES = (
    *("benchmark", "policy", "subset", "rehearsal_pct", "class_pct", "quantity", "statistic", "n", "half_width"),
    *("scale", "wanted_half_width", "needed_n", "simulated"),
)
COUNTED = ("diverged", "undefined", "unmeasured")
LEFT_OUT = ("benchmark", "policy", "subset", "steps", *Omitted.__dataclass_fields__, "probes", "simulated")


def sample_sizes(collection: Collected) -> pd.DataFrame:
    """Per partition: how wide the interval of a mean is, and the number of steps at which it would be as narrow as wanted."""
    rows = [
        row
        for sample in collection.samples
        for step in sample.numbers
        for cell in sample.partitions(step)
        for row in _sizes(sample, cell)
    ]
    return pd.DataFrame(rows, columns=list(SIZES))


def left_out(collection: Collected) -> pd.DataFrame:
    """Per benchmark and step number: steps, and what no estimate rests on."""
    rows: list[Row] = []
    for sample in collection.samples:
        for number in sample.numbers:
            mask = sample.mask(Subset(number))
            ranked = int(np.isfinite(sample.values["SIC", "rho"][mask]).sum())
            probes = {len(sample.steps[i].course) for i in np.flatnonzero(mask)}
            rows.append(
                {
                    **sample.where(Subset(number)),
                    "steps": int(mask.sum()),
                    **vars(sample.omitted(Subset(number), ranked)),
                    "probes": ", ".join(map(str, sorted(probes))),
                }
            )
    return pd.DataFrame(rows, columns=list(LEFT_OUT))


def with_counts(frame: pd.DataFrame, collection: Collected) -> pd.DataFrame:
    """A frame about steps with, in every row, how many steps diverged and how many past classes were left out where it is from.

    Steps without a value are the difference between the steps of that place, as in `left_out`, and n."""
    if not {"benchmark", "policy", "subset"} <= set(frame.columns):
        return frame
    samples = {(sample.benchmark, sample.policy): sample for sample in collection.samples}

    @cache
    def count(benchmark: str, policy: str, subset: str, retention: str, increment: str, against: str) -> list[int]:
        own = samples[benchmark, policy]
        other = samples.get((against, policy), own)  # of another data set
        sides = [own] if other is own else [own, other]
        parts = [side.omitted(part, 0) for side in sides for part in _parts(subset, retention, increment)]
        return [sum(getattr(part, name) for part in parts) for name in COUNTED]

    keys = ("benchmark", "policy", "subset", "rehearsal_pct", "class_pct", "against")
    columns = [frame[key].tolist() if key in frame else [""] * len(frame) for key in keys]
    counts = [count(*row) for row in zip(*columns, strict=True)]
    return pd.concat([frame, pd.DataFrame(counts, columns=list(COUNTED), index=frame.index, dtype="int64")], axis=1)


def _parts(subset: str, retention: str, increment: str) -> list[Subset | GridCell]:
    """What a row's labels name: one subset or partition, or two with `against` between them."""
    if "(" in subset:  # a partition in words
        step, _, rest = subset.partition(" (")
        retention, increment = (level.removesuffix(" %") for level in rest.removesuffix(")").split(", "))
        return [GridCell(int(step), retention, increment)]
    if " against " in retention:
        return [GridCell(int(subset), level, increment) for level in retention.split(" against ")]
    if retention:
        return [GridCell(int(subset), retention, increment)]
    labels = [label.split("_") for label in subset.split(" against ")]
    return [Subset(int(step), tuple(increments)) for step, *increments in labels]


def missing(collection: Collected) -> pd.DataFrame:
    """What cannot be given, and what it would take, a sentence each."""
    return pd.DataFrame([{"what": text} for text in _missing(collection)], columns=["what"])


def _sizes(sample: Sample, cell: GridCell) -> Iterator[Row]:
    mask = sample.mask(cell)
    for name in ADVISED:
        values = sample.values[name][mask]
        correlation = name[1] == "rho"
        values = fisher_z(values, sample.ranked[mask]) if correlation else values
        estimate = mean_estimate(values)
        for wanted in HALF_WIDTHS:
            yield {
                **sample.where(cell),
                **{"quantity": name[0], "statistic": name[1]},
                **{"n": estimate.n, "half_width": (estimate.high - estimate.low) / 2, "wanted_half_width": wanted},
                **{"scale": "z" if correlation else "value", "needed_n": needed_samples(values, wanted)},
            }


def _missing(collection: Collected) -> Iterator[str]:
    if collection.damaged:
        ids = ", ".join(id[:8] for id in collection.damaged[:3])
        yield f"damaged steps, left out: {len(collection.damaged)} ({ids}); `forgetscope store verify` names their files."
    yield from (f"a plan, left out: {text}" for text in collection.damaged_plans)
    for name in collection.uncounted:
        yield (
            f"{name}: how many classes it has is recorded neither in steps nor in plans, so increments are numbers of classes "
            "instead of percentages; steps that are run from now on record it."
        )
    if not any(sample.steps for sample in collection.samples):
        yield "no finished step has past classes, so nothing can be forgotten; an experiment needs at least two steps."
        return
    lacking: dict[str, list[str]] = {}  # what -> the samples that lack it
    for sample in collection.samples:
        for text in _missing_in(sample):
            lacking.setdefault(text, []).append(sample.title)
    for text, (title, *others) in lacking.items():
        yield f"{title} and {counted(len(others), 'other')}{text}" if others else f"{title}{text}"
    yield from _apart(collection)
    here = {sample.dataset for sample in collection.samples if sample.steps}
    for name in PAPER_ORDER if here & {*PAPER_ORDER} else ():
        if name not in here:
            yield (
                f"{name}, the paper's other data set: no step of it is in the store, so that its figures are empty and tables "
                f"have no rows of it; `forgetscope bench run {name}` runs them."
            )
    if not collection.reruns:
        yield "controlled experiments: none are in the store; `forgetscope controlled` runs them."


def _apart(collection: Collected) -> Iterator[str]:
    """Per benchmark on the paper's data: in what its settings differ, whatever the policy."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for sample in collection.samples:
        differing = deviations(sample)
        if differing is not None:
            found.setdefault(sample.benchmark, []).append(differing)
    for benchmark, each in found.items():
        if () not in each:
            common = [text for text in each[0] if all(text in other for other in each)] or each[0]
            yield f"the paper's values beside those of {benchmark}, because settings differ: {', '.join(common)}."


def _missing_in(sample: Sample) -> Iterator[str]:
    """Each to be read after the sample's name."""
    if sample.numbers == [2]:
        cells = len(sample.partitions(2))
        yield (
            ": no third steps, so nothing can be said about how things go on; "
            f"{FEWEST * cells} experiments of three steps would do, {FEWEST} per partition."
        )
    for number in sample.numbers:
        counts = {cell: int(sample.mask(cell).sum()) for cell in sample.partitions(number)}
        if short := [FEWEST - n for n in counts.values() if n < FEWEST]:
            yield (
                f", step {number}: the joint model needs {FEWEST} steps in a partition; "
                f"{counted(len(short), 'partition', 'has/have', len(counts))} fewer, "
                f"{counted(sum(short), 'more experiment')} would do."
            )
        if len(sample.increments(number)) < 2 or len(sample.retentions(number)) < 2:
            levels = max(2, len(sample.increments(number))) * max(2, len(sample.retentions(number)))
            lacking = 2 * levels - sum(min(2, n) for n in counts.values())
            yield (
                f", step {number}: the effects of retention and increment together need two levels of each and two steps in "
                f"every partition, {counted(lacking, 'more experiment')} would do; one with two levels is tested alone."
            )
        elif min(counts.values()) < 2:
            experiments = counted(sum(max(0, 2 - n) for n in counts.values()), "more experiment")
            yield f", step {number}: an ANOVA needs two steps in every partition, {experiments} would do."
        if probes_within(EARLY, sample.probes(number)) == 1:
            longest = max(own.facts.setting.options["epochs"] for own in sample.steps if own.facts.step == number)
            more = "" if probes_within(EARLY, longest + 1) > 1 else "three epochs or more are needed, and "
            yield (
                f", step {number}: no probe in the first quarter of training but the one before it, so whether a quarter is "
                f"enough cannot be asked; {more}probe_every = 1 measures after every epoch."
            )
        mask = sample.mask(Subset(number))
        if len(sample.steps) and not np.isfinite(sample.values["SIC", "rho"][mask]).any():
            yield f", step {number}: no ranking: steps have fewer than three past classes, or nothing was measured."
