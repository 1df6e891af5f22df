"""How a plan is made: kept apart from making it, because its data may have to be fetched first."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forgetscope.benchmark.controlled import controlled_plan
from forgetscope.benchmark.pairs import comparison_plan
from forgetscope.benchmark.plans import Plan, benchmark_plan
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.variants import parse_variant, variants_plan
from forgetscope.errors import StoreError
from forgetscope.spec import RunSpec


@dataclass(frozen=True)
class Recipe:
    template: RunSpec  # a run with the options that all runs of the plan share
    plan: Callable[[], Plan]


def benchmark_recipe(spec: BenchmarkSpec) -> Recipe:
    return Recipe(spec.template, lambda: benchmark_plan(spec))


def recorded_recipe(record: Mapping[str, Any]) -> Recipe:
    """Of a plan that a store remembers, of whatever kind; making it fails if it has become another one."""
    if record["kind"] == "compare":
        run = RunSpec(**tomllib.loads(record["run"]))
        return Recipe(run, lambda: _same(record, comparison_plan(run, record["policies"], record["pairs"], record["name"])))
    if record["kind"] == "variants":
        varied = RunSpec(**tomllib.loads(record["run"]))
        variants = [parse_variant(setting, varied) for setting in record["vary"]]
        return Recipe(varied, lambda: _same(record, variants_plan(varied, variants, record["pairs"], record["name"])))
    spec = BenchmarkSpec(**tomllib.loads(record["benchmark"]))
    if record["kind"] == "controlled":
        return Recipe(spec.template, lambda: _same(record, controlled_plan(spec, runs=record["runs"])))
    return Recipe(spec.template, lambda: _same(record, benchmark_plan(spec)))


def _same(record: Mapping[str, Any], plan: Plan) -> Plan:
    if plan.data.digest != record["data"]["digest"]:
        raise StoreError(
            f"Plan {record['id']} was run on a data set {plan.data.name!r} that is not here any more: it is gone or "
            "has changed. See `forgetscope data list`."
        )
    return plan
