"""What is imported is whole or refused, and nothing gets outside its place."""

from __future__ import annotations

import io
import random
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import TINY, run_experiment
from forgetscope.errors import DamagedExport, DamagedStep, StoreError
from forgetscope.files import is_locked
from forgetscope.housekeeping import importing
from forgetscope.housekeeping.exporting import export_steps
from forgetscope.housekeeping.importing import Imported, import_steps
from forgetscope.housekeeping.verification import Damage, file_damage, verify_store
from forgetscope.spec import RunSpec
from forgetscope.store import FREED, STATE, Store, StoredStep
from repacking import ID, contents, packed, repacked


def test_a_store_comes_out_as_it_went_in(store: Store, exported: Path, other: Store, chain: list[str]) -> None:
    result = import_steps(exported, other)
    assert result.new == chain  # ancestors first
    assert contents(other.path) == contents(store.path)
    assert verify_store(other).damage == []
    again = import_steps(exported, other)
    assert (again.new, again.present) == ([], chain)


@pytest.mark.parametrize("seed", range(25))
def test_whatever_bit_is_flipped_only_whole_steps_get_in(store: Store, exported: Path, other: Store, seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(exported.read_bytes())
    place = rng.randrange(rng.choice([512, 3000, 16_000, len(content)]))  # headers, index and small files too
    content[place] ^= 1 << rng.randrange(8)
    exported.write_bytes(content)
    try:
        result = import_steps(exported, other)
    except (DamagedExport, StoreError):
        assert not other.path.exists()
        return
    original = contents(store.path)
    for id in result.new:
        assert contents(other.step(id).folder) == contents(store.step(id).folder)
    if not result.damaged:  # a flip in the padding, or in a letter of the index that means nothing
        assert contents(other.path) == original
    assert not list((other.path / "working").iterdir())


@pytest.mark.parametrize("seed", range(10))
def test_a_truncated_file_gives_its_whole_steps_and_names_the_others(
    store: Store, exported: Path, other: Store, chain: list[str], seed: int
) -> None:
    content = exported.read_bytes()
    exported.write_bytes(content[: random.Random(seed).randrange(5000, len(content) - 30_000)])
    result = import_steps(exported, other)
    assert result.new == chain[: len(result.new)]
    assert list(result.damaged) == chain[len(result.new) :]
    assert "is missing" in result.damaged[chain[2]] or "cannot be read" in result.damaged[chain[2]]
    assert verify_store(other).damage == []
    exported.write_bytes(content)
    assert import_steps(exported, other).new == chain[len(result.new) :]  # a whole file continues
    assert contents(other.path) == contents(store.path)


def test_descendants_of_a_damaged_step_stay_out(exported: Path, other: Store, chain: list[str]) -> None:
    repacked(exported, lambda members: [m for m in members if m[0].name != f"steps/{chain[1]}/step.json"])
    result = import_steps(exported, other)
    assert result.new == chain[:1]
    assert result.damaged[chain[1]].startswith("step.json is missing")
    assert result.damaged[chain[2]] == f"its parent {chain[1][:8]} is neither in the store nor whole in this file"


def test_a_damaged_step_in_the_store_is_quarantined_and_replaced(exported: Path, store: Store, chain: list[str]) -> None:
    harmed = store.step(chain[1]).folder / "classes.parquet"
    whole = harmed.read_bytes()
    harmed.write_bytes(b"harmed")
    result = import_steps(exported, store)
    assert (result.new, result.present) == ([chain[1]], [chain[0], chain[2]])
    assert harmed.read_bytes() == whole
    assert (result.quarantined[0] / "classes.parquet").read_bytes() == b"harmed"


def test_a_step_is_held_while_it_is_imported(exported: Path, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []

    def spy(step: StoredStep) -> Iterator[Damage]:
        (folder,) = (other.path / "working").glob("commit-*")
        held.append(any(is_locked(lock) for lock in folder.parent.glob(f"{folder.name.split('-')[1]}*.lock")))
        return file_damage(step)

    monkeypatch.setattr(importing, "file_damage", spy)
    import_steps(exported, other)
    assert held == [True] * 3


def test_a_step_that_another_import_brings_in_meanwhile_is_no_damaged_one(
    exported: Path, other: Store, chain: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importing._refuse_unless_whole

    def check(*args: Any) -> None:
        monkeypatch.setattr(importing, "_refuse_unless_whole", real)
        assert import_steps(exported, other).new == chain
        real(*args)

    monkeypatch.setattr(importing, "_refuse_unless_whole", check)
    result = import_steps(exported, other)
    assert (result.new, result.present, result.quarantined) == ([], chain, [])
    assert not (other.path / "quarantine").exists()


def test_runs_go_on_from_imported_steps(exported: Path, other: Store, chain: list[str]) -> None:
    import_steps(exported, other)
    plan = run_experiment(RunSpec(**TINY), other, device="cpu", threads=1)
    assert [step.id for step in plan.steps] == chain


def test_a_record_that_claims_another_step_s_name_stays_out(
    store: Store, chain: list[str], other: Store, tmp_path: Path
) -> None:
    shutil.copytree(store.step(chain[0]).folder, store.path / "steps" / ID)
    with pytest.raises(DamagedStep, match=f"it is the record of step {chain[0]}"):
        export_steps([store.step(ID)], tmp_path / "forged.tar")
    export_steps([store.step(chain[0])], tmp_path / "forged.tar")
    content = (tmp_path / "forged.tar").read_bytes()
    with tarfile.open(tmp_path / "forged.tar", "w") as tar, tarfile.open(fileobj=io.BytesIO(content)) as real:
        for member in real.getmembers():
            data = real.extractfile(member).read()  # type: ignore[union-attr]
            renamed = data.replace(f"steps/{chain[0]}".encode(), f"steps/{ID}".encode())
            tar.addfile(*packed(member.name.replace(chain[0], ID), renamed))
    result = import_steps(tmp_path / "forged.tar", other)
    assert result.damaged == {ID: f"step.json: it is the record of step {chain[0]}"}
    assert not list((other.path / "steps").iterdir())


def test_a_state_that_is_gone_without_its_marker_stays_out(exported: Path, other: Store, chain: list[str]) -> None:
    name = f"steps/{chain[0]}/{STATE}"
    repacked(exported, lambda m: [x for x in m if x[0].name != name], lambda document: document["members"].pop(name))  # type: ignore[attr-defined]
    result = import_steps(exported, other)
    assert result.damaged[chain[0]] == f"{STATE}: No such file or directory"
    assert not (other.path / "steps" / chain[0] / FREED).exists()


def test_two_imports_add_up() -> None:
    first, second = Imported(new=["a"], damaged={"c": "x"}), Imported(new=["b"], present=["a", "d"])
    assert first + second == Imported(new=["a", "b"], present=["d"], damaged={"c": "x"})
