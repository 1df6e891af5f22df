"""The paper's printed values beside a store's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetscope.analysis.exhibits import TABLES
from forgetscope.analysis.paper.printed import beside_paper, deviations, overlap
from forgetscope.analysis.paper.tables import matching
from forgetscope.analysis.results import Analysis

ends = st.integers(-50, 50)


@given(ends, ends, ends, ends)
def test_intervals_overlap_if_some_point_lies_in_both(a: int, b: int, c: int, d: int) -> None:
    first, second = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    common = set(range(first[0], first[1] + 1)) & set(range(second[0], second[1] + 1))
    assert overlap(first, second) == overlap(second, first) == bool(common)


def test_an_unknown_end_leaves_it_open() -> None:
    assert overlap((0.1, math.nan), (0.0, 1.0)) is None


def test_a_store_of_the_papers_settings_is_set_beside_it(same: Analysis) -> None:
    assert deviations(same.collection.samples[0]) == ()
    beside = beside_paper(same.tables, same.collection)
    assert set(beside) == set(TABLES) - {"controlled_experiments"}  # nothing was run again
    ours = matching(same.tables["FG-R_FG-HSG_overall"], subset="2", quantity="FG-R")
    row = beside["FG-R_FG-HSG_overall"].loc[ours.index[0]]
    assert (row["paper"], row["paper_lo"], row["paper_hi"], row["paper_sd"]) == (0.59, 0.57, 0.60, 0.15)  # as printed
    assert row["difference"] == pytest.approx(ours["mean"].iloc[0] - 0.59)
    apart = ours["mean_hi"].iloc[0] < 0.57 or ours["mean_lo"].iloc[0] > 0.60
    assert row["overlap"] == ("no" if apart else "yes")


def test_of_an_anova_partial_eta_squared_is_compared(same: Analysis) -> None:
    ours = matching(same.tables["anova_SIC"], subset="2", response="rho", factor="rehearsal")
    row = beside_paper(same.tables, same.collection)["anova_SIC"].loc[ours.index[0]]
    assert (row["paper"], row["paper_p"], row["overlap"]) == (0.06, 2.67e-5, "")
    assert row["difference"] == pytest.approx(ours["eta2p"].iloc[0] - 0.06)


def test_other_settings_are_named_and_not_compared(analysed: Analysis) -> None:
    told = deviations(analysed.collection.samples[0])
    assert told is not None
    assert any(text.startswith("epochs = ") and text.endswith("(paper: 170)") for text in told)
    assert beside_paper(analysed.tables, analysed.collection) == {}
