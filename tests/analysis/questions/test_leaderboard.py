"""A store's methods side by side: the same numbers as of a comparison, whatever plan the steps were run in."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import forgetscope as fs
from conftest import TINY
from forgetscope.analysis.questions.arms import ArmMeasure
from forgetscope.cli.app import app

ARMS: dict[str, dict[str, object]] = {
    "replay": {},
    "replay + offset": {"calibration": "offset"},
    "distillation, herding": {"method": "distillation", "policy": "herding"},
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ArmMeasure]]:
    path = tmp_path_factory.mktemp("boards") / "store"
    comparison = fs.Comparison(fs.RunSpec(**TINY), arms=ARMS, pairs=2)
    rows = fs.compare(comparison, path, on=fs.Here(threads=1), progress=False)
    fs.run(fs.RunSpec(**{**TINY, "seed": 7}), path, threads=1, progress=False)  # in no pair
    return path, rows


def test_it_has_the_numbers_of_the_comparison(compared: tuple[Path, list[ArmMeasure]]) -> None:
    path, rows = compared
    boards = fs.leaderboards(path)
    assert [board.step for board in boards] == [2, 3]
    assert {board.baseline for board in boards} == {"replay"}
    expected = {(row.arm.replace("again", "replay, draws 1"), row.step, row.measure): asdict(row) for row in rows}
    found = {(row.arm, row.step, row.measure): asdict(row) for board in boards for row in board.rows}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        if key[0] == "replay":  # its mean is over all of its experiments, one of which is in no pair
            continue
        for name, value in row.items():
            assert name == "arm" or value == expected[key][name] or np.isnan(value), (key, name)


def test_the_most_even_comes_first_and_the_baseline_where_nothing_differs(compared: tuple[Path, list[ArmMeasure]]) -> None:
    for board in fs.leaderboards(compared[0]):
        at = {row.arm: row.matched_difference for row in board.rows if row.measure == "true_variance"}
        at["replay"] = 0.0
        known = [at[arm] for arm in board.arms if not np.isnan(at[arm])]
        assert known == sorted(known)
        assert sorted(board.arms) == sorted(at)


def test_the_command_prints_a_sentence_for_each_and_json(compared: tuple[Path, list[ArmMeasure]]) -> None:
    path, _ = compared
    shown = CliRunner().invoke(app, ["methods", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "2+2 classes, 8 % kept, 2 epochs" in shown.stdout
    assert "distillation, herding forgets " in " ".join(shown.stdout.split())
    document = json.loads(CliRunner().invoke(app, ["methods", str(path), "--json"]).stdout)
    assert [board["step"] for board in document["boards"]] == [2, 3]
    assert {"arm", "measure", "matched_difference", "verdict"} <= document["boards"][0]["rows"][0].keys()


def test_a_store_without_pairs_says_what_to_run(tmp_path: Path) -> None:
    fs.run(fs.RunSpec(**TINY), tmp_path / "store", threads=1, progress=False)
    shown = CliRunner().invoke(app, ["methods", str(tmp_path / "store")])
    assert shown.exit_code == 0
    assert "forgetscope compare FILE --arm" in shown.stdout


def test_the_page_has_them_in_a_tab_and_a_sentence_for_each(compared: tuple[Path, list[ArmMeasure]], tmp_path: Path) -> None:
    page = fs.write_report(fs.analyse(compared[0], resamples=200), tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="tab-ranked"' in page
    said = re.findall(r"<li>(Step [23]: .*?)</li>", page)
    assert {text[:6] for text in said} == {"Step 2", "Step 3"}
    for arm in ("replay + offset", "replay, draws 1", "distillation, herding"):  # beside replay, in two steps
        assert sum(arm in text for text in said) >= 2
    assert all("too many past classes were barely learned" in text for text in said)  # in two epochs
