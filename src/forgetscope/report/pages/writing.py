"""A page as a file, of whatever there is to show."""

from pathlib import Path

from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.observed import Observed
from forgetscope.analysis.results import Analysis
from forgetscope.data.images import class_strips
from forgetscope.data.library import recorded_data
from forgetscope.errors import SpecError, WriteError
from forgetscope.files import replace_durably
from forgetscope.outputs import PAGE, Progress, refuse_foreign_file, unheard
from forgetscope.report.pages.benchmark import render_benchmark
from forgetscope.report.pages.experiment import render_page
from forgetscope.report.pages.explorer import explore, explore_chain, explore_observed
from forgetscope.report.pages.provenance import provenance_of


def write_report(shown: Experiment | Observed | Analysis, path: str | Path, *, progress: Progress = unheard) -> Path:
    """Write the page of an experiment, of what a monitor saw, or of an analysis of a whole store: one HTML file that needs
    nothing else.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> fs.write_report(result, "report.html").name
    'report.html'
    """
    path = Path(path)
    refuse_foreign_file(path, PAGE, "page")
    if not isinstance(shown, Experiment | Observed | Analysis):
        known = "fs.run, open_experiment, open_observed or analyse"
        raise SpecError(f"fs.write_report shows what {known} returned, not a {type(shown).__name__}.")
    page = rendered(shown, progress)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"Cannot write the page to {path}: {error.strerror or error}. Name another file.") from None
    replace_durably(path, page.encode())
    return path


def rendered(shown: Experiment | Observed | Analysis, progress: Progress = unheard) -> str:
    """The page itself."""
    if isinstance(shown, Experiment):
        data = recorded_data(shown.data)
        strips = {} if data is None else class_strips(data, shown.classes["class_id"].unique().tolist())
        return render_page(shown, strips, explore_chain(shown.steps, recorded_data))
    if isinstance(shown, Observed):
        return render_page(shown, {}, explore_observed(shown.steps))
    return render_benchmark(shown, explore(shown, recorded_data, progress), provenance_of(shown, progress))
