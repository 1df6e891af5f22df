"""Is everything in a store as it was written? Looking reads all of it and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from forgetscope.errors import DamagedStep, StoreError
from forgetscope.files import size_of, without_checksum
from forgetscope.spec import step_id
from forgetscope.store import FREED, STATE, Store, StoredStep

ID = re.compile("[0-9a-f]{32}")
Progress = Callable[[str, int, int], None]  # what is counted, how much is done, how much there is


@dataclass(frozen=True)
class Damage:
    path: Path
    reason: str


@dataclass(frozen=True)
class Verification:
    """What was read, and every file of it that is not as it should be."""

    steps: int
    snapshots: int
    bytes: int
    damage: list[Damage]


def verify_store(store: Store, progress: Progress = lambda what, done, total: None) -> Verification:
    """Check every file of every step, every parent, every id and every snapshot."""
    steps, snapshots = store.steps(), _snapshots(store)
    sizes = {path: size_of(path) for path in (*(step.folder for step in steps), *snapshots)}
    total, done = sum(sizes.values()), 0
    strays = sorted(path for path in (store.path / "steps").iterdir() if not path.is_dir())
    damage = [Damage(path, "not a folder with a step") for path in strays]
    for step in steps:
        damage += step_damage(step, store)
        done += sizes[step.folder]
        progress("bytes", done, total)
    for path in snapshots:
        damage += _snapshot_damage(path)
    progress("bytes", total, total)
    return Verification(len(steps), len(snapshots), total, damage)


def expel_damaged(store: Store, verified: Verification) -> tuple[list[str], list[Damage]]:
    """Move the damaged steps to quarantine: what was moved where, and the damage that is left.

    Left is what no move mends: stray files, missing parents, records of a newer version, snapshots (a run has another)."""
    harmed = [step for step in store.steps() if any(step.folder in damage.path.parents for damage in verified.damage)]
    moved = {step.folder: told for step in harmed if _is_altered(step) and (told := store.expel(step.id))}
    return list(moved.values()), [damage for damage in verified.damage if moved.keys().isdisjoint(damage.path.parents)]


def _is_altered(step: StoredStep) -> bool:
    try:
        step.verify()
    except DamagedStep:
        return True
    except StoreError:  # a newer schema
        pass
    return False


def step_damage(step: StoredStep, store: Store) -> list[Damage]:
    """Everything that is wrong with one step and its place in the store."""
    damage, record = list(file_damage(step)), step.folder / "step.json"
    if {found.path.name for found in damage} & {"manifest.json", record.name}:
        return damage  # a record that cannot be read says nothing about parent and id
    problem = record_problem(step)
    if problem is None and step.parent is not None and step.parent not in store:
        problem = f"its parent {step.parent[:8]} is not in the store"
    return [*damage, Damage(record, problem)] if problem else damage


def file_damage(step: StoredStep) -> Iterator[Damage]:
    """Files that are missing, altered, or that the manifest does not name."""
    try:
        manifest = step.manifest
    except DamagedStep as error:
        yield Damage(step.folder / error.file, error.reason)
        return
    for name in manifest:
        try:
            step.verified(name)
        except DamagedStep as error:
            if name != STATE or not step.state_freed:
                yield Damage(step.folder / error.file, error.reason)
    for path in sorted(step.folder.iterdir()):
        if path.name not in {*manifest, "manifest.json", FREED}:
            yield Damage(path, "not in the manifest")


def record_problem(step: StoredStep, id: str | None = None) -> str | None:
    """What is wrong with a record whose files are whole: it must be the one that its id (default: its folder) promises."""
    id = id or step.id
    try:
        info = step.info
        spec, digest = step.spec, info["data"]["digest"]
        if info["id"] != id:
            return f"it is the record of step {info['id']}"
        if step.parent is not None and not ID.fullmatch(step.parent):
            return f"{step.parent!r} is no id of a parent"
        # An older form, with options left out that have a default by now, was identified by what it held then.
        is_current = spec.model_dump(mode="json", exclude_none=True) == _without_none(info["spec"])
        if is_current and (recomputed := step_id(step.parent, spec, digest)) != id:
            return f"its specification, parent and data have the id {recomputed[:8]}"
    except StoreError as error:  # a newer schema, which is not ours to judge
        return str(error)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"no record of a step ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    return None


def _without_none(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value


def _snapshots(store: Store) -> list[Path]:
    return sorted(path for path in (store.path / "working").glob("*/snapshot-*") if path.name in ("snapshot-0", "snapshot-1"))


def _snapshot_damage(path: Path) -> Iterator[Damage]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return  # its step has finished meanwhile
    except OSError as error:
        yield Damage(path, error.strerror or str(error))
        return
    if without_checksum(content) is None:
        yield Damage(path, f"{len(content)} bytes that do not match the checksum; a run goes on from the other snapshot")
