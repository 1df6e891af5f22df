"""Commands that look at a stranger's store: what is wrong is named, the rest is shown, nothing outside is read or written."""

from __future__ import annotations

import io
import json
import os
import shlex
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from typer.testing import CliRunner, Result

from conftest import TINY
from forgetscope.cli.app import app
from forgetscope.data.cache import cache_folder
from forgetscope.spec import RunSpec
from forgetscope.store import Store
from strangers import FIRST, SECOND, forge, golden_copy, no_plain_file, put, rewrite


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return golden_copy(tmp_path / "store")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def tree(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")}


def plan(store: Store, content: object, id: str = "plan-1") -> Path:
    folder = store.path / "plans" / id
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder / "plan.json"


def test_looking_writes_nothing_into_the_store_and_follows_no_link(store: Store, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for name in (f".index.{os.getpid()}.tmp", "index.jsonl", "analysis"):
        (store.path / name).symlink_to(mine)
    before = tree(tmp_path / "store")
    for command in (("show",), ("report", "-o", tmp_path / "page.html"), ("store", "list"), ("store", "sql", "FROM classes")):
        result = invoke(*command, store.path)
        assert result.exit_code == 0, result.output
    assert tree(tmp_path / "store") == before
    assert mine.read_text() == "precious"


@pytest.mark.parametrize("content", ["[1]", "5", "{}", '{"id": "plan-1"}', "[" * 5000, "\ufeff{}", '{"chains": 5}'])
def test_a_plan_that_cannot_be_read_is_named_and_the_rest_is_shown(store: Store, content: str, tmp_path: Path) -> None:
    path = plan(store, content)
    for command in (("show", store.path), ("bench", "status", "glyphs", "--store", store.path)):
        result = invoke(*command)
        assert result.exit_code == 0, result.output
    shown = invoke("show", store.path)
    assert f"Left out: {path} cannot be read (" in shown.stderr
    assert SECOND[:8] in shown.stdout


@pytest.mark.parametrize("id", ["$(touch x)", "a b", "a;b", "-"])
def test_a_plan_whose_name_is_a_command_is_refused(store: Store, id: str) -> None:
    content = {
        **{"id": id, "kind": "compare", "name": "x", "run": "", "policies": ["uniform"], "pairs": 1},
        **{"data": {"name": "glyphs", "classes": 100, "digest": "d"}, "chains": [{"steps": [FIRST, SECOND]}], "reruns": []},
    }
    plan(store, content, id)
    result = invoke("show", store.path)
    assert result.exit_code == 0, result.output
    assert ("its id is" in result.stderr) == (id != "-")


@pytest.mark.parametrize("id", [".hid", "odd name!", "x" * 201])
def test_an_export_leaves_out_what_no_import_takes_and_names_it(store: Store, id: str, tmp_path: Path) -> None:
    path = plan(store, "{}", id)
    result = invoke("store", "export", store.path, "-o", tmp_path / "out.tar")
    assert result.exit_code == 0, result.output
    assert f"Left out: {path} is not exported: {id[:100]!r} is no id of a plan" in result.stderr
    assert invoke("store", "import", tmp_path / "out.tar", tmp_path / "other").exit_code == 0
    assert Store(tmp_path / "other").ids() == store.ids()


@pytest.mark.parametrize(("id", "said"), [("", "There is no plan ''"), ("plan-1", "plan.json cannot be read (")])
def test_an_export_of_a_plan_that_is_none_or_damaged_says_which(store: Store, id: str, said: str, tmp_path: Path) -> None:
    plan(store, "{}")
    result = invoke("store", "export", store.path, "--plan", id, "-o", tmp_path / "out.tar")
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert not (tmp_path / "out.tar").exists()


@pytest.mark.parametrize("kind", ["plan", "folder", "file", "step", "steps"])
def test_an_export_packs_nothing_that_a_link_points_to(store: Store, kind: str, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "plan.json").write_text("secret")
    (store.path / "plans" / "x").mkdir(parents=True)
    if kind == "plan":
        (store.path / "plans" / "x" / "plan.json").symlink_to(private / "plan.json")
    elif kind == "folder":
        (store.path / "plans" / "y").symlink_to(private)
    elif kind == "file":
        (store.step(FIRST).folder / "classes.parquet").unlink()
        (store.step(FIRST).folder / "classes.parquet").symlink_to(private / "plan.json")
    else:
        path = store.path / "steps" if kind == "steps" else store.step(SECOND).folder
        path.rename(private / "moved")
        path.symlink_to(private / "moved")
    result = invoke("store", "export", store.path, "-o", tmp_path / "out.tar")
    if kind == "step":  # which is none, and verify says so
        with tarfile.open(tmp_path / "out.tar") as tar:
            assert not [name for name in tar.getnames() if SECOND in name]
        assert "not a folder with a step" in invoke("store", "verify", store.path).stdout
        return
    assert result.exit_code == 2, result.output
    assert "link" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out.tar").exists()


@pytest.mark.parametrize(
    "command", [("show",), ("report",), ("store", "list"), ("store", "sql", "FROM steps"), ("store", "verify")]
)
def test_a_step_that_is_its_own_parent_ends_nothing_in_a_circle(store: Store, command: tuple[str, ...], tmp_path: Path) -> None:
    rewrite(store.step(SECOND), lambda info: info.update(parent=SECOND))
    result = invoke(*command, store.path, *(("-o", tmp_path / "page.html") if command == ("report",) else ()))
    assert result.exit_code == (1 if "verify" in command else 0), result.output
    assert SECOND[:8] in result.output
    assert "have the id" in result.output


def test_a_page_makes_no_data_of_a_size_that_a_record_names(store: Store, tmp_path: Path) -> None:
    for id in (FIRST, SECOND):
        rewrite(store.step(id), lambda info: info["data"].update(image_size=3000))
    result = invoke("report", store.path, "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert not list(cache_folder().glob("*3000px*"))


def test_a_seed_that_no_column_holds_is_missing_in_sql(store: Store) -> None:
    (store.step(SECOND).folder).rename(store.path.parent / "away")
    forge(store, FIRST, lambda info: info["spec"].update(seed=2**63))
    result = invoke("store", "sql", "SELECT seed, step FROM steps", store.path, "--json")
    assert json.loads(result.stdout) == [{"seed": None, "step": 1}]


@pytest.mark.parametrize("query", ["SHOW TABLES", "show tables;", "SHOW ALL TABLES", "DESCRIBE"])
def test_sql_lists_its_tables(store: Store, query: str) -> None:
    result = invoke("store", "sql", query, store.path, "--json")
    assert result.exit_code == 0, result.output
    names = {name for row in json.loads(result.stdout) for name in row.values() if isinstance(name, str)}
    assert names >= {"steps", "classes", "probes", "pairs", "rehearsal", "confusion", "extra", "predictions", "keepsakes"}


def test_commands_to_be_copied_are_quoted(tmp_path: Path) -> None:
    store = golden_copy(tmp_path / "a $(touch x) b")
    (store.step(SECOND).folder / "classes.parquet").write_bytes(b"")
    told = " ".join(invoke("store", "verify", store.path).stdout.split())
    assert f"forgetscope store verify {shlex.quote(str(store.path))} --quarantine" in told
    told = " ".join(invoke("show", store.path).stderr.split())
    assert f"`forgetscope store verify {shlex.quote(str(store.path))} --quarantine`" in told


def test_a_table_of_another_form_is_named_by_verify_and_moved_out_of_the_way(store: Store) -> None:
    put(store.step(SECOND), "classes.parquet", (store.step(SECOND).folder / "pairs.parquet").read_bytes())
    told = invoke("store", "verify", store.path, "--quarantine")
    assert "classes.parquet: no column" in told.stdout
    assert SECOND not in store
    assert (store.path / "quarantine" / f"{SECOND}-1").is_dir()
    assert FIRST[:8] in invoke("show", store.path).stdout


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "event"])
def test_a_journal_of_a_stranger_ends_no_command_without_a_word(store: Store, kind: str) -> None:
    status = ("bench", "status", "glyphs", "--store", store.path, "--json")
    path = store.path / "plans" / json.loads(invoke(*status).stdout)["plan"] / "journal.jsonl"
    path.parent.mkdir(parents=True)
    if kind != "event":
        no_plain_file(path, kind)
    else:
        path.write_text('{"event": "failed", "step": "x"}\n{"event": "failed", "step": "y", "message": "\\ud800"}')
    result = invoke(*status)
    assert result.exit_code == (0 if kind == "event" else 2), result.output
    assert (f"{path} cannot be read (" in result.stderr) == (kind != "event")
    if kind == "event":
        assert list(json.loads(result.stdout)["failures"]) == ["y"]
        assert invoke(*status[:-1]).exit_code == 0


@pytest.mark.parametrize("kind", ["pipe", "link", "link to a folder", "folder", "large"])
def test_a_snapshot_that_is_no_plain_file_is_named_by_verify_and_moved(store: Store, kind: str, tmp_path: Path) -> None:
    path = store.path / "working" / ("0" * 32) / "snapshot-0"
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind.startswith("link"):
        path.symlink_to(tmp_path if "folder" in kind else "/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 2**40)
    result = invoke("store", "verify", store.path, "--quarantine")
    assert result.exit_code == 0, result.output
    assert f"{path}: " in result.stdout
    assert not os.path.lexists(path)
    assert invoke("store", "verify", store.path).exit_code == 0


def test_a_lock_that_is_a_pipe_is_named_and_nobody_waits(store: Store) -> None:
    (store.path / "working" / ("0" * 32)).mkdir(parents=True)
    (store.path / "working" / ("0" * 32) / "snapshot-0").write_bytes(b"")
    lock = store.path / "working" / f"{'0' * 32}.lock"
    os.mkfifo(lock)
    assert invoke("store", "list", store.path).exit_code == 0
    result = invoke("store", "verify", store.path, "--quarantine")
    assert result.exit_code == 1, result.output
    assert f"{lock} is a link, or something else that is no plain file. Remove it" in result.stderr


@pytest.mark.parametrize(
    "harm", ["no tensor", "another shape", "another type", "no history", "short history", "history of fractions"]
)
def test_a_run_names_the_step_whose_state_is_no_state_of_its_network(store: Store, harm: str, tmp_path: Path) -> None:
    store.step(SECOND).folder.rename(tmp_path / "away")
    state = store.step(FIRST).state()
    name = next(iter(sorted(state.keys() - {"image_history"})))
    if harm == "no tensor":
        del state[name]
    elif harm == "another shape":
        state[name] = np.zeros((7, 7), np.float32)
    elif harm == "another type":
        state[name] = state[name].astype(np.float64)
    elif harm == "no history":
        del state["image_history"]
    elif harm == "short history":
        state["image_history"] = state["image_history"][:3]
    else:
        state["image_history"] = state["image_history"].astype(np.float32)
    put(store.step(FIRST), "state.safetensors", safetensors.numpy.save(state))
    config = tmp_path / "run.toml"
    config.write_text(RunSpec(**TINY).to_toml())
    result = invoke("run", config, "--store", store.path, "--device", "cpu", "--threads", 1)
    assert result.exit_code == 2, result.output
    assert f"Step {FIRST[:8]} is damaged: {store.step(FIRST).folder / 'state.safetensors'}: " in result.stderr
    assert f"Delete {store.step(FIRST).folder} " in result.stderr


@pytest.mark.parametrize("mark", [{"truth": [1], "seed": {}}, {"truth": {"a": "b"}, "seed": 1}, {"seed": 1}, {}])
def test_a_step_with_a_mark_of_no_simulation_is_named_and_left_out(store: Store, mark: object, tmp_path: Path) -> None:
    rewrite(store.step(SECOND), lambda info: info.update(simulated=mark))
    result = invoke("report", store.path, "-o", tmp_path / "page.html")
    assert result.exit_code in (0, 1), result.exception
    assert f"Step {SECOND[:8]} is damaged" in result.output


@pytest.mark.parametrize("column", ["class_id", "source_class_id"])
def test_a_page_names_the_step_whose_pairs_are_of_other_classes(store: Store, column: str, tmp_path: Path) -> None:
    step = store.step(SECOND)
    table = step.table("pairs")
    moved = pa.array([id + 5000 for id in table[column].to_pylist()], table[column].type)
    buffer = io.BytesIO()
    pq.write_table(table.set_column(table.column_names.index(column), column, moved), buffer, compression="zstd")
    put(step, "pairs.parquet", buffer.getvalue())
    result = invoke("report", store.path, "-o", tmp_path / "page.html")
    assert result.exit_code == 2
    assert f"Step {SECOND[:8]} is damaged" in result.output
    assert "pairs.parquet: not the classes of this step" in " ".join(result.output.split())
