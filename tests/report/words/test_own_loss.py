"""Which of SIC, CIC and NIC a method takes away: in words, tables and pages, and nowhere where it was not measured."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import forgetscope as fs
from conftest import TINY
from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.questions.approximations import approximations
from forgetscope.analysis.questions.arms import MEASURES, OF_OWN_LOSS, ArmMeasure
from forgetscope.analysis.questions.own_loss import SOURCES, own_loss
from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.housekeeping.sql import query
from forgetscope.report.pages.experiment import render_page
from forgetscope.report.terminal.arms import arms_view
from forgetscope.report.terminal.experiments import experiment_view
from forgetscope.report.terminal.leaderboard import leaderboard_view
from forgetscope.report.terminal.studies import approximations_view
from forgetscope.report.words.arms import arm_sentences, by_measure
from forgetscope.report.words.own_loss import takes_away
from forgetscope.store import Store

ARMS = {"plain": {}, "soft": {"method": "distillation"}, "apart": {"method": "ace"}}
SHORT = {**TINY, "sequence": ((0, 1, 2), (3, 4)), "epochs": 2, "method_interference": True}


def shown(view: object) -> str:
    from rich.console import Console

    console = Console(width=400, record=True)
    console.print(view)
    return console.export_text()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ArmMeasure]]:
    path = tmp_path_factory.mktemp("own") / "store"
    comparison = fs.Comparison(fs.RunSpec(**SHORT), arms=ARMS, pairs=2, again=False)
    return path, fs.compare(comparison, path, on=fs.Here(threads=1), progress=False)


@pytest.fixture(scope="module")
def experiments(compared: tuple[Path, list[ArmMeasure]]) -> dict[str, list[Experiment]]:
    found: dict[str, list[Experiment]] = {}
    for chain in Store(compared[0]).experiments():
        found.setdefault(chain[-1].setting.method[0], []).append(Experiment(chain))
    return found


def test_a_step_is_compared_with_replay_in_its_own_network_class_by_class(experiments: dict[str, list[Experiment]]) -> None:
    (one, *_) = experiments["ace"]
    found = own_loss(one.steps[1])
    assert found is not None
    past = one.past_classes()
    for name in SOURCES:
        changes = past[f"method_{name}"] - past[name]
        low, high = stats.t.interval(0.95, len(changes) - 1, changes.mean(), stats.sem(changes))
        np.testing.assert_allclose(
            [found.differences[name].value, found.differences[name].low, found.differences[name].high],
            [changes.mean(), low, high],
        )
        assert found.own[name] - found.replay[name] == pytest.approx(changes.mean())
    assert own_loss(experiments["replay"][0].steps[1]) is None


def test_arms_have_rows_of_it_over_pairs(
    compared: tuple[Path, list[ArmMeasure]], experiments: dict[str, list[Experiment]]
) -> None:
    rows = compared[1]
    assert [row.measure for row in rows] == [*MEASURES, *OF_OWN_LOSS] * 3
    plain, apart = by_measure(rows, "plain", 2), by_measure(rows, "apart", 2)
    for name in SOURCES:
        means = {
            of: [one.past_classes()[column].mean() for one in experiments[of]]
            for of, column in (("ace", f"method_{name}"), ("replay", name))
        }
        changed = [(one.past_classes()[f"method_{name}"] - one.past_classes()[name]).mean() for one in experiments["ace"]]
        assert apart[f"method_{name}"].value == pytest.approx(np.mean(means["ace"]))
        assert plain[f"method_{name}"].value == pytest.approx(np.mean(means["replay"]))  # of replay they are the paper's
        assert apart[f"method_{name}"].difference == pytest.approx(np.mean(means["ace"]) - np.mean(means["replay"]))
        assert plain[f"changed_{name}"].value == 0
        assert apart[f"changed_{name}"].difference == pytest.approx(np.mean(changed))
        assert math.isnan(apart[f"changed_{name}"].matched_difference)


def test_it_is_told_wherever_steps_are(
    compared: tuple[Path, list[ArmMeasure]], experiments: dict[str, list[Experiment]]
) -> None:
    path, rows = compared
    said = arm_sentences(by_measure(rows, "apart", 2))[1]
    assert said.startswith("apart: its own loss, against replay's in the same network, ")
    assert said in shown(arms_view(rows))
    assert said.removeprefix("apart") in shown(leaderboard_view(fs.leaderboards(path)))
    one, plain = experiments["ace"][0], experiments["replay"][0]
    page, terminal = render_page(one, {}), shown(experiment_view(one))
    for text in (page.replace("\\u0027", "'"), terminal):
        assert "ace: its own loss, against replay's in the same network, " in text
    assert "what the method's own loss does, beside replay's" in terminal
    assert 'id="own"' in page
    assert 'id="own"' not in render_page(plain, {})
    assert "own loss" not in shown(experiment_view(plain))
    found = approximations(Store(path))
    assert {contrast.form for group in found for contrast in group.contrasts} == {"method"}
    assert "A method's own loss against plain cross-entropy" in shown(approximations_view(found))
    (row,) = query(
        Store(path), "SELECT count(*) AS n, avg(method_nic) AS nic FROM classes WHERE method_nic IS NOT NULL"
    ).to_pylist()
    of_all = [one.past_classes()["method_nic"] for method in ("ace", "distillation") for one in experiments[method]]
    assert row == {"n": 12, "nic": pytest.approx(np.mean(np.concatenate(of_all)))}


def test_a_sentence_says_what_intervals_bear_out() -> None:
    away, added = Estimate(-0.3, -0.4, -0.2, 5), Estimate(0.2, 0.1, 0.3, 5)
    unsure, nothing, once = Estimate(0.1, -0.1, 0.3, 5), Estimate(1e-9, 0.0, 2e-9, 5), Estimate(0.3, math.nan, math.nan, 1)
    begin = "soft: its own loss, against replay's in the same network,"
    assert takes_away("soft", {"sic": added, "cic": away, "nic": away}) == (
        f"{begin} takes away CIC −0.300 (−0.400, −0.200) and NIC −0.300 (−0.400, −0.200); adds SIC +0.200 (+0.100, +0.300)."
    )
    assert takes_away("soft", {"sic": unsure, "cic": nothing, "nic": away}) == (
        f"{begin} takes away NIC −0.300 (−0.400, −0.200); leaves CIC as it was; may change SIC +0.100 (−0.100, +0.300)."
    )
    assert takes_away("soft", dict.fromkeys(SOURCES, once)) == (
        f"{begin} was measured once; of one class or pair nothing can be said."
    )
