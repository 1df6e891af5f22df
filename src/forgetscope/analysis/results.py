"""All results of a store: the paper's tables and figures, what goes beyond them, and a reading in words."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import get_args

import pandas as pd

from forgetscope.analysis.exhibits.figures import CONTROLLED
from forgetscope.analysis.exhibits.tables import MORE, TABLES
from forgetscope.analysis.inputs.cache import Cache, kept_for, make_folder
from forgetscope.analysis.inputs.measured_steps import partial_sums, read_steps
from forgetscope.analysis.inputs.samples import Collected, collect
from forgetscope.analysis.paper.cells import Controls, Tabulation
from forgetscope.analysis.paper.claims import answers
from forgetscope.analysis.paper.comparisons import comparisons
from forgetscope.analysis.paper.joint_model import JointModels
from forgetscope.analysis.paper.points import boxes, earliness, figure_exhibits, figures, over_time
from forgetscope.analysis.paper.verdicts import claim_frames
from forgetscope.analysis.questions.advice import left_out, sample_sizes, with_counts
from forgetscope.analysis.questions.forecasts import forecasts
from forgetscope.analysis.questions.foresight import calibration, early_warning, flagged
from forgetscope.analysis.questions.noise import noise
from forgetscope.analysis.questions.suffering import class_forgetting
from forgetscope.analysis.rows import estimate_of, matching, records
from forgetscope.analysis.statistics.anova import Coding
from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.analysis.statistics.pooling import Spreads
from forgetscope.errors import SpecError
from forgetscope.options import nearest
from forgetscope.store import Store

CODINGS: tuple[Coding, ...] = get_args(Coding)
CONTROLS: tuple[Controls, ...] = get_args(Controls)
RESAMPLES = 1_000_000


@dataclass(frozen=True)
class Analysis:
    """Results of one store. Frames are tidy: a row per estimate or test, in the paper's order, columns as in its data.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> analysis = fs.analyse("results", resamples=10)
    >>> print(analysis.reading)
    glyphs: 1 second step
      2 of 3 past classes were barely learned: ...
    >>> analysis.more["missing"]["what"][0]
    'glyphs: no third steps, ...'
    """

    store: Path
    tables: dict[str, pd.DataFrame]  # by the paper's labels
    figures: dict[str, pd.DataFrame]
    more: dict[str, pd.DataFrame]
    collection: Collected = field(repr=False)
    coding: Coding = "sum"
    resamples: int = RESAMPLES
    controls: Controls = "others"

    @cached_property
    def reading(self) -> str:
        """What predicts, how well, from how early on, how sure, in words and numbers; then what is missing."""
        from forgetscope.report.words.reading import reading_lines  # looking upward: words are the report's

        return "\n".join(reading_lines(self))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.reading)}</pre>"

    def estimate(self, label: str, of: str = "", **keys: object) -> Estimate:
        """One estimate of a table, for example `estimate("spearman_SIC", benchmark="C100", subset="2", rehearsal_pct="8",
        class_pct="10", statistic="rho")`. of: the column, such as `sd`, where it is not the table's first estimate."""
        frame = self.table(label)
        of = of or next((name for name in ESTIMATED if name in frame.columns), "")
        if of not in frame.columns or "n" not in frame.columns:
            raise SpecError(f"{label} has no estimates of {of!r}." if of else f"{label} holds no estimates.")
        unknown = [name for name in keys if name not in frame.columns]
        if unknown:
            raise SpecError(f"Tables have no column {unknown[0]!r}.{nearest(unknown[0], list(frame.columns))}")
        rows = matching(frame, **keys)
        if len(rows) != 1:
            differing = [name for name in KEYS_LEFT if name in rows and rows[name].nunique() > 1]
            hint = f"They differ in {', '.join(differing)}" if differing else "Look at the table's rows"
            raise SpecError(f"{len(rows)} rows of {label} match {keys}. {hint}: name exactly one.")
        return estimate_of(records(rows)[0], of)

    def table(self, label: str) -> pd.DataFrame:
        """A table of the paper, or one of those beyond it."""
        found = {**self.tables, **self.more}
        if label not in found:
            raise SpecError(f"There is no table {label!r}.{nearest(label, list(found))}")
        return found[label]


ESTIMATED = ("mean", "difference", "value", "precision", "observed", "spread")
KEYS_LEFT = (
    *("benchmark", "policy", "claim", "comparison", "test", "group", "share", "predictor", "bin", "subset"),
    *("rehearsal_pct", "class_pct", "quantity", "statistic", "factor", "response"),
)


def analyse(
    store: str | Path | Store,
    *,
    coding: Coding = "sum",
    controls: Controls = "others",
    resamples: int = RESAMPLES,
    tables: Sequence[str] | None = None,
    joint_over_time: bool = False,
    cached: bool = True,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Analysis:
    """Every result that a store allows.

    coding: of the ANOVA's factors; `treatment` gives the paper's numbers. controls: of overall partial correlations; with
    `paper`, SIC and CIC are given ALL-NIC too, as there. tables: only these, of the paper or of `MORE`, and no figures. cached:
    keep what was computed in the user's cache, so that the next call computes only what is new.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> analysis = fs.analyse("results", resamples=10)
    >>> analysis.table("spearman_SIC")["benchmark"].unique().tolist()
    ['glyphs']
    """
    opened = store if isinstance(store, Store) else Store.existing(store)
    _refuse_unknown(coding, controls, tables)
    whole = tables is None or any(label in MORE for label in tables)
    cache = Cache(_kept(opened) if cached else None)
    collection = collect(opened, read_steps(opened, cache, progress))
    joint = JointModels(cache, progress)
    tabulation = Tabulation(collection, joint, Spreads(cache, resamples, progress), coding, controls)
    frames = tabulation.frames(TABLES if tables is None or whole else tables)
    drawn, more = dict[str, pd.DataFrame](), dict[str, pd.DataFrame]()
    if whole:
        from forgetscope.report.words.reading import add_words  # looking upward, as `Analysis.reading` does

        drawn = figures(collection)
        more |= claim_frames(answers(collection, joint, frames))
        more["noise"] = noise(collection, cache)
        more["forecasts"] = forecasts(collection)
        more["comparisons"] = comparisons(collection)
        more["early_warning"] = early_warning(collection, joint)
        more["flagged"] = flagged(collection, joint)
        more["class_forgetting"] = class_forgetting(collection, opened)
        more["calibration"] = calibration(collection, joint)
        more["sample_sizes"] = sample_sizes(collection)
        more["left_out"] = left_out(collection)
        add_words(more, collection)
        more["earliness"] = earliness(drawn, figure_exhibits(collection))
        more["controlled_boxes"] = boxes(drawn[CONTROLLED.label])
        if joint_over_time or "joint_over_time" in (tables or ()):
            more["joint_over_time"] = over_time(collection, joint, lambda id: partial_sums(opened.step(id)))
    told = ("left_out", "controlled_boxes", CONTROLLED.label)  # say it themselves
    drawn, more = (
        {label: frame if label in told else with_counts(frame, collection) for label, frame in part.items()}
        for part in (drawn, more)
    )
    if tables is not None:
        frames, more = ({label: frame for label, frame in part.items() if label in tables} for part in (frames, more))
        drawn = {}
    return Analysis(opened.path, frames, drawn, more, collection, coding, resamples, controls)


def _refuse_unknown(coding: str, controls: str, tables: Sequence[str] | None) -> None:
    for name, given, known in (("coding", coding, CODINGS), ("controls", controls, CONTROLS)):
        if given not in known:
            raise SpecError(f"{name} = {given!r} is not known.{nearest(str(given), known)}")
    unknown = [label for label in tables or () if label not in (*TABLES, *MORE)]
    if unknown:
        raise SpecError(f"There is no table {unknown[0]!r}.{nearest(unknown[0], [*TABLES, *MORE])}")


def _kept(store: Store) -> Path | None:
    folder = kept_for(store.path)
    try:
        make_folder(folder, store.path)
    except OSError:
        return None
    return folder / "analysis"
