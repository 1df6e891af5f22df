"""What helps to find and to type commands: lists, `-h`, hints, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from forgetscope.cli.app import app

GROUPS = ("", "bench", "data", "store")
COMMAND = [sys.executable, "-m", "forgetscope"]


def listing(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), terminal_width=80, prog_name="forgetscope")
    assert result.exit_code == 0, result.output
    return result.output


def all_commands() -> list[tuple[str, ...]]:
    root = get_command(app)
    groups = {group: root if not group else root.commands[group] for group in GROUPS}  # type: ignore[attr-defined]
    return [tuple(filter(None, (group, name))) for group, found in groups.items() for name in found.commands]


def completion(instruction: str, **environment: str) -> str:
    variables = {**os.environ, "_FORGETSCOPE_COMPLETE": instruction, **environment}
    return subprocess.run(COMMAND, env=variables, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("group", GROUPS)
def test_the_list_of_commands_is_not_cut(group: str) -> None:
    listed = listing(*filter(None, [group]), "--help").partition("Commands:")[2]
    assert "..." not in listed
    assert len(listed.splitlines()) > 5
    assert max(map(len, listed.splitlines())) <= 80


def test_the_list_has_whole_sentences() -> None:
    assert "and get a page that shows what it forgot." in " ".join(listing("--help").split())


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_h_is_help(command: tuple[str, ...]) -> None:
    assert listing(*command, "-h") == listing(*command, "--help") != ""


TRAINING = ("run", "compare", "variants", "controlled", "bench run", "bench retry")


@pytest.mark.parametrize("command", TRAINING)
@pytest.mark.parametrize("option", ["--device", "--threads", "--no-channels-last", "--compile"])
def test_whatever_trains_says_how_in_the_same_words(command: str, option: str) -> None:
    assert option in listing(*command.split(), "--help")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["shwo"], "No such command 'shwo'. Did you mean 'show'?"),
        (["bench", "rum"], "No such command 'rum'. Did you mean 'run'?"),
        (["run", "--stor", "x"], "No such option: --stor (Possible options: --json, --set, --store)"),
    ],
)
def test_a_misspelt_word_gets_a_hint(words: list[str], hint: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert hint in result.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("b", {"bench"}), ("bench re", {"retry"}), ("report --w", {"--width"}), ("store ", {"list", "verify", "gc"})],
)
def test_bash_completes_commands_and_options(typed: str, offered: set[str]) -> None:
    answer = completion("complete_bash", COMP_WORDS=f"forgetscope {typed}", COMP_CWORD=str(len(typed.split(" "))))
    assert offered <= set(answer.split())
    assert typed.endswith(" ") or offered == set(answer.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_completion_script(shell: str) -> None:
    script = completion(f"source_{shell}")
    assert f"_FORGETSCOPE_COMPLETE=complete_{shell}" in script
    assert "forgetscope" in script


def test_fish_gets_one_line_per_command() -> None:
    answer = completion("complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args", _TYPER_COMPLETE_ARGS="forgetscope ")
    assert [line.split("\t")[0] for line in answer.splitlines()] == list(get_command(app).commands)  # type: ignore[attr-defined]


def test_completion_that_cannot_be_installed_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = {"HOME": str(tmp_path / "file"), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    arguments = [*COMMAND, "--install-completion", "bash"]
    result = subprocess.run(arguments, env={**os.environ, **home}, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("Error: Cannot install completion: ")
    assert result.stderr.count("\n") == 1


def test_python_m_has_the_name_of_the_command() -> None:
    result = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("Usage: forgetscope [OPTIONS] COMMAND")


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (["lemma", "--hidden", "999999999"], 4096),
        (["simulate", "glyphs", "--reruns", "99999999999"], 10_000),
        (["controlled", "glyphs", "--runs", "99999999999"], 10_000),
        (["compare", "--pairs", "99999999999"], 10_000),
        (["analyse", "nowhere", "--resamples", "99999999999999999999"], 10**9),
        (["run", "my.toml", "--threads", "100000"], 1024),
        (["bench", "run", "glyphs", "--jobs", "100000"], 1024),
    ],
)
def test_a_count_that_cannot_be_meant_is_refused_before_anything_starts(words: list[str], limit: int) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert str(limit) in result.stderr
