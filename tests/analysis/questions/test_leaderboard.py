"""A store's methods side by side: the same numbers as of a comparison, whatever plan the steps were run in."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import forgetscope as fs
from conftest import TINY
from drawn_arms import NEW, PAST, Arm, Logits, drawn_again, fill
from forgetscope.analysis.questions.arms import ArmMeasure
from forgetscope.analysis.questions.leaderboard import Leaderboard
from forgetscope.cli.app import app
from forgetscope.data.library import load_data
from forgetscope.report.pages.compared import verdicts
from forgetscope.report.terminal.leaderboard import leaderboard_view

ARMS: dict[str, dict[str, object]] = {
    "replay": {},
    "replay + offset": {"calibration": "offset"},
    "replay + evening": {"calibration": "evening"},  # for which the others keep what they do not pay for
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
        for name, value in row.items():
            assert name in ("arm", "baseline") or value == expected[key][name] or np.isnan(value), (key, name)


def test_the_most_even_comes_first_and_the_baseline_where_nothing_differs(compared: tuple[Path, list[ArmMeasure]]) -> None:
    for board in fs.leaderboards(compared[0]):
        even = {row.arm: row for row in board.rows if row.measure == "true_variance"}
        at = {arm: row.matched_difference for arm, row in even.items() if row.matched_n > 1} | {"replay": 0.0}
        known = board.arms[: len(at)]
        assert {*known} == {*at}
        assert [at[arm] for arm in known] == sorted(at.values())
        assert sorted(board.arms) == sorted(even)


def test_a_run_pays_for_what_it_keeps_beside_images_unless_another_arm_starts_from_it(tmp_path: Path) -> None:
    options = {**TINY, "sequence": TINY["sequence"][:2], "epochs": 1}

    def run(**more: Any) -> None:
        fs.run(fs.RunSpec(**{**options, **more}), tmp_path, threads=1, progress=False)

    def paid() -> dict[str, float]:
        """Above replay, in bytes of a class: the images are as many."""
        (board,) = fs.leaderboards(tmp_path)
        return {row.arm: row.difference / 2 for row in board.rows if row.measure == "bytes"} | {"replay": 0.0}

    run()
    run(method="distillation", forecast=True)
    keepsakes = 2 * 64 * 4  # mean and variance
    assert paid() == {"replay": 0, "distillation": keepsakes}
    run(method="distillation", calibration="evening")
    assert paid() == {"replay": 0, "distillation": 0, "distillation + evening": keepsakes}


def test_the_command_prints_a_sentence_for_each_and_json(compared: tuple[Path, list[ArmMeasure]]) -> None:
    path, _ = compared
    shown = CliRunner().invoke(app, ["methods", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "2+2 classes, 8 % kept, 2 epochs" in shown.stdout
    assert "distillation, herding: nothing is concluded of whether it forgets " in " ".join(shown.stdout.split())
    document = json.loads(CliRunner().invoke(app, ["methods", str(path), "--json"]).stdout)
    assert [board["step"] for board in document["boards"]] == [2, 3]
    assert {"arm", "measure", "matched_difference", "verdict"} <= document["boards"][0]["rows"][0].keys()


def drawn(path: Path, arms: dict[str, dict], pairs: int, drawn_by: dict[str, Arm] | None = None, **named: Any) -> Leaderboard:
    load_data("glyphs", 8)
    sequence = [list(range(PAST)), list(range(PAST, PAST + NEW))]
    run = fs.RunSpec(image_size=8, sequence=sequence, epochs=1, probe_every=0)
    plan = fs.plan(fs.Comparison(run, arms={"replay": {}, **arms}, pairs=pairs, again=False))
    fill(fs.Store(path), plan, drawn_by or {}, **named)
    (board,) = fs.leaderboards(path)
    return board


def printed(board: Leaderboard) -> str:
    console = Console(width=300, file=StringIO())
    console.print(leaderboard_view([board]))
    return console.file.getvalue()  # type: ignore[attr-defined]


TWO: dict[str, dict[str, object]] = {"ace": {"method": "ace"}, "distillation": {"method": "distillation"}}


def test_what_diverged_is_counted_and_the_baseline_is_over_the_same_pairs(tmp_path: Path) -> None:
    lost = {("ace", 0), ("ace", 1), ("ace", 2), ("ace", 3), ("distillation", 1)}
    board = drawn(tmp_path, TWO, 4, diverging=lost)
    assert {row.arm: (row.n, row.diverged) for row in board.rows} == {"replay": (4, 0), "ace": (0, 4), "distillation": (3, 1)}
    for row in board.rows:
        if row.arm == "distillation":
            assert row.value - row.baseline_value == pytest.approx(row.difference, abs=1e-12)
    assert board.arms[-1] == "ace"
    shown = printed(board)
    assert re.search(r"^distillation +3, 1 diverged +0\.\d\d ", shown, re.MULTILINE)
    assert re.search(r"^  replay there +3 +0\.\d\d .*1\.00 *$", shown, re.MULTILINE)
    assert re.search(r"^ace +0, 4 diverged +– .*not ranked *$", shown, re.MULTILINE)
    assert "ace diverged in 4 pairs, so that no pair is left to compare ace with replay." in shown
    page = verdicts([board])
    assert any("ace diverged in 4 pairs" in sentence for sentence in page)


def test_a_single_matched_pair_is_not_ranked(tmp_path: Path) -> None:
    seen: list[int] = []

    def once(base: Logits, losses: Logits, rng: np.random.Generator) -> Logits:
        seen.append(len(seen))
        return drawn_again(losses + 20, rng) if seen[-1] else drawn_again(0.5 * losses, rng)

    board = drawn(tmp_path, TWO, 3, {"ace": once})
    even = {row.arm: row for row in board.rows if row.measure == "true_variance"}["ace"]
    assert (even.matched_n, even.verdict) == (1, "not less; evenness not judged")
    assert board.arms[-1] == "ace"
    assert re.search(r"^ace .*[+−]\d\.\d{3}, not ranked *$", printed(board), re.MULTILINE)


def test_classes_that_were_barely_learned_are_told(tmp_path: Path) -> None:
    shown = printed(drawn(tmp_path, TWO, 3, loss=5))
    (arms,) = re.findall(r"^(.*): \d+ of 24 past classes were barely learned, in 3 of 3 pairs", shown, re.MULTILINE)
    assert {*arms.split("; ")} == {"replay", *TWO}
    assert shown.index("were barely learned") < shown.index("accuracy") < shown.index("nothing is concluded of whether")
    assert " as far as can be told" not in shown


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
