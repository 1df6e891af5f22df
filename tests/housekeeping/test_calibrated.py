"""Calibrations in everything that looks after a store: they lie beside steps, which stay as they are."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import forgetscope as fs
from conftest import TINY
from forgetscope.cli.app import app
from forgetscope.errors import DamagedExport, DamagedStep
from forgetscope.files import locked_if_free
from forgetscope.housekeeping.exporting import export_steps
from forgetscope.housekeeping.freeing import free, freeable, without_step
from forgetscope.housekeeping.importing import import_steps
from forgetscope.housekeeping.inventory import take_inventory
from forgetscope.housekeeping.sql import query, rows
from forgetscope.housekeeping.verification import expel_damaged, verify_store
from forgetscope.store import Store, StoredCalibration, all_calibrations, calibrations_of, parquet_bytes
from strangers import golden_copy, no_plain_file, put

NAMES = ("offset", "weight-aligning")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps, the last two with two calibrations each; do not write to it."""
    path = tmp_path_factory.mktemp("calibrated") / "store"
    for name in NAMES:
        fs.run(fs.RunSpec(**TINY, calibration=name), path, threads=1, device="cpu", progress=False)
    return path


@pytest.fixture
def calibrated(made: Path, tmp_path: Path) -> Store:
    return Store(shutil.copytree(made, tmp_path / "calibrated"))


def the(store: Store, name: str, number: int) -> StoredCalibration:
    (found,) = (one for one in all_calibrations(store) if (one.number, one.calibration) == (number, name))
    return found


def travel(store: Store, path: Path) -> None:
    """All of it into a file."""
    export_steps(store.steps(), path, calibrations=[one for step in store.steps() for one in calibrations_of(store, step)])


def damage(store: Store) -> dict[str, str]:
    return {str(found.path.relative_to(store.path)): found.reason for found in verify_store(store).damage}


def place(one: StoredCalibration) -> str:
    return str(one.folder.relative_to(one.store))


def test_they_are_counted_and_whole(calibrated: Store) -> None:
    held = take_inventory(calibrated)
    assert (held.steps, held.calibrations) == (3, 4)
    files = list((calibrated.path / "calibrated").glob("*/*/*"))
    assert held.bytes["calibrations"] == sum(path.stat().st_size for path in files)
    verified = verify_store(calibrated)
    assert (verified.steps, verified.calibrations, verified.damage) == (3, 4, [])
    assert verified.bytes == sum(path.stat().st_size for path in calibrated.path.glob("*/**/*") if path.is_file())


def test_every_harm_is_named_and_moved(calibrated: Store, tmp_path: Path) -> None:
    first, second = the(calibrated, "offset", 2), the(calibrated, "weight-aligning", 2)
    third, fourth = the(calibrated, "offset", 3), the(calibrated, "weight-aligning", 3)
    (first.folder / "predictions.parquet").write_bytes(b"x")
    (second.folder / "more.txt").touch()
    better = third.table("calibration").set_column(3, "calibrated_accuracy", [[1.0] * 6])
    put(third, "calibration.parquet", parquet_bytes(better, "calibration"))
    put(fourth, "calibration.json", (second.folder / "calibration.json").read_bytes())
    root = calibrated.path / "calibrated"
    (root / "file").touch()
    (root / first.step.id / "notes").mkdir()
    (root / first.step.id / ("0" * 32)).symlink_to(tmp_path)
    assert {path: reason.split(" (")[0].split(" that")[0] for path, reason in damage(calibrated).items()} == {
        "calibrated/file": "not a folder with a calibration",
        f"calibrated/{first.step.id}/notes": "not a folder with a calibration",
        f"calibrated/{first.step.id}/{'0' * 32}": "not a folder with a calibration",
        f"{place(first)}/predictions.parquet": "1 bytes",
        f"{place(second)}/more.txt": "not in the manifest",
        f"{place(third)}/calibration.parquet": "calibrated_accuracy is not what its predictions give",
        f"{place(fourth)}/calibration.json": f"it is the record of 'weight-aligning' of step {second.step.id[:8]}",
    }
    moved, left = expel_damaged(calibrated, verify_store(calibrated))
    assert (left, damage(calibrated)) == ([], {})
    assert [(one.id, one.calibration) for one in all_calibrations(calibrated)] == [(second.id, "weight-aligning")]
    assert len(moved) == len(list((calibrated.path / "quarantine").iterdir())) == 7
    assert any(text.startswith(f"Calibration {first.id[:8]} of step {first.step.id[:8]} is damaged: ") for text in moved)


def test_commands_say_how_many_there_are(calibrated: Store, tmp_path: Path) -> None:
    def said(*arguments: str | Path) -> str:
        return CliRunner().invoke(app, ["store", *map(str, arguments)]).stdout

    path, file, copy = calibrated.path, tmp_path / "all.tar", tmp_path / "copy"
    assert "calibrations         4" in said("list", path)
    assert ": 3 steps, 4 calibrations and 0 snapshots, " in said("verify", path)
    assert said("export", path, "-o", file).startswith(f"Exported 3 steps with 4 calibrations to {file}, ")
    assert "Of their calibrations 4 imported, 0 there already." in said("import", file, copy)
    assert "Of their calibrations 0 imported, 4 there already." in said("import", file, copy)
    (chain,) = calibrated.experiments()
    assert said("export", path, "-o", file, "--id", chain[1].id).startswith("Exported 2 steps with 2 calibrations to ")
    shutil.rmtree(chain[2].folder)
    kept = " ".join(said("gc", path).split())
    assert f"Calibrations of steps that are not in {path} stay: 2 folders, which `verify` names." in kept
    assert len(json.loads(said("gc", path, "--json"))["without_step"]) == 2
    left = " ".join(said("verify", path, "--quarantine").split())
    assert "2 are left, because no move mends them: " in left
    assert "or the step that a calibration lacks; " in left


def test_files_of_steps_are_none_of_a_calibration(calibrated: Store) -> None:
    one = the(calibrated, "offset", 3)
    put(one, "classes.parquet", (one.step.folder / "classes.parquet").read_bytes())
    assert damage(calibrated) == {f"{place(one)}/classes.parquet": "no file of a calibration"}


def test_what_another_process_holds_is_not_moved(calibrated: Store) -> None:
    one = the(calibrated, "offset", 3)
    (one.folder / "calibration.json").write_bytes(b"{")
    with locked_if_free(calibrated.lock_file(one.id)):
        expel_damaged(calibrated, verify_store(calibrated))
        assert one.there
    expel_damaged(calibrated, verify_store(calibrated))
    assert not one.there


def test_a_newer_record_stays(calibrated: Store) -> None:
    one = the(calibrated, "offset", 3)
    put(one, "calibration.json", json.dumps(dict(one.info) | {"schema": 2}).encode())
    (told,) = damage(calibrated).values()
    assert "has schema version 2; this forgetscope reads up to 1. Upgrade it" in told
    _, left = expel_damaged(calibrated, verify_store(calibrated))
    assert [found.path.parent for found in left] == [one.folder]


def test_without_its_step_it_is_named_and_kept(calibrated: Store, made: Path) -> None:
    step = the(calibrated, "offset", 3).step
    shutil.rmtree(step.folder)
    expected = {
        f"{place(one)}/calibration.json": f"its step {step.id[:8]} is not in the store" for one in without_step(calibrated)
    }
    assert len(expected) == 2
    assert damage(calibrated) == expected
    moved, left = expel_damaged(calibrated, verify_store(calibrated))
    assert (moved, len(left)) == ([], 2)
    assert all(free(calibrated, item) for item in freeable(calibrated, every_state=True))
    assert damage(calibrated) == expected
    shutil.copytree(made / "steps" / step.id, step.folder)
    assert damage(calibrated) == {}


def test_a_damaged_step_does_not_make_its_calibrations_damaged(calibrated: Store) -> None:
    step = the(calibrated, "offset", 3).step
    (step.folder / "classes.parquet").write_bytes(b"x")
    assert damage(calibrated).keys() == {f"steps/{step.id}/classes.parquet"}


def test_gc_frees_what_died_with_a_commit(calibrated: Store) -> None:
    one = the(calibrated, "offset", 3)
    half, lock = calibrated.path / "working" / f"commit-{one.id[:8]}-x", calibrated.lock_file(one.id)
    half.mkdir()
    (half / "calibration.json").write_text("{")
    lock.touch()
    unfinished = calibrated.lock_file("0" * 32)  # whoever comes to make it takes this one
    unfinished.touch()
    with locked_if_free(lock):
        assert [item for item in freeable(calibrated) if item.kind != "state"] == []
    lock.touch()
    found = [item for item in freeable(calibrated) if item.kind != "state"]
    assert {(item.kind, item.path) for item in found} == {("unfinished commit", half), ("lock", lock)}
    assert all(free(calibrated, item) for item in found)
    assert list((calibrated.path / "working").iterdir()) == [unfinished]
    assert verify_store(calibrated).calibrations == 4


def test_an_export_comes_back_with_equal_bytes(calibrated: Store, tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        travel(calibrated, tmp_path / name)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        kinds = [name.partition("/")[0] for name in tar.getnames()]
    assert list(dict.fromkeys(kinds)) == ["index.json", "steps", "calibrated"]
    copy = Store(tmp_path / "copy")
    result = import_steps(tmp_path / "a.tar", copy)
    assert (len(result.new), result.damaged) == (3 + 4, {})
    for path in (calibrated.path / "calibrated").glob("*/*/*"):
        assert path.read_bytes() == (copy.path / path.relative_to(calibrated.path)).read_bytes()
    assert verify_store(copy).damage == []
    assert sorted(import_steps(tmp_path / "a.tar", copy).present) == sorted(result.new)
    assert list((copy.path / "working").iterdir()) == []
    travel(copy, tmp_path / "c.tar")
    assert (tmp_path / "c.tar").read_bytes() == (tmp_path / "a.tar").read_bytes()


def test_a_damaged_one_is_neither_exported_nor_imported_and_is_replaced_by_a_whole_one(
    calibrated: Store, tmp_path: Path
) -> None:
    travel(calibrated, tmp_path / "whole.tar")
    one = the(calibrated, "offset", 3)
    better = one.table("calibration").set_column(3, "calibrated_accuracy", [[1.0] * 6])
    put(one, "calibration.parquet", parquet_bytes(better, "calibration"))  # checksums fit: only who reads all can know
    travel(calibrated, tmp_path / "forged.tar")
    copy = Store(tmp_path / "copy")
    result = import_steps(tmp_path / "forged.tar", copy)
    assert len(result.new) == 3 + 3
    assert result.damaged == {place(one): "calibration.parquet: calibrated_accuracy is not what its predictions give"}
    result = import_steps(tmp_path / "whole.tar", calibrated)
    assert (result.new, len(result.quarantined)) == ([place(one)], 1)
    assert damage(calibrated) == {}
    (one.folder / "predictions.parquet").write_bytes(b"x")
    with pytest.raises(DamagedStep, match=f"Calibration {one.id[:8]} of step {one.step.id[:8]} is damaged"):
        travel(calibrated, tmp_path / "none.tar")
    assert not (tmp_path / "none.tar").exists()


def test_one_whose_step_is_not_there_is_not_imported(calibrated: Store, tmp_path: Path) -> None:
    one = the(calibrated, "offset", 3)
    export_steps([], tmp_path / "alone.tar", calibrations=[one])
    copy = Store(tmp_path / "copy")
    result = import_steps(tmp_path / "alone.tar", copy)
    assert result.damaged == {place(one): f"its step {one.step.id[:8]} is neither in the store nor whole in this file"}
    assert not (copy.path / "calibrated").exists()


@pytest.mark.parametrize(
    "name",
    [
        "calibrated/../{id}/calibration.json",
        "calibrated/{id}/calibration.json",
        "calibrated/{id}/{id}/state.safetensors",
        "calibrated/{id}/x/calibration.json",
        "calibrated/{id}/{id}/../calibration.json",
    ],
)
def test_an_import_takes_nothing_but_their_files(calibrated: Store, tmp_path: Path, name: str) -> None:
    name = name.format(id="0" * 32)
    index = json.dumps({"forgetscope": "export", "format": 1, "members": {name: {"sha256": "0" * 64, "size": 1}}}).encode()
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        for member, content in (("index.json", index), (name, b"x")):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises(DamagedExport, match="no name of a step's or a plan's file"):
        import_steps(tmp_path / "evil.tar", calibrated)


def test_sql_has_their_columns_where_there_are_none(tmp_path: Path) -> None:
    assert rows(query(golden_copy(tmp_path / "store"), "SELECT max(expected) AS most FROM calibrated")) == [{"most": None}]


def test_sql_has_them_in_a_view(calibrated: Store) -> None:
    found = rows(
        query(calibrated, "SELECT calibration, step, count(*) AS n FROM calibrated GROUP BY ALL ORDER BY calibration, step")
    )
    assert [tuple(row.values()) for row in found] == [(name, step, 2 * step) for name in NAMES for step in (2, 3)]
    joined = "SELECT max(abs(k.calibrated_forgetting - (1 - k.calibrated_accuracy / c.accuracy_when_learned))) AS most FROM "
    joined += "calibrated k JOIN classes c USING (step_id, class_id) WHERE c.introduced_step < c.step"
    assert rows(query(calibrated, joined))[0]["most"] == pytest.approx(0)
    assert {"name": "calibrated"} in rows(query(calibrated, "SHOW TABLES"))
    one, told = the(calibrated, "offset", 3), []
    (one.folder / "calibration.json").write_bytes(b"x")
    answer = query(calibrated, "SELECT count(*) AS n FROM calibrated", lambda error: told.append(str(error)))
    assert rows(answer) == [{"n": 4 + 4 + 6}]
    assert len(told) == 1
    assert f"Calibration {one.id[:8]} of step {one.step.id[:8]} is damaged" in told[0]


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "huge"])
def test_what_is_no_plain_file_is_neither_read_nor_exported(calibrated: Store, tmp_path: Path, kind: str) -> None:
    one = the(calibrated, "offset", 3)
    (one.folder / "predictions.parquet").unlink()
    no_plain_file(one.folder / "predictions.parquet", kind)
    with pytest.raises(DamagedStep, match=f"Calibration {one.id[:8]}"):
        travel(calibrated, tmp_path / "a.tar")
    assert damage(calibrated).keys() == {f"{place(one)}/predictions.parquet"}


def test_where_a_link_leads_is_none_of_a_stores(calibrated: Store, made: Path) -> None:
    one = the(calibrated, "offset", 3)
    shutil.rmtree(one.folder.parent)
    one.folder.parent.symlink_to(made / "calibrated" / one.step.id)
    assert calibrations_of(calibrated, one.step) == []
    assert damage(calibrated) == {f"calibrated/{one.step.id}": "not a folder with a calibration"}
