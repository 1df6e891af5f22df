"""Standard streams that are closed, full, gone or ASCII: lost results are told, lost messages stop nothing."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import TINY
from forgetscope.progress import watch
from forgetscope.spec import RunSpec
from forgetscope.store import Store

LIGHT = ("--version", "bench --help", "config", "data list --json")


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Through a shell, because only that can close a stream; `forgetscope` is this interpreter's."""
    function = f'forgetscope() {{ {shlex.quote(sys.executable)} -m forgetscope "$@"; }}\n'
    arguments = ["bash", "-c", function + command]
    return subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


@pytest.mark.parametrize("arguments", LIGHT)
def test_output_that_a_full_disk_refuses_is_one_line_and_a_failure(arguments: str) -> None:
    result = shell(f"forgetscope {arguments} > /dev/full")
    assert result.returncode == 1
    assert result.stderr == (
        "Error: Cannot write to standard output: No space left on device. What was to be printed is not complete.\n"
    )


@pytest.mark.parametrize("arguments", ["config", "--help"])
def test_closed_output_is_told_like_a_full_disk(arguments: str) -> None:
    result = shell(f"forgetscope {arguments} >&-")
    assert result.returncode == 1
    assert result.stderr.startswith("Error: Cannot write to standard output: Bad file descriptor.")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", ["config", "--help", "data list --json"])
def test_a_reader_that_has_seen_enough_ends_the_command_without_a_word(arguments: str) -> None:
    result = shell(f'forgetscope {arguments} | true; echo "${{PIPESTATUS[0]}}"')
    assert (result.stdout, result.stderr) == ("1\n", "")


def test_closed_streams_do_not_lend_their_numbers_to_files() -> None:
    """The file that is opened first would become standard error, and what is told there would be written into it."""
    code = "from forgetscope.cli.streams import mend_streams as mend; mend(); print(open('/dev/null').fileno() > 2)"
    assert shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} <&- 2>&-").stdout == "True\n"


@pytest.mark.parametrize("messages", ["2>&-", "2>/dev/full", "2> >(true)"])
def test_messages_that_nobody_reads_stop_no_command(messages: str) -> None:
    result = shell(f"forgetscope show nowhere {messages}; echo $?")
    assert (result.stdout, result.stderr) == ("2\n", "")


def test_a_run_whose_messages_nobody_reads_is_run(tmp_path: Path) -> None:
    config = tmp_path / "tiny.toml"
    config.write_text(RunSpec(**{**TINY, "sequence": ((0, 1), (2, 3)), "epochs": 1}).to_toml())
    result = shell(f"forgetscope run {config} --store {tmp_path / 's'} --threads 1 2>&- <&-")
    assert result.returncode == 0
    assert "Past classes after step 2" in result.stdout
    assert len(Store(tmp_path / "s").experiments()[0]) == 2


def test_progress_without_standard_error_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with watch() as progress:
        progress.note("anything")
    assert capsys.readouterr().out == ""


PLAIN = ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})


@pytest.mark.parametrize("environment", PLAIN)
def test_an_ascii_terminal_gets_likenesses_and_escapes(environment: dict[str, str], store: Store) -> None:
    result = shell(f"forgetscope show {store.path}; forgetscope show caf\u00e9", **environment)
    assert result.stdout.isascii()
    assert "How unevenly, and what saw it coming (r: rank correlation with forgetting)" in result.stdout
    assert "Traceback" not in result.stderr
    assert "There is no store at caf" in result.stderr


def test_json_on_an_ascii_terminal_is_still_json() -> None:
    printed = (
        "from forgetscope.cli.streams import mend_streams as m; m(); from forgetscope.cli.console import print_json as p; "
    )
    printed += "p(['ρ – \\U0001f600'])"
    result = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(printed)}", PYTHONIOENCODING="ascii")
    assert result.stdout.isascii()
    assert json.loads(result.stdout) == ["ρ – \U0001f600"]
