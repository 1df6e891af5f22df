"""Beyond the paper's tables: differences, claims, early warning, calibration, advice; diverged, paired and grown stores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

from forgetscope.analysis.inputs.cache import Arrays, Cache
from forgetscope.analysis.inputs.samples import Sample, Subset
from forgetscope.analysis.paper.claims import _more_explained
from forgetscope.analysis.paper.comparisons import between_levels, neighbours, steadiness
from forgetscope.analysis.paper.joint_model import JointModels
from forgetscope.analysis.paper.verdicts import above, below, near
from forgetscope.analysis.questions.foresight import _ends
from forgetscope.analysis.results import Analysis, analyse
from forgetscope.analysis.rows import matching
from forgetscope.analysis.statistics.anova import anova
from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.analysis.statistics.mixed_models import fit, group_sums
from forgetscope.analysis.statistics.pooling import mean_of
from forgetscope.benchmark.simulation import Simulation, simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.truth import Truth
from forgetscope.store import Store
from made import make_experiment

SMALL = {"experiments": 4, "epochs": 2, "increments": [0.1, 0.2], "retentions": [0.08, 0.2]}


def test_verdicts_follow_the_interval() -> None:
    assert [above(Estimate(v, v - 1, v + 1, 5)) for v in (2, 0, -2)] == ["confirmed", "undecided", "contested"]
    assert [below(Estimate(v, v - 1, v + 1, 5)) for v in (2, 0, -2)] == ["contested", "undecided", "confirmed"]
    assert [near(Estimate(v, v - 1, v + 1, 5), 1.5) for v in (0, 2, 4)] == ["confirmed", "undecided", "contested"]
    assert above(Estimate(1.0, math.nan, math.nan, 1)) == "undecided"


def test_what_varies_less_is_steadier(analysed: Analysis) -> None:
    sample, subset = analysed.collection.samples[0], Subset(2)
    found = steadiness(sample, subset, ("FG-HG", "value"), ("FG-R", "value"))
    gaps, ranges = (sample.values[name, "value"][sample.mask(subset)] for name in ("FG-HG", "FG-R"))
    distances = [np.abs(values - np.median(values)).mean() for values in (ranges, gaps)]
    assert found.value == pytest.approx(distances[0] - distances[1])
    assert found.low > 0  # gaps between halves are averages


def test_more_is_explained_if_bootstrapped_steps_say_so() -> None:
    """Against the plain way: draw the steps of each cell again, and compare the two effects."""
    rng = np.random.default_rng(2)
    a, b = np.repeat([0, 1, 2], 80), np.tile(np.repeat([0, 1], 40), 3)
    values = 0.45 * a + 0.1 * b + rng.normal(size=240)

    def eta(rows: NDArray[np.int64]) -> list[dict[str, float]]:
        effects = anova(values[rows], a[rows], b[rows])
        two = (effects[name] for name in ("retention", "increment"))
        return [{"F": e.f, "eta2p": e.partial_eta_squared, "n": 240} for e in two]

    cells = [np.flatnonzero((a == i) & (b == j)) for i in range(3) for j in range(2)]
    draws = [eta(np.concatenate([rng.choice(cell, 40) for cell in cells])) for _ in range(300)]
    spread = np.std([first["eta2p"] - second["eta2p"] for first, second in draws])
    first, second = eta(np.arange(240))
    found = _more_explained((first, second), (3, 2))
    assert found.value == pytest.approx(first["eta2p"] - second["eta2p"])
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(spread, rel=0.35)


def test_weights_and_their_intervals_are_those_of_a_fit_to_standardised_values(analysed: Analysis) -> None:
    sample = analysed.collection.samples[1]
    cell = sample.partitions(2)[-1]
    steps = [sample.steps[i] for i in np.flatnonzero(sample.mask(cell))]
    x = np.stack([step.measures[:3, step.complete].T for step in steps])
    y = np.stack([step.ranked for step in steps])
    whole = fit(group_sums((x - x.mean(axis=(0, 1))) / x.std(axis=(0, 1)), (y - y.mean()) / y.std()))
    found = JointModels(Cache(None), lambda what, done, total: None).weights(sample, cell)
    assert [found[name].value for name in ("SIC", "CIC", "NIC")] == pytest.approx(whole.fixed[1:], rel=1e-4)
    reach = stats.t.ppf(0.975, len(steps) - 1)
    errors = [(found[name].high - found[name].low) / 2 / reach for name in ("SIC", "CIC", "NIC")]
    assert errors == pytest.approx(np.sqrt(np.diagonal(whole.fixed_covariance)[1:]), rel=1e-3)


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
    assert len(claims) > 75
    assert set(claims["verdict"]) <= {"confirmed", "contested", "undecided"}
    assert claims["sentence"].str.contains(r"n = \d").all()
    assert claims["asked"].sum() == len(detail)
    assert "FG-R is larger on the harder data set" in set(claims["claim"])


def test_early_warnings_are_out_of_sample_and_better_than_chance(analysed: Analysis) -> None:
    frame = matching(analysed.more["early_warning"], benchmark="TIN", subset="2", share=1.0, group="most forgotten quarter")
    assert frame["predictor"].tolist() == ["all_coefficients", "SIC", "CIC", "NIC"]
    assert (frame["auc"] > 0.5).all()
    assert (frame["n"] == 27).all()
    assert frame["chance"].tolist() == [pytest.approx(0.25)] * 4  # 5 of 20 classes, 10 of 40, 25 of 100
    where = {"benchmark": "C100", "subset": "2", "share": 1.0, "group": "most forgotten quarter"}
    fewer = matching(analysed.more["early_warning"], **where)
    assert fewer["chance"].tolist() == [pytest.approx(np.mean([2 / 10, 5 / 20, 12 / 50]))] * 4
    assert (frame["auc_lo"] < frame["auc"]).all()
    assert sorted(analysed.more["early_warning"]["share"].unique()) == [
        0.0,
        0.25,
        0.5,
        1.0,
    ]  # of 4 epochs, a tenth holds no probe of its own


def test_warnings_that_are_always_right_have_an_interval_that_does_not_collapse() -> None:
    roots = ["a", "a", "b", "c"]
    ends = _ends(np.array([[1.0, 0.0, 0.5, 1.0], [1.0, 0.0, 0.5, 0.5], [1.0, 0.0, 0.5, 0.9], [1.0, 0.0, 0.5, 0.6]]), roots)
    assert ends[:2].tolist() == [pytest.approx([0.025 ** (1 / 3), 1]), pytest.approx([0, 1 - 0.025 ** (1 / 3)])]
    assert np.isnan(ends[2]).all()  # neither all right nor all wrong: nothing is known of how it varies
    assert 0.5 <= ends[3][0] < ends[3][1] <= 1


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
    for frame in (*told.figures.values(), *told.more.values()):
        if {"subset", "diverged"} <= set(frame.columns):
            whole = frame[
                frame["subset"].isin(("2", "3")) & (frame["rehearsal_pct"] == "" if "rehearsal_pct" in frame else True)
            ]
            assert (whole["diverged"] == (whole["subset"] == "3")).all()
    assert {"diverged"} <= set(told.figures["fig:SIC_CIC_NIC_across_steps_glyphs"].columns)
    assert set(matching(told.more["comparisons"], subset="3 against 2")["diverged"]) == {1}
    assert "Left out of glyphs, step 3: 1 diverged step." in told.reading


def at(sample: Sample, root: str, retention: str) -> list[int]:
    return [i for i, cell in enumerate(sample.cells) if (sample.root[i], cell.retention) == (root, retention)]


def test_a_paired_design_is_compared_in_pairs(tmp_path: Path) -> None:
    spec = BenchmarkSpec.load("glyphs", {**SMALL, "policies": ["uniform", "herding"], "design": "paired", "steps": 2})
    simulate(spec, Store(tmp_path), reruns=0)
    found = analyse(tmp_path, resamples=200, cached=False)
    told = found.more["comparisons"]
    retentions = matching(told, comparison="retentions", quantity="FG-R", class_pct="10", policy="uniform")
    assert (retentions["rehearsal_pct"].tolist(), retentions["n"].tolist()) == (["20 against 8"], [4])
    sample = found.collection.samples[0]
    values = sample.values["FG-R", "value"]
    pairs = [
        np.array([[values[i] for i in rows] for root in dict.fromkeys(sample.root) if (rows := at(sample, root, level))])
        for level in ("8", "20")
    ]
    expected = stats.ttest_rel(pairs[0].mean(axis=1), pairs[1].mean(axis=1))
    levels = between_levels(sample, Subset(2), "retention", ("8", "20"), values)
    assert (levels.p, levels.estimate.n) == (pytest.approx(expected.pvalue), len(pairs[0]))
    policies = matching(told, comparison="policies", quantity="FG-R", class_pct="10", rehearsal_pct="8")
    assert (policies["policy"].tolist(), policies["against"].tolist(), policies["n"].tolist()) == (
        ["herding"],
        ["uniform"],
        [4],
    )


def test_a_store_that_grew_computes_what_changed_and_gives_what_a_fresh_analysis_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[str]()
    original = Cache.get

    def get(self: Cache, what: str, content: str, compute: Callable[[], Arrays]) -> Arrays:
        def noted() -> Arrays:
            made.append(what)
            return compute()

        return original(self, what, content, noted)

    monkeypatch.setattr(Cache, "get", get)

    def computed(**options: bool) -> tuple[Analysis, Counter[str]]:
        made.clear()
        return analyse(store, resamples=200, **options), Counter(made)

    store = Store(tmp_path)
    simulate(BenchmarkSpec.load("glyphs", {**SMALL, "experiments": 3, "steps": 2}), store, reruns=2)
    _, first = computed()
    assert first["step"] == len(store.ids())
    assert first["joint"] == 4
    assert computed()[1] == Counter()
    known = store.ids()
    simulate(BenchmarkSpec.load("glyphs", {**SMALL, "experiments": 4, "steps": 2, "increments": [0.2]}), store, reruns=2)
    grown, again = computed()
    assert again["step"] == len(store.ids() - known)
    assert again["joint"] == 2  # the partitions that have a new step
    assert 0 < again["spread"] < first["spread"]
    fresh, _ = computed(cached=False)
    for label, frame in fresh.tables.items():
        assert frame.equals(grown.tables[label]), label


def test_the_joint_model_over_time_ends_in_the_joint_model(tmp_path: Path) -> None:
    simulate(BenchmarkSpec.load("glyphs", {**SMALL, "experiments": 3, "steps": 2}), Store(tmp_path), reruns=0)
    again = analyse(tmp_path, resamples=200, joint_over_time=True, cached=False)
    last = matching(again.more["joint_over_time"], subset="2", probes=3)["mean"].tolist()
    joint = matching(again.tables["SW-LOO_protocol"], subset="2", quantity="all_coefficients")["mean"].tolist()
    assert last == pytest.approx(joint, abs=1e-6)


@pytest.mark.slow
def test_a_known_truth_is_recovered(tmp_path: Path) -> None:
    truth = Truth(slope_sd=0.05, noise=0.5, image_share=0)  # without the noise of test images
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
    assert weights == pytest.approx(truth.effects / scale, abs=0.05)
    rerun = told.tables["controlled_experiments"]["mean"]
    assert rerun.mean() == pytest.approx(truth.rerun_sic_nic, abs=0.08)


def test_flagged_classes_are_the_highest_quarter_of_scores_and_hits_that_of_forgetting(analysed: Analysis) -> None:
    frame = analysed.more["flagged"]
    assert sorted(frame["share"].unique()) == [0.0, 0.25, 0.5, 1.0]  # of 4 epochs, a tenth holds no probe of its own
    drawn = pd.concat([f for label, f in analysed.figures.items() if "swarm" in label])
    assert set(frame["step_id"]) == set(drawn["step_id"])
    for (_, _), rows in list(frame.groupby(["step_id", "share"]))[:40]:
        k = max(1, round(0.25 * len(rows)))
        assert set(rows.nlargest(k, "score")["class_id"]) == set(rows.loc[rows["flagged"], "class_id"])
        assert rows.loc[rows["hit"], "forgetting"].min() >= rows.loc[~rows["hit"], "forgetting"].max()
        assert rows["hit"].sum() >= k


def test_the_mean_forgetting_of_a_class_is_over_the_steps_that_hold_it(analysed: Analysis) -> None:
    sample = analysed.collection.samples[0]
    rows = matching(analysed.more["class_forgetting"], benchmark=sample.benchmark, subset="2")
    assert rows["mean"].is_monotonic_decreasing
    worst = int(rows["class_id"].iloc[0])
    steps = [step for step in sample.steps if step.facts.step == 2 and worst in step.class_ids]
    values = [float(step.forgetting[step.class_ids == worst][0]) for step in steps]
    assert rows["n"].iloc[0] == len(values)
    assert rows["mean"].iloc[0] == pytest.approx(np.mean(values))
    interval = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert (rows["mean_lo"].iloc[0], rows["mean_hi"].iloc[0]) == pytest.approx(interval, nan_ok=True)


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say(tmp_path: Path) -> None:
    """Two hundred steps of one partition as twenty samples of ten: 60 intervals of each kind, of which 95 % should hold it."""
    truth = Truth(slope_sd=0.05, intercept_sd=0.1, image_share=0)  # without the noise of test images
    options = {"experiments": 200, "epochs": 2, "increments": [0.2], "retentions": [0.2], "steps": 2}
    simulate(BenchmarkSpec.load("tiny-imagenet", options), Store(tmp_path), truth=truth, reruns=0)
    sample = analyse(tmp_path, tables=["spearman_SIC"], resamples=100, cached=False).collection.samples[0]
    expected = truth.expected_correlations()
    variance = truth.effects @ truth.correlation @ truth.effects + 3 * truth.slope_sd**2 + truth.noise**2
    weights = truth.effects / math.sqrt(variance + truth.intercept_sd**2)
    correlations, effects = list[bool](), list[bool]()
    for start in range(0, 200, 10):
        chosen = np.arange(start, start + 10)
        part = replace_steps(sample, chosen)
        found = JointModels(Cache(None), lambda what, done, total: None).weights(part, part.partitions(2)[0])
        for name, weight in zip(("SIC", "CIC", "NIC"), weights, strict=True):
            of_ranks = 6 / math.pi * math.asin(expected[name.lower()] / 2)  # Spearman's of two normal variables
            estimate = mean_of("rho", part.values[name, "rho"], part.ranked)
            correlations.append(estimate.low < of_ranks < estimate.high)
            effects.append(found[name].low < weight < found[name].high)
    assert len(correlations) == len(effects) == 60
    assert np.mean(correlations) > 0.85
    assert np.mean(effects) > 0.85


def replace_steps(sample: Sample, chosen: NDArray[np.int64]) -> Sample:
    lists = {name: [getattr(sample, name)[i] for i in chosen] for name in ("steps", "cells", "root")}
    return replace(sample, **lists, values={})


def test_levels_that_are_no_percentages_are_told_as_what_they_are(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    for seed, classes in ((0, 3), (1, 3), (2, 5), (3, 5)):
        make_experiment(store, steps=2, classes=classes, seed=seed)
    found = analyse(store, resamples=100, cached=False)
    assert set(found.tables["FG-R_FG-HG_fine_grained"]["class_pct"]) == {"3 classes", "5 classes", "pooled"}
    told = "".join(found.more["claims_in_detail"]["what"])
    assert "5 classes against 3 classes" in told
    assert "classes %" not in found.reading + told


def test_the_paper_s_other_data_set_is_named_where_there_is_one_of_them(same: Analysis, analysed: Analysis) -> None:
    (said,) = [text for text in same.more["missing"]["what"] if "other data set" in text]
    assert said.startswith(
        "tiny-imagenet, the paper's other data set: no step of it is in the store, so that its figures are empty"
    )
    assert same.figures["fig:swarm_plots_forgetting_tinyimagenet_1"].empty
    assert not any("other data set" in text for text in analysed.more["missing"]["what"])
