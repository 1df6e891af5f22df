"""The commands as a user types them. Errors are one paragraph, exit code 2, no traceback."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from conftest import TINY, heed_interruptions, raise_schema, run_experiment
from forgetscope.cli.app import app
from forgetscope.spec import RunSpec
from forgetscope.store import SCHEMA, TABLES, Store

HEAVY = {"torch", "pandas", "statsmodels", "matplotlib", "plotly", "scipy", "duckdb", "pyarrow", "numpy", "pydantic", "PIL"}
COMMAND = [sys.executable, "-m", "forgetscope"]


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def assert_one_clear_error(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr.replace("\n", " ")), result.stderr
    assert result.stderr.startswith("Error: ")
    assert "\n\n" not in result.stderr.strip()
    assert "Traceback" not in result.stderr


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RunSpec(**TINY).to_toml())
    return path


@pytest.fixture
def store(tiny_store: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_store, tmp_path / "store")


def test_light_imports_and_help_pull_in_nothing_heavy() -> None:
    for code in ("import forgetscope", "import forgetscope.cli", "import forgetscope.cli.app"):
        listing = f"{code}; import sys; print(*sys.modules)"
        imported = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
        assert not HEAVY & set(imported)
    trace = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "forgetscope", "--help"], capture_output=True, text=True, check=True
    )
    imported = {line.rsplit("|", 1)[1].strip() for line in trace.stderr.splitlines() if line.startswith("import time:")}
    assert not HEAVY & imported
    assert "forgetscope.cli.app" in imported


def test_version_and_help() -> None:
    import forgetscope

    assert invoke("--version").output.strip() == f"forgetscope {forgetscope.__version__}"
    for command in ("demo", "run", "show", "report", "config", "simulate"):
        result = invoke(command, "--help")
        assert result.exit_code == 0
        assert f"Example: forgetscope {command}" in result.output


def test_config_prints_a_file_that_run_accepts(tmp_path: Path) -> None:
    assert RunSpec(**tomllib.loads(invoke("config").output)) == RunSpec()
    path = tmp_path / "mine.toml"
    path.write_text("epochs = 7\n")
    resolved = invoke("config", path, "--set", "seed=3").output
    assert RunSpec(**tomllib.loads(resolved)) == RunSpec(epochs=7, seed=3)


def test_run_then_run_again(config: Path, tmp_path: Path) -> None:
    first = invoke("run", config, "--store", tmp_path / "s", "--threads", "1", "--set", "sequence=[[0, 1], [2, 3]]")
    assert first.exit_code == 0, first.output
    assert re.search(r"Past classes after step 2 of \w{8}, most forgotten first", first.stdout)
    assert re.search(r"step 2/2  epoch 2/2  loss \d\.\d{3}  accuracy \d+ %  0:00 left", first.stderr)
    again = invoke("run", config, "--store", tmp_path / "s", "--threads", "1", "--set", "sequence=[[0, 1], [2, 3]]")
    assert again.exit_code == 0
    assert "Nothing to do: all 2 steps are in the store already." in again.stderr
    assert again.stdout == first.stdout


def test_json_holds_what_the_tables_hold(config: Path, store: Path) -> None:
    ran = json.loads(invoke("run", config, "--store", store, "--json").stdout)
    assert [len(step["spec"]["classes"]) for step in ran["steps"]] == [2, 2, 2]
    shown = json.loads(invoke("show", store, "--json").stdout)
    assert shown["experiment"] == ran
    assert shown["experiments"][0]["id"] == ran["id"]
    assert {row["step"] for row in ran["classes"]} == {1, 2, 3}
    assert set(ran["summaries"][0]["correlations"]) == {"sic", "cic", "nic", "all_nic", "log_sim"}


def test_show_by_id_and_step(store: Path) -> None:
    id = Store(store).experiments()[0][-1].id
    assert f"Past classes after step 2 of {id[:8]}" in invoke("show", store, "--id", id[:6], "--step", "2").output
    assert_one_clear_error(invoke("show", store, "--step", "9"), r"--step 9: experiment \w{8} has 3 steps")
    assert_one_clear_error(invoke("show", store, "--id", "zz"), "No steps in .* begin with 'zz'")


def test_report_writes_a_page(store: Path, tmp_path: Path) -> None:
    result = invoke("report", store, "-o", tmp_path / "deep" / "page.html")
    assert result.exit_code == 0, result.output
    page = tmp_path / "deep" / "page.html"
    assert str(page) in result.output.replace("\n", "")
    assert page.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")


def test_a_page_that_cannot_be_written_is_one_clear_error(store: Path, tmp_path: Path) -> None:
    assert_one_clear_error(invoke("report", store, "-o", tmp_path), "is there and is a folder; it is left as it is")
    (tmp_path / "file").write_text("")
    result = invoke("report", store, "-o", tmp_path / "file" / "page.html")
    assert result.exit_code == 1
    assert "Cannot write the page to" in result.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epoch=3", r"There is no option 'epoch'. Did you mean 'epochs'\?"),
        ("retention=0", "retention = 0 is not valid: it should be greater than 0"),
        ("retention=1.5", "retention = 1.5 is not valid: it should be less than or equal to 1"),
        ("network=resnet9", "network = 'resnet9' is not known"),
        ("dataset=glyfs", r"There is no data set 'glyfs'. Did you mean 'glyphs'\?"),
        ("alpha=0.3", "is not a whole number"),
        ("nonsense", "is not of the form key=value"),
    ],
)
def test_wrong_options(setting: str, message: str, config: Path, tmp_path: Path) -> None:
    assert_one_clear_error(invoke("run", config, "--store", tmp_path / "s", "--set", setting), message)
    assert not (tmp_path / "s").exists()


def test_more_classes_than_the_data_set_has(tmp_path: Path) -> None:
    path = tmp_path / "many.toml"
    path.write_text("increment = 0.5\nsteps = 3\nimage_size = 8\n")
    assert_one_clear_error(
        invoke("run", path, "--store", tmp_path / "s"), "3 steps of 50 classes need 150 classes, but the data set has 100"
    )


def test_a_store_that_cannot_be_written(config: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_one_clear_error(invoke("run", config, "--store", tmp_path / "file" / "s"), "Cannot write to the store")


def test_a_missing_config(tmp_path: Path) -> None:
    assert_one_clear_error(invoke("run", tmp_path / "no.toml"), "Cannot read .*no.toml.*forgetscope config")


@pytest.mark.parametrize("command", ["show", "report"])
def test_a_store_that_is_not_there(command: str, tmp_path: Path) -> None:
    assert_one_clear_error(invoke(command, tmp_path / "none"), "There is no store at")


def test_damaged_steps_are_named_and_the_others_shown(store: Path) -> None:
    for folder in (store / "steps").iterdir():
        (folder / "classes.parquet").write_bytes(b"")
    result = invoke("show", store)  # of a first step, nothing is shown that is in its tables
    assert result.exit_code == 0
    assert re.findall(r"Left out: Step (\w{8}) is damaged", result.stderr) == sorted(["9527e7e2", "f3fa24f9"])
    assert "f20597d0" in result.stdout
    assert "f3fa24f9" not in result.stdout


@pytest.mark.parametrize(
    ("command", "file"),
    [
        *(("show", name) for name in ("step.json", "manifest.json")),
        *(("report", f"{name}") for name in ("step.json", "classes.parquet")),
    ],
)
def test_a_damaged_step_stops_those_who_look(command: str, file: str, store: Path, tmp_path: Path) -> None:
    for folder in (store / "steps").iterdir():
        (folder / file).write_bytes((folder / file).read_bytes()[:-5])
    result = invoke(command, store, *(["-o", tmp_path / "page.html"] if command == "report" else []))
    assert_one_clear_error(result, rf"Step \w{{8}} is damaged: .*{file}.*store verify .* --quarantine")
    assert not (tmp_path / "page.html").exists()


def test_a_newer_schema_stops_those_who_look(store: Path) -> None:
    for folder in (store / "steps").iterdir():
        raise_schema(folder)
    assert_one_clear_error(invoke("show", store), f"has schema version {SCHEMA + 1}; this forgetscope reads up to {SCHEMA}")


def start(config: Path, store: Path) -> subprocess.Popen[str]:
    arguments = ["run", str(config), "--store", str(store), "--threads", "1", "--set", "epochs=20"]
    return subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interruptions
    )


def wait_for_snapshot(store: Path, process: subprocess.Popen[str], after_steps: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        committed = len(list((store / "steps").glob("*"))) if (store / "steps").is_dir() else 0
        if committed == after_steps and list((store / "working").glob("*/snapshot-*")):
            return
        time.sleep(0.005)
    pytest.fail(f"no snapshot was seen: {process.communicate()}")


@pytest.mark.slow
def test_kill_9_at_any_time_and_the_same_command_ends_in_the_same_bytes(config: Path, tmp_path: Path) -> None:
    whole = Store(tmp_path / "whole")
    plan = run_experiment(RunSpec(**{**TINY, "epochs": 20}), whole, device="cpu", threads=1)
    killed = tmp_path / "killed"
    for after_steps in (0, 1, 2):
        process = start(config, killed)
        wait_for_snapshot(killed, process, after_steps)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    process = start(config, killed)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    for step in plan.steps:
        for name in ["state.safetensors", *(f"{name}.parquet" for name in (*TABLES, "predictions"))]:
            ours, theirs = (store / "steps" / step.id / name for store in (whole.path, killed))
            assert ours.read_bytes() == theirs.read_bytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_says_how_to_go_on(how: signal.Signals, config: Path, tmp_path: Path) -> None:
    process = start(config, tmp_path / "s")
    wait_for_snapshot(tmp_path / "s", process, 0)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "Run the same command again to continue." in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_two_processes_at_once_share_the_work(config: Path, tmp_path: Path) -> None:
    processes = [start(config, tmp_path / "s") for _ in range(2)]
    results = [(process.communicate(timeout=300), process.returncode) for process in processes]
    assert [code for _, code in results] == [0, 0], results
    assert len(list((tmp_path / "s" / "steps").iterdir())) == 3
    assert results[0][0][0] == results[1][0][0]  # both print the same tables
    assert any("Another process is running step" in errors for (_, errors), _ in results)


def test_a_plan_says_that_no_increment_reaches_so_many_steps() -> None:
    result = invoke("bench", "plan", "glyphs", "--no-estimate", "--set", "steps=999")
    assert "No increment reaches more than 10 steps; 999 were asked for." in result.stderr
    assert "No increment" not in invoke("bench", "plan", "glyphs", "--no-estimate").stderr
