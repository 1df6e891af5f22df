from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conftest import TINY, run_experiment
from forgetscope.analysis.experiments import MEASURES, Experiment, open_experiment, overview
from forgetscope.analysis.index import glance
from forgetscope.analysis.statistics.rank_correlation import spearman
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.errors import StoreError
from forgetscope.measuring.forgetting import forgetting_half_gap, forgetting_range
from forgetscope.report.words.findings import finding
from forgetscope.spec import RunSpec
from forgetscope.store import Store
from made import make_experiment


@pytest.fixture
def experiment(tiny_store: Path) -> Experiment:
    return open_experiment(tiny_store)


def test_frames_hold_every_step(experiment: Experiment) -> None:
    assert experiment.classes.groupby("step").size().to_dict() == {1: 2, 2: 4, 3: 6}
    assert experiment.probes.groupby("step").size().to_dict() == {2: 3 * 2, 3: 3 * 4}
    assert experiment.pairs.groupby("step").size().to_dict() == {2: 2 * 4, 3: 4 * 6}
    assert experiment.rehearsal.groupby("step").size().to_dict() == {2: 32, 3: 64}
    assert experiment.confusion.groupby("step")["count"].sum().to_dict() == {1: 200, 2: 400, 3: 600}


def test_past_classes_come_most_forgotten_first(experiment: Experiment) -> None:
    past = experiment.past_classes()
    assert set(past["class_id"]) == {0, 1, 2, 3}
    known = past["forgetting"].dropna()
    assert known.is_monotonic_decreasing
    assert set(experiment.past_classes(2)["class_id"]) == {0, 1}


def test_summaries_are_computed_from_the_past_classes(experiment: Experiment) -> None:
    assert [summary.step for summary in experiment.summaries] == [2, 3]
    last, past = experiment.summaries[-1], experiment.past_classes()
    assert last.forgetting_range == pytest.approx(forgetting_range(past["forgetting"]), nan_ok=True)
    assert last.forgetting_half_gap == pytest.approx(forgetting_half_gap(past["forgetting"]), nan_ok=True)
    for name in MEASURES:
        assert last.correlations[name] == pytest.approx(spearman(past[name], past["forgetting"]), nan_ok=True)


def test_a_notebook_shows_the_classes_escaped(experiment: Experiment) -> None:
    html = experiment._repr_html_()
    assert "<table" in html
    assert "FG-R" in html
    experiment.classes.loc[:, "class_name"] = "<script>alert(1)</script>"
    experiment.classes.loc[:, "forgetting"] = -0.25
    experiment.classes.loc[:, "sic"] = float("nan")
    html = experiment._repr_html_()
    assert "<script>" not in html
    assert ("<td>−0.250</td>" in html, "<td>–</td>" in html, "NaN" in html) == (True, True, False)


def test_seeds_of_one_setting_are_averaged_and_shared_steps_count_once(tiny_store: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(tiny_store, tmp_path / "store"))
    run_experiment(RunSpec(**{**TINY, "seed": 1, "sequence": ((6, 7), (8, 9))}), store, device="cpu", threads=1)
    run_experiment(RunSpec(**{**TINY, "sequence": ((0, 1), (2, 3), (6, 7))}), store, device="cpu", threads=1)  # a sibling
    rows = {row.step: row for row in overview(glance(store))}
    assert {step: row.experiments for step, row in rows.items()} == {2: 2, 3: 2}
    by_seed = {e.steps[0].spec.seed: e.summaries[0].mean_forgetting for e in glance(store)}
    assert rows[2].mean_forgetting.value == pytest.approx((by_seed[0] + by_seed[1]) / 2, nan_ok=True)
    assert "retention=0.08" in rows[2].setting
    assert not [part for part in rows[2].setting if "seed" in part]


def test_other_settings_are_not_mixed(tiny_store: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(tiny_store, tmp_path / "store"))
    run_experiment(RunSpec(**{**TINY, "retention": 0.2, "sequence": TINY["sequence"][:2]}), store, device="cpu", threads=1)
    assert overview(glance(store)) == []


def test_simulated_experiments_are_in_no_mean_with_real_ones(tiny_store: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(tiny_store, tmp_path / "store"))
    options = {**TINY, "sequence": None, "retention": None, "increment": None}
    shape = {name: value for name, value in options.items() if value is not None}
    benchmark = BenchmarkSpec(**shape, name="same", increments=(0.02,), retentions=(0.08,), experiments=1)
    for seed in (0, 1):
        simulate(benchmark, store, seed, reruns=0)
    real, *simulated = sorted(glance(store), key=lambda e: e.simulated is not None)
    assert real.simulated is None
    assert [experiment.simulated["seed"] for experiment in simulated if experiment.simulated] in ([0, 1], [1, 0])
    assert [e.data_title for e in (real, *simulated)] == ["glyphs 8x8", *["glyphs 8x8 (simulated)"] * 2]
    assert ", simulated, " in repr(simulated[0])
    assert overview([real, *simulated]) == []  # one of each


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    Store(tmp_path).prepare()
    with pytest.raises(StoreError, match="holds no finished step yet"):
        open_experiment(tmp_path)


def test_classes_that_were_barely_learned_are_told_apart_and_nothing_is_concluded_from_them(store: Store) -> None:
    """With two classes, 50 of 100 test images recognised is guessing."""
    found = make_experiment(store, steps=3, learned={0: 0.5})
    past, (second, third) = found.past_classes(3), found.summaries
    assert dict(zip(past["class_id"], past["barely_learned"], strict=True)) == {0: True, 1: False, 2: False, 3: False}
    assert (second.barely_learned, third.barely_learned) == (1, 1)
    learned = past[~past["barely_learned"]]
    assert third.of_learned["mean_forgetting"] == pytest.approx(learned["forgetting"].mean())
    assert third.of_learned["forgetting_range"] == pytest.approx(learned["forgetting"].max() - learned["forgetting"].min())
    assert third.forgetting_range > third.of_learned["forgetting_range"]
    said = finding(found, third)
    assert said.startswith("Step 3: 1 of 4 past classes was barely learned: ")
    assert "class 0" not in said
    assert "class 1 lost 50\u202f%" in said
    assert "measure predicts" not in said
