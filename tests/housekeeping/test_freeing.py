"""Freeing space: listed first, crash-safe, and nothing that anybody needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forgetscope.errors import StateFreed, WriteError
from forgetscope.files import locked, write_new
from forgetscope.housekeeping import freeing
from forgetscope.housekeeping.freeing import Freeable, free, freeable
from forgetscope.housekeeping.inventory import take_inventory
from forgetscope.store import FREED, STATE, Store


def states(found: list[Freeable]) -> set[str]:
    return {item.id for item in found if item.kind == "state"}


def unfinished(store: Store, id: str, parent: str | None) -> Path:
    working = store.working(id)
    working.mkdir()
    (working / "snapshot-0").write_bytes(b"x" * 100)
    if parent is not None:
        (working / "parent").write_text(f"{parent}\n")
    return working


def test_states_at_the_end_of_a_chain_can_go_and_with_all_every_state(store: Store, chain: list[str]) -> None:
    assert states(freeable(store)) == {chain[2]}
    assert states(freeable(store, every_state=True)) == set(chain)
    (item,) = freeable(store)
    assert item.path == store.step(chain[2]).folder / STATE
    assert item.bytes == item.path.stat().st_size


def test_a_freed_state_leaves_everything_else_as_it_was(store: Store, chain: list[str]) -> None:
    step = store.step(chain[2])
    before = {path.name: path.read_bytes() for path in step.folder.iterdir()}
    (item,) = freeable(store)
    assert free(store, item)
    after = {path.name: path.read_bytes() for path in step.folder.iterdir()}
    assert after == {k: v for k, v in before.items() if k != STATE} | {FREED: step.manifest[STATE]["sha256"].encode()}
    step.verify()
    with pytest.raises(StateFreed):
        step.state()
    assert freeable(store) == []
    assert not free(store, item)  # once is enough
    assert list((store.path / "working").iterdir()) == []


@pytest.mark.parametrize("call", ["replace_durably", "unlink"])
def test_a_crash_on_the_way_leaves_the_state_or_its_marker(
    store: Store, chain: list[str], call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*arguments: object) -> None:
        raise KeyboardInterrupt

    (item,) = freeable(store)
    with monkeypatch.context() as patch:
        patch.setattr(os if call == "unlink" else freeing, call, crash)
        with pytest.raises(KeyboardInterrupt):
            free(store, item)
    step = store.step(chain[2])
    step.verify()
    assert step.state()
    assert free(store, item)
    assert step.state_freed


def test_the_marker_is_on_disk_before_the_state_goes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for module, name in ((freeing, "replace_durably"), (freeing, "sync_folder"), (os, "unlink")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, name=name, real=real: (calls.append(name), real(*a))[1])
    (item,) = freeable(store)
    free(store, item)
    assert calls[:3] == ["replace_durably", "unlink", "sync_folder"]  # then the lock's file goes


def test_a_recomputed_state_can_be_freed_again(store: Store, chain: list[str]) -> None:
    (item,) = freeable(store)
    content = item.path.read_bytes()
    free(store, item)
    item.path.write_bytes(content)
    store.step(chain[2]).verify()
    assert not store.step(chain[2]).state_freed
    assert freeable(store) == [item]
    assert free(store, item)


def test_the_parent_of_an_unfinished_step_keeps_its_state(store: Store, chain: list[str]) -> None:
    (item,) = freeable(store)
    unfinished(store, "f" * 32, chain[2])
    assert freeable(store) == []
    assert states(freeable(store, every_state=True)) == {chain[0], chain[1]}
    assert not free(store, item)  # it was listed before that step began
    assert item.path.exists()


def test_a_step_that_somebody_holds_is_left_alone(store: Store, chain: list[str]) -> None:
    (item,) = freeable(store)
    with locked(store.path / "working" / f"{chain[2]}.lock", print, "waiting", done=lambda: False):
        assert freeable(store) == []
        assert not free(store, item)
    assert item.path.exists()


def test_leftovers_of_committed_steps_and_commits_go_and_unfinished_steps_stay(store: Store, chain: list[str]) -> None:
    left = [unfinished(store, chain[0], None), store.path / "working" / f"commit-{'e' * 8}-x1"]
    left[1].mkdir()
    (left[1] / "step.json").write_text("half")
    lock = store.path / "working" / f"{chain[1]}.lock"
    lock.write_text("")
    going_on = unfinished(store, "f" * 32, None)
    (store.path / "working" / f"{'f' * 32}.lock").write_text("")
    found = [item for item in freeable(store) if item.kind != "state"]
    assert {item.path for item in found} == {*left, lock}
    assert {item.path: item.bytes for item in found}[left[0]] == 100
    assert all(free(store, item) for item in found)
    assert {path.name for path in (store.path / "working").iterdir()} == {going_on.name, f"{'f' * 32}.lock"}


def test_a_commit_in_progress_is_no_leftover(store: Store) -> None:
    id = "e" * 32

    def write(folder: Path) -> None:
        assert [item for item in freeable(store) if item.kind != "state"] == []
        stale = Freeable("unfinished commit", folder, 0, id[:8])
        assert not free(store, stale)
        raise KeyboardInterrupt

    with store.lock(id, print), pytest.raises(KeyboardInterrupt):
        store.install(id, write)


def test_a_commit_that_is_taken_for_a_leftover_where_locks_do_nothing_is_made_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", lambda file, operation: None)
    id, written = "e" * 32, []

    def write(folder: Path) -> None:
        write_new(folder / "one", b"1")
        written.append(folder)
        if len(written) == 1:
            (item,) = (item for item in freeable(store) if item.kind == "unfinished commit")
            assert free(store, item)
            assert not free(store, item)
        write_new(folder / "two", b"2")

    with store.lock(id, print):
        assert store.install(id, write)
    assert len(written) == 2
    assert sorted(path.name for path in store.step(id).folder.iterdir()) == ["one", "two"]
    assert list((store.path / "working").iterdir()) == []


def test_what_cannot_be_freed_is_one_clear_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    (item,) = freeable(store)
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(WriteError, match=r"Cannot free .*state.safetensors: Operation not permitted"):
        free(store, item)


def test_quarantine_is_listed_and_never_freed(store: Store, chain: list[str]) -> None:
    store.quarantine(store.step(chain[2]).folder)
    assert states(freeable(store, every_state=True)) == set(chain[:2])
    held = take_inventory(store)
    assert [folder.path.name for folder in held.quarantine] == [f"{chain[2]}-1"]


def test_the_inventory_counts_every_byte_once(store: Store, chain: list[str]) -> None:
    unfinished(store, "f" * 32, chain[2])
    with store.lock("f" * 32, print):
        held = take_inventory(store)
    assert (held.steps, held.experiments, held.states) == (3, 1, 3)
    on_disk = sum(path.stat().st_size for path in store.path.rglob("*") if path.is_file())
    assert sum(held.bytes.values()) + sum(folder.bytes for folder in held.working) == on_disk
    assert [(folder.path.name, folder.in_use) for folder in held.working] == [("f" * 32, True)]
    assert held.freeable == 0  # the last step is needed
    assert held.freeable_with_all == sum((store.step(id).folder / STATE).stat().st_size for id in chain[:2])
