"""`forgetscope report --format`, as a user types it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from forgetscope.cli.app import app


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_figures_are_written_where_the_help_says(tiny_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree(tiny_store, tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    result = invoke("report", copy, "--format", "png", "--width", "3.5")
    assert result.exit_code == 0, result.output
    assert f"For a paper: {tmp_path / 'report-png'}\nNext: " in result.stdout
    assert list((tmp_path / "report-png").glob("*.png"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--format", "pfd"), "--format 'pfd' is not known. Did you mean 'pdf'?"),
        (("--format", "pdf", "--experiment", "3f2a"), "leave out --experiment"),
        (("--format", "pdf", "--width", "5"), "--width is for latex and png"),
        (("--width", "5"), "--width is for latex and png"),
        (("--format", "png", "--width", "-1"), "--width"),
    ],
)
def test_wrong_options_are_told_before_anything_starts(tiny_store: Path, options: tuple[str, ...], told: str) -> None:
    result = invoke("report", tiny_store, *options)
    assert result.exit_code == 2
    assert told in result.stderr


def test_an_empty_store_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "store" / "steps").mkdir(parents=True)
    result = invoke("report", tmp_path / "store", "--format", "pdf", "-o", tmp_path / "report.pdf")
    assert result.exit_code == 2
    assert "nothing to draw" in result.stderr
    assert not (tmp_path / "report.pdf").exists()
