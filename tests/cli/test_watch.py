"""`forgetscope watch`, as somebody types it beside a run, or a script asks."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from test_app import COMMAND, invoke
from typer.testing import CliRunner

from conftest import TINY, heed_interruptions
from forgetscope.cli.app import app
from forgetscope.store import Store
from underway.cut import cut_off, second_steps
from underway.test_lookout import everything, halted, say, stopped

__all__ = ["halted", "stopped"]  # fixtures


@pytest.fixture
def foreseen(replicated: Path, tmp_path: Path) -> Path:
    """A store with nothing but a step that runs."""
    store = Store(tmp_path / "foreseen")
    store.prepare()
    cut_off(second_steps(Store(replicated))[0], 11, store)
    return store.path


PROMISED = {"step", "epoch", "epochs", "loss", "seconds_left", "at_risk"}
OF_CLASSES = {"class_id", "class_name", "rank", "moved", "sic", "nic", "why", "forecast"}


def looked(store: Path) -> dict[str, Any]:
    result = invoke("watch", store, "--once", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_script_gets_what_runs_and_what_is_done(halted: Path) -> None:
    before = everything(halted)
    found = looked(halted)
    assert set(found) == {"running", "silent", "finished", "forecasts_by"}
    assert found["running"] == []
    (one,) = found["silent"]
    assert set(one) >= PROMISED
    assert one["state"] == "stopped"
    assert all(set(row) >= OF_CLASSES for row in one["at_risk"])
    assert all(row["forecast"] is row["forecast_low"] is row["so_far"] is None for row in one["at_risk"])
    assert one["forecasts_by"] == found["forecasts_by"]
    assert one["forecasts_by"].startswith("No forecast: this store has no finished step like this one")
    assert [row["rank"] for row in one["at_risk"]] == [1, 2, 3]
    assert [step["number"] for step in found["finished"]] == [1]
    assert everything(halted) == before


def test_a_person_is_told_what_became_of_a_run_and_what_to_type_next(halted: Path) -> None:
    shown = invoke("watch", halted, "--once").stdout
    assert "Nothing is running in" in shown
    assert "was stopped after epoch 1" in shown
    assert "The command that ran it goes on from there." in shown
    assert f"forgetscope show {halted}" in shown
    say(halted, state="running", heartbeat="2020-01-01T00:00:00+00:00")
    assert "it was killed, or its machine stands still" in invoke("watch", halted, "--once").stdout


def test_classes_at_risk_fit_eighty_columns(halted: Path) -> None:
    say(halted, state="running", heartbeat="2999-01-01T00:00:00+00:00", names=["maple tree", "owl", "a fox", "snake", "d"])
    shown = CliRunner().invoke(app, ["watch", str(halted), "--once"], env={"COLUMNS": "80"}).stdout
    assert "1 step is running" in shown
    assert {"maple", "owl", "memory", "down"} & set(shown.split())
    assert max(len(line) for line in shown.splitlines() if "/" not in line) <= 80  # a path is not broken


def test_final_forgetting_is_forecast_with_its_interval_in_eighty_columns(foreseen: Path) -> None:
    (one,) = looked(foreseen)["running"]
    assert [row["forecast_low"] < row["forecast"] < row["forecast_high"] for row in one["at_risk"]] == [True] * 5
    shown = CliRunner().invoke(app, ["watch", str(foreseen), "--once"], env={"COLUMNS": "80"}).stdout
    first = one["at_risk"][0]
    assert f"{first['forecast']:.2f}  ({first['forecast_low']:.2f}, {first['forecast_high']:.2f})" in shown
    assert " ".join(shown.split()).count("Forecasts are by the model that ships with forgetscope, fitted on 124 steps") == 1
    assert max(len(line) for line in shown.splitlines() if "/" not in line) <= 80


def test_alarms_are_lines_and_for_scripts_values_and_run_a_command_once_each(foreseen: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    append = f"sh -c 'echo \"$FORGETSCOPE_CLASS_NAME\" >> {told}'"
    shown = invoke("watch", foreseen, "--once", "--alarm", "rank <= 2", "--alarm", "nobody: sic > 1", "--exec", append)
    first, second = (row["class_name"] for row in looked(foreseen)["running"][0]["at_risk"][:2])
    assert f"Alarm: {first} in step 2" in shown.stdout
    assert "has no class 'nobody'" in shown.stderr
    assert sorted(told.read_text(encoding="utf-8").split("\n")) == sorted(["", first, second])
    found = json.loads(invoke("watch", foreseen, "--once", "--json", "--alarm", "rank <= 2").stdout)
    assert [(one["class_name"], one["value"], one["alarm"]) for one in found["alarms"]] == [
        (first, 1, "rank <= 2"), (second, 2, "rank <= 2"),
    ]  # fmt: skip


def test_alarms_and_commands_that_cannot_be_are_refused(foreseen: Path) -> None:
    refused = invoke("watch", foreseen, "--once", "--alarm", "forgetting > 1")
    assert (refused.exit_code, "Measures are forecast, " in refused.stderr) == (2, True)
    assert "there is no program 'nonesuch'" in invoke("watch", foreseen, "--alarm", "sic > 1", "--exec", "nonesuch").stderr
    assert "a page says nothing by itself" in invoke("watch", foreseen, "--page", "--alarm", "sic > 1").stderr
    assert "--exec runs a command for each alarm" in invoke("watch", foreseen, "--once", "--exec", "true").stderr


def test_alarms_into_a_pipe_and_on_a_terminal_that_is_left(foreseen: Path) -> None:
    command = [*COMMAND, "watch", str(foreseen), "--every", "0.2", "--alarm", "rank <= 1"]
    process = subprocess.Popen(
        [*command, "--json", "--exec", "sh -c 'exit 4'"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interruptions,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    assert [one["value"] for one in json.loads(process.stdout.readline())["alarms"]] == [1]
    assert "ended with exit code 4" in process.stderr.readline()
    say(foreseen, epoch=11)
    assert json.loads(process.stdout.readline())["alarms"] == []
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=heed_interruptions, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    read_until(ours, b"Alarm: ")
    process.send_signal(signal.SIGINT)
    left = read_until(ours, b"nothing more").rpartition(b"\x1b[?1049l")[2]
    assert process.wait(timeout=30) == 0
    assert b"Alarm: " in left


def test_names_of_classes_cannot_control_a_terminal(halted: Path) -> None:
    say(halted, state="running", heartbeat="2999-01-01T00:00:00+00:00", names=["\x1b[31mred", "[bold]b", "c\nd", "e", "f"])
    shown = invoke("watch", halted, "--once").stdout
    assert "\x1b" not in shown
    assert "[bold]b" in shown


def test_a_folder_that_is_no_store_is_told(tmp_path: Path) -> None:
    result = invoke("watch", tmp_path, "--once")
    assert (result.exit_code, "There is no store at" in result.stderr) == (2, True)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_terminal_is_left_as_it_was(halted: Path, how: signal.Signals) -> None:
    say(halted, state="running", heartbeat="2999-01-01T00:00:00+00:00", step="/" * 3)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "watch", str(halted), "--every", "0.2"],
        stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=heed_interruptions, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    shown = read_until(ours, b"Ctrl-C ends this")
    process.send_signal(how)
    shown += read_until(ours, b"\x1b[?1049l")
    assert process.wait(timeout=30) == 0
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1  # a screen of its own, and back
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # the cursor is there again
    assert b"Traceback" not in shown


def read_until(terminal: int, what: bytes) -> bytes:
    found, until = b"", time.monotonic() + 60
    while what not in found:
        assert time.monotonic() < until, found
        if select.select([terminal], [], [], 1)[0]:
            try:
                found += os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
    return found


@pytest.mark.slow
def test_beside_a_real_run_that_is_killed_and_goes_on(tmp_path: Path) -> None:
    """Seen in its second step with classes at risk; dead after kill -9 once it has been silent; gone when it is done."""
    config, store = tmp_path / "run.toml", tmp_path / "store"
    options = {**TINY, "sequence": [[0, 1, 2], [3, 4]], "epochs": 60}
    config.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in options.items()), encoding="utf-8")
    command = [*COMMAND, "run", str(config), "--store", str(store), "--threads", "1"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until, found = time.monotonic() + 240, {"running": []}
    while not (found["running"] and found["running"][0]["at_risk"]):
        assert time.monotonic() < until
        assert run.poll() is None
        if (store / "steps").is_dir():
            found = looked(store)
        time.sleep(0.1)
    one = found["running"][0]
    assert (one["number"], one["epochs"], len(one["at_risk"])) == (2, 60, 3)
    assert one["at_risk"][0]["class_name"].startswith("digit")
    run.send_signal(signal.SIGKILL)
    run.wait()
    say(store, heartbeat="2020-01-01T00:00:00+00:00")
    assert [one["state"] for one in looked(store)["silent"]] == ["running"]
    assert subprocess.run(command, capture_output=True).returncode == 0
    found = looked(store)
    assert found["running"] == found["silent"] == []
    assert [step["number"] for step in found["finished"]] == [2, 1]


def test_into_a_pipe_it_prints_each_change(halted: Path) -> None:
    say(halted, state="running", heartbeat="2999-01-01T00:00:00+00:00")
    process = subprocess.Popen(
        [*COMMAND, "watch", str(halted), "--json", "--every", "0.2"],
        stdout=subprocess.PIPE, text=True, preexec_fn=heed_interruptions,
    )  # fmt: skip
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert [one["epoch"] for one in first["running"]] == [1]
    say(halted, epoch=2)
    second = json.loads(process.stdout.readline())
    assert [one["epoch"] for one in second["running"]] == [2]
    shutil.rmtree(halted / "working")
    assert json.loads(process.stdout.readline())["running"] == []
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    process.stdout.close()
