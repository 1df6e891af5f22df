"""forgetscope: measure, predict and explain imbalanced forgetting in rehearsal-based class-incremental learning.

    import forgetscope as fs

    result = fs.run(fs.RunSpec(dataset="glyphs", epochs=20))
    result.classes                               # a data frame: forgetting and coefficients per class and step
    fs.write_report(result, "report.html")

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from forgetscope.errors import SpecError, WriteError
from forgetscope.threads import wait_briefly

if TYPE_CHECKING:
    from forgetscope.analysis.experiments import Experiment, open_experiment
    from forgetscope.analysis.results import Analysis, analyse
    from forgetscope.data.acquisition import add_arrays, add_data, get_data
    from forgetscope.data.images import DataSet
    from forgetscope.data.library import load_data
    from forgetscope.measuring.probe import Probe
    from forgetscope.report.typeset.papers import write_paper
    from forgetscope.spec import RunSpec

    __version__: str

__all__ = [
    "Analysis",
    "DataSet",
    "Experiment",
    "Probe",
    "RunSpec",
    "__version__",
    "add_arrays",
    "add_data",
    "analyse",
    "get_data",
    "load_data",
    "open_experiment",
    "run",
    "write_paper",
    "write_report",
]

wait_briefly()  # here, because it must come before torch is loaded

_HOMES = {
    "Analysis": "forgetscope.analysis.results",
    "DataSet": "forgetscope.data.images",
    "Experiment": "forgetscope.analysis.experiments",
    "Probe": "forgetscope.measuring.probe",
    "RunSpec": "forgetscope.spec",
    "add_arrays": "forgetscope.data.acquisition",
    "add_data": "forgetscope.data.acquisition",
    "analyse": "forgetscope.analysis.results",
    "get_data": "forgetscope.data.acquisition",
    "load_data": "forgetscope.data.library",
    "open_experiment": "forgetscope.analysis.experiments",
    "write_paper": "forgetscope.report.typeset.papers",
}


def run(
    spec: RunSpec,
    store: str | Path = "forgetscope-store",
    *,
    device: str = "auto",
    threads: int | None = None,
    channels_last: bool = True,
    compile: bool = False,
    progress: bool = True,
) -> Experiment:
    """Run one experiment, or what is missing of it in the store; `progress` prints to standard error.

    Ctrl-C, SIGTERM and SIGUSR1 save a snapshot and stop: forgetscope.errors.Interrupted. The same call continues.

    `channels_last` is the memory layout, `compile` trains through torch.compile: recorded, and without effect on the id.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> [step.spec.classes for step in result.steps]
    [(0, 1, 2), (3, 4)]
    """
    from forgetscope.analysis.experiments import Experiment
    from forgetscope.experiment import run_experiment
    from forgetscope.experiment.stopping import Stop, on_signals
    from forgetscope.progress import watch
    from forgetscope.spec import RunSpec
    from forgetscope.store import Store

    if not isinstance(spec, RunSpec):
        made = "fs.RunSpec(**options)" if isinstance(spec, Mapping) else "fs.RunSpec.from_toml(path)"
        raise SpecError(f"fs.run takes a RunSpec, not a {type(spec).__name__}: make one with {made}.")
    if not isinstance(store, str | Path):
        raise SpecError(f"store = {store!r} is not the path of a folder.")
    opened, stop = Store(store), Stop()
    with watch(enabled=progress) as watcher, on_signals(stop):
        plan = run_experiment(
            spec,
            opened,
            device=device,
            threads=threads,
            channels_last=channels_last,
            compile=compile,
            progress=watcher,
            stop=stop,
        )
    return Experiment(opened.chain(plan.id))


def write_report(
    shown: Experiment | Analysis,
    path: str | Path,
    *,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Path:
    """Write the page of an experiment, or of an analysis of a whole store: one HTML file that needs nothing else.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> fs.write_report(result, "report.html").name
    'report.html'
    """
    from forgetscope.analysis.experiments import Experiment
    from forgetscope.analysis.results import Analysis
    from forgetscope.data.library import recorded_data, recorded_strips
    from forgetscope.files import replace_durably
    from forgetscope.outputs import PAGE, refuse_foreign_file
    from forgetscope.report.pages.explorer import explore, explore_chain

    path = Path(path)
    refuse_foreign_file(path, PAGE, "page")
    if not isinstance(shown, Experiment | Analysis):
        raise SpecError(
            f"fs.write_report shows what fs.run, open_experiment or analyse returned, not a {type(shown).__name__}."
        )
    if isinstance(shown, Experiment):
        from forgetscope.report.pages.experiment import render_page

        strips = recorded_strips(shown.data, shown.classes["class_id"].unique().tolist())
        page = render_page(shown, strips, explore_chain(shown.steps, recorded_data))
    else:
        from forgetscope.report.pages.benchmark import render_benchmark
        from forgetscope.report.pages.provenance import provenance_of

        page = render_benchmark(shown, explore(shown, recorded_data, progress), provenance_of(shown, progress))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"Cannot write the page to {path}: {error.strerror or error}. Name another file.") from None
    replace_durably(path, page.encode())
    return path


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("forgetscope")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'forgetscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
