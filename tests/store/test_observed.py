"""Observed steps: whole or not at all, never written again, verified when read, whoever wrote them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from forgetscope.errors import DamagedStep, SpecError, StoreError, WriteError
from forgetscope.housekeeping.freeing import freeable
from forgetscope.store import Store, StoredObserved, commit_observed, parquet_bytes, write_running
from observed_steps import LABELS, NAMES, incomplete, observe, observed_record
from strangers import no_plain_file, put


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def rewrite(step: StoredObserved, change: Callable[[dict[str, Any]], object]) -> None:
    info = json.loads((step.folder / "observed.json").read_bytes())
    change(info)
    put(step, "observed.json", json.dumps(info).encode())


def test_what_is_committed_is_read_back(store: Store) -> None:
    step = observe(store)[1]
    assert store.observed() == [StoredObserved(store.path / "observed" / "birds" / str(i)) for i in (1, 2, 3)]
    assert store.observed_step("birds", 2) == step
    assert (step.id, step.number, step.incomplete, step.info["committed"]) == ("birds/2", 2, None, "2026-01-01T00:00:00+00:00")
    assert step.settings == {"lr": 0.1, "memory": 10}
    record = observed_record(2)
    for name, table in record.tables.items():
        assert step.table(name).equals(table)
    assert sorted(path.name for path in step.folder.iterdir()) == sorted(
        ["manifest.json", "observed.json", *(f"{name}.parquet" for name in record.tables)]
    )
    assert list((store.path / "working").iterdir()) == []
    step.verify()
    assert step.to_frame()["class_name"].tolist() == [NAMES[id] for id in LABELS[:4]]


def test_it_is_read_with_the_words_of_a_step(store: Store) -> None:
    step = observe(store)[1]
    assert step.past_classes("class_id")["class_id"].tolist() == list(LABELS[:2])
    predictions = step.predictions()
    assert predictions is not None
    assert len(predictions) == 4 * 20
    iterations, sums = step.partial_sums(LABELS[:2])
    assert iterations.tolist() == [0, 10, 20]
    assert sums[-1, 0].tolist() == pytest.approx([0.5, 0.1])


def test_equal_records_give_equal_bytes(tmp_path: Path) -> None:
    here, there = (observe(Store(tmp_path / name))[2] for name in ("a", "b"))
    for path in here.folder.iterdir():
        assert path.read_bytes() == (there.folder / path.name).read_bytes()


def test_the_number_of_a_step_that_is_done_is_never_written_again(store: Store) -> None:
    step = observe(store)[0]
    before = {path.name: path.read_bytes() for path in step.folder.iterdir()}
    with pytest.raises(StoreError, match=r"birds/1 is in .* already, and is never written again. Continue with number 4"):
        commit_observed(store, observed_record(1, network="another"))
    assert {path.name: path.read_bytes() for path in step.folder.iterdir()} == before


def test_an_incomplete_step_gives_way_and_is_kept_in_quarantine(store: Store) -> None:
    observe(store, 1)
    first = commit_observed(store, incomplete(2))
    before = contents(first.folder)
    commit_observed(store, incomplete(2, reason="KeyboardInterrupt"))
    step = commit_observed(store, observed_record(2))
    whole = contents(step.folder)
    assert (step.incomplete, store.observed_step("birds", 2).incomplete) == (None, None)
    kept = sorted((store.path / "quarantine").iterdir())
    assert [path.name for path in kept] == ["observed-birds-2-1", "observed-birds-2-2"]
    assert contents(kept[0]) == before
    assert StoredObserved(kept[1], ("birds", 2)).incomplete == "KeyboardInterrupt"
    for record in (observed_record(2, network="another"), incomplete(2)):
        with pytest.raises(StoreError, match=r"birds/2 is in .* already, and is never written again"):
            commit_observed(store, record)
    assert contents(step.folder) == whole
    assert len(list((store.path / "quarantine").iterdir())) == 2


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_incomplete_step_stays_until_the_other_can_be_kept(store: Store) -> None:
    step = commit_observed(store, incomplete(2))
    before = contents(step.folder)
    with pytest.raises(SpecError, match="cannot be kept"):
        commit_observed(store, observed_record(2, head_nodes=3))
    assert contents(step.folder) == before
    assert not (store.path / "quarantine").exists()


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_kill_leaves_one_of_the_two_in_place_or_the_number_free(
    store: Store, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    step = commit_observed(store, incomplete(2))
    before, done, rename = contents(step.folder), [0], os.rename

    def killed(source: Path, target: Path) -> None:
        if done[0] == renames:
            raise KeyboardInterrupt
        rename(source, target)
        done[0] += 1

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with suppress(KeyboardInterrupt):
            commit_observed(store, observed_record(2))
    quarantined = [contents(path) for path in (store.path / "quarantine").glob("*") if contents(path)]
    found = [step.incomplete for step in store.observed()]
    assert found == [["RuntimeError: stopped"], [], [None]][renames]
    assert quarantined == [[], [before], [before]][renames]
    if renames < 2:
        assert commit_observed(store, observed_record(2)).incomplete is None


def test_a_damaged_step_does_not_give_way(store: Store) -> None:
    step = commit_observed(store, incomplete(2))
    (step.folder / "observed.json").write_bytes(b"{}")
    with pytest.raises(StoreError, match="already, and is never written again"):
        commit_observed(store, observed_record(2))


def test_what_runs_under_the_number_of_an_incomplete_step_is_seen_and_kept(store: Store) -> None:
    commit_observed(store, incomplete(2))
    running = write_running(store, observed_record(2, status="running"))
    assert [step.id for step in store.observing()] == ["birds/2"]
    assert freeable(store) == []
    commit_observed(store, observed_record(2))
    assert not running.folder.exists()


def test_monitors_are_told_apart_and_ordered_by_number(store: Store) -> None:
    observe(store, 1, "b")
    for number in (10, 9, 2):
        commit_observed(store, dataclasses.replace(observed_record(1, "a"), number=number, tables={}))
    assert [step.id for step in store.observed()] == ["a/2", "a/9", "a/10", "b/1"]
    assert [step.id for step in store.observed("b")] == ["b/1"]
    with pytest.raises(SpecError, match="no observed step 3 of 'a': of 'a' there are 2, 9, 10"):
        store.observed_step("a", 3)
    with pytest.raises(SpecError, match="there is no monitor 'c'"):
        store.observed_step("c", 1)


def test_a_monitor_may_begin_when_there_are_past_classes_already(store: Store) -> None:
    record = observed_record(2)
    classes = changed(record.tables["classes"], "introduced_step", [0, 0, 1, 1])
    step = commit_observed(store, dataclasses.replace(record, number=1, tables={**record.tables, "classes": classes}))
    assert step.past_classes("class_id")["class_id"].tolist() == list(LABELS[:2])
    assert step.new_classes == LABELS[2:4]


def test_a_past_class_that_no_probe_measured_has_no_sums(store: Store) -> None:
    record = observed_record(2)
    probes = record.tables["probes"].filter(pc.field("class_id") == LABELS[1])
    step = commit_observed(store, dataclasses.replace(record, tables={**record.tables, "probes": probes}))
    iterations, sums = step.partial_sums(LABELS[:2])
    assert iterations.tolist() == [0, 10, 20]
    assert np.isnan(sums[:, :, 0]).all()
    assert sums[-1, 0, 1] == pytest.approx(0.1)


def test_an_incomplete_step_says_why_and_was_not_evaluated(store: Store) -> None:
    step = commit_observed(store, incomplete(2))
    assert (step.incomplete, step.unpredicted, step.predictions()) == ("RuntimeError: stopped", "was not evaluated", None)


def test_a_store_of_observed_steps_alone_is_a_store(store: Store) -> None:
    observe(store, 1)
    (store.path / "steps").rmdir()
    assert [step.id for step in Store.existing(store.path).observed()] == ["birds/1"]
    assert Store(store.path).steps() == []


def test_a_commit_that_fails_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        with pytest.raises(WriteError, match="No space left"):
            observe(store, 1)
    assert store.observed() == []
    assert list((store.path / "working").iterdir()) == []
    observe(store, 1)


def test_what_runs_is_seen_until_it_is_committed(store: Store) -> None:
    record = observed_record(1)
    running = dataclasses.replace(record, status="running", tables={"probes": record.tables["probes"]})
    step = write_running(store, running)
    write_running(store, dataclasses.replace(running, epochs=7))
    assert [step.id for step in store.observing()] == ["birds/1"]
    assert (step.info["status"], store.observing()[0].info["epochs"]) == ("running", 7)
    assert (step.has("probes"), step.has("pairs")) == (True, False)
    assert store.observed() == []
    commit_observed(store, record)
    assert store.observing() == []
    assert not step.folder.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../steps", ".hidden", "-x", "a" * 101, "ä", "a b", "a\n", "a\0"])
def test_a_name_is_that_of_a_folder(store: Store, name: str) -> None:
    for write in (commit_observed, write_running):
        with pytest.raises(SpecError, match="A monitor's name has letters"):
            write(store, observed_record(1, name))


@pytest.mark.parametrize("number", [0, -1, 100_001, True, 1.0])
def test_a_number_is_one(store: Store, number: Any) -> None:
    with pytest.raises(SpecError, match=f"numbered from 1 to 100,000; this was {number!r}"):
        commit_observed(store, dataclasses.replace(observed_record(1), number=number))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": "running"}, "must be done or incomplete; that of birds/2 is 'running'"),
        ({"status": "incomplete"}, "it is incomplete, and its reason None"),
        ({"reason": "x"}, "it is done, and its reason 'x'"),
        ({"alpha": 1.5}, "alpha: Input should be less than or equal to 1"),
        ({"alpha_from": None}, r"alpha is 0.5, alpha_from None"),
        ({"past": "some"}, "past: Input should be 'all'"),
        ({"settings": {"lr": [1]}}, "settings.lr"),
        ({"settings": {"lr": float("nan")}}, "cannot be written: Out of range float"),
        ({"environment": {"x": object()}}, "cannot be written: Object of type object"),
        ({"head_nodes": 3}, "classes.parquet: head_node is 3 in step 2 with 3 head nodes"),
        ({"epochs": -1}, "epochs"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(store: Store, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        commit_observed(store, observed_record(2, **changes))
    assert store.observed() == []


def changed(table: pa.Table, column: str, values: list[Any]) -> pa.Table:
    place = table.column_names.index(column)
    rest = table[column].to_pylist()[len(values) :]
    return table.set_column(place, column, pa.array([*values, *rest], table.schema.field(column).type))


CONTRADICTIONS = [
    ("classes", "introduced_step", [3], "introduced_step is 3 in step 2"),
    ("classes", "head_node", [4], "head_node is 4 in step 2 with 4 head nodes"),
    ("classes", "accuracy", [1e308], "accuracy is 1e\\+308, which is no share"),
    ("classes", "accuracy_when_learned", [-0.5], "accuracy_when_learned is -0.5, which is no share"),
    ("probes", "class_id", [50], "class_id is 50, no past class"),
    ("pairs", "class_id", [20], "class_id is 20, no past class"),
    ("pairs", "source_class_id", [77], "source_class_id is 77, no such class"),
    ("pairs", "source_is_new", [True], "source_is_new is wrong of class 30"),
    ("rehearsal", "class_id", [77], "class_id is 77, no such class"),
    ("confusion", "true", [77], "true is 77, no such class"),
    ("confusion", "count", [99], "images of class .* and confusion.parquet counts 99"),
    ("predictions", "margin", [-1.0], "predicted is 30 where the best past class 30"),
    ("predictions", "true", [77], "true is 77, no such class"),
]


@pytest.mark.parametrize(("name", "column", "values", "message"), CONTRADICTIONS)
def test_tables_that_contradict_each_other_are_neither_written_nor_believed(
    store: Store, name: str, column: str, values: list[Any], message: str
) -> None:
    record = observed_record(2)
    table = changed(record.tables[name], column, values)  # type: ignore[index]
    with pytest.raises(SpecError, match=f"cannot be kept: {'predictions|' * (name == 'confusion')}{name}.parquet: .*{message}"):
        commit_observed(store, dataclasses.replace(record, tables={**record.tables, name: table}))
    assert store.observed() == []
    step = commit_observed(store, record)
    put(step, f"{name}.parquet", parquet_bytes(table))
    with pytest.raises(DamagedStep, match=message):
        StoredObserved(step.folder).verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda info: info.update(name="others"), "it is the record of others/2"),
        (lambda info: info.update(number=3), "it is the record of birds/3"),
        (lambda info: info.update(name="../steps"), "name: String should match pattern"),
        (lambda info: info.update(number="2"), "number: Input should be a valid integer"),
        (lambda info: info.update(number=True), "number: Input should be a valid integer"),
        (lambda info: info.update(settings=[]), "settings: Input should be a valid dictionary"),
        (lambda info: info.update(settings={"a": {}}), "settings.a"),
        (lambda info: info.update(said="x"), "said: Input should be a valid list"),
        (lambda info: info.update(said=["x"] * 1001), "said: List should have at most 1000 items"),
        (lambda info: info.update(timings={"seconds": "1"}), "timings.seconds"),
        (lambda info: info.update(status="running"), "its status is 'running'"),
        (lambda info: info.update(status=[]), "status: Input should be"),
        (lambda info: info.update(network="x" * 1001), "network: String should have at most 1000"),
        (lambda info: info.pop("schema"), "it has no schema"),
        (lambda info: info.update(schema=None), "it has no schema"),
        (lambda info: info.pop("network"), "network: Field required"),
        (lambda info: info.update(head_nodes=2**40), "head_nodes"),
    ],
)
def test_a_strangers_record_is_checked(store: Store, change: Callable[[dict[str, Any]], object], message: str) -> None:
    step = observe(store)[1]
    rewrite(step, change)
    with pytest.raises(DamagedStep, match=message):
        _ = store.observed_step("birds", 2).info


def test_a_newer_record_asks_for_an_upgrade(store: Store) -> None:
    step = observe(store, 1)[0]
    rewrite(step, lambda info: info.update(schema=2))
    with pytest.raises(
        StoreError, match=r"Observed step birds/1 in .* has schema version 2; this forgetscope reads up to 1"
    ) as told:
        _ = store.observed_step("birds", 1).info
    assert not isinstance(told.value, DamagedStep)


@pytest.mark.parametrize(
    "content", [b"[" * 10_000, b"[1]", b'{"schema": 1, "schema": 1}', b"\xff", b"null", b'{"schema": NaN}']
)
def test_what_is_no_record_is_said(store: Store, content: bytes) -> None:
    step = observe(store, 1)[0]
    put(step, "observed.json", content)
    with pytest.raises(DamagedStep, match="birds/1 is damaged"):
        _ = store.observed_step("birds", 1).info


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "huge"])
@pytest.mark.parametrize("name", ["observed.json", "manifest.json", "classes.parquet"])
def test_only_plain_files_within_bounds_are_read(store: Store, name: str, kind: str) -> None:
    step = observe(store, 1)[0]
    (step.folder / name).unlink()
    no_plain_file(step.folder / name, kind)
    with pytest.raises(DamagedStep, match=name):
        store.observed_step("birds", 1).verify()


@pytest.mark.parametrize("manifest", [b"{}", b"[]", b'{"../../x": {"sha256": "' + b"0" * 64 + b'", "size": 1}}', b"{"])
def test_a_forged_manifest_is_refused(store: Store, manifest: bytes) -> None:
    step = observe(store, 1)[0]
    (step.folder / "manifest.json").write_bytes(manifest)
    with pytest.raises(DamagedStep, match=r"manifest\.json"):
        store.observed_step("birds", 1).verify()


def test_links_and_strange_names_are_no_observed_steps(store: Store, tmp_path: Path) -> None:
    elsewhere = observe(Store(tmp_path / "elsewhere"), 1)[0]
    observe(store, 1)
    (store.path / "observed" / "linked").symlink_to(elsewhere.folder.parent)
    (store.path / "observed" / "birds" / "2").symlink_to(elsewhere.folder)
    for strange in ("birds/02", "birds/x", ".hidden/1", "a b/1", "birds/.1"):
        (store.path / "observed" / strange).mkdir(parents=True)
    assert [step.id for step in store.observed()] == ["birds/1"]


def test_nothing_is_written_through_links(store: Store, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store.prepare()
    (store.path / "observed").mkdir()
    (store.path / "observed" / "birds").symlink_to(elsewhere)
    with pytest.raises(StoreError, match=r"observed/birds is a link to"):
        observe(store, 1)
    (store.path / "observed" / "birds").unlink()
    (store.path / "observed").rmdir()
    (store.path / "observed").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="observed is a link to"):
        observe(store, 1)
    (store.path / "working" / "observed-birds-1").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="observed-birds-1 is a link to"):
        write_running(store, observed_record(1, status="running"))
    assert list(elsewhere.iterdir()) == []


def test_names_of_classes_are_the_users(store: Store) -> None:
    step = observe(store)[2]
    assert dict(zip(*(step.table("classes")[name].to_pylist() for name in ("class_id", "class_name")), strict=True)) == {
        label: NAMES[label] for label in LABELS[:6]
    }
