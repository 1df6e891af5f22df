"""One step that stands for a finding: all of its past classes by forgetting, with what the worst are now taken for."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from forgetscope.analysis.inputs.measured_steps import MeasuredStep
from forgetscope.analysis.inputs.samples import Sample
from forgetscope.analysis.paper.points import swarms
from forgetscope.analysis.questions.learned_classes import severity_of_learned
from forgetscope.analysis.statistics.estimates import normal_quantile
from forgetscope.store import Store, StoredStep

WORST = 3  # classes of which is told what they are taken for
TAKEN = 3  # classes that one is taken for, most often first


class Taken(NamedTuple):
    """What a class's test images are taken for."""

    id: int
    name: str
    share: float  # of its test images


@dataclass(frozen=True)
class PastClass:
    """low, high: the 95 % interval of its forgetting by the noise of its test images alone; NaN where that is unknown."""

    id: int
    name: str
    forgetting: float
    learned: float  # accuracy
    now: float
    low: float
    high: float
    barely_learned: bool
    taken_for: tuple[Taken, ...]  # of the worst three


@dataclass(frozen=True)
class Example:
    """classes: most forgotten first, those that were barely learned last. range, floor: FG-R of those that were learned, and
    what noise alone would show."""

    step: str  # id
    seed: int
    retention: str
    increment: str
    new_classes: int
    range: float
    floor: float
    classes: tuple[PastClass, ...]


def example(sample: Sample, number: int, store: Store) -> Example | None:
    """Of the steps that pages show in detail, which are a random draw, the one whose FG-R is nearest to the median of all of
    them; of equally near ones the first by id. FG-R is that of the classes that were learned; None where no step has it."""
    found = [(cell, sample.steps[i]) for cell, drawn in swarms(sample, number) for i in drawn]
    extents = {step.facts.id: severity_of_learned(step)[0] for _, step in found}
    known = [extent for extent in extents.values() if np.isfinite(extent)]
    if not known:
        return None
    middle = float(np.median(known))
    chosen = min((id for id in extents if np.isfinite(extents[id])), key=lambda id: (round(abs(extents[id] - middle), 12), id))
    cell, step = next(pair for pair in found if pair[1].facts.id == chosen)
    return Example(
        step=chosen,
        seed=step.facts.seed,
        retention=cell.retention,
        increment=cell.increment,
        new_classes=len(step.facts.new_classes),
        range=extents[chosen],
        floor=float(step.clear_noise[0]),
        classes=_classes(step, store.step(chosen)),
    )


def _classes(step: MeasuredStep, stored: StoredStep) -> tuple[PastClass, ...]:
    table = stored.table("classes", ["class_id", "class_name"])
    names = dict(zip(table["class_id"].to_pylist(), table["class_name"].to_pylist(), strict=True))
    ids, forgetting = step.class_ids.tolist(), step.forgetting
    order = sorted(range(len(ids)), key=lambda c: (step.barely[c], np.isnan(forgetting[c]), -forgetting[c], ids[c]))
    worst = [ids[c] for c in order if not step.barely[c] and np.isfinite(forgetting[c])][:WORST]
    taken = _taken(stored, worst, names)
    reach = normal_quantile() * np.sqrt(step.variances)
    return tuple(
        PastClass(
            id=ids[c],
            name=names[ids[c]],
            forgetting=float(forgetting[c]),
            learned=float(step.learned[c]),
            now=float(step.now[c]),
            low=float(forgetting[c] - reach[c]),
            high=float(forgetting[c] + reach[c]),
            barely_learned=bool(step.barely[c]),
            taken_for=taken.get(ids[c], ()),
        )
        for c in order
    )


def _taken(stored: StoredStep, ids: list[int], names: dict[int, str]) -> dict[int, tuple[Taken, ...]]:
    table = stored.table("confusion", ["true", "predicted", "count"])
    true, predicted, count = (table[name].to_numpy() for name in ("true", "predicted", "count"))
    found = {}
    for id in ids:
        own = true == id
        wrong = [(int(n), int(other)) for n, other in zip(count[own], predicted[own], strict=True) if n and other != id]
        most = sorted(wrong, key=lambda pair: (-pair[0], pair[1]))[:TAKEN]
        found[id] = tuple(Taken(other, names[other], n / int(count[own].sum())) for n, other in most)
    return found
