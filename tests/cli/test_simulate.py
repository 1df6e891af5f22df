"""`forgetscope simulate`, as a user types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from forgetscope.benchmark.truth import Truth
from forgetscope.cli.app import app
from forgetscope.store import Store

SMALL = ("--set", "experiments=1", "--set", "epochs=2", "--set", "increments=[0.02]", "--set", "retentions=[0.2]")


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def assert_refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr), result.stderr
    assert result.stderr.startswith("Error: ")


def test_simulate_then_simulate_again_and_look(tmp_path: Path) -> None:
    store = tmp_path / "s"
    arguments = ("simulate", "glyphs", "--store", store, "--seed", "4", "--reruns", "2", "--truth", "noise=0.1", *SMALL)
    first = invoke(*arguments)
    assert first.exit_code == 0, first.output
    assert "Simulated with seed 4: 7 steps written" in first.stdout
    assert re.search(r"noise +0\.1 ", first.stdout)
    again = json.loads(invoke(*arguments, "--json").stdout)
    assert (again["written"], again["present"], again["reruns"], again["seed"]) == (0, 7, 4, 4)
    assert again["truth"] == Truth(noise=0.1).model_dump()
    shown = invoke("show", store).stdout
    assert "glyphs 16x16 (simulated)" in shown
    assert "Simulated with seed 4: nothing was trained" in shown
    document = json.loads(invoke("show", store, "--json").stdout)
    assert document["experiment"]["simulated"] == {"seed": 4, "truth": again["truth"]}
    assert all(line["simulated"] for line in document["experiments"])
    assert invoke("report", store, "-o", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<strong>Simulated.</strong>" in page
    assert 'id="tab-explorer"' in page
    one = document["experiment"]["id"]
    assert invoke("report", store, "--experiment", one[:12], "-o", tmp_path / "one.html").exit_code == 0
    alone = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert 'id="tab-explorer"' not in alone
    assert f"· {one[:8]}</title>" in alone


BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name=name)
sys.meta_path.insert(0, Absent())
from forgetscope.cli import main
sys.argv = ["forgetscope", *sys.argv[1:]]
main()
"""


def test_it_needs_neither_torch_nor_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path / "cache"))
    small = (*SMALL, "--set", "increments=[0.01]", "--reruns", "0")
    for name in ("glyphs", "cifar100", "tiny-imagenet"):
        command = [sys.executable, "-c", BLOCKED, "simulate", name, "--store", str(tmp_path / name), *small]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
    assert not (tmp_path / "cache").exists()
    last = Store(tmp_path / "tiny-imagenet").experiments()[0][-1]
    assert last.info["data"]["shape"] == [64, 64]
    assert last.table("classes").num_rows == 6


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path) -> None:
    store = tmp_path / "s"

    def given(*arguments: str) -> tuple[str | Path, ...]:
        return ("simulate", "glyphs", "--store", store, *arguments)

    assert_refused(invoke(*given("--truth", "sic_efect=1")), r"no option 'sic_efect'. Did you mean 'sic_effect'\?")
    assert_refused(invoke(*given("--truth", "noise=-1")), "noise = -1 is not valid")
    assert_refused(invoke(*given("--truth", "noise")), "--truth 'noise' is not of the form key=value")
    assert_refused(invoke(*given("--truth", "sic_nic=0.99")), "sic_nic = 0.99, .* cannot all hold")
    assert_refused(invoke(*given("--set", "experimens=1")), r"Did you mean 'experiments'\?")
    assert_refused(invoke("simulate", "glyps", "--store", store), r"no preset and no file 'glyps'. Did you mean 'glyphs'\?")
    assert not store.exists()
