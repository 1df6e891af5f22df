"""The model that ships with forgetscope: final forgetting by what is known of a class at each probe, fitted on the packaged
results of the replication by `benchmarks/foresight.py`, which writes `shipped.json`.

It is asked only where a step is trained as those were, within their range of retention and of new classes: docs/watch.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np

from forgetscope.store import Setting
from forgetscope.underway.regression import MEASURED, Linear, Values, bounded, interval

FILE = "shipped.json"
RANGES = {"retention": "a retention of", "classes": "so many new classes:"}  # what may lie between those of the fit
MIDDLE = {"retention": 0.18, "classes": 20.0}  # from where their logarithms are counted


def design(x: Values, retention: float, classes: int, step: int) -> Values:
    """[P, terms] of features [MEASURED, P]: these, retention, new classes and step, and each of the former with the latter."""
    where = [np.log(retention / MIDDLE["retention"]), np.log(classes / MIDDLE["classes"]), step - 2.0]
    alike = np.repeat(np.array(where)[:, None], x.shape[1], axis=1)
    return np.concatenate([x, alike, *(x * one for one in where)]).T


class Shipped:
    """Read when it is first asked."""

    @cached_property
    def _model(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((resources.files("forgetscope.underway") / FILE).read_bytes())
        return found

    @property
    def said(self) -> str:
        return f"Forecasts are by the model that ships with forgetscope, fitted on {self._model['fitted_on']}"

    def refuses(self, made: Mapping[str, Any], probes: int) -> str | None:
        """Why it says nothing of a step that is made so, to end a sentence with; None where it is within its domain."""
        setting, step = Setting.of(made), int(made["spec"]["step"])
        found = facts_of(setting)
        ours = "the model that ships with forgetscope is for"
        for name, asked in self._model["settings"].items():
            if found.get(name) != asked:
                return f"{ours} {name} = {_said(asked)}, and here it is {_said(found.get(name))}"
        steps = self._model["domain"]
        if str(step) not in steps or not 1 <= probes <= len(self._model["probes"]):
            return f"{ours} steps {' and '.join(steps)}, and this is step {step}"
        for name in RANGES:
            (low, high), value = steps[str(step)][name], setting.options[name]
            if value is None or not low <= value <= high:
                asked = f"{low:g}" if low == high else f"{low:g} to {high:g}"
                return f"{ours} {RANGES[name]} {asked} in step {step}, and here it is {_said(value)}"
        return None

    def predicted(self, made: Mapping[str, Any], x: Values, probes: int) -> Values:
        """[3, P]; x: [FEATURES, P] at the last of so many probes."""
        options, model = Setting.of(made).options, self._model["probes"][probes - 1]
        where = float(options["retention"]), int(options["classes"]), int(made["spec"]["step"])
        terms = design(x[: len(MEASURED)], *where)
        base, slope = model["error"]
        error = float(np.exp(base + slope * np.log(where[1] / MIDDLE["classes"])))
        value = Linear(model["intercept"], np.array(model["weights"])).at(terms)
        return bounded(value, interval(error, self._model["experiments"]))


def facts_of(setting: Setting) -> dict[str, Any]:
    """What must be as in the fit, in plain values."""
    options = {name: value for name, value in setting.options.items() if name not in RANGES}
    facts = {"dataset": setting.dataset, "shape": list(setting.shape), "network": setting.network, **options}
    return facts | {"digest": setting.digest, "network_source": setting.network_source}


def _said(value: object) -> str:
    return str(value)[:60]
