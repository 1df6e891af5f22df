"""`forgetscope store` as a user types it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from forgetscope import progress
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.cli.app import app
from forgetscope.report.terminal import storage
from forgetscope.store import STATE, Store
from observed_steps import observe

COMMANDS = ("list", "verify", "gc", "export", "import", "sql")


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", *(str(argument) for argument in arguments)])


def output(*arguments: str | Path) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def harm(store: Store, id: str, name: str) -> Path:
    path = store.step(id).folder / name
    path.write_bytes(path.read_bytes()[:-1])
    return path


def test_help_has_examples() -> None:
    for command in COMMANDS:
        assert f"Example: forgetscope store {command}" in " ".join(invoke(command, "--help").output.split())


@pytest.mark.parametrize("command", ["list", "verify", "gc", "export", "sql"])
def test_a_folder_that_is_no_store_is_one_clear_error(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(command, *(["SELECT 1"] if command == "sql" else []))
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: There is no store at forgetscope-store.")
    assert list(tmp_path.iterdir()) == []


def test_list_tells_what_takes_space(store: Store, chain: list[str]) -> None:
    shutil.copytree(store.step(chain[0]).folder, store.path / "quarantine" / f"{chain[0]}-1")
    store.working("f" * 32).mkdir()
    text = output("list", store.path)
    assert "1 experiment, 3 steps in" in text
    assert re.search(r"tables +3 +\d+\.\d kB", text)
    assert re.search(r"states +3 +\d+ kB", text)
    assert re.search(r"`forgetscope store gc` could free \d+ kB, with --all \d+ kB", text)
    assert re.search(rf"Quarantine: \d+ kB\nwhere +size\n.*{chain[0]}-1 +\d+ kB", text)
    facts = json.loads(output("list", store.path, "--json"))
    assert (facts["steps"], facts["experiments"], facts["states"]) == (3, 1, 3)
    assert [Path(folder["path"]).name for folder in facts["working"]] == ["f" * 32]


def test_verify_is_quiet_about_a_whole_store_and_names_what_is_damaged(store: Store, chain: list[str]) -> None:
    assert "Everything is as it was written: 3 steps and 0 snapshots" in output("verify", store.path)
    assert json.loads(output("verify", store.path, "--json"))["damage"] == []
    harmed = [harm(store, chain[0], STATE), harm(store, chain[2], "probes.parquet")]
    result = invoke("verify", store.path)
    assert result.exit_code == 1
    for path in harmed:
        assert f"{path}: {path.stat().st_size} bytes that do not match the checksum" in result.stdout.splitlines()
    assert f"To move it out of the way:\nNext: forgetscope store verify {store.path} --quarantine" in result.stdout
    as_json = invoke("verify", store.path, "--json")
    assert as_json.exit_code == 1
    assert {found["path"] for found in json.loads(as_json.stdout)["damage"]} == {str(path) for path in harmed}


def test_verify_moves_what_is_damaged_out_of_the_way_when_asked(store: Store, chain: list[str]) -> None:
    harm(store, chain[2], "probes.parquet")
    told = output("verify", store.path, "--quarantine")  # exit code 0: nothing damaged is left
    assert f"Moved to {store.path / 'quarantine' / chain[2]}-1" in told
    assert "run what made them again" in told
    assert "Everything is as it was written: 2 steps" in output("verify", store.path, "--quarantine")
    (store.path / "steps" / "stray").write_text("")
    assert f"Moved to {store.path / 'quarantine' / 'stray'}-1" in output("verify", store.path, "--quarantine")
    shutil.rmtree(store.step(chain[0]).folder)
    left = invoke("verify", store.path, "--quarantine")
    assert left.exit_code == 1
    assert "1 are left, because no move mends them: run what made a step again" in left.stdout


def test_a_long_verification_shows_how_far_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("verify", store.path).stderr == ""
    now = iter(range(0, 1000, 3))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    assert re.search(r"\d of \d MB +\d+:\d\d left", invoke("verify", store.path).stderr)


def test_gc_lists_first_and_frees_on_request(store: Store, chain: list[str]) -> None:
    state = store.step(chain[2]).folder / STATE
    dry = output("gc", store.path)
    assert re.search(r"Can be freed: \d+ kB", dry)
    assert f"steps/{chain[2]}/{STATE}" in dry
    assert f"To free this:Next: forgetscope store gc {store.path} --yes" in dry.replace("\n", "")
    assert state.exists()
    assert json.loads(output("gc", store.path, "--json"))["freed"] is False
    assert re.search(r"Freed: \d+ kB", output("gc", store.path, "--yes"))
    assert not state.exists()
    assert output("gc", store.path, "--yes").startswith("There is nothing to free.\nNext: ")
    assert "gc " + str(store.path) + " --all --yes" in output("gc", store.path, "--all").replace("\n", "")
    freed = json.loads(output("gc", store.path, "--all", "--yes", "--json"))
    assert {item["step"] for item in freed["items"]} == set(chain[:2])
    assert not list((store.path / "steps").glob(f"*/{STATE}"))
    output("verify", store.path)
    assert CliRunner().invoke(app, ["show", str(store.path)]).exit_code == 0  # results need no state


def test_a_damaged_record_is_named_and_the_others_are_shown(store: Store, chain: list[str]) -> None:
    harm(store, chain[1], "step.json")
    for command, shown in ((("list",), ", 2 steps in"), (("sql", "SELECT id FROM steps"), chain[2])):
        result = invoke(*command, store.path)
        assert result.exit_code == 0, result.output
        assert shown in result.stdout
        assert chain[1] not in result.stdout
        assert f"Left out: Step {chain[1][:8]} is damaged" in result.stderr


def test_a_damaged_record_stops_who_frees_space(store: Store, chain: list[str]) -> None:
    harm(store, chain[1], "step.json")
    result = invoke("gc", store.path)
    assert result.exit_code == 2
    assert f"Step {chain[1][:8]} is damaged" in result.stderr


def test_export_and_import(store: Store, chain: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Exported 3 steps" in output("export", store.path, "-o", "all.tar")
    assert "Exported 2 steps" in output("export", store.path, "-o", "two.tar", "--id", chain[1][:8], "--without-states")
    assert (tmp_path / "two.tar").stat().st_size < (tmp_path / "all.tar").stat().st_size / 4
    assert "2 steps imported into elsewhere, 0 there already." in output("import", "two.tar", "elsewhere")
    assert "1 step imported into elsewhere, 2 there already." in output("import", "all.tar", "elsewhere")
    assert json.loads(output("import", "all.tar", "elsewhere", "--json"))["present"] == chain
    output("verify", "elsewhere")


def test_a_plan_is_exported_with_its_steps_alone_and_compressed_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, retention in (("few", 0.1), ("many", 0.4)):
        spec = BenchmarkSpec(
            name=name, image_size=8, increments=[0.02], retentions=[retention], experiments=2, steps=2, design="paired"
        )
        simulate(spec, "results", reruns=0 if name == "few" else 3)
    first, second, controlled = sorted(
        (path.name for path in Path("results/plans").iterdir()), key=lambda name: (len(name), name)
    )
    assert (first[:3], second[:4]) == ("few", "many")
    for _ in range(2):  # what was written here is replaced
        assert "Exported 4 steps" in output("export", "results", "--plan", first, "-o", "few.tar.xz")
    assert "4 steps imported into elsewhere" in output("import", "few.tar.xz", "elsewhere")
    assert [path.name for path in Path("elsewhere/plans").iterdir()] == [first]
    assert "Exported 5 steps" in output("export", "results", "--plan", controlled, "-o", "again.tar")  # 2 and 3 further runs
    wrong = invoke("export", "results", "--plan", "fewer", "-o", "more.tar")
    assert wrong.exit_code == 2
    assert "There is no plan 'fewer' in results." in wrong.stderr
    Path("mine.xz").write_bytes(b"mine")
    refused = invoke("export", "results", "-o", "mine.xz")
    assert refused.exit_code == 2
    assert "it is left as it is" in refused.stderr


def test_a_damaged_file_names_the_steps_that_stay_out(store: Store, chain: list[str], tmp_path: Path) -> None:
    path = tmp_path / "all.tar"
    output("export", store.path, "-o", path)
    with tarfile.open(path) as tar:
        member = tar.getmember(f"steps/{chain[1]}/pairs.parquet")
    content = bytearray(path.read_bytes())
    content[member.offset_data + 100] ^= 4
    path.write_bytes(content)
    result = invoke("import", path, tmp_path / "elsewhere")
    assert result.exit_code == 1
    assert "1 step imported" in result.stdout
    assert f"Step {chain[1][:8]} was not imported: pairs.parquet: " in result.stderr
    assert f"Step {chain[2][:8]} was not imported: its parent" in result.stderr
    as_json = invoke("import", path, tmp_path / "elsewhere", "--json")
    assert as_json.exit_code == 1
    assert list(json.loads(as_json.stdout)["damaged"]) == chain[1:]
    path.write_bytes(b"something else")
    wrong = invoke("import", path, tmp_path / "third")
    assert wrong.exit_code == 2
    assert "is no file of `forgetscope store export`" in wrong.stderr
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("length", [300, 5000])
def test_a_question_may_be_longer_than_a_path(store: Store, length: int) -> None:
    text = f"SELECT count(*) AS n FROM steps WHERE '{'x' * length}' <> ''"
    assert json.loads(output("sql", text, store.path, "--json")) == [{"n": 3}]


def test_sql_as_a_table_and_as_json(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT step, count(*) AS n, max(forgetting) AS worst, NULL AS nothing FROM classes GROUP BY step ORDER BY step"
    table = output("sql", text, store.path)
    assert re.search(r"step +n +worst +nothing\n +1 +2 +– +– *\n", table)
    assert [(row["step"], row["n"]) for row in json.loads(output("sql", text, store.path, "--json"))] == [
        (1, 2),
        (2, 4),
        (3, 6),
    ]
    monkeypatch.setattr(storage, "ROWS", 3)
    cut = output("sql", "SELECT range AS number FROM range(5000)", store.path)
    assert " ".join(cut.split()) == "number 0 1 2 The first 3 of 5,000 rows; --json prints all."


def test_a_wide_answer_keeps_a_line_for_each_row(store: Store, chain: list[str]) -> None:
    lines = output("sql", "SELECT *, repeat('x', 300) AS wide FROM steps ORDER BY step", store.path).splitlines()
    assert len(lines) == 1 + 3
    assert [line.split()[0] for line in lines[1:]] == chain
    assert all(line.endswith("x" * 300) for line in lines[1:])


def test_the_documented_commands_run(store: Store, chain: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store.path.rename("results")
    text = (Path(__file__).parents[2] / "docs" / "store.md").read_text(encoding="utf-8")
    observe(Store("results"))
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in "".join(blocks).replace("3f2a", chain[2][:4]).splitlines()]
    assert {command[2] for command in commands if command[1] == "store"} == set(COMMANDS)
    for command in commands:
        result = CliRunner().invoke(app, command[1:])
        assert (command, result.exit_code) == (command, 0), result.output
    assert len(Store("elsewhere").steps()) == 3


def test_a_wrong_query_is_one_paragraph(store: Store) -> None:
    result = invoke("sql", "SELECT nope FROM classes", store.path)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: DuckDB does not accept the query: ")
    assert result.stderr.count("\n") == 1
    assert '"? The tables are' in invoke("sql", "FROM classses", store.path).stderr


def test_a_store_in_the_place_of_a_question_is_told_so(store: Store) -> None:
    result = invoke("sql", store.path)
    assert result.exit_code == 2
    assert f"Ask one: forgetscope store sql 'FROM steps' {store.path}" in result.stderr


def test_a_truth_value_is_not_taken_for_the_column_of_true_classes(store: Store) -> None:
    hint = 'In SQL, true is a truth value. If you mean the column, write "true", with the quotes.'
    assert hint in invoke("sql", "SELECT count(*) FROM predictions WHERE true = predicted", store.path).stderr
    for query in (
        'SELECT count(*) FROM predictions WHERE "true" = predicted',
        "SELECT count(*) FROM predictions p WHERE p.true = 1",
    ):
        assert "truth value" not in invoke("sql", query, store.path).stderr
