"""From what is wanted, or from what a store remembers of it, to a plan."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from forgetscope.benchmark.arms import parse_arm
from forgetscope.benchmark.controlled import Controlled, controlled_plan
from forgetscope.benchmark.pairs import Comparison, Variants, comparison_plan, variants_plan
from forgetscope.benchmark.plans import Plan, Sources, benchmark_plan, run_plan
from forgetscope.benchmark.records import recorded_plans
from forgetscope.benchmark.space import BenchmarkSpec, presets
from forgetscope.data.library import DataFacts
from forgetscope.errors import SpecError, StoreError
from forgetscope.options import nearest, toml_value
from forgetscope.spec import AugmentationSpec, RunSpec, as_released
from forgetscope.store import Store, TellLeftOut

MOST_EXPERIMENTS, MOST_CLASSES = 100_000, 1_000_000  # of a plan that somebody else may have written

Contrast = Comparison | Variants | Controlled
Spec = RunSpec | BenchmarkSpec | Contrast
Wanted = Spec | Plan


def plan_of(spec: Spec, data: DataFacts | None = None, sources: Sources = None) -> Plan:
    """data, sources: as recorded; by default those that are here."""
    match spec:
        case RunSpec():
            return run_plan(spec, data, sources)
        case BenchmarkSpec():
            return benchmark_plan(spec, data, sources)
        case Comparison():
            return comparison_plan(spec, data, sources)
        case Variants():
            return variants_plan(spec, data, sources)
        case Controlled():
            return controlled_plan(spec.benchmark, data, spec.runs, sources)


def templates_of(spec: Spec) -> Sequence[RunSpec]:
    """Runs whose data and networks are those of all runs of the plan."""
    if isinstance(spec, Variants | Comparison):
        return spec.runs
    benchmark = spec.benchmark if isinstance(spec, Controlled) else spec
    if isinstance(benchmark, BenchmarkSpec):
        return (benchmark.template,)
    return (benchmark,)


def script_notes(spec: Spec) -> list[str]:
    """Where the released scripts' behaviour is asked for: what that sets, and what was given beside it and wins."""
    notes, benchmark = dict[str, None](), spec.benchmark if isinstance(spec, Controlled) else spec
    for run in templates_of(spec):
        released = as_released(run.model_dump())
        has = {name: getattr(run, name) for name in released}
        if released and isinstance(benchmark, BenchmarkSpec):
            released["controlled_runs"], has["controlled_runs"] = "fresh", benchmark.controlled_runs
        same = [f"{name} = {toml_value(value)}" for name, value in released.items() if has[name] == value]
        own = [
            f"{name} = {toml_value(has[name])} (released: {toml_value(value)})"
            for name, value in released.items()
            if has[name] != value
        ]
        if released:
            beside = f" Given beside it, which wins: {', '.join(own)}." if own else ""
            coding = "The ANOVA is coded when it is made: `forgetscope analyse --coding treatment`."
            notes[f'script_behaviour = "released" sets {", ".join(same) or "nothing"}.{beside} {coding}'] = None
    return list(notes)


def find(
    name: str, overrides: Mapping[str, object], store: Store, left_out: TellLeftOut | None = None
) -> BenchmarkSpec | dict[str, Any]:
    """A benchmark, or the record of any plan that the store remembers. What a store calls its plans hides no preset or file."""
    if name in presets():
        return BenchmarkSpec.load(name, overrides)
    records = {record["id"]: record for record in recorded_plans(store, left_out)}
    if name in records and Path(name).exists():
        raise SpecError(f"{name} is a plan in {store.path}, and a file. Write ./{name} for the file, or go to another folder.")
    if name in records:
        if overrides:
            given = "{}={}".format(*next(iter(overrides.items())))
            raise SpecError(f"--set {given}: {name} is a plan as it was run. Leave --set out, or name the benchmark.")
        return records[name]
    if not Path(name).exists():
        raise SpecError(f"There is no preset, file or plan {name!r}.{nearest(name, [*presets(), *records])}")
    return BenchmarkSpec.load(name, overrides)


def recorded_plan(record: Mapping[str, Any]) -> Plan:
    """A plan that a store remembers, of whatever kind, with the data and the code that it was made with: looking at it needs
    neither. Fails if it has become another one."""
    try:
        augmentation, shape = AugmentationSpec(**record["data"]["augmentation"]), tuple(record["data"]["shape"])
        data = DataFacts(**{**record["data"], "augmentation": augmentation, "shape": shape})
        spec, experiments = _recorded_spec(record)
        if experiments > MOST_EXPERIMENTS or not 0 < data.classes <= MOST_CLASSES:
            raise ValueError(f"{experiments} experiments on {data.classes} classes are not believable")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"What the store says of plan {record['id']} cannot be read ({type(error).__name__}: {error}). Name its file."
        ) from None
    plan = plan_of(spec, data, record.get("sources"))
    if [list(chain.steps) for chain in plan.chains] != [chain["steps"] for chain in record["chains"]]:
        raise StoreError(
            f"Plan {record['id']} cannot be made again: its code has changed, or the store's record of it. Name its file."
        )
    # Known by the id that it has in the store.
    return replace(plan, about={name: record[name] for name in (*plan.about, "simulated") if name in record})


def _recorded_spec(record: Mapping[str, Any]) -> tuple[Spec, int]:
    """And how many experiments are drawn for it."""
    kind = record["kind"]
    if kind in ("compare", "arms", "variants"):
        run, pairs, name = RunSpec(**tomllib.loads(record["run"])), record["pairs"], record["name"]
        if kind == "arms":
            arms = dict(map(parse_arm, record["arms"]))
            return Comparison(run, pairs=pairs, name=name, arms=arms, again=False), pairs * len(arms)
        if kind == "compare":
            return Comparison(run, record["policies"], pairs=pairs, name=name), pairs * len(record["policies"])
        return Variants(run, record["vary"], pairs, name), pairs * (1 + len(record["vary"]))
    spec = BenchmarkSpec(**tomllib.loads(record["benchmark"]))
    experiments = sum(spec.experiments_of(p.increment) for p in spec.partitions(2)) * len(spec.policies)
    if kind == "controlled":
        return Controlled(spec, record["runs"]), experiments + record["runs"]
    return spec, experiments
