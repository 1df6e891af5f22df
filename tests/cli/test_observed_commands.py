"""What monitors saw, as a user asks for it: `show`, `report`, `analyse` and `store`; never mixed with planned steps."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from forgetscope.cli.app import app
from forgetscope.store import Store, commit_observed, parquet_bytes, write_running
from observed_steps import incomplete, observe, observed_record
from strangers import GOLDEN, golden_copy, put


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def output(*arguments: str | Path) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def error(*arguments: str | Path) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Error: ")
    return result.stderr


@pytest.fixture
def alone(tmp_path: Path) -> Store:
    """A store with nothing but observed steps."""
    store = Store(tmp_path / "alone")
    observe(store)
    commit_observed(store, incomplete(4), "2026-01-02T00:00:00+00:00")
    observe(store, 2, "ducks", settings={"lr": 0.2})
    write_running(store, observed_record(3, "ducks", status="running"))
    return store


@pytest.fixture
def both(tmp_path: Path) -> Store:
    store = golden_copy(tmp_path / "both")
    observe(store)
    return store


def test_a_store_of_observed_steps_alone_is_shown(alone: Store) -> None:
    text = output("show", alone.path)
    assert "Observed: 2 monitors" in text
    assert "birds · Sequential · lr=0.1 memory=10" in text
    assert "2 2 2 2 69 % 0.28 0.19 0.19 wren 0.38, owl 0.19" in text
    assert "Step 4 is incomplete and excluded from all statistics: RuntimeError: stopped." in text
    assert "Step 3 is not finished: 2 epochs so far." in text
    assert "Past classes after step 3 of birds, most forgotten first" in text  # whose last step came last


def test_one_monitor_and_one_step_can_be_asked_for(alone: Store) -> None:
    text = output("show", alone.path, "--observed", "birds", "--step", "2")
    assert "Past classes after step 2 of birds" in text
    assert "Measured at the last layer." in text
    assert "ducks" not in text
    assert "steps of 'birds' that have past classes: 2, 3" in error("show", alone.path, "--observed", "birds", "--step", "9")
    assert "monitors: birds, ducks" in error("show", alone.path, "--observed", "geese")
    assert "--id and --observed name two things" in error("show", alone.path, "--observed", "birds", "--id", "f")


def test_programs_get_the_same(alone: Store) -> None:
    whole = json.loads(invoke("show", alone.path, "--json").stdout)
    assert (whole["experiments"], whole["experiment"]) == ([], None)
    assert [one["monitor"] for one in whole["observed"]] == ["birds", "ducks"]
    assert [step["status"] for step in whole["observed"][1]["steps"]] == ["done", "done", "running"]
    assert whole["latest"]["monitor"] == "birds"
    one = json.loads(invoke("show", alone.path, "--observed", "birds", "--json").stdout)
    assert one["summaries"][0]["mean_forgetting"] == pytest.approx(0.28125)
    assert len(one["classes"]) == 2 + 4 + 6
    held = json.loads(invoke("store", "list", alone.path, "--json").stdout)
    assert (held["steps"], held["observed"], held["monitors"]) == (0, 6, 2)
    assert json.loads(invoke("store", "verify", alone.path, "--json").stdout)["observed"] == 6
    analysis = json.loads(invoke("analyse", alone.path, "--table", "observed_steps", "--json").stdout)
    assert analysis["groups"][0]["setting"] == ["lr=0.1", "memory=10"]
    assert "Settings are what the user" in analysis["cannot_know"][0]
    assert "RuntimeError" in analysis["left_out"]["birds"][0]


def test_planned_and_observed_steps_are_never_mixed(both: Store, tmp_path: Path) -> None:
    text = output("show", both.path)
    alone = output("show", GOLDEN)
    assert text.startswith(re.split(r" Step \d: ", alone)[0])  # then what monitors saw
    assert alone[alone.index("Past classes") : alone.index("The classes above")] in text
    assert "Observed: 1 monitor birds" in text
    for command in (("analyse", "--table", "noise", "--json"), ("store", "sql", "SELECT count(*) AS n FROM classes", "--json")):
        one, other = (json.loads(invoke(*command[:-1], path, command[-1]).stdout) for path in (GOLDEN, both.path))
        for found in (one, other):
            if isinstance(found, dict):
                found.pop("store")
        assert one == other
    assert "experiment" in json.loads(invoke("show", both.path, "--json").stdout)
    page = tmp_path / "page.html"
    output("report", both.path, "-o", page)
    assert "wren" not in page.read_text()


def test_a_page_of_what_a_monitor_saw(alone: Store, both: Store, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for arguments in ((alone.path, "--observed", "birds"), (both.path, "--observed", "birds"), (alone.path,)):
        page.unlink(missing_ok=True)
        output("report", *arguments, "-o", page)
        assert "What Sequential forgot in steps 2 to 3, seen by the monitor birds" in page.read_text()
    assert "--experiment and --observed" in error("report", both.path, "--observed", "birds", "--experiment", "f2", "-o", page)
    assert "--format pdf and --observed" in error("report", both.path, "--observed", "birds", "--format", "pdf")


def test_a_monitor_that_saw_no_end_has_no_page(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    commit_observed(store, incomplete(1))
    assert "No step came to its end" in output("show", store.path)
    message = error("report", store.path, "-o", tmp_path / "page.html")
    assert "birds has nothing to show. No step came to its end" in message
    assert "No step has past classes yet." in output("analyse", store.path, "--out", tmp_path / "out")


def test_a_program_that_names_no_folder_gets_numbers_and_nothing_is_written(
    alone: Store, both: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (("analyse", alone.path), ("analyse", both.path, "--resamples", "200")):
        assert json.loads(invoke(*command, "--json").stdout)
    assert not (tmp_path / "forgetscope-analysis").exists()
    json.loads(invoke("analyse", alone.path, "--json", "--out", "here").stdout)
    assert (tmp_path / "here" / "observed").is_dir()


def test_files_that_take_the_place_of_another_analysis_are_said_to(
    alone: Store, both: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, earlier = tmp_path / "forgetscope-analysis", ", in place of those of an earlier analysis"
    assert f"The files: {folder} " in output("analyse", alone.path)
    assert f"The files{earlier}: {folder} " in output("analyse", both.path, "--resamples", "200")
    assert f"The files{earlier}: {folder} " in output("analyse", alone.path)


def test_observed_steps_are_analysed_by_settings(alone: Store, both: Store, tmp_path: Path) -> None:
    text = output("analyse", alone.path, "--out", tmp_path / "out")
    assert "Means over monitors with equal settings" in text
    assert "birds: Step 4 is incomplete" in text
    assert "they are made of planned steps only" in text
    assert sorted(path.name for path in (tmp_path / "out" / "observed").iterdir()) == [
        f"observed_{name}.{kind}" for name in ("classes", "settings", "steps") for kind in ("csv", "parquet")
    ]
    table = output("analyse", both.path, "--observed", "--table", "observed_steps")
    assert "birds 2 {" in table
    assert "'nothing' is not known" in error("analyse", both.path, "--observed", "--table", "nothing")
    assert "holds no observed steps" in error("analyse", GOLDEN, "--observed", "--table", "observed_steps")


def test_a_damaged_one_is_named_and_the_others_are_shown(alone: Store) -> None:
    step = alone.observed_step("birds", 3)
    put(step, "confusion.parquet", parquet_bytes(step.table("confusion").slice(1)))
    for command in (
        ("show", alone.path),
        ("analyse", alone.path, "--table", "observed_steps"),
        ("show", alone.path, "--observed", "birds"),
    ):
        result = invoke(*command)
        assert result.exit_code == 0
        assert "Left out: Observed step birds/3 is damaged" in result.stderr
    result = invoke("store", "verify", alone.path)
    assert result.exit_code == 1
    assert "birds/3/predictions.parquet" in result.stdout
    assert "Moved to" in invoke("store", "verify", alone.path, "--quarantine").stdout
    assert invoke("store", "verify", alone.path).exit_code == 0


@pytest.mark.parametrize("command", [("show",), ("report", "-o", "page.html"), ("analyse", "--table", "observed_steps")])
def test_where_everything_is_damaged_it_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store")
    step = observe(store, 1)[0]
    (step.folder / "observed.json").write_bytes(b"{")
    assert "birds/1 is damaged" in error(command[0], store.path, *command[1:])


def test_a_folder_that_is_a_link_is_named_and_not_followed(both: Store, tmp_path: Path) -> None:
    (both.path / "observed").rename(tmp_path / "elsewhere")
    (both.path / "observed").symlink_to(tmp_path / "elsewhere")
    result = invoke("show", both.path)
    assert (result.exit_code, "Observed" in result.stdout) == (0, False)
    assert "Left out:" in result.stderr
    assert "is a link to" in result.stderr


def test_they_travel(both: Store, tmp_path: Path) -> None:
    file = tmp_path / "a.tar"
    assert "2 steps and 3 observed steps" in output("store", "export", both.path, "-o", file)
    assert "5 steps imported" in output("store", "import", file, tmp_path / "copy")
    assert "Exported 0 steps and 3 observed steps" in output("store", "export", both.path, "-o", file, "--observed", "birds")
    assert "Exported 2 steps to" in output("store", "export", both.path, "-o", file, "--id", "f3fa")
    result = output("store", "import", file, tmp_path / "third")
    assert "2 steps imported" in result


def test_another_step_of_a_number_is_no_damage_of_the_file(both: Store, tmp_path: Path) -> None:
    file, other = tmp_path / "a.tar", Store(tmp_path / "other")
    output("store", "export", both.path, "-o", file, "--observed", "birds")
    observe(other, 1, network="mine")
    result = invoke("store", "import", file, other.path)
    assert result.exit_code == 1
    assert "2 steps imported" in result.stdout
    assert (
        f"observed/birds/1 was not imported: another observed step of this name and number is in {other.path}" in result.stderr
    )
    assert f"{file} is whole. Import it into another store to have both: forgetscope store import {file}" in result.stderr
    assert "damaged" not in result.stderr
    assert json.loads(invoke("store", "import", file, other.path, "--json").stdout)["taken"] == ["observed/birds/1"]


def test_what_was_observed_is_not_said_to_be_made_again(both: Store) -> None:
    (both.observed_step("birds", 2).folder / "pairs.parquet").write_bytes(b"harmed")
    said = invoke("store", "verify", both.path, "--quarantine").stdout
    assert "An observed step cannot be made again: import it from a copy of the store" in said
    assert "run what made them again" not in said


def test_that_there_are_observed_steps_is_mentioned(both: Store, tmp_path: Path) -> None:
    mention = f"3 observed steps are in {both.path} too, and not in this: --observed shows them (monitors: birds)."
    assert mention in output("report", both.path, "-o", tmp_path / "page.html")
    assert mention in output("analyse", both.path, "--out", tmp_path / "out")
    assert "observed step" not in output("report", both.path, "--observed", "birds", "-o", tmp_path / "page.html")


def test_of_two_monitors_the_one_that_is_shown_is_named(alone: Store, tmp_path: Path) -> None:
    said = output("report", alone.path, "-o", tmp_path / "page.html")
    assert "It is of the monitor birds, whose last step is the latest; --observed NAME: ducks" in said
    assert "whose last" not in output("report", alone.path, "--observed", "ducks", "-o", tmp_path / "page.html")


def test_what_does_not_apply_to_observed_steps_is_refused(alone: Store, both: Store, tmp_path: Path) -> None:
    for options in (("--coding", "treatment"), ("--controls", "paper"), ("--resamples", "200"), ("--joint-over-time",)):
        message = error("analyse", both.path, "--observed", *options, "--out", tmp_path / "out")
        assert f"{options[0]}: for planned steps only" in message
    assert "--coding: for planned" in error("analyse", alone.path, "--coding", "treatment", "--out", tmp_path / "out")
    message = error("report", alone.path, "--format", "pdf", "-o", tmp_path / "a.pdf")
    assert f"made of planned steps, and {alone.path} holds observed ones only" in message
    assert f"`forgetscope report {alone.path}`" in message


def test_observed_steps_begin_with_1(tmp_path: Path, both: Store) -> None:
    store, record = Store(tmp_path / "store"), observed_record(2)
    classes = record.tables["classes"]
    introduced = pa.array([0, 0, 1, 1], classes.schema.field("introduced_step").type)
    classes = classes.set_column(classes.column_names.index("introduced_step"), "introduced_step", introduced)
    commit_observed(store, dataclasses.replace(record, number=1, tables={**record.tables, "classes": classes}))
    assert "Past classes after step 1 of birds" in output("show", store.path, "--observed", "birds", "--step", "1")
    assert "--step 1: experiment f3fa24f9 has 2 steps, and past classes from step 2 on." in error(
        "show", both.path, "--step", "1"
    )


def test_a_query_over_planned_steps_where_there_are_none_is_told_of_the_others(alone: Store, both: Store) -> None:
    hint = f"{alone.path} holds observed steps only; their tables are observed, observed_classes, "
    assert hint in invoke("store", "sql", "from classes", alone.path).stderr
    assert hint not in invoke("store", "sql", "from observed_classes", alone.path).stderr
    assert hint not in invoke("store", "sql", "from classes", both.path).stderr


def test_text_of_a_stranger_steers_no_terminal(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    observe(store, 2, settings={"a\x1b[2J": "b\x1b[31m"}, network="\x1b[1mnet", said=("\x1b[2J",))
    commit_observed(store, incomplete(3, reason="[red]\x1b[2J"))
    for command in (("show",), ("show", "--observed", "birds"), ("analyse", "--table", "observed_steps")):
        result = invoke(command[0], store.path, *command[1:])
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout + result.stderr
