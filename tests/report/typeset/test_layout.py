"""Tables as lines of cells: ours beside what the paper prints."""

from __future__ import annotations

import pandas as pd
import pytest

from forgetscope.analysis.paper.printed import COLUMNS, beside_paper
from forgetscope.analysis.paper.tables import tidy
from forgetscope.analysis.results import Analysis
from forgetscope.report.typeset.latex import LatexNotation, latex_beside
from forgetscope.report.typeset.layout import Cell, Line, caption_beside, lay_out_beside, signed
from forgetscope.report.typeset.typesetting import PlainNotation

NAN = float("nan")
LABEL = "spearman_individual_coefficients"


def compared(*rows: tuple[str, float, float, float, float, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows: quantity, ours with its interval, the paper's, whether they overlap."""
    common = {"benchmark": "C100", "subset": "2", "statistic": "rho", "policy": "uniform", "sd": 0.2}
    ours = [{"quantity": name, "mean": m, "mean_lo": lo, "mean_hi": hi, **common} for name, m, lo, hi, _, _ in rows]
    printed = [(paper, 0.6, 0.7, 0.1, NAN, m - paper, overlap) for _, m, _, _, paper, overlap in rows]
    return tidy(LABEL, ours), pd.DataFrame(printed, columns=list(COLUMNS))


def test_a_line_holds_ours_the_papers_the_difference_and_whether_intervals_overlap() -> None:
    tables = compared(
        ("SIC", 0.7, 0.65, 0.75, 0.65, "yes"), ("CIC", 0.5, 0.4, 0.55, 0.65, "no"), ("NIC", 0.5, 0.4, 0.55, NAN, "")
    )
    head, benchmark, step, *rows = lay_out_beside(LABEL, *tables, PlainNotation()).lines
    assert [cell.text for cell in head.cells] == ["", "ours", "paper", "ours − paper", "intervals overlap"]
    assert benchmark == Line("benchmark", (Cell("C100", 5),))
    assert step == Line("step", (Cell("step 2", 5),))
    assert [[cell.text for cell in row.cells] for row in rows] == [
        ["SIC ρ", "0.70 ± 0.20 (0.65, 0.75)", "0.65 ± 0.10 (0.60, 0.70)", "+0.05", "yes"],
        ["CIC ρ", "0.50 ± 0.20 (0.40, 0.55)", "0.65 ± 0.10 (0.60, 0.70)", "−0.15", "no"],
    ]
    assert "1 of 2 pairs of intervals overlap" in caption_beside(LABEL, *tables)
    assert r"SIC $\rho$ & $0.70$ $\pm$ $0.20$ ($0.65$, $0.75$) & $0.65$ $\pm$ $0.10$ ($0.60$, $0.70$) & $+0.05$ & yes \\" in (
        latex_beside(LABEL, *tables).splitlines()
    )


@pytest.mark.parametrize("notation", [PlainNotation(), LatexNotation()])
def test_every_value_that_the_paper_prints_has_one_line(same: Analysis, notation: PlainNotation | LatexNotation) -> None:
    for label, beside in beside_paper(same.tables, same.collection).items():
        layout = lay_out_beside(label, same.tables[label], beside, notation)
        rows = [line for line in layout.lines if line.role == "row"]
        assert len(rows) == beside["paper"].notna().sum() > 0
        assert all(sum(cell.span for cell in line.cells) == len(layout.columns) for line in layout.lines)


def test_effects_are_compared_by_size_with_both_probabilities_and_a_word_on_coding(same: Analysis) -> None:
    beside = beside_paper(same.tables, same.collection)["anova_SIC"]
    layout = lay_out_beside("anova_SIC", same.tables["anova_SIC"], beside, PlainNotation())
    assert [cell.text for cell in layout.lines[0].cells] == [
        *("Factor", "", "η²ₚ ours", "η²ₚ paper", "ours − paper", "p ours", "p paper")
    ]
    first = next(line for line in layout.lines if line.role == "row")
    assert [cell.text for cell in first.cells][:2] == ["Retention", "SIC ρ"]
    assert (first.cells[3].text, first.cells[6].text) == ("0.06", "2.67 · 10⁻⁵")  # as printed
    assert "different questions" in caption_beside("anova_SIC", same.tables["anova_SIC"], beside)


@pytest.mark.parametrize(("difference", "text"), [(0.051, "+0.05"), (-0.15, "-0.15"), (0.001, "0.00"), (-0.001, "0.00")])
def test_a_difference_has_its_sign_unless_it_rounds_to_nothing(difference: float, text: str) -> None:
    assert signed(difference) == text
