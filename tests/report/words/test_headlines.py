"""What is said of a benchmark is what its tables hold."""

from __future__ import annotations

import pytest

from forgetscope.analysis.questions.learned_classes import Ranking
from forgetscope.analysis.results import Analysis
from forgetscope.analysis.rows import matching, records
from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.report.words.headlines import headlines
from forgetscope.report.words.notation import PLAIN


def test_weights_are_told_with_their_t_intervals(analysed: Analysis) -> None:
    frame = analysed.tables["coefficients"]
    weights = records(matching(frame, benchmark="C100", subset="2", quantity="NIC"))
    assert len(weights) == 9
    fitted = [row for row in weights if row["n"] > 2]
    smallest, largest = (pick(fitted, key=lambda row: row["mean"]) for pick in (min, max))
    told = " to ".join(
        f"{PLAIN.number(row['mean'])} {PLAIN.interval(row['mean_lo'], row['mean_hi'])}" for row in (smallest, largest)
    )
    above = sum(row["mean_lo"] > 0 for row in fitted)
    (said,) = [text for text in headlines(analysed)[0].sentences if text.startswith("Their standardised weights")]
    assert f"; NIC {told}, with its whole interval above 0 in {above} of {len(fitted)}." in said


def test_the_table_of_weights_has_the_intervals_that_claims_are_judged_by(analysed: Analysis) -> None:
    asked = {"benchmark": "C100", "subset": "2"}
    claim = "NIC has a positive weight in every partition"
    (judged,) = records(matching(analysed.more["claims_in_detail"], claim=claim, **asked))
    weights = records(matching(analysed.tables["coefficients"], quantity="NIC", **asked))
    smallest = min(weights, key=lambda row: row["mean"])
    assert [smallest[name] for name in ("mean", "mean_lo", "mean_hi")] == [judged[name] for name in ("value", "low", "high")]


def test_a_card_names_the_best_predictor_only_where_intervals_bear_it_out(
    analysed: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forgetscope.report.words import headlines as module

    first, second = "NIC", "SIC"
    rho = {first: Estimate(0.5, 0.4, 0.6, 9), second: Estimate(0.3, 0.2, 0.4, 9)}
    expected = {
        "best": "Best predictor: NIC",
        "alike": "Predict alike: NIC and SIC",
        "unclear": "Predicts it, if not clearly best: NIC",
        "none": None,
        "too few": None,
    }
    for verdict, label in expected.items():
        made = Ranking((first, second), rho, Estimate(0.2, 0.1, 0.3, 9), verdict)  # type: ignore[arg-type]
        monkeypatch.setattr(module, "ranking", lambda sample, number, made=made: made)
        cards = [card.label for card in headlines(analysed)[0].cards]
        assert (label in cards) if label else not any("redict" in one for one in cards)


def test_nothing_knows_early_what_it_does_not_know_in_the_end(analysed: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    from forgetscope.report.words import headlines as module

    cards = [card.label for card in headlines(analysed)[0].cards]
    assert any(label.endswith("knows from") for label in cards)
    rho = {name: Estimate(0.1, -0.2, 0.3, 9) for name in ("SIC", "CIC", "NIC")}
    monkeypatch.setattr(module, "ranking", lambda sample, number: Ranking(tuple(rho), rho, None, "none"))
    first = headlines(analysed)[0]
    assert not any(card.label.endswith("knows from") for card in first.cards)
    assert not any("final strength" in sentence for sentence in first.sentences)


def test_controlled_experiments_are_told(analysed: Analysis) -> None:
    runs = [found for found in analysed.collection.reruns if (found.sample.benchmark, found.cell.step) == ("C100", 2)]
    (said,) = [text for text in headlines(analysed)[0].sentences if text.startswith("With other new classes")]
    for found in runs:
        rho = found.correlations()[0]
        kept, new = found.cell.retention, found.cell.increment
        assert f"of a step with {kept}\u202f% kept and {new}\u202f% new, positive for {(rho > 0).sum()} of {len(rho)}" in said
    assert said.count("positive for") == len(runs) == 6  # increments of half of the classes leave no choice
    assert said in analysed.reading
