"""Observed steps in everything that looks after a store; never among the planned ones."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from forgetscope.errors import DamagedExport, DamagedStep, SpecError
from forgetscope.files import locked_if_free
from forgetscope.housekeeping.exporting import export_steps, monitored
from forgetscope.housekeeping.freeing import free, freeable
from forgetscope.housekeeping.importing import import_steps
from forgetscope.housekeeping.inventory import take_inventory
from forgetscope.housekeeping.sql import query, rows
from forgetscope.housekeeping.verification import expel_damaged, verify_store
from forgetscope.store import Store, commit_observed, parquet_bytes, write_running
from observed_steps import incomplete, observe, observed_record
from strangers import golden_copy, no_plain_file, put


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three observed steps of one monitor, one of another, and two planned steps."""
    store = golden_copy(tmp_path / "store")
    observe(store)
    commit_observed(store, incomplete(1, "others"), "2026-01-02")
    return store


def test_they_are_counted_apart(store: Store) -> None:
    held = take_inventory(store)
    assert (held.steps, held.experiments, held.observed, held.monitors) == (2, 1, 4, 2)
    assert held.bytes["observed"] == sum(path.stat().st_size for path in (store.path / "observed").glob("*/*/*"))


def test_a_whole_one_is_whole(store: Store) -> None:
    write_running(store, observed_record(4, status="running"))
    verified = verify_store(store)
    assert (verified.steps, verified.observed) == (2, 4)
    assert [damage for damage in verified.damage if "observed" in str(damage.path)] == []


def observed_damage(store: Store) -> dict[str, str]:
    found = {str(damage.path.relative_to(store.path)): damage.reason for damage in verify_store(store).damage}
    return {path: reason for path, reason in found.items() if "observed" in path}


def test_every_harm_is_named_and_moved(store: Store, tmp_path: Path) -> None:
    first, second, third = store.observed("birds")
    (first.folder / "pairs.parquet").write_bytes(b"x")
    (second.folder / "more.txt").touch()
    put(third, "confusion.parquet", parquet_bytes(third.table("confusion").slice(1)))
    (store.path / "observed" / "file").touch()
    (store.path / "observed" / "birds" / "4").symlink_to(tmp_path)
    (store.path / "observed" / "birds" / "05").mkdir()
    running = write_running(store, observed_record(5, status="running"))
    (running.folder / "pairs.parquet").write_bytes(b"x")
    found = observed_damage(store)
    assert {path: reason.split(" (")[0].split(" that")[0] for path, reason in found.items()} == {
        "observed/file": "not a folder with a step",
        "observed/birds/4": "not a folder with a step",
        "observed/birds/05": "not a folder with a step",
        "observed/birds/1/pairs.parquet": "1 bytes",
        "observed/birds/2/more.txt": "not in the manifest",
        "observed/birds/3/predictions.parquet": found["observed/birds/3/predictions.parquet"],
        "working/observed-birds-5/pairs.parquet": "no table",
    }
    assert "confusion.parquet counts 0" in found["observed/birds/3/predictions.parquet"]
    before = verify_store(store)
    moved, left = expel_damaged(store, before)
    assert [damage for damage in left if "observed" in str(damage.path)] == []
    assert observed_damage(store) == {}
    assert [step.id for step in store.observed()] == ["birds/2", "others/1"]
    assert {path.name for path in (store.path / "quarantine").iterdir()} >= {
        *("observed-birds-1-1", "observed-birds-3-1", "observed-birds-4-1", "observed-birds-05-1", "observed-file-1"),
        *("observed-birds-2-more.txt-1", "observed-birds-5-1"),
    }
    assert any(text.startswith("Observed step birds/1 is damaged") for text in moved)


def test_what_runs_is_not_moved_while_somebody_holds_it(store: Store) -> None:
    running = write_running(store, observed_record(4, status="running"))
    (running.folder / "observed.json").write_bytes(b"{")
    with locked_if_free(store.lock_file(running.key)):
        expel_damaged(store, verify_store(store))
        assert running.folder.exists()
    expel_damaged(store, verify_store(store))
    assert not running.folder.exists()


def test_a_newer_record_stays(store: Store) -> None:
    step = store.observed_step("others", 1)
    info = json.loads((step.folder / "observed.json").read_bytes())
    put(step, "observed.json", json.dumps(info | {"schema": 2}).encode())
    _, left = expel_damaged(store, verify_store(store))
    assert [damage.path.parent for damage in left if "observed" in str(damage.path)] == [step.folder]


def test_an_export_comes_back_with_equal_bytes(store: Store, tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        export_steps(store.steps(), tmp_path / name, observed=store.observed())
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    copy = Store(tmp_path / "copy")
    result = import_steps(tmp_path / "a.tar", copy)
    seen = ["observed/birds/1", "observed/birds/2", "observed/birds/3", "observed/others/1"]
    assert [id for id in result.new if "/" in id] == seen
    assert result.damaged == {}
    for path in (store.path / "observed").glob("*/*/*"):
        assert path.read_bytes() == (copy.path / path.relative_to(store.path)).read_bytes()
    assert import_steps(tmp_path / "a.tar", copy).present == result.new
    assert list((copy.path / "working").iterdir()) == []


def test_steps_alone_are_exported_as_before(store: Store, tmp_path: Path) -> None:
    export_steps(store.steps(), tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert not [name for name in tar.getnames() if name.startswith("observed")]


def test_one_monitor_can_be_taken(store: Store) -> None:
    assert [step.id for step in monitored(store, "others")] == ["others/1"]
    with pytest.raises(SpecError, match="no observed steps of 'x'; of others: birds, others"):
        monitored(store, "x")


def test_another_step_of_the_same_number_is_never_replaced(store: Store, tmp_path: Path) -> None:
    export_steps([], tmp_path / "a.tar", observed=store.observed("birds"))
    other = Store(tmp_path / "other")
    mine = observe(other, 1, network="mine")[0]
    result = import_steps(tmp_path / "a.tar", other)
    assert result.new == ["observed/birds/2", "observed/birds/3"]
    assert (result.damaged, result.taken) == ({}, ["observed/birds/1"])
    assert mine.info["network"] == "mine"
    (mine.folder / "pairs.parquet").write_bytes(b"harmed")
    result = import_steps(tmp_path / "a.tar", other)
    assert (result.new, len(result.quarantined)) == (["observed/birds/1"], 1)


def test_a_damaged_one_is_neither_exported_nor_imported(store: Store, tmp_path: Path) -> None:
    step = store.observed_step("birds", 3)
    whole = step.table("confusion")
    put(step, "confusion.parquet", parquet_bytes(whole.slice(1)))  # checksums fit: only the reader of both can know
    export_steps([], tmp_path / "a.tar", observed=store.observed("birds"))
    copy = Store(tmp_path / "copy")
    result = import_steps(tmp_path / "a.tar", copy)
    assert result.new == ["observed/birds/1", "observed/birds/2"]
    assert "confusion.parquet counts 0" in result.damaged["observed/birds/3"]
    (step.folder / "pairs.parquet").write_bytes(b"x")
    with pytest.raises(DamagedStep, match="Observed step birds/3 is damaged"):
        export_steps([], tmp_path / "b.tar", observed=store.observed())


@pytest.mark.parametrize(
    "name",
    [
        "observed/../1/observed.json",
        "observed/a b/1/observed.json",
        "observed/a/0/observed.json",
        "observed/a/1/state.safetensors",
    ],
)
def test_an_import_takes_nothing_but_their_files(store: Store, tmp_path: Path, name: str) -> None:
    index = json.dumps({"forgetscope": "export", "format": 1, "members": {name: {"sha256": "0" * 64, "size": 1}}}).encode()
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        for member, content in (("index.json", index), (name, b"x")):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises(DamagedExport, match="no name of a step's or a plan's file"):
        import_steps(tmp_path / "evil.tar", store)


def test_sql_has_them_in_tables_of_their_own(store: Store) -> None:
    facts = rows(query(store, "SELECT id, monitor, step, status, reason, alpha, settings FROM observed ORDER BY id"))
    assert facts[1] == {
        **{"id": "birds/2", "monitor": "birds", "step": 2, "status": "done", "reason": None, "alpha": 0.5},
        "settings": '{"lr": 0.1, "memory": 10}',
    }
    assert facts[3]["reason"] == "RuntimeError: stopped"
    assert rows(query(store, "SELECT count(*) AS n FROM steps")) == [{"n": 2}]
    assert rows(query(store, "SELECT DISTINCT class_name AS c FROM classes WHERE class_name = 'wren'")) == []
    found = rows(
        query(
            store, "SELECT step, count(*) AS n FROM observed_classes WHERE step_id LIKE 'birds/%' GROUP BY step ORDER BY step"
        )
    )
    assert found == [{"step": 1, "n": 2}, {"step": 2, "n": 4}, {"step": 3, "n": 6}]
    assert rows(query(store, "SELECT DISTINCT (settings->>'lr')::DOUBLE AS lr FROM observed")) == [{"lr": 0.1}]
    listed = {row["name"] for row in rows(query(store, "SHOW TABLES"))}
    assert {"steps", "classes", "observed", "observed_probes", "observed_predictions"} <= listed
    assert rows(query(store, "SELECT count(*) AS n FROM observed_rehearsal"))[0]["n"] == 5 * (2 + 4)


def test_sql_leaves_damaged_ones_out(store: Store) -> None:
    (store.observed_step("birds", 1).folder / "observed.json").write_bytes(b"x")
    told: list[str] = []
    assert rows(query(store, "SELECT count(*) AS n FROM observed", lambda error: told.append(str(error)))) == [{"n": 3}]
    assert "birds/1 is damaged" in told[0]


def test_gc_frees_only_what_is_dead(store: Store) -> None:
    record = dataclasses.replace(observed_record(3), status="running")
    dead = write_running(store, record)  # as a crash between commit and clean-up leaves it
    alive = write_running(store, observed_record(4, status="running"))
    found = [item for item in freeable(store) if "observed" in item.path.name]
    assert [(item.kind, item.path) for item in found] == [("working folder", dead.folder)]
    with locked_if_free(store.lock_file(dead.key)):
        assert [item for item in freeable(store) if "observed" in item.path.name and item.kind != "state"] == []
    assert free(store, found[0])
    assert not dead.folder.exists()
    assert alive.folder.exists()
    assert verify_store(store).observed == 4


def test_a_store_without_steps_is_looked_after(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    observe(store, 1)
    shutil.rmtree(store.path / "steps")
    shutil.rmtree(store.path / "working")
    assert verify_store(store).damage == []
    assert take_inventory(store).observed == 1
    assert freeable(store) == []
    export_steps(store.steps(), tmp_path / "a.tar", observed=store.observed())
    assert import_steps(tmp_path / "a.tar", Store(tmp_path / "copy")).new == ["observed/birds/1"]


def test_links_are_neither_read_nor_exported(store: Store, tmp_path: Path) -> None:
    step = store.observed_step("birds", 1)
    (step.folder / "pairs.parquet").unlink()
    no_plain_file(step.folder / "pairs.parquet", "link")
    with pytest.raises(DamagedStep, match="no plain file"):
        export_steps([], tmp_path / "a.tar", observed=store.observed())
    assert "a link, or something else" in observed_damage(store)["observed/birds/1/pairs.parquet"]
