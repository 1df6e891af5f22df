"""Freeing space: states that no step builds on, and what interrupted commits left behind. Nothing goes before it is listed.

A step's results are never touched. A freed state leaves a marker, so that it is missed by nobody but the step that needs
it, and that one recomputes it.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from forgetscope.errors import StoreError, WriteError
from forgetscope.files import is_locked, locked_if_free, read_regular, replace_durably, size_of, sync_folder
from forgetscope.store import FREED, STATE, Store, StoredCalibration, StoredStep, all_calibrations

Kind = Literal["state", "working folder", "lock", "unfinished commit"]


@dataclass(frozen=True)
class Freeable:
    """Something that can go. `id` is its step's or calibration's, of an unfinished commit only the beginning."""

    kind: Kind
    path: Path
    bytes: int
    id: str


def freeable(store: Store, *, every_state: bool = False) -> list[Freeable]:
    """What could be freed now: states of steps at the end of their chain (or every state) and leftovers that nobody holds."""
    return [*_states(store, every_state), *_leftovers(store)]


def free(store: Store, found: Freeable) -> bool:
    """Free one thing, unless somebody has come to need it since it was listed; tells whether it is gone."""
    if found.kind == "unfinished commit":
        if _is_being_committed(store, found.id):
            return False
        # Away at once: where locks do nothing, whoever is filling it must find it gone, never committed with files missing.
        gone = found.path.with_name(f"commit-{found.id}-{uuid.uuid4().hex}")
        with _freeing(found.path):
            try:
                os.rename(found.path, gone)
            except FileNotFoundError:
                return False
        _remove(gone)
        return True
    with _freeing(found.path), locked_if_free(store.lock_file(found.id)) as ours:
        if not ours or not store.finished(found.id):
            return False
        if found.kind == "state":
            return found.id not in needed_parents(store) and _free_state(store.step(found.id))
        if found.kind == "working folder":
            _remove(found.path)
    return True


def without_step(store: Store) -> list[StoredCalibration]:
    """Calibrations whose step is not in the store. They stay: once it is there again, they are its own."""
    return [one for one in all_calibrations(store) if one.step.id not in store]


def needed_parents(store: Store) -> set[str]:
    """Ids of the steps that unfinished steps build on, by their own account in `working/<id>/parent`."""
    parents = set()
    for path in (store.path / "working").glob("*/parent"):
        if path.parent.name not in store:
            try:
                parents.add(read_regular(path, 1024).decode("ascii", "replace").strip())
            except FileNotFoundError:
                continue  # finished meanwhile
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error.strerror or error}. Remove it, then try again.") from None
    return parents


def _states(store: Store, every: bool) -> Iterator[Freeable]:
    steps = store.steps()
    kept = needed_parents(store)
    if not every:
        kept |= {step.parent for step in steps if step.parent is not None}
    for step in steps:
        path = step.folder / STATE
        if step.id not in kept and path.exists() and not is_locked(store.lock_file(step.id)):
            yield Freeable("state", path, size_of(path), step.id)


def _leftovers(store: Store) -> Iterator[Freeable]:
    working = store.path / "working"
    for path in sorted(working.iterdir()) if working.is_dir() else []:
        beginning = path.name.removeprefix("commit-").partition("-")[0]
        if path.name.startswith("commit-") and path.is_dir() and not _is_being_committed(store, beginning):
            yield Freeable("unfinished commit", path, size_of(path), beginning)
        elif store.finished(id := path.name.removesuffix(".lock")) and not is_locked(store.lock_file(id)):
            kind: Kind = "lock" if path.name.endswith(".lock") else "working folder"
            yield Freeable(kind, path, size_of(path), id)


def _is_being_committed(store: Store, beginning: str) -> bool:
    """Whoever commits a step holds its lock; a folder without a holder was left by one that died."""
    return any(is_locked(path) for path in (store.path / "working").glob(f"{beginning}*.lock"))


def _free_state(step: StoredStep) -> bool:
    """The marker is on disk before the state goes: a crash in between leaves both, and the state counts."""
    path = step.folder / STATE
    replace_durably(step.folder / FREED, str(step.manifest[STATE]["sha256"]).encode())
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False  # another was faster
    sync_folder(step.folder)
    return True


def _remove(folder: Path) -> None:
    with _freeing(folder), suppress(FileNotFoundError):
        shutil.rmtree(folder)


@contextmanager
def _freeing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"Cannot free {path}: {error.strerror or error}. What was freed so far is freed; run it again for the rest."
        ) from None
