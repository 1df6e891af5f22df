from __future__ import annotations

import math

import pandas as pd
import pytest

from forgetscope.lemma.summary import judged, summarise_lemma


def frame() -> pd.DataFrame:
    """Four classes at one iterate: the bound holds, fails, is too close to tell, and holds for a decrease that it promises."""
    rows = pd.DataFrame(
        {
            "epoch": 0,
            "class_name": list("abcd"),
            "draws": 10,
            "learning_rate": 0.5,
            "gradient_norm": [1.0, 2.0, 1.0, 1.0],
            "change": [0.2, 0.3, 0.4, -0.5],
            "change_error": 0.01,
            "first_order": [0.1, 0.2, 0.3, -0.6],
            "sic": [0.1, 0.4, 0.3, 0.4],  # over lambda |f|: 0.2, 0.4, 0.6, 0.8
            "cic": 0.0,
            "nic": 0.0,
            "fourth": [-0.1, -0.4, -0.3, -0.4],
            "draws_above": [0, 3, 0, 0],
            "first_order_deviation": [0.1, -2.5, 0.3, 1.0],
        }
    )
    curvature = [0.3, 0.05, 0.11, 0.2]
    for kind in ("every", "made", "estimated"):
        rows[f"curvature_{kind}"] = curvature
        rows[f"bound_{kind}"] = rows["first_order"] + rows[f"curvature_{kind}"]
    return rows


def test_a_verdict_needs_three_standard_errors() -> None:
    rows = judged(frame())
    assert rows["holds"].tolist() == ["yes", "no", "undecided", "yes"]
    assert rows["slack"].tolist() == pytest.approx([0.2, -0.05, 0.01, 0.1])


def test_a_second_order_change_within_its_error_says_nothing_about_looseness() -> None:
    rows = frame().assign(change_error=1.0)
    assert summarise_lemma(rows).verdicts["every"].looseness is None


def test_the_summary_counts_and_ranks() -> None:
    summary = summarise_lemma(frame())
    verdict = summary.verdicts["every"]
    assert (verdict.held, verdict.failed, verdict.undecided) == (2, 1, 1)
    assert verdict.looseness is not None
    assert verdict.looseness == pytest.approx((0.5, 1.55, 3.0))  # of 3, 0.5, 1.1 and 2
    assert (summary.decreases, verdict.decreases_promised) == (1, 1)
    assert (summary.classes, summary.epochs, summary.draws, summary.draws_above) == (4, (0,), 10, 3)
    assert (summary.deviation, summary.largest_deviation) == pytest.approx((math.sqrt((0.01 + 6.25 + 0.09 + 1) / 4), 2.5))
    # Changes rank 2, 3, 4, 1; SIC without the factor lambda |f_c| ranks 1, 2, 3, 4. By hand: 1 - 6 (1 + 1 + 1 + 9) / 60.
    assert summary.correlations["SIC"] == pytest.approx((-0.2,))
    assert summary.correlations["first-order terms"] == pytest.approx((1.0,))
    assert math.isnan(summary.correlations["CIC"][0])  # constant: there is no ranking
