"""What a store lacks, what was left out, and how many more experiments narrower intervals would take."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd

from forgetscope.analysis.exhibits.exhibit import PAPER_ORDER
from forgetscope.analysis.inputs.samples import Collected, GridCell, Omitted, Sample, Subset
from forgetscope.analysis.inputs.training_shares import EARLY, probes_within
from forgetscope.analysis.paper.joint_model import FEWEST
from forgetscope.analysis.paper.printed import deviations
from forgetscope.analysis.rows import Row
from forgetscope.analysis.statistics.estimates import fisher_z, mean_estimate, needed_samples

HALF_WIDTHS = (0.05, 0.02)  # of 95 % intervals that may be wanted
ADVISED = (("FG-R", "value"), ("FG-HG", "value"), ("SIC", "rho"), ("CIC", "rho"), ("NIC", "rho"))
SIZES = (
    *("benchmark", "policy", "subset", "rehearsal_pct", "class_pct", "quantity", "statistic", "n", "half_width"),
    *("scale", "wanted_half_width", "needed_n", "simulated"),
)
COUNTED = ("diverged", "undefined", "unmeasured")
LEFT_OUT = (
    *("benchmark", "policy", "subset", "steps", *Omitted.__dataclass_fields__, "recorded_again", "probes", "simulated"),
)
Of = Literal["damaged steps", "damaged plan", "number of classes", "past classes", "settings", "data set", "controlled"]
OfSamples = Literal["third steps", "joint model", "both factors", "ANOVA", "early probe", "early epochs", "ranking"]


@dataclass(frozen=True)
class Lack:
    """Something that a store lacks, or that cannot be given; `report.words.lacks` says it."""

    what: Of | OfSamples
    names: tuple[str, ...] = ()  # of what it is about: samples, or a data set, plan, steps or settings
    step: int = 0
    places: int = 0  # partitions, or steps, in which it is so
    among: int = 0
    more: int = 0  # experiments that would do


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
                    "recorded_again": sample.recorded_again[number],
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


def lacking(collection: Collected) -> Iterator[Lack]:
    """What cannot be given, and what it would take."""
    if collection.damaged:
        yield Lack("damaged steps", tuple(collection.damaged[:3]), places=len(collection.damaged))
    yield from (Lack("damaged plan", (text,)) for text in collection.damaged_plans)
    yield from (Lack("number of classes", (name,)) for name in collection.uncounted)
    if not any(sample.steps for sample in collection.samples):
        yield Lack("past classes")
        return
    found: dict[Lack, list[str]] = {}  # -> the samples of which it is so
    for sample in collection.samples:
        for lack in _lacking_in(sample):
            found.setdefault(lack, []).append(sample.title)
    yield from (replace(lack, names=tuple(titles)) for lack, titles in found.items())
    yield from _apart(collection)
    here = {sample.dataset for sample in collection.samples if sample.steps}
    yield from (Lack("data set", (name,)) for name in PAPER_ORDER if here & {*PAPER_ORDER} and name not in here)
    if not collection.reruns:
        yield Lack("controlled")


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


def _apart(collection: Collected) -> Iterator[Lack]:
    """Per benchmark on the paper's data: in what its settings differ, whatever the policy."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for sample in collection.samples:
        differing = deviations(sample)
        if differing is not None:
            found.setdefault(sample.benchmark, []).append(differing)
    for benchmark, each in found.items():
        if () not in each:
            common = [text for text in each[0] if all(text in other for other in each)] or each[0]
            yield Lack("settings", (benchmark, *common))


def _lacking_in(sample: Sample) -> Iterator[Lack]:
    if sample.numbers == [2]:
        yield Lack("third steps", more=FEWEST * len(sample.partitions(2)))
    for number in sample.numbers:
        counts = [int(sample.mask(cell).sum()) for cell in sample.partitions(number)]
        if short := [FEWEST - n for n in counts if n < FEWEST]:
            yield Lack("joint model", step=number, places=len(short), among=len(counts), more=sum(short))
        if len(sample.increments(number)) < 2 or len(sample.retentions(number)) < 2:
            levels = max(2, len(sample.increments(number))) * max(2, len(sample.retentions(number)))
            yield Lack("both factors", step=number, more=2 * levels - sum(min(2, n) for n in counts))
        elif min(counts) < 2:
            yield Lack("ANOVA", step=number, more=sum(max(0, 2 - n) for n in counts))
        if probes_within(EARLY, sample.probes(number)) == 1:
            longest = max(own.facts.setting.options["epochs"] for own in sample.steps if own.facts.step == number)
            yield Lack("early probe" if probes_within(EARLY, longest + 1) > 1 else "early epochs", step=number)
        mask = sample.mask(Subset(number))
        if len(sample.steps) and not np.isfinite(sample.values["SIC", "rho"][mask]).any():
            yield Lack("ranking", step=number)
