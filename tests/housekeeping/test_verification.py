"""Whatever is harmed is named; what is whole is not; nothing is changed by looking."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess

import pytest

from conftest import raise_schema, rewrite
from forgetscope.files import with_checksum
from forgetscope.housekeeping.verification import Damage, expel_damaged, verify_store
from forgetscope.store import FREED, STATE, TABLES, Store

FILES = ["step.json", STATE, *(f"{name}.parquet" for name in TABLES)]


def damage(store: Store) -> list[Damage]:
    return verify_store(store).damage


def listing(store: Store) -> dict[str, tuple[int, bytes]]:
    files = (path for path in store.path.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_whole_store_is_whole_and_stays_as_it_is(store: Store) -> None:
    before, seen = listing(store), []
    verified = verify_store(store, lambda what, done, total: seen.append((what, done, total)))
    assert verified.damage == []
    assert verified.steps == 3
    assert verified.bytes == sum(len(content) for _, content in before.values())
    assert seen[-1] == ("bytes", verified.bytes, verified.bytes)
    assert listing(store) == before


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["flip", "truncate", "remove", "empty"])
def test_every_harmed_file_is_named_and_no_other(store: Store, chain: list[str], name: str, harm: str) -> None:
    rng = random.Random(f"{name} {harm}")
    path = store.step(rng.choice(chain)).folder / name
    content = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    else:
        if harm == "flip":
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content[: {"flip": len(content), "truncate": rng.randrange(1, len(content)), "empty": 0}[harm]])
    (found,) = damage(store)
    assert found.path == path
    altered = f"{path.stat().st_size if path.exists() else 0} bytes that do not match the checksum"
    assert found.reason == ("No such file or directory" if harm == "remove" else altered)


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_in_a_manifest_is_noticed(store: Store, chain: list[str], seed: int) -> None:
    rng = random.Random(seed)
    path = store.step(chain[0]).folder / "manifest.json"
    content = bytearray(path.read_bytes())
    content[content.index(b"sha256", rng.randrange(len(content) - 150)) + 10 + rng.randrange(64)] ^= 1 << rng.randrange(7)
    path.write_bytes(content)
    found = damage(store)
    assert found
    assert {harmed.path.parent for harmed in found} == {path.parent}


def test_sha256sum_agrees_with_the_manifests(store: Store) -> None:
    for step in store.steps():
        listed = "".join(f"{entry['sha256']}  {step.folder / name}\n" for name, entry in step.manifest.items())
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet"], input=listed, text=True, check=True)


def test_a_file_that_no_manifest_names_is_reported(store: Store, chain: list[str]) -> None:
    extra, stray = store.step(chain[1]).folder / "notes.txt", store.path / "steps" / "stray"
    for path in (extra, stray):
        path.write_text("")
    assert set(damage(store)) == {Damage(extra, "not in the manifest"), Damage(stray, "not a folder with a step")}


def test_a_missing_parent_is_reported(store: Store, chain: list[str]) -> None:
    shutil.rmtree(store.step(chain[0]).folder)
    assert damage(store) == [
        Damage(store.step(chain[1]).folder / "step.json", f"its parent {chain[0][:8]} is not in the store")
    ]


def test_a_step_under_another_name_is_reported(store: Store, chain: list[str]) -> None:
    os.rename(store.step(chain[2]).folder, store.path / "steps" / ("0" * 32))
    (found,) = damage(store)
    assert found.reason == f"it is the record of step {chain[2]}"


def test_a_record_that_was_altered_together_with_its_checksum_is_reported(store: Store, chain: list[str]) -> None:
    folder = store.step(chain[2]).folder
    rewrite(folder, parent=chain[0])
    (found,) = damage(store)
    assert found.path == folder / "step.json"
    assert found.reason.startswith("its specification, parent and data have the id ")


def test_an_older_form_of_a_specification_is_not_held_against_a_step(store: Store, chain: list[str]) -> None:
    folder = store.step(chain[2]).folder
    spec = json.loads((folder / "step.json").read_bytes())["spec"]
    del spec["training"]["sampling"]  # as before that option: its default is filled in, and the id cannot be recomputed
    rewrite(folder, spec=spec)
    assert damage(store) == []
    spec["training"] = {k: v for k, v in spec["training"].items() if v is not None} | {"sampling": "iid"}
    rewrite(folder, spec=spec)  # options that are not set may be left out or be null
    assert damage(store) == []


@pytest.mark.parametrize("changes", [{"spec": 3}, {"data": {}}, {"parent": "../.."}, {"parent": [1]}, {"schema": None}])
def test_a_record_of_something_else_is_reported(store: Store, chain: list[str], changes: dict[str, object]) -> None:
    rewrite(store.step(chain[2]).folder, **changes)
    assert [found.path for found in damage(store)] == [store.step(chain[2]).folder / "step.json"]


def test_a_newer_schema_is_reported_with_what_to_do(store: Store, chain: list[str]) -> None:
    raise_schema(store.step(chain[1]).folder)
    (found,) = damage(store)
    assert "pip install --upgrade forgetscope" in found.reason


def test_a_freed_state_is_no_damage(store: Store, chain: list[str]) -> None:
    step = store.step(chain[2])
    (step.folder / FREED).write_text(step.manifest[STATE]["sha256"])
    (step.folder / STATE).unlink()
    assert damage(store) == []


@pytest.mark.parametrize("name", ["manifest.json", *FILES])
def test_a_damaged_step_is_moved_out_of_the_way_and_no_other(store: Store, chain: list[str], name: str) -> None:
    folder, aside = store.step(chain[1]).folder, store.path / "quarantine" / f"{chain[1]}-1"
    (folder / name).write_bytes(b"{")
    (told,), left = expel_damaged(store, verify_store(store))
    assert told.startswith(f"Step {chain[1][:8]} is damaged: {folder / name}: ")
    assert told.endswith(f". Moved to {aside}")
    assert left == []
    assert (aside / name).read_bytes() == b"{"
    assert {step.id for step in store.steps()} == {chain[0], chain[2]}


def test_what_a_move_would_not_mend_is_left_where_it_is(store: Store, chain: list[str]) -> None:
    shutil.rmtree(store.step(chain[0]).folder)  # so the second lacks its parent
    raise_schema(store.step(chain[2]).folder)
    before = listing(store)
    verified = verify_store(store)
    assert len(verified.damage) == 2
    assert expel_damaged(store, verified) == ([], verified.damage)
    assert listing(store) == before


def test_a_step_of_other_data_goes_with_all_that_builds_on_it(store: Store, chain: list[str]) -> None:
    """As if the data set had been replaced while a run worked: the id is that of the old data."""
    folder = store.step(chain[1]).folder
    rewrite(folder, data=json.loads((folder / "step.json").read_bytes())["data"] | {"digest": "0" * 64})
    moved, left = expel_damaged(store, verify_store(store))
    assert [text.split(":")[0] for text in moved] == [
        f"Step {chain[1][:8]} is damaged",
        f"Step {chain[2][:8]} builds on such a step. Moved to {store.path / 'quarantine' / chain[2]}-1",
    ]
    assert left == []
    assert [step.id for step in store.steps()] == [chain[0]]
    assert {path.name for path in (store.path / "quarantine").iterdir()} == {f"{id}-1" for id in chain[1:]}
    assert damage(store) == []


@pytest.mark.parametrize(
    "changes", [{"id": "0" * 32}, {"spec": 3}, {"parent": "../.."}, {"network": "evil:f"}, {"schema": None}]
)
def test_a_record_of_something_else_is_moved(store: Store, chain: list[str], changes: dict[str, object]) -> None:
    rewrite(store.step(chain[2]).folder, **changes)
    (told,), left = expel_damaged(store, verify_store(store))
    assert told.startswith(f"Step {chain[2][:8]} is damaged: {store.step(chain[2]).folder / 'step.json'}: ")
    assert left == []
    assert damage(store) == []


def test_a_stray_file_goes_alone(store: Store, chain: list[str]) -> None:
    before = {step.id for step in store.steps()}
    extra, stray, link = (
        store.step(chain[1]).folder / "notes.txt",
        store.path / "steps" / "stray",
        store.path / "steps" / "link",
    )
    for path in (extra, stray):
        path.write_text("mine")
    link.symlink_to("nowhere")
    moved, left = expel_damaged(store, verify_store(store))
    assert len(moved) == 3
    assert left == []
    assert {step.id for step in store.steps()} == before
    quarantine = store.path / "quarantine"
    assert (quarantine / f"{chain[1]}-notes.txt-1").read_text() == (quarantine / "stray-1").read_text() == "mine"
    assert damage(store) == []


def test_a_harmed_snapshot_is_moved_unless_a_run_has_it(store: Store) -> None:
    snapshot = store.working("f" * 32) / "snapshot-0"
    snapshot.parent.mkdir()
    snapshot.write_bytes(b"harmed")
    verified = verify_store(store)
    with store.lock("f" * 32, lambda text: None):
        assert expel_damaged(store, verified) == ([], verified.damage)
    (told,), left = expel_damaged(store, verified)
    assert told == f"{snapshot} is damaged. Moved to {store.path / 'quarantine' / ('f' * 32)}-snapshot-0-1"
    assert left == []
    assert not snapshot.exists()


def test_a_network_that_no_specification_names_is_reported(store: Store, chain: list[str]) -> None:
    rewrite(store.step(chain[0]).folder, network="evil:factory")
    found = damage(store)
    assert found[0] == Damage(
        store.step(chain[0]).folder / "step.json", "its network is evil:factory, and its specification says resnet8"
    )
    assert [harmed.reason for harmed in found[1:]] == ["its network is resnet8, and its parent has evil:factory"]


@pytest.mark.parametrize("seed", range(10))
def test_a_harmed_snapshot_is_named(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    working = store.working("f" * 32)
    working.mkdir()
    for turn in (0, 1):
        (working / f"snapshot-{turn}").write_bytes(with_checksum(rng.randbytes(300)))
    (working / "parent").write_text("a" * 32)
    assert verify_store(store).snapshots == 2
    assert damage(store) == []
    path = working / f"snapshot-{rng.randrange(2)}"
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content if seed % 2 else content[: rng.randrange(len(content))])
    assert [found.path for found in damage(store)] == [path]
