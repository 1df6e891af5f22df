"""Names that try to control the terminal, pose as markup, or break out of a page: shown everywhere, obeyed nowhere."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from conftest import TINY, run_experiment
from forgetscope.characters import visible
from forgetscope.cli.app import app
from forgetscope.data.acquisition import add_arrays
from forgetscope.progress import watch
from forgetscope.report.terminal.columns import make_table, titled
from forgetscope.spec import RunSpec
from forgetscope.store import Store

NAMES = (
    "\x1b[31mred\x1b]0;title\x07",
    "[red]markup[/red] [/]",
    "one\ntwo\rthree\b",
    "<script>alert(1)</script>",
    "\u202eright to left\x9b2J",
)
HOSTILE = "".join(NAMES)


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of an experiment on classes with such names; the data set's cache is beside it."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(len(NAMES)), 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGETSCOPE_CACHE", str(folder / "cache"))
        images = [rng.integers(256, size=(len(labels), 8, 8, 3), dtype=np.uint8) for _ in range(2)]
        add_arrays("hostile", images[0], labels, images[1], labels, NAMES)
        spec = {"dataset": "hostile", "sequence": ((0, 1, 2, 3), (4,)), "epochs": 1, "batch": 16, "retention": 0.2}
        run_experiment(RunSpec(**{**TINY, "image_size": None, **spec}), Store(folder / "store"), device="cpu", threads=1)
    return folder / "store"


@pytest.fixture
def own_cache(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(results.parent / "cache"))


def assert_harmless(text: str) -> None:
    assert visible(text, lines=True) == text


def test_show_prints_every_name_as_characters(results: Path) -> None:
    result = invoke("show", results)
    assert result.exit_code == 0, result.output
    assert_harmless(result.stdout)
    for name in NAMES[:4]:  # the past classes
        assert visible(name) in result.stdout


def test_json_gives_a_program_the_original_and_a_terminal_nothing(results: Path) -> None:
    result = invoke("show", results, "--json")
    assert_harmless(result.stdout)
    assert {row["class_name"] for row in json.loads(result.stdout)["experiment"]["classes"]} == set(NAMES)


def test_sql_prints_names_and_headings_as_characters(results: Path) -> None:
    result = invoke("store", "sql", f'SELECT class_name, 1 AS "{HOSTILE}" FROM classes WHERE step = 2', results)
    assert result.exit_code == 0, result.output
    assert_harmless(result.stdout)
    for name in NAMES:
        assert result.stdout.count(visible(name)) == 2  # in the heading too


@pytest.mark.usefixtures("own_cache")
def test_data_commands_print_names_as_characters(results: Path, tmp_path: Path) -> None:
    listed = invoke("data", "list", "--json")
    assert_harmless(listed.stdout)
    assert set(json.loads(listed.stdout)["here"][0]["images_per_class"]) == set(NAMES)
    for arguments in (("list",), ("check", "hostile", "-o", tmp_path / "\x1b[31m.png")):
        result = invoke("data", *arguments)
        assert result.exit_code == 0, result.output
        assert_harmless(result.stdout)


@pytest.mark.parametrize(
    "arguments", [("show", HOSTILE), ("data", "check", HOSTILE), ("store", "sql", HOSTILE), ("run", HOSTILE)]
)
def test_an_error_quotes_it_as_characters_in_one_paragraph(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forgetscope-store" / "steps").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert_harmless(result.stderr)


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_notes_are_characters(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "400")
    with watch() as progress:
        progress.note(HOSTILE)
    assert visible(HOSTILE) in stream.getvalue()
    assert "\x1b[31m" not in stream.getvalue()
    assert "\x9b" not in stream.getvalue()


def test_no_cell_title_heading_or_remark_can_hold_markup_or_control_characters() -> None:
    table = make_table((HOSTILE,), (HOSTILE,))
    table.add_row(HOSTILE, HOSTILE)
    stream = io.StringIO()
    Console(file=stream, width=2000).print(titled(HOSTILE, table, HOSTILE))
    assert stream.getvalue().count(visible(HOSTILE)) == 6
    assert_harmless(stream.getvalue())
