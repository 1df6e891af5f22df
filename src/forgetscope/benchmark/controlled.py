"""Controlled experiments: a step run again and again from the same parent, with other new classes and nothing else changed.

In each partition whose classes leave a choice, one step of the benchmark is picked. What differs between its runs is then the
work of the new classes alone.
"""

import math
from dataclasses import dataclass

import numpy as np

from forgetscope.benchmark.plans import Plan, Reruns, Sources, empty_plan
from forgetscope.benchmark.space import BenchmarkSpec, sample
from forgetscope.data.library import DataFacts
from forgetscope.errors import SpecError
from forgetscope.options import demand, demand_at_least
from forgetscope.randomness import Streams

RERUNS = 19


@dataclass(frozen=True)
class Controlled:
    """One step of each of a benchmark's partitions, and so many further runs of it.

    >>> import forgetscope as fs
    >>> benchmark = fs.BenchmarkSpec(name="small", increments=[0.1], retentions=[0.08], experiments=2)
    >>> [len(again.others) for again in fs.plan(fs.Controlled(benchmark, runs=4)).reruns]
    [4, 4]
    """

    benchmark: BenchmarkSpec
    runs: int = RERUNS

    def __post_init__(self) -> None:
        demand("benchmark", self.benchmark, BenchmarkSpec, 'a benchmark, such as fs.BenchmarkSpec.load("glyphs")')
        demand_at_least(2, runs=self.runs)


def controlled_plan(spec: BenchmarkSpec, data: DataFacts | None = None, runs: int = RERUNS, sources: Sources = None) -> Plan:
    """The picked steps with all that they build on, and `runs` further runs of each."""
    template, fresh = spec.template, spec.controlled_runs == "fresh"
    if template.probe_every == 0:
        raise SpecError(f"{spec.name}: probe_every = 0 measures neither NIC nor SIC. Use 1 or more.")
    about = {"kind": "controlled", "name": f"{spec.name}-controlled", "benchmark": spec.to_toml(), "runs": runs}
    plan = empty_plan(about, template, (*spec.policies, *template.code), data, sources)
    classes, drawn = plan.data.classes, sample(spec, plan.data.classes)
    for step in range(2, spec.steps + 1):
        for partition in spec.partitions(step):
            size = round(partition.increment * classes)
            if math.comb(classes - (step - 1) * size, size) <= runs + fresh:
                continue  # the classes that are left can be chosen in too few ways
            rng = Streams(spec.seed, step)("rerun", f"{partition.increment:g}/{partition.retention:g}")
            candidates = [experiment for experiment in drawn if experiment.partition == partition]
            picked = candidates[0 if fresh else rng.integers(len(candidates))]
            specs = plan.specs_of(picked.run, picked.sequence[:step])
            chain = plan.add_chain(specs[: step - fresh], picked.run, partition=partition, number=picked.number)
            learned = [label for group in picked.sequence[: step - 1] for label in group]
            ids = [] if fresh else [chain.steps[-1]]
            for new in other_classes(learned, specs[-1].classes, classes, runs + fresh, rng):
                rerun = specs[-1].model_copy(update={"classes": new})
                ids += plan.add(chain.steps[step - 2], len(learned), [rerun])
            plan.reruns.append(Reruns(ids[0], step, partition, tuple(ids[1:])))
    if not plan.reruns:
        raise SpecError(
            f"{spec.name}: in no partition can the new classes be chosen in {runs + 1} ways. Use smaller increments or --runs."
        )
    return plan


def other_classes(
    learned: list[int], original: tuple[int, ...], classes: int, runs: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Sets of new classes, uniform among those of classes that were not learned before; none twice, the original included."""
    free = np.setdiff1d(np.arange(classes), learned)
    found = {original: None}
    while len(found) <= runs:
        found[tuple(sorted(rng.choice(free, len(original), replace=False).tolist()))] = None
    return list(found)[1:]
