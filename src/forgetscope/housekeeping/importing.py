"""Exported files brought into a store: every step whole and verified, or left out and named."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from forgetscope.files import locked_if_free, told
from forgetscope.housekeeping.archive import Entry, checked_members, chunks, opened, read_index
from forgetscope.housekeeping.verification import (
    calibration_damage,
    contents_damage,
    file_damage,
    lineage_problem,
    observed_damage,
    record_problem,
)
from forgetscope.outputs import Progress, unheard
from forgetscope.store import Store, StoredCalibration, StoredObserved, StoredStep

Files = dict[str, tuple[tarfile.TarInfo | None, Entry]]  # of one step, calibration, observed step or plan, by name


@dataclass
class Imported:
    """What became of each step of an imported file, by id, of each calibration, by `calibrated/<step>/<id>`, and of each
    observed step, by `observed/<name>/<number>`."""

    new: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)  # were there already, and whole
    quarantined: list[Path] = field(default_factory=list)  # were there already, but damaged: replaced
    damaged: dict[str, str] = field(default_factory=dict)  # not imported, and why
    taken: list[str] = field(default_factory=list)  # not imported: another of the same name and number is there, and stays

    def __add__(self, other: Imported) -> Imported:
        """Of two files, one after the other."""
        present = [id for id in other.present if id not in self.new and id not in self.present]
        rest = self.quarantined + other.quarantined, self.damaged | other.damaged, self.taken + other.taken
        return Imported(self.new + other.new, self.present + present, *rest)


def import_steps(path: Path, store: Store, progress: Progress = unheard) -> Imported:
    """Bring in every whole step of an exported file. What is there already stays; a damaged step is left out and named.

    Raises DamagedExport, before anything is imported, for a file that holds anything but what its index lists."""
    result = Imported()
    with opened(path) as tar:
        index = read_index(tar, path)
        members = checked_members(tar, index, path)
        store.prepare()
        total, done = sum(entry.size for entry in index.values()), 0
        folders: dict[tuple[str, str], Files] = {}
        for path_in_file, entry in index.items():
            folder, _, name = path_in_file.rpartition("/")
            kind, _, id = folder.partition("/")
            folders.setdefault((kind, id), {})[name] = members.get(path_in_file), entry
        for (kind, id), files in sorted(folders.items(), key=lambda folder: list(_IMPORTS).index(folder[0][0])):
            _IMPORTS[kind](store, id, partial(_copy, tar, files), result)
            done += sum(entry.size for _, entry in files.values())
            progress("bytes", done, total)
    return result


def _import_step(store: Store, id: str, copy: Callable[[Path], None], result: Imported) -> None:
    if id in store and store.damage(id) is None:
        result.present.append(id)
        return

    def write(folder: Path) -> None:
        copy(folder)
        _refuse_unless_whole(StoredStep(folder, id), store)
        if store.damage(id):  # asked again: another process may have brought in a whole one since; ours is whole
            result.quarantined.append(store.quarantine(store.step(id).folder))

    try:
        # Whoever builds a commit holds the step's lock, or `gc` would take it for a leftover. If another process holds
        # the lock, it computes the same step: then that protects us too, and whoever is first wins.
        with locked_if_free(store.lock_file(id)):
            (result.new if store.install(id, write) else result.present).append(id)
    except _Refused as refusal:
        result.damaged[id] = str(refusal)


def _refuse_unless_whole(step: StoredStep, store: Store) -> None:
    for damage in file_damage(step):
        raise _Refused(f"{damage.path.name}: {damage.reason}")
    problem = record_problem(step)[0] or lineage_problem(step, store)
    if problem:
        raise _Refused(f"step.json: {problem}")
    for damage in contents_damage(step):
        raise _Refused(f"{damage.path.name}: {damage.reason}")
    if step.parent is not None and step.parent not in store:
        raise _Refused(f"its parent {step.parent[:8]} is neither in the store nor whole in this file")


def _import_calibration(store: Store, id: str, copy: Callable[[Path], None], result: Imported) -> None:
    """It is held against the step that is here by now."""
    (step, name), place = id.split("/"), f"calibrated/{id}"
    made = StoredCalibration(store.path / place, store.step(step))

    def write(folder: Path) -> None:
        copy(folder)
        for damage in calibration_damage(StoredCalibration(folder, made.step, name)):
            raise _Refused(f"{damage.path.name}: {damage.reason}")
        if made.there and calibration_damage(made):
            result.quarantined.append(store.quarantine(made.folder))

    try:
        if step not in store:
            raise _Refused(f"its step {step[:8]} is neither in the store nor whole in this file")
        store.refuse_links("calibrated", f"calibrated/{step}")
        with told(made.folder):
            made.folder.parent.mkdir(parents=True, exist_ok=True)
        with locked_if_free(store.lock_file(name)):
            (result.new if store.put_in_place(made.folder, name, write) else result.present).append(place)
    except _Refused as refusal:
        result.damaged[place] = str(refusal)


def _import_observed(store: Store, id: str, copy: Callable[[Path], None], result: Imported) -> None:
    """A number is never written again: what is there and whole stays, and another of its name and number is refused."""
    name, number = id.split("/")
    step, place = StoredObserved(store.path / "observed" / name / number), f"observed/{id}"

    def write(folder: Path) -> None:
        copy(folder)
        for damage in observed_damage(StoredObserved(folder, (name, int(number)))):
            raise _Refused(f"{damage.path.name}: {damage.reason}")
        if step.folder.exists() and observed_damage(step):
            result.quarantined.append(store.quarantine(step.folder))
        elif step.folder.exists() and step.content("manifest.json") != (folder / "manifest.json").read_bytes():
            raise _Taken

    try:
        store.refuse_links("observed", f"observed/{name}")
        with told(step.folder):
            step.folder.parent.mkdir(parents=True, exist_ok=True)
        with locked_if_free(store.lock_file(step.key)):
            (result.new if store.put_in_place(step.folder, step.key, write) else result.present).append(place)
    except _Taken:
        result.taken.append(place)
    except _Refused as refusal:
        result.damaged[place] = str(refusal)


def _import_plan(store: Store, id: str, copy: Callable[[Path], None], result: Imported) -> None:
    """What is there stays: a plan's id says what it is."""
    folder = store.path / "plans" / id
    if (folder / "plan.json").exists():
        return
    try:
        with told(folder), tempfile.TemporaryDirectory(dir=store.path / "working") as building:
            copy(Path(building))
            folder.mkdir(parents=True, exist_ok=True)
            os.replace(Path(building, "plan.json"), folder / "plan.json")
    except _Refused as refusal:
        result.damaged[f"plans/{id}/plan.json"] = str(refusal)


_IMPORTS = {  # in this order
    **{"steps": _import_step, "calibrated": _import_calibration},
    **{"observed": _import_observed, "plans": _import_plan},
}


def _copy(tar: tarfile.TarFile, files: Files, folder: Path) -> None:
    """Every file, durably; raises _Refused at the first that is missing or altered."""
    for name, (member, entry) in files.items():
        if member is None:
            raise _Refused(f"{name} is missing: the file ends before it, or is damaged there")
        digest, size = hashlib.sha256(), 0
        try:
            with told(folder / name), (folder / name).open("xb") as file:
                for chunk in chunks(tar, member):
                    digest.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except tarfile.TarError as error:
            raise _Refused(f"{name} cannot be read: {error}") from None
        if Entry(digest.hexdigest(), size) != entry:
            raise _Refused(f"{name}: {size} bytes that do not match the checksum")


class _Refused(Exception):
    """Why a step is not imported."""


class _Taken(Exception):
    """Another has its name and number."""
