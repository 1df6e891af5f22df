"""Steps leave a store as one file: the same bytes for the same steps, and whole chains."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import TINY, run_experiment
from forgetscope.errors import DamagedStep, SpecError, StateFreed, StoreError, WriteError
from forgetscope.housekeeping.exporting import chains, export_steps, plan_files
from forgetscope.housekeeping.freeing import free, freeable
from forgetscope.housekeeping.importing import import_steps
from forgetscope.housekeeping.sql import query
from forgetscope.housekeeping.verification import verify_store
from forgetscope.spec import RunSpec
from forgetscope.store import Store


def test_the_same_steps_give_the_same_bytes(store: Store, exported: Path, other: Store, tmp_path: Path) -> None:
    import_steps(exported, other)
    size = export_steps(list(reversed(other.steps())), tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == exported.read_bytes()
    assert size == exported.stat().st_size


def test_without_states_markers_stand_for_them(store: Store, other: Store, tmp_path: Path, chain: list[str]) -> None:
    export_steps(store.steps(), tmp_path / "small.tar", states=False)
    import_steps(tmp_path / "small.tar", other)
    for id in chain:
        assert other.step(id).state_freed
        other.step(id).verify()
        assert (other.step(id).folder / "classes.parquet").read_bytes() == (
            store.step(id).folder / "classes.parquet"
        ).read_bytes()
    export_steps(other.steps(), tmp_path / "again.tar")  # what was freed there stays freed
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "small.tar").read_bytes()


def test_keepsakes_of_later_steps_can_be_left_out_and_are_made_again(other: Store, tmp_path: Path) -> None:
    run = RunSpec(**TINY, keepsake="variance")
    store, file = Store(tmp_path / "keepsakes"), tmp_path / "without.tar.xz"
    *_, third = (step.id for step in run_experiment(run, store, device="cpu", threads=1).chain)
    second = str(store.step(third).parent)
    export_steps(store.steps(), file, states=False, keepsakes=2)
    assert import_steps(file, other).damaged == {}
    assert verify_store(other).damage == []
    assert other.step(second).keepsakes().keys() == store.step(second).keepsakes().keys()
    with pytest.raises(StateFreed, match=rf"keepsakes.parquet of step {third[:8]} in .* was left out when it was exported"):
        other.step(third).keepsakes()
    found = query(other, "SELECT DISTINCT step FROM keepsakes").to_pydict()
    assert found == {"step": [2]}
    again = tmp_path / "again.tar.xz"
    assert export_steps(other.steps(), again, states=False) == file.stat().st_size
    assert again.read_bytes() == file.read_bytes()  # markers travel on

    # Only a run that builds on it misses them: both are made again, and are what they were.
    longer = run.model_copy(update={"sequence": (*run.sequence, (6, 7))})  # type: ignore[misc]
    run_experiment(longer, other, device="cpu", threads=1)
    for name in ("keepsakes.parquet", "state.safetensors"):
        assert (other.step(third).folder / name).read_bytes() == (store.step(third).folder / name).read_bytes()
    assert verify_store(other).damage == []


def test_keepsakes_that_are_gone_without_their_marker_are_damage(tmp_path: Path) -> None:
    store = Store(tmp_path / "keepsakes")
    *_, third = run_experiment(RunSpec(**TINY, keepsake="variance"), store, device="cpu", threads=1).chain
    (third.folder / "keepsakes.parquet").unlink()
    for marker in (None, "0" * 64):
        if marker is not None:
            (third.folder / "keepsakes.freed").write_text(marker, encoding="ascii")
        (damage,) = verify_store(store).damage
        assert (damage.path.name, damage.reason) == ("keepsakes.parquet", "No such file or directory")


def test_a_subset_is_whole_chains(store: Store, chain: list[str], other: Store, tmp_path: Path) -> None:
    assert [step.id for step in chains(store, [chain[1][:8]])] == chain[:2]
    assert {step.id for step in chains(store, [])} == set(chain)
    with pytest.raises(SpecError, match="No steps"):
        chains(store, ["zz"])
    export_steps(chains(store, [chain[1][:8], chain[0]]), tmp_path / "two.tar")
    assert import_steps(tmp_path / "two.tar", other).new == chain[:2]


def test_plans_travel_along(store: Store, other: Store, tmp_path: Path) -> None:
    for name, content in (("a-1", '{"id": "a-1"}'), ("b.c-2", '{"id": "b.c-2"}')):
        (store.path / "plans" / name).mkdir(parents=True)
        (store.path / "plans" / name / "plan.json").write_text(content)
    export_steps(store.steps(), tmp_path / "file.tar", plans=plan_files(store))
    (other.path / "plans" / "a-1").mkdir(parents=True)
    (other.path / "plans" / "a-1" / "plan.json").write_text("stays")
    assert import_steps(tmp_path / "file.tar", other).damaged == {}
    assert [file.read_text() for file in plan_files(other)] == ["stays", '{"id": "b.c-2"}']
    content = (tmp_path / "file.tar").read_bytes()
    (tmp_path / "file.tar").write_bytes(content.replace(b'{"id": "b.c-2"}', b'{"id": "b.x-2"}'))
    third = Store(tmp_path / "third")
    assert "plans/b.c-2/plan.json" in import_steps(tmp_path / "file.tar", third).damaged
    assert [file.parent.name for file in plan_files(third)] == ["a-1"]


def test_a_damaged_step_is_not_exported(store: Store, chain: list[str], tmp_path: Path) -> None:
    (store.step(chain[1]).folder / "pairs.parquet").write_bytes(b"")
    with pytest.raises(DamagedStep, match=r"pairs.parquet"):
        export_steps(store.steps(), tmp_path / "steps.tar")
    assert not list(tmp_path.glob("*.tar*"))
    assert not list(tmp_path.glob(".*"))


def test_a_state_that_is_freed_during_an_export_is_not_called_damaged(store: Store, chain: list[str], tmp_path: Path) -> None:
    def free_one(what: str, done: int, total: int) -> None:
        for item in freeable(store):
            free(store, item)

    with pytest.raises(StoreError, match=rf"Step {chain[2][:8]} changed while it was exported.*Run the export again") as caught:
        export_steps(store.steps(), tmp_path / "steps.tar", progress=free_one)
    assert not isinstance(caught.value, DamagedStep)


def test_a_file_that_cannot_be_written_is_one_clear_error(store: Store, tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"Cannot write .*none"):
        export_steps(store.steps(), tmp_path / "none" / "steps.tar")
    with pytest.raises(WriteError, match="Is a directory"):
        export_steps(store.steps(), tmp_path)
