"""How a plan is made: kept apart from making it, because its data may have to be fetched first."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from forgetscope.benchmark.controlled import controlled_plan
from forgetscope.benchmark.pairs import comparison_plan
from forgetscope.benchmark.plans import Plan, benchmark_plan
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.variants import parse_variant, variants_plan
from forgetscope.data.library import DataFacts
from forgetscope.errors import StoreError
from forgetscope.spec import AugmentationSpec, RunSpec

MOST_EXPERIMENTS, MOST_CLASSES = 100_000, 1_000_000  # of a plan that somebody else may have written


@dataclass(frozen=True)
class Recipe:
    template: RunSpec  # a run with the options that all runs of the plan share
    plan: Callable[[], Plan]
    recorded: bool = False  # by a store, which may be somebody else's


def benchmark_recipe(spec: BenchmarkSpec) -> Recipe:
    return Recipe(spec.template, lambda: benchmark_plan(spec))


def recorded_recipe(record: Mapping[str, Any]) -> Recipe:
    """Of a plan that a store remembers, of whatever kind, with the data and the code that it was made with: looking at it
    needs neither. Making it fails if it has become another one."""
    try:
        augmentation, shape = AugmentationSpec(**record["data"]["augmentation"]), tuple(record["data"]["shape"])
        data = DataFacts(**{**record["data"], "augmentation": augmentation, "shape": shape})
        template, plan, experiments = _kinds(record, data)
        if experiments > MOST_EXPERIMENTS or not 0 < data.classes <= MOST_CLASSES:
            raise ValueError(f"{experiments} experiments on {data.classes} classes are not believable")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"What the store says of plan {record['id']} cannot be read ({type(error).__name__}: {error}). Name its file."
        ) from None
    return Recipe(template, lambda: _same(record, plan()), recorded=True)


def _kinds(record: Mapping[str, Any], data: DataFacts) -> tuple[RunSpec, Callable[[], Plan], int]:
    """Its template, how it is made, and how many experiments are drawn for it."""
    kind, sources = record["kind"], record.get("sources")
    if kind in ("compare", "variants"):
        run, pairs, name = RunSpec(**tomllib.loads(record["run"])), record["pairs"], record["name"]
        if kind == "compare":
            policies = record["policies"]
            return run, lambda: comparison_plan(run, policies, pairs, name, data, sources), pairs * len(policies)
        variants = [parse_variant(setting, run) for setting in record["vary"]]
        return run, lambda: variants_plan(run, variants, pairs, name, data, sources), pairs * (1 + len(variants))
    spec = BenchmarkSpec(**tomllib.loads(record["benchmark"]))
    experiments = spec.experiments * len(spec.partitions(2)) * len(spec.policies)
    if kind == "controlled":
        runs = record["runs"]
        return spec.template, lambda: controlled_plan(spec, data, runs, sources), experiments + runs
    return spec.template, lambda: benchmark_plan(spec, data, sources), experiments


def _same(record: Mapping[str, Any], plan: Plan) -> Plan:
    """Known by the id that it has in the store."""
    if [list(chain.steps) for chain in plan.chains] != [chain["steps"] for chain in record["chains"]]:
        raise StoreError(
            f"Plan {record['id']} cannot be made again: its code has changed, or the store's record of it. Name its file."
        )
    return replace(plan, about={name: record[name] for name in (*plan.about, "simulated") if name in record})
