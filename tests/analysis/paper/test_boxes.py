from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.cbook import boxplot_stats

from forgetscope.analysis.exhibits.figures import CONTROLLED
from forgetscope.analysis.paper.points import CONTROL, boxes
from forgetscope.analysis.results import Analysis


def test_boxes_are_those_that_matplotlib_would_draw(analysed: Analysis) -> None:
    control = analysed.figures[CONTROLLED.label]
    found = analysed.more["controlled_boxes"]
    groups = list(control.groupby(list(CONTROL[:5]), sort=False))
    assert len(found) == len(groups) == 24
    for row, (key, group) in zip(found.to_dict("records"), groups, strict=True):
        (oracle,) = boxplot_stats(group["rho"].dropna().to_numpy())
        assert tuple(row[name] for name in CONTROL[:5]) == key
        assert row["n"] == group["rho"].notna().sum()
        names = {"whislo": "whisker_lo", "q1": "quartile_lo", "med": "median", "q3": "quartile_hi", "whishi": "whisker_hi"}
        for theirs, ours in names.items():
            assert row[ours] == pytest.approx(oracle[theirs])


def test_an_outlier_is_beyond_the_whisker_and_a_class_without_a_correlation_counts_nothing() -> None:
    rho = [-0.9, 0.4, 0.5, 0.5, 0.6, np.nan]
    frame = pd.DataFrame([("C100", "uniform", "2", "8", "10", i, value, 5) for i, value in enumerate(rho)], columns=CONTROL)
    (row,) = boxes(frame).to_dict("records")
    assert (row["whisker_lo"], row["median"], row["whisker_hi"], row["n"]) == (0.4, 0.5, 0.6, 5)
    assert boxes(frame[:0]).empty
