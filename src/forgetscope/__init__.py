"""forgetscope: measure, predict and explain imbalanced forgetting in rehearsal-based class-incremental learning.

    import forgetscope as fs

    result = fs.run(fs.RunSpec(dataset="glyphs", epochs=20))
    result.classes                               # a data frame: forgetting and coefficients per class and step
    fs.write_report(result, "report.html")

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from forgetscope.threads import wait_briefly

wait_briefly()  # here, because it must come before torch is loaded

_HOMES = {
    "forgetscope.analysis.experiments": ("Experiment", "open_experiment"),
    "forgetscope.analysis.observed": ("Observed", "analyse_observed", "open_observed"),
    "forgetscope.analysis.questions.leaderboard": ("leaderboards",),
    "forgetscope.analysis.results": ("Analysis", "analyse"),
    "forgetscope.benchmark.controlled": ("Controlled",),
    "forgetscope.benchmark.pairs": ("Comparison", "Variants"),
    "forgetscope.benchmark.simulation": ("simulate",),
    "forgetscope.benchmark.space": ("BenchmarkSpec",),
    "forgetscope.calibrating.own": ("evening",),
    "forgetscope.data.acquisition": ("add_arrays", "add_data", "get_data"),
    "forgetscope.data.images": ("DataSet",),
    "forgetscope.data.library": ("load_data",),
    "forgetscope.engines.dispatch": ("Watcher",),
    "forgetscope.engines.here": ("Here",),
    "forgetscope.engines.local": ("Local",),
    "forgetscope.engines.ray": ("Ray",),
    "forgetscope.forecasting.forecast": ("Forecast",),
    "forgetscope.forecasting.kept": ("Keepsakes", "keepsakes"),
    "forgetscope.housekeeping.replication": ("unpack_replication",),
    "forgetscope.learning.candidates": ("Candidates",),
    "forgetscope.learning.methods": ("Method",),
    "forgetscope.learning.policies": ("Policy",),
    "forgetscope.measuring.coefficients": ("Coefficients",),
    "forgetscope.measuring.measurement": ("Measurement",),
    "forgetscope.measuring.probe": ("Probe",),
    "forgetscope.monitor.monitor": ("Monitor",),
    "forgetscope.report.pages.writing": ("write_report",),
    "forgetscope.report.typeset.papers": ("write_paper",),
    "forgetscope.runs": ("Failed", "compare", "plan", "run"),
    "forgetscope.spec": ("RunSpec",),
    "forgetscope.store": ("Store",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_NAMES = sorted(["__version__", "errors", "testing", *_HOME_OF])

if TYPE_CHECKING:
    from forgetscope import errors as errors, testing as testing
    from forgetscope.analysis.experiments import Experiment as Experiment, open_experiment as open_experiment
    from forgetscope.analysis.observed import (
        Observed as Observed,
        analyse_observed as analyse_observed,
        open_observed as open_observed,
    )
    from forgetscope.analysis.questions.leaderboard import leaderboards as leaderboards
    from forgetscope.analysis.results import Analysis as Analysis, analyse as analyse
    from forgetscope.benchmark.controlled import Controlled as Controlled
    from forgetscope.benchmark.pairs import Comparison as Comparison, Variants as Variants
    from forgetscope.benchmark.simulation import simulate as simulate
    from forgetscope.benchmark.space import BenchmarkSpec as BenchmarkSpec
    from forgetscope.calibrating.own import evening as evening
    from forgetscope.data.acquisition import add_arrays as add_arrays, add_data as add_data, get_data as get_data
    from forgetscope.data.images import DataSet as DataSet
    from forgetscope.data.library import load_data as load_data
    from forgetscope.engines.dispatch import Watcher as Watcher
    from forgetscope.engines.here import Here as Here
    from forgetscope.engines.local import Local as Local
    from forgetscope.engines.ray import Ray as Ray
    from forgetscope.forecasting.forecast import Forecast as Forecast
    from forgetscope.forecasting.kept import Keepsakes as Keepsakes, keepsakes as keepsakes
    from forgetscope.housekeeping.replication import unpack_replication as unpack_replication
    from forgetscope.learning.candidates import Candidates as Candidates
    from forgetscope.learning.methods import Method as Method
    from forgetscope.learning.policies import Policy as Policy
    from forgetscope.measuring.coefficients import Coefficients as Coefficients
    from forgetscope.measuring.measurement import Measurement as Measurement
    from forgetscope.measuring.probe import Probe as Probe
    from forgetscope.monitor.monitor import Monitor as Monitor
    from forgetscope.report.pages.writing import write_report as write_report
    from forgetscope.report.typeset.papers import write_paper as write_paper
    from forgetscope.runs import Failed as Failed, compare as compare, plan as plan, run as run
    from forgetscope.spec import RunSpec as RunSpec
    from forgetscope.store import Store as Store

    __version__: str
else:
    __all__ = _NAMES  # type checkers read lists that are written out, and have the names above


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
    return _NAMES
