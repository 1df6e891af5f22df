"""How good forecasts were, in every place that says it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from forgetscope.analysis.experiments import FORESEEN, Experiment, open_experiment, overview
from forgetscope.analysis.index import glance
from forgetscope.analysis.results import Analysis, analyse
from forgetscope.analysis.statistics.prediction import absolute_error, coverage_estimate, covered
from forgetscope.cli.app import app
from forgetscope.report.terminal.experiments import _reasons
from forgetscope.report.words.findings import finding
from forgetscope.store import Store
from made import make_experiment

CLASSES = 10
JUDGED = ("rho", "error", "covered")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two seeds with forecasts, and one without."""
    store = Store(tmp_path_factory.mktemp("forecasts"))
    store.prepare()
    for seed in range(3):
        make_experiment(store, steps=2, classes=CLASSES, seed=seed, forecast=seed < 2, unforecast=[4], data_classes=100)
    return store


@pytest.fixture(scope="module")
def analysis(store: Store) -> Analysis:
    return analyse(store, resamples=10, cached=False)


@pytest.fixture(scope="module")
def predicted(store: Store) -> list[Experiment]:
    return sorted((one for one in glance(store) if one.forecasts), key=lambda one: one.id)


def by_hand(experiment: Experiment) -> dict[str, float]:
    past = experiment.past_classes().dropna(subset=["forecast", "forgetting"]).sort_values("class_id")
    errors = past["forecast"] - past["forgetting"]
    noise = dict(zip(experiment.past_classes().sort_values("class_id")["class_id"], variances(experiment), strict=True))
    se = (past["forecast"] - past["forecast_low"]) / 1.96
    reach = 1.96 * np.sqrt(se**2 + past["class_id"].map(noise))
    return {
        "rho": stats.spearmanr(past["forecast"], past["forgetting"]).statistic,
        "error": errors.abs().mean(),
        "covered": (errors.abs() <= reach)[reach.notna()].mean(),
        **{name: stats.spearmanr(past[f"{name}_estimate"], past[name]).statistic for name in ("sic", "cic", "nic")},
        "alone": stats.spearmanr(past["sic"], past["forgetting"]).statistic,  # of the classes with a forecast
    }


def variances(experiment: Experiment) -> list[float]:
    past = experiment.steps[-1].past_classes("class_id")["class_id"].tolist()
    return [dict(zip(past, experiment.summaries[-1].sampling, strict=True))[id] for id in sorted(past)]


def test_errors_and_coverage_by_hand() -> None:
    nothing = float("nan")
    assert absolute_error([0.1, 0.5, nothing], [0.2, 0.2, 0.2]) == pytest.approx(0.2)
    assert covered([0.0] * 4, [0.1] * 4, [0.1, 0.2, 0.21, nothing], [0.0, (0.18 / 1.96) ** 2, 0.0, 0.0]) == pytest.approx(2 / 3)
    assert np.isnan(absolute_error([nothing], [0.2]))
    assert np.isnan(covered([0.1], [nothing], [0.2], [0.1]))
    sure = coverage_estimate([1.0, 1.0, 1.0])
    assert (sure.value, sure.high, sure.n) == (1.0, 1.0, 3)
    assert sure.low == pytest.approx(0.025 ** (1 / 3))
    assert coverage_estimate([1.0, 0.5]).high == 1.0


def test_a_step_says_how_good_its_forecast_was(store: Store, predicted: list[Experiment]) -> None:
    assert len(predicted) == 2
    for experiment in predicted:
        expected, found = by_hand(experiment), experiment.summaries[-1].forecast
        assert {name: found[name] for name in JUDGED} == {name: pytest.approx(expected[name]) for name in JUDGED}
        past = experiment.past_classes().dropna(subset=["forecast", "sic", "cic", "nic"])
        assert found["ranked"] == len(past) < experiment.summaries[-1].ranked_classes
        for name in ("sic", "cic", "nic"):
            assert found[name] == pytest.approx(stats.spearmanr(past[name], past["forgetting"]).statistic)
        said = finding(experiment, experiment.summaries[-1])
        assert f"ranked {len(past)} of them with ρ = " in said
        assert f"missed by {found['error']:.2f} on average; {100 * found['covered']:.0f}\u202f% of the classes lie" in said
    (other,) = (one for one in glance(store) if not one.forecasts)
    assert other.summaries[-1].forecast == {}
    assert "The forecast" not in finding(other, other.summaries[-1])


def test_the_analysis_has_a_table_of_them(analysis: Analysis, predicted: list[Experiment]) -> None:
    frame, expected = analysis.more["forecasts"], pd.DataFrame(map(by_hand, predicted))
    assert frame[["subset", "rehearsal_pct", "class_pct", "n"]].to_numpy().tolist() == [["2", "", "", 2], ["2", "8", "10", 2]]
    found = analysis.estimate("forecasts", "error", subset="2", rehearsal_pct="")
    assert (found.value, found.n) == (pytest.approx(expected["error"].mean()), 2)
    row = frame.iloc[0]
    assert row["covered"] == pytest.approx(expected["covered"].mean())
    assert 0 <= row["covered_lo"] <= row["covered_hi"] <= 1
    assert row["classes"] == CLASSES - 1
    for column, name in {"forecast": "rho", "SIC": "alone", "SIC_estimate": "sic", "NIC_estimate": "nic"}.items():
        limit = 1 - 6 / ((CLASSES - 1) ** 3 - CLASSES + 1)  # which a perfect one counts as
        assert row[column] == pytest.approx(np.tanh(np.arctanh(expected[name].clip(-limit, limit)).mean())), column
    assert "Forecasts, which see no past image, rank with" in analysis.reading
    assert f"(2 steps, of each {CLASSES - 1}.0 classes on average)" in " ".join(analysis.reading.split())


def test_means_over_seeds_are_of_the_steps_that_have_one(store: Store, predicted: list[Experiment]) -> None:
    (row,) = overview(glance(store))
    assert row.experiments == 3
    assert row.forecast["error"].n == 2
    assert row.forecast["error"].value == pytest.approx(np.mean([one.summaries[-1].forecast["error"] for one in predicted]))


def test_the_command_shows_it(store: Store, predicted: list[Experiment]) -> None:
    told = CliRunner().invoke(app, ["show", str(store.path), "--id", predicted[0].id], catch_exceptions=False).stdout
    assert "forecast" in " ".join(told.split("saw it coming")[1].split()[:60])
    assert "The forecast, without past images," in " ".join(told.split())
    of = f"Step 2: of {CLASSES - 1} of {CLASSES} past classes forecast, SIC, CIC and NIC are all known; over these ρ is "
    assert of in " ".join(told.split())
    whole = CliRunner().invoke(app, ["show", str(store.path), "--json"], catch_exceptions=False).stdout
    assert set(json.loads(whole)["overview"][0]["forecast"]) == set(FORESEEN)


def test_a_list_tells_apart_what_was_looked_at_in_other_ways(store: Store, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["show", str(store.path)], catch_exceptions=False).stdout
    head = " ".join(told.split("\n\n")[0].split())
    assert "forecast" in head
    assert "probe images" not in head
    assert head.count(" yes ") == 2
    alike = Store(tmp_path)
    alike.prepare()
    for seed in range(2):
        make_experiment(alike, steps=2, classes=CLASSES, seed=seed)
    told = CliRunner().invoke(app, ["show", str(tmp_path)], catch_exceptions=False).stdout
    assert "probes" not in told.split("\n\n")[0]


def test_reasons_name_their_classes() -> None:
    frame = pd.DataFrame(
        {"class_name": list("abcdefg"), "missing": ["x at 2 of 3 probes; no forecast: y", "no forecast: y", None, *["z"] * 4]}
    )
    assert _reasons(frame) == ["–  a, b: no forecast: y", "–  a: x at 2 of 3 probes", "–  d, e, f, g: z"]
    assert _reasons(frame.assign(missing="z")) == ["–  all 7 past classes: z"]
    assert _reasons(frame.assign(missing=["z"] * 6 + [None])) == ["–  a, b, c, d, e and 1 more: z"]


def test_without_forecasts_there_is_nothing_to_judge(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    make_experiment(store, steps=2, classes=CLASSES)
    assert open_experiment(tmp_path).summaries[-1].forecast == {}
    found = analyse(tmp_path, resamples=10, cached=False)
    assert found.more["forecasts"].empty
    assert "Forecasts" not in found.reading
