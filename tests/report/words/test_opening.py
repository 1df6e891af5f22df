"""The first sentences of a benchmark: what is named is borne out, and nothing is concluded from classes barely learned."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from forgetscope.analysis.inputs.cache import Cache
from forgetscope.analysis.questions.example import Example, PastClass
from forgetscope.analysis.questions.learned_classes import LearnedClasses, Ranking, learned_classes, ranked, ranking
from forgetscope.analysis.questions.noise import noise
from forgetscope.analysis.results import Analysis
from forgetscope.analysis.rows import matching, records
from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.report.words.headlines import headlines
from forgetscope.report.words.opening import opening, predicted

COUNTS = np.full(8, 20)
APART = list("abcdefgh")  # eight sequences of classes
POOLED = {"subset": "2", "rehearsal_pct": "", "class_pct": ""}
KNOWN = Estimate(0.5, 0.4, 0.6, 8)
LEARNED = LearnedClasses(
    **{"shared": False, "past": 80, "barely": 0, "barely_ids": frozenset()},
    **{"accuracy": Estimate(0.72, 0.7, 0.74, 8), "now": Estimate(0.41, 0.4, 0.42, 8)},
    **{"range": KNOWN, "range_floor": 0.29, "half_gap": KNOWN, "half_gap_floor": 0.1},
    **{"variance": Estimate(0.02, 0.01, 0.03, 8), "spread": KNOWN, "reliability": KNOWN, "ceiling": KNOWN},
)  # type: ignore[arg-type]


def past(name: str, forgetting: float, barely: bool = False) -> PastClass:
    return PastClass(1, name, forgetting, 0.7, 0.7 * (1 - forgetting), forgetting - 0.1, forgetting + 0.1, barely, ())


PICTURE = Example("a" * 64, 0, "8", "10", 10, 0.52, 0.29, (past("otter", 0.61), past("wardrobe", 0.09), past("odd", -26, True)))


def around(means: dict[str, float], wobble: float) -> Ranking:
    """Of eight steps whose correlations stray by so much, each in its own way."""
    strays = {name: wobble * np.random.default_rng(i).standard_normal(8) for i, name in enumerate(means)}
    found = ranked({name: np.tanh(mean + strays[name]) for name, mean in means.items()}, COUNTS, APART)
    assert found is not None
    return found


def test_the_best_is_named_where_it_is_clearly_ahead() -> None:
    found = around({"SIC": 0.9, "CIC": 0.1, "NIC": 0.3}, 0.05)
    assert found.verdict == "best"
    assert predicted(found).startswith(
        "What predicted it best is SIC, how far a class's own few stored images mislead training ("
    )


def test_what_is_not_clearly_ahead_is_not_called_the_best() -> None:
    found = around({"SIC": 0.5, "CIC": -0.2, "NIC": 0.49}, 0.2)
    assert found.verdict == "alike"
    assert "SIC and NIC predict it alike" in predicted(found).replace("NIC and SIC", "SIC and NIC")
    unclear = ranked({"SIC": np.full(8, 0.3) + 0.01 * np.arange(8), "CIC": np.tile([0.8, -0.5], 4)}, COUNTS, APART)
    assert unclear is not None
    assert unclear.verdict == "unclear"
    assert "though not clearly better than" in predicted(unclear)
    assert not any("best" in predicted(one) for one in (found, unclear))


def test_none_is_named_where_intervals_include_0() -> None:
    found = around({"SIC": 0.05, "CIC": 0.0, "NIC": -0.05}, 0.5)
    assert found.verdict == "none"
    assert predicted(found).endswith("(intervals include 0, n = 8).")


def test_one_step_predicts_nothing() -> None:
    found = ranked({name: np.array([rho]) for name, rho in (("SIC", 0.9), ("CIC", 0.1), ("NIC", 0.2))}, np.array([10]), ["a"])
    assert found is not None
    assert found.verdict == "too few"
    assert predicted(found).startswith("What predicts it cannot be said from one step")
    assert predicted(None).startswith("What predicts it cannot be said")


def test_the_difference_is_paired_over_the_steps_in_which_both_are_known() -> None:
    first, second = np.random.default_rng(0).uniform(-0.5, 0.9, (2, 8))
    first[2], second[5] = math.nan, math.nan
    found = ranked({"SIC": first, "CIC": second}, COUNTS, APART)
    assert found is not None
    assert found.difference is not None
    high, low = (first, second) if found.order[0] == "SIC" else (second, first)
    both = ~np.isnan(first + second)
    expected = stats.ttest_rel(np.arctanh(high[both]), np.arctanh(low[both])).confidence_interval(0.95)
    assert (found.difference.low, found.difference.high) == pytest.approx((expected.low, expected.high))
    assert found.difference.n == 6


def test_steps_of_one_sequence_of_classes_count_as_one_in_intervals() -> None:
    """Three retentions of each of five sequences are no fifteen independent steps: Student's t over the means of sequences."""
    rng = np.random.default_rng(1)
    roots = [letter for letter in "abcde" for _ in range(3)]
    in_z = {
        name: np.repeat(rng.normal(mean, 0.3, 5), 3) + rng.normal(0, 0.05, 15) for name, mean in (("SIC", 0.7), ("CIC", 0.2))
    }
    found = ranked({name: np.tanh(z) for name, z in in_z.items()}, np.full(15, 20), roots)
    assert found is not None
    for name, z in in_z.items():
        means = z.reshape(5, 3).mean(axis=1)
        low, high = stats.t.interval(0.95, 4, means.mean(), stats.sem(means))
        assert (found.rho[name].low, found.rho[name].high) == pytest.approx((math.tanh(low), math.tanh(high)))
        assert found.rho[name].n == 5
    gaps = (in_z["SIC"] - in_z["CIC"]).reshape(5, 3).mean(axis=1)
    assert found.difference is not None
    assert found.difference.low == pytest.approx(stats.ttest_1samp(gaps, 0).confidence_interval(0.95).low)
    assert "n = 5 sequences of classes" in predicted(found)


def test_means_of_a_paired_design_rest_on_its_sequences_of_classes(analysed: Analysis) -> None:
    sample = next(one for one in analysed.collection.samples if one.benchmark == "C100")
    chosen = np.flatnonzero(sample.number == 2)
    roots = list(sample.root)
    for place, i in enumerate(chosen.tolist()):
        roots[i] = f"sequence {place // 3}"
    together = replace(sample, root=roots)
    found, apart = learned_classes(together, 2), learned_classes(sample, 2)
    means = sample.values["FG-R", "value"][chosen].reshape(-1, 3).mean(axis=1)
    low, high = stats.t.interval(0.95, len(means) - 1, means.mean(), stats.sem(means))
    assert (found.range.low, found.range.high) == pytest.approx((low, high))
    assert found.range.value == pytest.approx(apart.range.value)
    assert (found.range.n, found.shared, apart.range.n, apart.shared) == (len(means), True, len(chosen), False)
    assert found.reliability.n == found.ceiling.n == len(means)
    (noise_together,) = records(matching(noise(replace(analysed.collection, samples=[together]), Cache(None)), **POOLED))
    assert [noise_together[f"variance{end}"] for end in ("", "_lo", "_hi")] == pytest.approx(
        [found.variance.value, found.variance.low, found.variance.high]
    )


def test_the_lead_says_what_was_known_and_is_known_and_how_unevenly() -> None:
    assert opening(LEARNED, PICTURE, None).lead == (
        "Learning new classes took accuracy on past ones from 72\u202f% to 41\u202f% on average; in the step shown, "
        "which learned 10 new classes, the network lost 61\u202f% of what it knew of otter, but lost 9\u202f% of wardrobe: "
        "52 points apart, where noise of the test images alone would show 29."
    )


def test_the_lead_calls_nothing_uneven_that_noise_can_be() -> None:
    even = replace(LEARNED, variance=Estimate(0.001, -0.01, 0.012, 8))
    said = opening(even, replace(PICTURE, range=0.3), None).lead
    assert "evenly as far as can be told" in said
    assert "otter and wardrobe, are 30 points apart, where noise of the test images alone would show 29" in said


def test_what_was_barely_learned_is_said_first_and_concluded_from_nowhere() -> None:
    some = opening(replace(LEARNED, barely=3), PICTURE, None)
    assert some.caution.startswith("3 of 80 past classes were barely learned")
    assert "otter" in some.lead
    assert "odd" not in some.lead
    many = opening(replace(LEARNED, barely=40, accuracy=Estimate(0.12, 0.1, 0.14, 8)), PICTURE, around({"SIC": 0.9}, 0.05))
    assert "nothing is concluded from these steps" in many.caution
    assert many.lead.startswith("When they were new, past classes were recognised 12\u202f% of the time")
    assert many.predicted == "Nothing is concluded about what predicts it."


def test_where_all_classes_were_learned_the_numbers_are_those_of_the_tables(analysed: Analysis) -> None:
    sample = next(one for one in analysed.collection.samples if one.benchmark == "C100")
    found, rated = learned_classes(sample, 2), ranking(sample, 2)
    assert found.barely == 0
    where = {"benchmark": "C100", "subset": "2"}
    (extent, gap) = records(matching(analysed.tables["FG-R_FG-HSG_overall"], **where))
    assert (found.range.value, found.half_gap.low) == pytest.approx((extent["mean"], gap["mean_lo"]))
    (noise,) = records(matching(analysed.more["noise"], **where, rehearsal_pct="", class_pct=""))
    own = (found.range_floor, found.spread.value, found.reliability.low, found.ceiling.value)
    assert own == pytest.approx(tuple(noise[name] for name in ("FG-R_floor", "spread", "reliability_lo", "ceiling")))
    assert rated is not None
    table = matching(analysed.tables["spearman_individual_coefficients"], **where, statistic="rho")
    for row in records(table):
        assert rated.rho[row["quantity"]].value == pytest.approx(row["mean"])


def test_the_step_shown_is_the_nearest_to_the_median_of_those_drawn(analysed: Analysis) -> None:
    first = headlines(analysed)[0]
    assert first.picture is not None
    frame = next(frame for label, frame in analysed.figures.items() if "swarm" in label and len(frame))
    steps = frame[(frame["benchmark"] == "C100") & (frame["subset"] == "2")].groupby("step_id")["forgetting"]
    extents = steps.max() - steps.min()
    assert first.picture.range == pytest.approx(extents[first.picture.step])
    assert abs(extents - extents.median()).min() == pytest.approx(abs(first.picture.range - extents.median()))
    forgetting = [one.forgetting for one in first.picture.classes]
    assert forgetting == sorted(forgetting, reverse=True)
    assert [bool(one.taken_for) for one in first.picture.classes[:4]] == [True, True, True, False]
    worst = first.picture.classes[0]
    assert worst.forgetting == pytest.approx(1 - worst.now / worst.learned)
    assert sum(taken.share for taken in worst.taken_for) <= 1 - worst.now + 1e-9
    assert worst.low < worst.forgetting < worst.high
