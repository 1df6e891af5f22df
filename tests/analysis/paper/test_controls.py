"""What overall partial correlations are given: the other two, or as in the paper ALL-NIC too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forgetscope.analysis.results import Analysis, analyse
from forgetscope.analysis.rows import matching
from forgetscope.analysis.statistics.pooling import mean_of
from forgetscope.analysis.statistics.rank_correlation import partial_spearman
from forgetscope.errors import SpecError
from forgetscope.report.document import analysis_document
from forgetscope.report.exhibited import exhibited
from forgetscope.report.words.captions import GIVEN, GIVEN_ALL, caption, notes
from forgetscope.report.words.methods import paragraphs

OVERALL, GRID = "spearman_individual_coefficients", "spearman_SIC"


@pytest.fixture(scope="module")
def given_all(paper_store: Path) -> Analysis:
    return analyse(paper_store, controls="paper", tables=[OVERALL, GRID], resamples=100, cached=False)


@pytest.mark.parametrize(("name", "others"), [("SIC", (1, 2, 3)), ("CIC", (0, 2, 3)), ("NIC", (0, 1))])
def test_sic_and_cic_are_also_given_all_nic_where_the_paper_does(
    given_all: Analysis, name: str, others: tuple[int, ...]
) -> None:
    sample = given_all.collection.samples[0]
    mask = sample.mask(sample.subsets[0])
    own, found = ("SIC", "CIC", "NIC").index(name), []
    for step in (sample.steps[i] for i in np.flatnonzero(mask)):
        measures = step.measures[:, step.complete]
        found.append(partial_spearman(measures[own], step.ranked, measures[list(others)]))
    (row,) = matching(given_all.table(OVERALL), benchmark="C100", subset="2", quantity=name, statistic="rho_p").to_dict(
        "records"
    )
    assert row["mean"] == pytest.approx(mean_of("rho", np.array(found), sample.ranked[mask]).value)
    assert row["given"] == ", ".join(("SIC", "CIC", "NIC", "ALL-NIC")[i] for i in others)


def test_only_the_overall_table_changes_and_says_so(given_all: Analysis, analysed: Analysis) -> None:
    ours, theirs = analysed.table(OVERALL), given_all.table(OVERALL)
    changed = (ours["mean"] != theirs["mean"]).to_numpy()
    affected = ((ours["statistic"] == "rho_p") & ours["quantity"].isin(["SIC", "CIC"])).to_numpy()
    assert np.array_equal(changed, affected)
    assert given_all.table(GRID)["mean"].equals(analysed.table(GRID)["mean"])
    for analysis, note, word in ((analysed, GIVEN, "others"), (given_all, GIVEN_ALL, "paper")):
        shown = next(one for one in exhibited(analysis) if one.exhibit.label == OVERALL)
        assert notes(shown) == [note]
        assert note in caption(shown)
        assert analysis.controls == analysis_document(analysis)["controls"] == word
        assert ("also for ALL-NIC" in paragraphs(analysis)[-1]) == (word == "paper")


def test_other_words_are_refused(paper_store: Path) -> None:
    with pytest.raises(SpecError, match=r"controls = 'papers' is not known\. Did you mean 'paper'\?"):
        analyse(paper_store, controls="papers")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="coding = 'sums' is not known"):
        analyse(paper_store, coding="sums")  # type: ignore[arg-type]
