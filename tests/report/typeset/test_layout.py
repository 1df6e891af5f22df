"""Tables as lines of cells: ours beside what the paper prints."""

from __future__ import annotations

import pandas as pd
import pytest

from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.paper.cells import tidy
from forgetscope.analysis.paper.printed import COLUMNS
from forgetscope.analysis.results import Analysis
from forgetscope.report.exhibited import Shown, exhibited
from forgetscope.report.typeset.latex import latex_beside
from forgetscope.report.typeset.layout import Line, TableCell, lay_out_beside
from forgetscope.report.words.captions import caption_beside
from forgetscope.report.words.notation import LATEX, PLAIN, Notation

NAN = float("nan")
LABEL = "spearman_individual_coefficients"


def compared(*rows: tuple[str, float, float, float, float, str]) -> tuple[Shown, pd.DataFrame]:
    """Rows: quantity, ours with its interval, the paper's, whether they overlap."""
    common = {"benchmark": "C100", "subset": "2", "statistic": "rho", "policy": "uniform", "sd": 0.2}
    ours = [{"quantity": name, "mean": m, "mean_lo": lo, "mean_hi": hi, **common} for name, m, lo, hi, _, _ in rows]
    printed = [(paper, 0.6, 0.7, 0.1, NAN, m - paper, overlap) for _, m, _, _, paper, overlap in rows]
    beside = pd.DataFrame(printed, columns=list(COLUMNS))
    return Shown(TABLES[LABEL], tidy(LABEL, ours), beside), beside


def test_a_line_holds_ours_the_papers_the_difference_and_whether_intervals_overlap() -> None:
    tables = compared(
        ("SIC", 0.7, 0.65, 0.75, 0.65, "yes"), ("CIC", 0.5, 0.4, 0.55, 0.65, "no"), ("NIC", 0.5, 0.4, 0.55, NAN, "")
    )
    head, benchmark, step, *rows = lay_out_beside(*tables, PLAIN).lines
    assert [cell.text for cell in head.cells] == ["", "ours", "paper", "ours − paper", "intervals overlap"]
    assert benchmark == Line("benchmark", (TableCell("C100", 5),))
    assert step == Line("step", (TableCell("step 2", 5),))
    assert [[cell.text for cell in row.cells] for row in rows] == [
        ["SIC ρ", "0.70 ± 0.20 (0.65, 0.75)", "0.65 ± 0.10 (0.60, 0.70)", "+0.05", "yes"],
        ["CIC ρ", "0.50 ± 0.20 (0.40, 0.55)", "0.65 ± 0.10 (0.60, 0.70)", "−0.15", "no"],
    ]
    assert "1 of 2 pairs of intervals overlap" in caption_beside(*tables)
    assert r"SIC $\rho$ & $0.70$ $\pm$ $0.20$ ($0.65$, $0.75$) & $0.65$ $\pm$ $0.10$ ($0.60$, $0.70$) & $+0.05$ & yes \\" in (
        latex_beside(tables[0]).splitlines()
    )


@pytest.mark.parametrize("notation", [PLAIN, LATEX])
def test_every_value_that_the_paper_prints_has_one_line(same: Analysis, notation: Notation) -> None:
    found = [(shown, shown.beside) for shown in exhibited(same) if shown.exhibit.kind == "table"]
    assert any(beside is not None for _, beside in found)
    for shown, beside in found:
        if beside is None:
            continue
        layout = lay_out_beside(shown, beside, notation)
        rows = [line for line in layout.lines if line.role == "row"]
        assert len(rows) == beside["paper"].notna().sum() > 0
        assert all(sum(cell.span for cell in line.cells) == len(layout.columns) for line in layout.lines)


def test_effects_are_compared_by_size_with_both_probabilities_and_a_word_on_coding(same: Analysis) -> None:
    shown = next(shown for shown in exhibited(same) if shown.exhibit.label == "anova_SIC")
    assert shown.beside is not None
    layout = lay_out_beside(shown, shown.beside, PLAIN)
    assert [cell.text for cell in layout.lines[0].cells] == [
        *("Factor", "", "η²ₚ ours", "η²ₚ paper", "ours − paper", "p ours", "p paper")
    ]
    first = next(line for line in layout.lines if line.role == "row")
    assert [cell.text for cell in first.cells][:2] == ["Retention", "SIC ρ"]
    assert (first.cells[3].text, first.cells[6].text) == ("0.06", "2.67 · 10⁻⁵")  # as printed
    assert "different questions" in caption_beside(shown, shown.beside)
