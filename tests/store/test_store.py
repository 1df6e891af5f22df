"""The store's promises: whole or nothing, verified when read, never lost."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import raise_schema
from forgetscope.errors import DamagedStep, SpecError, StateFreed, StoreError
from forgetscope.spec import AugmentationSpec, RunSpec, step_id, step_specs
from forgetscope.store import FREED, SCHEMA, STATE, TABLES, StepRecord, Store, TableName
from forgetscope.store.columns import SCHEMAS


def record(seed: int = 0, parent: StepRecord | None = None, value: float = 1.0) -> StepRecord:
    number = 1 if parent is None else parent.spec.step + 1
    spec = step_specs(RunSpec(seed=seed), [(i,) for i in range(number)], AugmentationSpec())[-1]
    return StepRecord(
        id=step_id(parent and parent.id, spec, "d"),
        parent=parent and parent.id,
        spec=spec,
        data={"name": "glyphs", "image_size": None, "shape": [16, 16], "digest": "d"},
        environment={"threads": 1},
        timings={"seconds": 1.5},
        history=[{"epoch": 1, "loss": 0.5}],
        tables={name: table(name, value) for name in TABLES},
        network="resnet8",
        state={"head.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array(3)},
    )


def table(name: TableName, value: float) -> pa.Table:
    """One row, with this value in every column."""
    columns = {column: str(value) if type == pa.string() else value for column, type in SCHEMAS[name].items()}
    return pa.table({column: pa.array([x]).cast(SCHEMAS[name][column]) for column, x in columns.items()})


ID = record().id


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def test_what_is_committed_is_read_back(store: Store) -> None:
    step = store.commit(record(), "2026-01-01")
    assert ID in store
    assert step.info["schema"] == SCHEMA
    assert step.info["history"] == [{"epoch": 1, "loss": 0.5}]
    assert step.spec == record().spec
    assert step.table("pairs").to_pydict() == {"class_id": [1], "source_class_id": [1], "source_is_new": [True], "term": [1.0]}
    assert step.state()["head.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert step.state()["count"].shape == ()
    step.verify()


def test_the_digest_of_the_initial_weights_is_there_or_not(store: Store) -> None:
    assert store.commit(dataclasses.replace(record(), start={"weights": "5" * 64}), "2026-01-01").start_weights == "5" * 64
    without = store.commit(record(1), "2026-01-01")
    assert without.start_weights is None
    assert "start" not in without.info


def test_only_a_durable_commit_waits_for_the_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr(os, "fsync", waits.append)
    quick = store.commit(record(), "2026-01-01", durable=False)
    assert waits == []
    slow = store.commit(record(1), "2026-01-01")
    assert len(waits) == len(slow.manifest) + 3  # each file, the manifest, the folder and the one that holds it
    assert quick.manifest.keys() == slow.manifest.keys()
    quick.verify()


def test_a_simulated_step_says_so(store: Store) -> None:
    made = {"seed": 3, "truth": {"noise": 0.5}}
    assert store.commit(dataclasses.replace(record(), simulated=made), "2026-01-01").simulated == made
    trained = store.commit(record(1), "2026-01-01")
    assert trained.simulated is None
    assert "simulated" not in trained.info  # its bytes are what they were


def test_a_commit_leaves_nothing_else_behind(store: Store) -> None:
    store.working(ID).mkdir()
    (store.working(ID) / "snapshot-0").write_bytes(b"x")
    store.commit(record(), "2026-01-01")
    assert list((store.path / "working").iterdir()) == []


def test_no_file_is_a_pickle_and_the_tables_hold_no_time_or_path(store: Store, tmp_path: Path) -> None:
    first = store.commit(record(), "2026-01-01")
    other = Store(tmp_path / "elsewhere")
    other.prepare()
    second = other.commit(record(), "2027-02-02")
    assert sorted(p.name for p in first.folder.iterdir()) == sorted(
        ["manifest.json", "step.json", "state.safetensors", *(f"{name}.parquet" for name in TABLES)]
    )
    for name in ["state.safetensors", *(f"{name}.parquet" for name in TABLES)]:
        content = (first.folder / name).read_bytes()
        assert content == (second.folder / name).read_bytes()
        assert content[8:9] == b"{" if name == "state.safetensors" else content.startswith(b"PAR1")


def test_the_first_commit_wins(store: Store) -> None:
    store.commit(record(value=1.0), "2026-01-01")
    second = store.commit(record(value=2.0), "2026-01-02")
    assert second.table("classes")["accuracy"].to_pylist() == [1.0]
    assert not list((store.path / "working").iterdir())


@pytest.mark.parametrize("name", ["step.json", "state.safetensors", "manifest.json", *(f"{name}.parquet" for name in TABLES)])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_every_damaged_file_is_noticed(store: Store, name: str, damage: str) -> None:
    path = store.commit(record(), "2026-01-01").folder / name
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    elif damage == "truncate":
        path.write_bytes(content[:-1] if name != "manifest.json" else content[:-3])
    else:
        middle = content.index(b"sha256") + 12 if name == "manifest.json" else len(content) // 2
        content[middle] ^= 1
        path.write_bytes(content)
    with pytest.raises(
        DamagedStep, match=rf"Step {ID[:8]} is damaged: .*{name if damage != 'flip' else ''}.*store verify .* --quarantine"
    ):
        store.step(ID).verify()


def test_a_size_that_the_manifest_has_wrong_is_damage(store: Store) -> None:
    step = store.commit(record(), "2026-01-01")
    content = (step.folder / "manifest.json").read_bytes()
    size = step.manifest["step.json"]["size"]
    (step.folder / "manifest.json").write_bytes(content.replace(b'"size": %d' % size, b'"size": %d' % (size ^ 1), 1))
    with pytest.raises(DamagedStep, match=r"step\.json"):
        store.step(ID).verify()


def test_a_newer_schema_is_refused_before_anything_is_read(store: Store) -> None:
    step = store.commit(record(), "2026-01-01")
    raise_schema(step.folder)
    with pytest.raises(StoreError, match=rf"schema version {SCHEMA + 1}; this forgetscope reads up to {SCHEMA}. Upgrade it"):
        _ = store.step(ID).info


def test_quarantine_keeps_every_copy(store: Store) -> None:
    targets = []
    for _ in range(2):
        store.commit(record(), "2026-01-01")
        targets.append(store.quarantine(store.step(ID).folder))
    assert ID not in store
    assert [target.name for target in targets] == [f"{ID}-1", f"{ID}-2"]
    assert all((target / "step.json").is_file() for target in targets)


def test_experiments_are_the_chains_that_nothing_continues(store: Store) -> None:
    records: dict[str | None, StepRecord] = {}
    for seed, (name, parent, when) in enumerate(
        (("a", None, "1"), ("b", "a", "2"), ("c", "a", "3"), ("d", "b", "4"), ("e", None, "0"))
    ):
        records[name] = record(seed, records.get(parent))
        store.commit(records[name], when)
    names = {made.id: name for name, made in records.items()}
    chains = [[names[step.id] for step in chain] for chain in store.experiments()]
    assert chains == [["e"], ["a", "c"], ["a", "b", "d"]]


def test_a_missing_parent_is_named(store: Store) -> None:
    child = record(parent=record())
    store.commit(child, "1")
    for look in (lambda: store.chain(child.id), store.experiments):
        with pytest.raises(StoreError, match=f"Step {ID[:8]} is missing"):
            look()


def test_steps_are_found_by_the_beginning_of_their_id(store: Store) -> None:
    for seed in (0, 1):
        store.commit(record(seed), "1")
    assert store.find(ID[:5]).id == ID
    with pytest.raises(SpecError, match=r"2 steps in .* begin with '': [0-9a-f]{12}, [0-9a-f]{12}\."):
        store.find("")
    with pytest.raises(SpecError, match=r"No steps in .* begin with 'x'"):
        store.find("x")


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no store at"):
        Store.existing(tmp_path)


def test_a_store_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"Cannot write to the store .* Choose another folder with --store"):
        Store(tmp_path / "file" / "store").prepare()


def _hold_lock(path: Path, held: multiprocessing.synchronize.Event) -> None:
    with Store(path).lock(ID, print):
        held.set()
        os.kill(os.getpid(), 9)


def test_a_lock_dies_with_its_holder(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=_hold_lock, args=(store.path, held))
    process.start()
    assert held.wait(60)
    process.join()
    waited: list[str] = []
    with store.lock(ID, waited.append):
        pass
    assert waited == []


def test_the_parquet_files_open_in_any_reader(store: Store) -> None:
    step = store.commit(record(), "2026-01-01")
    assert pq.read_table(step.folder / "classes.parquet").num_rows == 1


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's list of threads")
def test_reading_a_table_starts_no_thread(store: Store) -> None:
    step = store.commit(record(), "2026-01-01")
    code = f"""
import os
from pathlib import Path
from forgetscope.store import StoredStep
step = StoredStep(Path({str(step.folder)!r}))
before = len(os.listdir("/proc/self/task"))
step.table("classes")
print(len(os.listdir("/proc/self/task")) - before)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "0"


def test_a_store_can_be_moved(store: Store, tmp_path: Path) -> None:
    store.commit(record(), "2026-01-01")
    shutil.move(store.path, tmp_path / "moved")
    Store(tmp_path / "moved").step(ID).verify()


def test_a_freed_state_is_no_damage_but_cannot_be_read(store: Store) -> None:
    step = store.commit(record(), "2026-01-01")
    assert not step.state_freed
    (step.folder / FREED).write_text(step.manifest[STATE]["sha256"])
    assert not step.state_freed  # it is still there, and counts
    assert step.state()["count"] == 3
    (step.folder / STATE).unlink()
    assert step.state_freed
    step.verify()
    with pytest.raises(
        StateFreed, match=rf"The state of step {ID[:8]} .* was freed .*The next `forgetscope run` .* recomputes it"
    ):
        step.state()


@pytest.mark.parametrize("marker", [b"", b"0" * 64, "é".encode()])
def test_a_missing_state_with_a_wrong_marker_is_damage(store: Store, marker: bytes) -> None:
    step = store.commit(record(), "2026-01-01")
    (step.folder / FREED).write_bytes(marker)
    (step.folder / STATE).unlink()
    for read in (step.verify, step.state):
        with pytest.raises(DamagedStep, match=STATE):
            read()


def test_a_damaged_state_is_damage_even_beside_its_marker(store: Store) -> None:
    step = store.commit(record(), "2026-01-01")
    (step.folder / FREED).write_text(step.manifest[STATE]["sha256"])
    (step.folder / STATE).write_bytes(b"x")
    with pytest.raises(DamagedStep, match=STATE):
        step.verify()


def test_a_step_that_cannot_be_filled_leaves_nothing(store: Store) -> None:
    def write(folder: Path) -> None:
        (folder / "step.json").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.install(ID, write)
    assert ID not in store
    assert list((store.path / "working").iterdir()) == []
