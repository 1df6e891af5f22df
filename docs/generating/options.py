"""Every option of a run, of a benchmark, of methods and calibrations and of simulated stores, from the specifications."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from generating.marking import code, entry, table


def options(which: str) -> str:
    """which: run, benchmark, truth, or choices, which methods and calibrations have in brackets."""
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.benchmark.truth import Truth
    from forgetscope.spec import RunSpec

    if which == "choices":
        return _choices()
    models: dict[str, type[BaseModel]] = {"run": RunSpec, "benchmark": BenchmarkSpec, "truth": Truth}
    return "\n".join(_described(models[which]))


def _described(model: type[BaseModel]) -> list[str]:
    from forgetscope.options import toml_value

    schema, entries = model.model_json_schema(), []
    for name, found in schema["properties"].items():
        if name == "run":  # of a benchmark: what its runs share, which a file says beside its own options
            continue
        usual = "required" if name in schema.get("required", ()) else "not set"
        if found.get("default") is not None:
            usual = code(toml_value(found["default"]))
        entries.append(entry(code(name), f"{found['description']} Range: {_range(found)}. Default: {usual}."))
    return entries


def _range(found: Mapping[str, Any]) -> str:
    """What may be given, in words."""
    if "anyOf" in found:
        return ", or ".join(_range(one) for one in found["anyOf"] if one.get("type") != "null")
    if "const" in found:
        return code(found["const"])
    if "enum" in found:
        return ", ".join(map(code, found["enum"]))
    kind = {"string": "a text", "boolean": "`true`, `false`", "integer": "a whole number", "number": "a number"}
    if found["type"] == "array":
        return f"a list, each {_range(found['items'])}"
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    words |= {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    bounds = [f"{word} {found[name]:,}" for name, word in words.items() if name in found]
    return " ".join([kind[found["type"]], *bounds])


def _choices() -> str:
    from forgetscope.choices import CALIBRATIONS, METHODS, OPTION_RANGES, OPTION_WORDS, POSITIVE

    rows = []
    for name, given in METHODS.items():
        for option, usual in given.items():
            least = "above" if option in POSITIVE else "from"
            rows.append([code(f"method = {name}"), code(option), f"a number {least} 0", code(str(usual))])
    for name, its in CALIBRATIONS.items():
        for option, value in its.items():
            numbers = [_numbers(*OPTION_RANGES[option])] if option in OPTION_RANGES else []
            allowed = " or ".join([*map(code, OPTION_WORDS.get(option, ())), *numbers])
            rows.append([code(f"calibration = {name}"), code(option), allowed, code(str(value))])
    return table(["of", "option", "range", "default"], rows)


def _numbers(low: float, high: float) -> str:
    return f"a number from {low:g} to {high:g}" if math.isfinite(low) else f"a number up to {high:g}"
