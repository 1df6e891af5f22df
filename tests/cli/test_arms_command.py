"""`compare --arm` as a user types it. All steps are in the store but those of the slow test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import forgetscope as fs
from drawn_arms import NEW, PAST, fill
from forgetscope.analysis.questions.arms import ArmMeasure
from forgetscope.benchmark.arms import chains_by_arm
from forgetscope.benchmark.pairs import Comparison, comparison_plan
from forgetscope.cli.app import app
from forgetscope.data.library import load_data
from forgetscope.report.document import study_document
from forgetscope.spec import RunSpec
from forgetscope.store import Store

KEYS = (
    *("arm", "step", "measure", "value", "difference", "low", "high", "n", "noise_floor", "true_spread"),
    *("matched_difference", "matched_low", "matched_high", "verdict"),
)
RUN = f"image_size = 8\nsequence = {[list(range(PAST)), list(range(PAST, PAST + NEW))]}\nepochs = 1\nprobe_every = 0\n"
ARMS = ("--arm", "plain:", "--arm", "herding: policy=herding, retention=0.1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's file, and a store with six pairs of its arms."""
    folder = tmp_path_factory.mktemp("arms")
    (folder / "mine.toml").write_text(RUN)
    load_data("glyphs", 8)
    run = RunSpec.from_toml(folder / "mine.toml")
    arms = {"plain": {}, "herding": {"policy": "herding", "retention": 0.1}}
    fill(Store(folder / "store"), comparison_plan(Comparison(run, arms=arms, pairs=6)), {})
    return folder


def compare(folder: Path, *options: str) -> Result:
    where = ["--store", str(folder / "store"), "--no-estimate", "--jobs", "1"]
    return CliRunner().invoke(app, ["compare", str(folder / "mine.toml"), *options, *where])


def test_rows_for_programs_and_the_same_from_python(made: Path) -> None:
    result = compare(made, *ARMS, "--pairs", "4", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert re.fullmatch(r"mine-compare-\w{8}", found["plan"])
    assert (found["pairs"], found["planned_pairs"], found["planned"]) == (4, 4, [])
    assert all({*row} >= {*KEYS} for row in found["arms"])
    assert [*dict.fromkeys(row["arm"] for row in found["arms"])] == ["plain", "again", "herding"]
    assert {row["verdict"] for row in found["arms"]} <= {None, "less", "more evenly", "both", "neither"}
    run, arms = RunSpec.from_toml(made / "mine.toml"), {"plain": {}, "herding": {"policy": "herding", "retention": 0.1}}
    spec = fs.Comparison(run, arms=arms, baseline="plain", pairs=4, name="mine-compare")
    rows = fs.compare(spec, made / "store", device="cpu", threads=1, progress=False)
    assert all(isinstance(row, ArmMeasure) for row in rows)
    assert study_document(arms=rows)["arms"] == found["arms"]
    assert fs.plan(spec).id == found["plan"]


def test_a_table_and_a_sentence_for_each_arm(made: Path) -> None:
    result = compare(made, *ARMS, "--baseline", "plain", "--pairs", "4")
    assert result.exit_code == 0, result.output
    for arm in ("again", "herding"):
        assert f"Step 2: {arm} against plain, 4 pairs" in result.stdout
        assert re.search(
            rf"^{arm}( forgets .* than plain.* Price: accuracy |: nothing is concluded)", result.stdout, re.MULTILINE
        )
    number, interval = r"[+−]?\d+\.\d{3}", r"\([+−]?\d+\.\d{3}, [+−]?\d+\.\d{3}\)"
    row = rf"^FG-R +{number} +{number} +{number} {interval} +{number} {interval}$"
    assert len(re.findall(row, result.stdout, re.MULTILINE)) == 2
    assert len(re.findall(rf"^  by noise +{number} +{number} *$", result.stdout, re.MULTILINE)) == 4
    assert "extension" not in result.stdout


def test_without_again(made: Path) -> None:
    found = json.loads(compare(made, *ARMS, "--no-again", "--pairs", "4", "--json").stdout)
    assert {row["arm"] for row in found["arms"]} == {"plain", "herding"}


def test_pairs_that_are_added_are_told(made: Path) -> None:
    assert compare(made, *ARMS, "--pairs", "4").exit_code == 0
    result = compare(made, *ARMS, "--pairs", "6")
    assert (
        "An extension: 4 pairs were planned before the first step, 2 pairs were added later. With the former" in result.stdout
    )
    found = json.loads(compare(made, *ARMS, "--pairs", "6", "--json").stdout)
    assert (found["pairs"], found["planned_pairs"]) == (6, 4)
    assert ({row["n"] for row in found["arms"]}, {row["n"] for row in found["planned"]}) == ({6}, {4})


def test_pairs_that_are_added_are_told_whatever_arms_are_called_and_added(made: Path) -> None:
    assert compare(made, *ARMS, "--pairs", "4").exit_code == 0
    others = ("--no-again", "--arm", "draws: draws=1", "--arm", "plain:", "--arm", "mine: retention=0.1, policy=herding")
    result = compare(made, *others, "--baseline", "plain", "--pairs", "5")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("An extension: 4 pairs were planned before the first step, 1 pair was added later.") == 2
    found = json.loads(compare(made, *others, "--baseline", "plain", "--pairs", "5", "--json").stdout)
    assert {(row["arm"], row["n"]) for row in found["planned"]} == {("plain", 4), ("draws", 4), ("mine", 4)}
    assert found["planned_pairs"] == 4


def test_power_runs_nothing(made: Path, tmp_path: Path) -> None:
    result = compare(made, *ARMS, "--pairs", "6", "--power")
    assert result.exit_code == 0, result.output
    assert re.search(r"^herding +FG-R +matched +0\.\d{4} +6 +\d\.\d{3} +[\d,]+ +0\.1$", result.stdout, re.MULTILINE)
    found = json.loads(compare(made, *ARMS, "--pairs", "6", "--power", "--json").stdout)["power"]
    of_pairs = {"n", "pairs", "diverged", "past_classes", "barely_learned", "barely_pairs"}
    assert {"arm", "step", "measure", "matched", "sd", "smallest", "difference"} | of_pairs == {*found[0]}
    (tmp_path / "mine.toml").write_text(RUN)
    nothing = compare(tmp_path, *ARMS, "--power")
    assert (nothing.exit_code, "has no two pairs of these arms" in nothing.stderr.replace("\n", " ")) == (1, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--arm", "plain:", "--arm", "plain: policy=herding"], "--arm plain is given twice"),
        (["--arm", "policy=herding"], "is not of the form NAME: key=value"),
        (["--arm", "a:", "--policies", "uniform,herding"], "--policies uniform,herding beside --arm"),
        (["--arm", "a:", "--no-again"], "name a second arm"),
        (["--arm", "a:", "--arm", "b: polcy=herding"], "--arm b: polcy is no option of a run. Did you mean 'policy'?"),
        (["--power"], "--power is for arms: add --again"),
    ],
)
def test_wrong_arms_start_nothing(options: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(RUN)
    result = compare(tmp_path, *options)
    assert (result.exit_code, message in result.stderr.replace("\n", " ")) == (2, True), result.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_arms_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("image_size = 8\nsequence = [[0, 1, 2], [3]]\nepochs = 1\nprobe_every = 0\n")
    result = compare(tmp_path, "--policies", "uniform,herding", "--again", "--pairs", "2", "--json")
    assert result.exit_code == 0, result.output
    assert {row["arm"] for row in json.loads(result.stdout)["arms"]} == {"uniform", "again", "herding"}
    assert len(Store(tmp_path / "store").ids()) == 2 + 2 * 3
    plan = comparison_plan(
        Comparison(RunSpec.from_toml(tmp_path / "mine.toml"), ["uniform", "herding"], pairs=2, again=True, name="mine-compare")
    )
    assert {id for of in chains_by_arm(plan).values() for chain in of for id in chain.steps} == Store(tmp_path / "store").ids()
