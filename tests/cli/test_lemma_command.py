"""`forgetscope lemma`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from forgetscope.cli.app import app

SMALL = ("--data", "squares", "--hidden", "4", "--images", "8", "--draws", "5", "--threads", "1")
SETTINGS = ("image_size=8", "increment=0.5", "epochs=2", "first_batch=16", "batch=16")


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["lemma", *map(str, arguments)])


@pytest.fixture
def small(squares: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(squares))
    return (*SMALL, *(part for setting in SETTINGS for part in ("--set", setting)))


def test_it_prints_every_term_and_writes_table_and_figure(small: tuple[str, ...], tmp_path: Path) -> None:
    result = invoke(*small, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    header = next(line.split() for line in result.stdout.splitlines() if line.startswith("class "))
    assert " ".join(header) == "class change error bound descent SIC CIC NIC fourth curvature slack holds"
    assert "the bound held 8 times and failed 0 times" in result.stdout
    assert "the inequality failed in 0 of 40" in result.stdout
    table = pd.read_parquet(tmp_path / "out" / "lemma.parquet")
    assert len(table) == len(pd.read_csv(tmp_path / "out" / "lemma.csv")) == 8
    assert (table["holds"] == "yes").all()
    assert (tmp_path / "out" / "lemma.svg").read_text(encoding="utf-8").count("<svg") == 1
    assert (tmp_path / "out" / "lemma.png").read_bytes().startswith(b"\x89PNG")


def test_json_holds_what_was_checked_and_found(small: tuple[str, ...], tmp_path: Path) -> None:
    result = invoke(*small, "--set", "epochs=1", "--json", "-o", tmp_path)
    document = json.loads(result.stdout)
    assert document["options"]["run"]["learning_rate"] == 0.5
    assert document["options"]["draws"] == 5
    assert document["summary"]["verdicts"]["every"]["held"] == len(document["rows"]) == 4
    assert set(document["rows"][0]) >= {"change", "bound_every", "descent", "sic", "cic", "nic", "fourth", "curvature_every"}


def test_what_is_no_plain_rsgd_is_refused(tmp_path: Path) -> None:
    result = invoke("--set", "momentum=0.9", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "the lemma needs momentum = 0.0" in result.stderr
    assert not (tmp_path / "out").exists()
