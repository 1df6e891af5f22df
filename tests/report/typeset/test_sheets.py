from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.results import Analysis
from forgetscope.report.exhibited import Shown
from forgetscope.report.typeset.ink import TEXT, printing
from forgetscope.report.typeset.layout import TableCell, lay_out
from forgetscope.report.typeset.sheets import MARGIN, PAPER, WIDTH, Pages, PrintNotation, text_width, wrapped
from forgetscope.report.words.captions import caption


@given(st.text(st.sampled_from("aWi$_ρ \u202f"), max_size=200), st.floats(20, 300))
def test_lines_fit_and_lose_nothing(text: str, width: float) -> None:
    lines = list(wrapped(text, width, 7))
    assert all(text_width(line, 7) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_percentage_is_not_torn_apart() -> None:
    assert list(wrapped("with 95\u202f% intervals", text_width("with 95", 7), 7))[:2] == ["with", "95\u202f%"]


@pytest.mark.slow
@pytest.mark.parametrize("label", ["spearman_individual_coefficients", "anova_SIC"])
def test_every_cell_of_a_table_is_on_the_page_and_none_covers_another(analysed: Analysis, label: str) -> None:
    shown = Shown(TABLES[label], analysed.tables[label])
    with printing():
        pages = Pages()
        pages.tabulate(f"Table 1. {caption(shown)}", lay_out(shown, PrintNotation()))
        (page,) = pages.figures
        boxes = extents(page)
    lines = lay_out(shown, PrintNotation()).lines
    above = list(wrapped(f"Table 1. {caption(shown)}", WIDTH * 72, TEXT))
    expected = [text for line in lines for cell in line.cells for text in cell.text.split("\n") if text]
    assert sorted(expected + above) == sorted(text for text, _ in boxes)
    edges = [MARGIN - 0.01, MARGIN, PAPER[0] - MARGIN + 0.01, PAPER[1] - MARGIN + 0.01]
    for text, (left, bottom, right, top) in boxes:
        assert (left >= edges[0], bottom >= edges[1], right <= edges[2], top <= edges[3]) == (True,) * 4, text
    for i, (text, one) in enumerate(boxes):
        for other_text, other in boxes[:i]:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            assert apart, (text, other_text)


def extents(page: Figure) -> list[tuple[str, tuple[float, float, float, float]]]:
    """Texts with their left, lower, right and upper edge in inches."""
    renderer = FigureCanvasAgg(page).get_renderer()
    found = []
    for text in page.texts:
        box = text.get_window_extent(renderer)
        found.append((text.get_text(), tuple(edge / page.dpi for edge in (box.x0, box.y0, box.x1, box.y1))))
    return [(text, box) for text, box in found if text]


def test_a_table_longer_than_a_page_goes_on_below_its_head(analysed: Analysis) -> None:
    frame = analysed.tables["spearman_SIC"]
    long = pd.concat([frame.assign(benchmark=frame["benchmark"] + f" {i}") for i in range(3)])
    with printing():
        pages = Pages()
        pages.tabulate("Table 9.", lay_out(Shown(TABLES["spearman_SIC"], long), PrintNotation()))
    assert len(pages.figures) > 1
    for page in pages.figures:
        assert "10\u202f% classes" in [text.get_text() for text in page.texts]
        assert min(text.get_position()[1] for text in page.texts) * PAPER[1] >= MARGIN
    drawn = sum(text.get_text() == "SIC ρ" for page in pages.figures for text in page.texts)
    assert drawn == 3 * sum(
        line.cells[1:2] == (TableCell("SIC ρ"),)
        for line in lay_out(Shown(TABLES["spearman_SIC"], frame), PrintNotation()).lines
    )


def test_pages_carry_their_number_and_an_empty_table_says_so(analysed: Analysis) -> None:
    with printing():
        pages = Pages()
        empty = Shown(TABLES["coefficients"], analysed.tables["coefficients"][:0])
        pages.tabulate(f"Table 18. {caption(empty)}", lay_out(empty, PrintNotation()))
        pages.turn()
        pages.number()
    first, second = ([text.get_text() for text in page.texts] for page in pages.figures)
    assert first == [f"Table 18. {TABLES['coefficients'].title}.", "Nothing in the store belongs here.", "1 of 2"]
    assert second == ["2 of 2"]
