"""What is said of a benchmark is what its tables hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forgetscope.analysis.questions.learned_classes import Ranking
from forgetscope.analysis.results import Analysis, analyse
from forgetscope.analysis.rows import matching, records
from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.report.words.headlines import headlines
from forgetscope.report.words.notation import PLAIN


def as_if_trained(analysis: Analysis) -> Analysis:
    """The same numbers, as those of networks."""
    samples = [replace(sample, simulated=None) for sample in analysis.collection.samples]
    return replace(analysis, collection=replace(analysis.collection, samples=samples))


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
        made = Ranking((first, second), rho, Estimate(0.2, 0.1, 0.3, 9), verdict, False)  # type: ignore[arg-type]
        monkeypatch.setattr(module, "ranking", lambda sample, number, made=made: made)
        cards = [card.label for card in headlines(as_if_trained(analysed))[0].cards]
        assert (label in cards) if label else not any("redict" in one for one in cards)
        simulated = [card.label for card in headlines(analysed)[0].cards]
        assert not any("redict" in one for one in simulated)  # nothing was found there


def test_nothing_knows_early_what_it_does_not_know_in_the_end(analysed: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    from forgetscope.report.words import headlines as module

    analysed = as_if_trained(analysed)
    cards = [card.label for card in headlines(analysed)[0].cards]
    assert any(label.endswith("knows from") for label in cards)
    rho = {name: Estimate(0.1, -0.2, 0.3, 9) for name in ("SIC", "CIC", "NIC")}
    monkeypatch.setattr(module, "ranking", lambda sample, number: Ranking(tuple(rho), rho, None, "none", False))
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


def test_a_headline_says_which_retentions_it_takes_together_and_that_it_is_simulated(analysed: Analysis) -> None:
    first = headlines(analysed)[0]
    assert f"{first.title}{first.pooled}" == analysed.reading.splitlines()[0]
    assert f"{first.title}{first.pooled}" == (
        "C100: 27 second steps (simulated: nothing was trained), retentions of 8\u202f%, 20\u202f% and 40\u202f% pooled"
    )


def test_accuracy_when_learned_and_now_stands_with_every_headline(analysed: Analysis) -> None:
    for one in headlines(analysed):
        then, now = (PLAIN.percent(estimate.value) for estimate in (one.learned, one.now))
        assert then in one.lead
        assert now in one.lead
        assert one.cards[0].value == f"{then}, {now}"


def test_a_measure_is_said_to_know_early_only_where_its_curve_has_settled_before_the_end(analysed: Analysis) -> None:
    """With five probes, the last but one being near the last is no reason to say that it knows from then on."""
    analysed = as_if_trained(analysed)
    kept = analysed.more["earliness"]
    for probes, said in ((4, "None of them has settled before the end"), (3, "on, within 0.02")):
        changed = replace(analysed, more={**analysed.more, "earliness": kept.assign(probes=probes)})
        first = headlines(changed)[0]
        knows = [card.label for card in first.cards if "knows from" in card.label]
        assert bool(knows) == (probes == 3)
        assert any(said in text for text in first.sentences) or probes == 3


def test_one_step_claims_nothing_about_measures(tiny_store: Path) -> None:
    for one in headlines(analyse(tiny_store, resamples=100, cached=False)):
        told = " ".join([*one.sentences, one.predicted, *(card.label for card in one.cards)])
        for word in ("redictor", "knows", "Given the other", "weights", "What predict"):
            assert word not in told.replace("What predicts it cannot be said", "").replace("about what predicts it", "")


def test_nothing_is_concluded_from_steps_whose_classes_were_barely_learned(analysed: Analysis) -> None:
    samples = [
        replace(sample, steps=[replace(step, barely=np.ones(len(step.class_ids), dtype=bool)) for step in sample.steps])
        for sample in analysed.collection.samples
    ]
    for one in headlines(replace(analysed, collection=replace(analysed.collection, samples=samples))):
        assert "barely learned" in one.caution
        assert one.sentences == []
        assert [card.label for card in one.cards] == ["Accuracy when learned, now"]
        assert not one.most
        assert one.predicted == "Nothing is concluded about what predicts it."
