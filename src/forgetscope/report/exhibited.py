"""The exhibits of an analysis, each with its frame and what stands beside it: what every writer goes through."""

from dataclasses import dataclass

import pandas as pd

from forgetscope.analysis.exhibits.exhibit import Exhibit
from forgetscope.analysis.exhibits.tables import MORE, TABLES
from forgetscope.analysis.paper.points import figure_exhibits
from forgetscope.analysis.paper.printed import beside_paper
from forgetscope.analysis.results import Analysis


@dataclass(frozen=True)
class Shown:
    """beside: of a table, a row for each of its own with what the paper prints; of a figure, the frame that it also draws.
    noise: of a table, what noise alone would show."""

    exhibit: Exhibit
    frame: pd.DataFrame
    beside: pd.DataFrame | None = None
    noise: pd.DataFrame | None = None


def exhibited(analysis: Analysis) -> list[Shown]:
    """Tables of the paper, tables and data beyond it, then figures, as far as they were computed."""
    printed = beside_paper(analysis.tables, analysis.collection)
    drawn, noise = figure_exhibits(analysis.collection), analysis.more.get("noise")
    return [
        *(Shown(TABLES[label], frame, printed.get(label), noise) for label, frame in analysis.tables.items()),
        *(Shown(MORE[label], frame) for label, frame in analysis.more.items()),
        *(Shown(drawn[label], frame, analysis.more.get(drawn[label].beside)) for label, frame in analysis.figures.items()),
    ]
