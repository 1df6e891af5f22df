"""forgetscope: measure, predict and explain imbalanced forgetting in rehearsal-based class-incremental learning.

    import forgetscope as fs

    result = fs.run(fs.RunSpec(dataset="glyphs", epochs=20))
    result.classes                               # a data frame: forgetting and coefficients per class and step
    fs.write_report(result, "report.html")

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from forgetscope.threads import wait_briefly

if TYPE_CHECKING:
    from forgetscope import errors, testing
    from forgetscope.analysis.experiments import Experiment, open_experiment
    from forgetscope.analysis.results import Analysis, analyse
    from forgetscope.benchmark.controlled import Controlled
    from forgetscope.benchmark.pairs import Comparison
    from forgetscope.benchmark.simulation import simulate
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.benchmark.variants import Variants
    from forgetscope.data.acquisition import add_arrays, add_data, get_data
    from forgetscope.data.images import DataSet
    from forgetscope.data.library import load_data
    from forgetscope.engines.here import Here
    from forgetscope.engines.local import Local
    from forgetscope.engines.ray import Ray
    from forgetscope.learning.candidates import Candidates
    from forgetscope.learning.policies import Policy
    from forgetscope.measuring.coefficients import Coefficients
    from forgetscope.measuring.measurement import Measurement
    from forgetscope.measuring.probe import Probe
    from forgetscope.report.pages.writing import write_report
    from forgetscope.report.typeset.papers import write_paper
    from forgetscope.runs import Failed, compare, plan, run
    from forgetscope.spec import RunSpec
    from forgetscope.store import Store

    __version__: str

__all__ = [
    "Analysis",
    "BenchmarkSpec",
    "Candidates",
    "Coefficients",
    "Comparison",
    "Controlled",
    "DataSet",
    "Experiment",
    "Failed",
    "Here",
    "Local",
    "Measurement",
    "Policy",
    "Probe",
    "Ray",
    "RunSpec",
    "Store",
    "Variants",
    "__version__",
    "add_arrays",
    "add_data",
    "analyse",
    "compare",
    "errors",
    "get_data",
    "load_data",
    "open_experiment",
    "plan",
    "run",
    "simulate",
    "testing",
    "write_paper",
    "write_report",
]

wait_briefly()  # here, because it must come before torch is loaded

_HOMES = {
    "forgetscope.analysis.experiments": ("Experiment", "open_experiment"),
    "forgetscope.analysis.results": ("Analysis", "analyse"),
    "forgetscope.benchmark.controlled": ("Controlled",),
    "forgetscope.benchmark.pairs": ("Comparison",),
    "forgetscope.benchmark.simulation": ("simulate",),
    "forgetscope.benchmark.space": ("BenchmarkSpec",),
    "forgetscope.benchmark.variants": ("Variants",),
    "forgetscope.data.acquisition": ("add_arrays", "add_data", "get_data"),
    "forgetscope.data.images": ("DataSet",),
    "forgetscope.data.library": ("load_data",),
    "forgetscope.engines.here": ("Here",),
    "forgetscope.engines.local": ("Local",),
    "forgetscope.engines.ray": ("Ray",),
    "forgetscope.learning.candidates": ("Candidates",),
    "forgetscope.learning.policies": ("Policy",),
    "forgetscope.measuring.coefficients": ("Coefficients",),
    "forgetscope.measuring.measurement": ("Measurement",),
    "forgetscope.measuring.probe": ("Probe",),
    "forgetscope.report.pages.writing": ("write_report",),
    "forgetscope.report.typeset.papers": ("write_paper",),
    "forgetscope.runs": ("Failed", "compare", "plan", "run"),
    "forgetscope.spec": ("RunSpec",),
    "forgetscope.store": ("Store",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("forgetscope")
    if name in ("errors", "testing"):
        return import_module(f"forgetscope.{name}")
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'forgetscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
