"""Beyond the paper's tables: differences, claims, early warning, calibration, advice; diverged, paired and grown stores."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from forgetscope.analysis.contrasts import neighbours
from forgetscope.analysis.results import Analysis, analyse
from forgetscope.analysis.statistics import Estimate
from forgetscope.analysis.tabulation import matching
from forgetscope.analysis.verdicts import above, below, near
from forgetscope.benchmark.simulation import Simulation, simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.truth import Truth
from forgetscope.store import Store

SMALL = {"experiments": 4, "epochs": 4, "increments": [0.1, 0.2], "retentions": [0.08, 0.2]}


def test_verdicts_follow_the_interval() -> None:
    assert [above(Estimate(v, v - 1, v + 1, 5)) for v in (2, 0, -2)] == ["confirmed", "undecided", "contested"]
    assert [below(Estimate(v, v - 1, v + 1, 5)) for v in (2, 0, -2)] == ["contested", "undecided", "confirmed"]
    assert [near(Estimate(v, v - 1, v + 1, 5), 1.5) for v in (0, 2, 4)] == ["confirmed", "undecided", "contested"]
    assert above(Estimate(1.0, math.nan, math.nan, 1)) == "undecided"


def test_third_steps_are_compared_with_second_steps_of_the_same_increments(analysed: Analysis) -> None:
    sample = analysed.collection.samples[0]
    ((earlier, later),) = neighbours(sample)
    assert (str(earlier), str(later)) == ("2_10_20", "3")
    values = sample.values["FG-R", "value"]
    test = stats.ttest_ind(values[sample.mask(later)], values[sample.mask(earlier)], equal_var=False)
    frame = matching(analysed.more["comparisons"], comparison="steps", test="Welch", benchmark="C100", quantity="FG-R")
    assert frame["p"].tolist() == pytest.approx([test.pvalue])
    in_z = matching(analysed.more["comparisons"], comparison="data sets", subset="3", quantity="NIC", statistic="rho")
    z = [np.arctanh(s.values["NIC", "rho"][s.number == 3]) for s in analysed.collection.samples]
    assert in_z["difference"].tolist() == pytest.approx([z[1].mean() - z[0].mean()])
    assert in_z["scale"].tolist() == ["z"]


def test_every_claim_has_a_verdict_and_a_sentence_with_numbers(analysed: Analysis) -> None:
    claims, detail = analysed.more["claims"], analysed.more["claims_in_detail"]
    assert len(claims) > 35
    assert set(claims["verdict"]) <= {"confirmed", "contested", "undecided"}
    assert claims["sentence"].str.contains(r"n = \d").all()
    assert claims["asked"].sum() == len(detail)
    assert "FG-R is larger on the harder data set" in set(claims["claim"])


def test_early_warnings_are_out_of_sample_and_better_than_chance(analysed: Analysis) -> None:
    frame = matching(analysed.more["early_warning"], benchmark="TIN", subset="2", share=1.0, group="most forgotten quarter")
    assert frame["predictor"].tolist() == ["all_coefficients", "SIC", "CIC", "NIC"]
    assert (frame["auc"] > 0.5).all()
    assert (frame["n"] == 27).all()
    assert (frame["auc_lo"] < frame["auc"]).all()
    assert sorted(analysed.more["early_warning"]["share"].unique()) == [0.1, 0.25, 0.5, 1.0]


def test_predicted_forgetting_is_calibrated_where_the_model_is_true(analysed: Analysis) -> None:
    frame = matching(analysed.more["calibration"], benchmark="TIN", subset="2")
    assert frame["bin"].tolist() == [*map(str, range(1, 11)), "slope", "intercept"]
    (slope,) = frame.loc[frame["bin"] == "slope", "observed"]
    assert slope == pytest.approx(1, abs=0.25)
    bins = frame[frame["predicted"].notna()]
    assert np.corrcoef(bins["predicted"], bins["observed"])[0, 1] > 0.95


def test_advice_says_how_many_steps_narrower_intervals_need(analysed: Analysis) -> None:
    sizes = analysed.more["sample_sizes"]
    assert (sizes["needed_n"] > 3).any()
    assert analysed.more["left_out"]["steps"].tolist() == [27, 18, 27, 18]


def test_diverged_steps_are_counted_and_in_no_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, lost = Simulation.record, []

    def record(self: Simulation, chain):  # type: ignore[no-untyped-def]
        made = original(self, chain)
        if chain[-1].spec.step == 3 and not lost:
            lost.append(made.id)
            return replace(made, divergence={"epoch": 1, "iteration": 7, "loss": "nan"})
        return made

    monkeypatch.setattr(Simulation, "record", record)
    simulate(BenchmarkSpec.load("glyphs", SMALL), Store(tmp_path), reruns=0)
    told = analyse(tmp_path, resamples=200, cached=False)
    (row,) = matching(told.tables["FG-R_FG-HSG_overall"], subset="3", quantity="FG-R").to_dict("records")
    assert (row["n"], row["diverged"]) == (15, 1)
    grid = matching(told.tables["spearman_SIC"], subset="3", statistic="rho")
    assert grid[(grid["rehearsal_pct"] != "pooled") & (grid["class_pct"] != "pooled")]["diverged"].sum() == 1


def test_a_paired_design_is_compared_in_pairs(tmp_path: Path) -> None:
    spec = BenchmarkSpec.load("glyphs", {**SMALL, "policies": ["uniform", "herding"], "design": "paired", "steps": 2})
    simulate(spec, Store(tmp_path), reruns=0)
    told = analyse(tmp_path, resamples=200, cached=False).more["comparisons"]
    retentions = matching(told, comparison="retentions", quantity="FG-R", class_pct="10", policy="uniform")
    assert (retentions["rehearsal_pct"].tolist(), retentions["n"].tolist()) == (["20 against 8"], [4])
    policies = matching(told, comparison="policies", quantity="FG-R", class_pct="10", rehearsal_pct="8")
    assert (policies["policy"].tolist(), policies["against"].tolist(), policies["n"].tolist()) == (
        ["herding"],
        ["uniform"],
        [4],
    )


def test_a_store_that_grew_gives_what_a_fresh_analysis_gives(tmp_path: Path) -> None:
    store = Store(tmp_path)
    simulate(BenchmarkSpec.load("glyphs", {**SMALL, "experiments": 3}), store, reruns=2)
    analyse(store, resamples=200)
    simulate(BenchmarkSpec.load("glyphs", SMALL), store, reruns=2)
    grown, fresh = analyse(store, resamples=200), analyse(store, resamples=200, cached=False)
    for label, frame in fresh.tables.items():
        assert frame.equals(grown.tables[label]), label
    again = analyse(store, resamples=200, joint_over_time=True)
    assert again.tables["coefficients"].equals(fresh.tables["coefficients"])
    last = matching(again.more["joint_over_time"], subset="2", probes=5)["mean"].tolist()
    joint = matching(again.tables["SW-LOO_protocol"], subset="2", quantity="all_coefficients")["mean"].tolist()
    assert last == pytest.approx(joint, abs=1e-6)


@pytest.mark.slow
def test_a_known_truth_is_recovered(tmp_path: Path) -> None:
    truth = Truth(slope_sd=0.05, noise=0.5)
    spec = BenchmarkSpec.load("tiny-imagenet", {"experiments": 25, "epochs": 4, "increments": [0.2], "retentions": [0.08, 0.2]})
    simulate(spec, Store(tmp_path), truth=truth, reruns=19)
    told = analyse(tmp_path, resamples=2000, cached=False)
    expected = truth.expected_correlations()
    for name in ("SIC", "CIC", "NIC"):
        estimate = told.estimate("spearman_individual_coefficients", subset="2", quantity=name, statistic="rho")
        assert estimate.value == pytest.approx(expected[name.lower()], abs=0.05)
    covariance = float(truth.effects @ truth.correlation @ truth.effects) + 3 * truth.slope_sd**2 + truth.noise**2
    scale = math.sqrt(covariance + truth.intercept_sd**2)
    weights = matching(told.tables["coefficients"], subset="2", rehearsal_pct="20")["mean"].to_numpy()
    assert weights == pytest.approx(truth.effects / scale, abs=0.04)
    rerun = told.tables["controlled_experiments"]["mean"]
    assert rerun.mean() == pytest.approx(truth.rerun_sic_nic, abs=0.08)
