"""Steps, calibrations, observed steps and plans of a store as one file (`archive`) that others can import and verify."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from forgetscope.errors import DamagedStep, SpecError, StoreError
from forgetscope.files import read_regular
from forgetscope.housekeeping.archive import Entry, add, writing
from forgetscope.outputs import Progress, unheard
from forgetscope.store import (
    CARRIED,
    KEEPSAKES,
    MARKERS,
    STATE,
    Store,
    StoredCalibration,
    StoredObserved,
    StoredStep,
    StoredTables,
    TellLeftOut,
    leaving_out,
)
from forgetscope.store.stepfiles import PLAN_BYTES, PLAN_ID


def export_steps(
    steps: Sequence[StoredStep],
    path: Path,
    *,
    calibrations: Sequence[StoredCalibration] = (),
    observed: Sequence[StoredObserved] = (),
    plans: Sequence[Path] = (),
    states: bool = True,
    keepsakes: int | None = None,
    progress: Progress = unheard,
) -> int:
    """Write steps to one file, verifying each as it is read; returns how many bytes. Without states, markers stand for them.

    calibrations: of these steps. plans: the plan.json files that say which steps belong to which experiment. keepsakes: of
    steps up to this number, with markers for later ones; None: of all."""
    ordered = {f"steps/{step.id}": step for step in sorted(steps, key=lambda step: (step.spec.step, step.id))}
    own = {f"calibrated/{one.step.id}/{one.id}": one for one in sorted(calibrations, key=lambda o: (o.number, o.step.id, o.id))}
    seen = {f"observed/{step.id}": step for step in sorted(observed, key=lambda step: (step.name, step.number))}
    members = {place: _members(step, states, keepsakes) for place, step in ordered.items()}
    members |= {place: _listed(step) for place, step in (own | seen).items()}
    entries = {f"{place}/{name}": entry for place, files in members.items() for name, entry in files.items()}
    recorded = {f"plans/{file.parent.name}/plan.json": _plan(file) for file in plans}
    entries |= {name: Entry.of(content) for name, content in recorded.items()}
    total, done = sum(entry.size for entry in entries.values()), 0
    with writing(path, entries) as tar:
        for place, step in (ordered | own | seen).items():
            for name, entry in members[place].items():
                add(tar, f"{place}/{name}", _content(step, name, entry))
                done += entry.size
                progress("bytes", done, total)
        for name, content in recorded.items():
            add(tar, name, content)
    return path.stat().st_size


def _members(step: StoredStep, states: bool, keepsakes: int | None) -> dict[str, Entry]:
    """The files of a step as they will be in the file."""
    entries = _listed(step)
    kept = keepsakes is None or step.number <= keepsakes
    wanted = {STATE: states, KEEPSAKES: kept, CARRIED: kept}
    for name, marker in MARKERS.items():
        if name in entries and (not wanted[name] or step.left_out(name)):
            entries[marker] = Entry.of(entries.pop(name).sha256.encode())
    return dict(sorted(entries.items()))


def _listed(step: StoredTables) -> dict[str, Entry]:
    """By its manifest, and the manifest itself."""
    entries = {name: Entry(str(entry["sha256"]), int(entry["size"])) for name, entry in step.manifest.items()}
    entries["manifest.json"] = Entry.of(step.content("manifest.json"))
    return dict(sorted(entries.items()))


def _content(step: StoredTables, name: str, entry: Entry) -> bytes:
    for file, marker in MARKERS.items():
        if name == marker:
            return str(step.manifest[file]["sha256"]).encode()
    try:
        content = step.content(name) if name == "manifest.json" else step.verified(name)
    except DamagedStep:
        if not step.left_out(name):
            raise
        content = b""  # freed since it was listed
    if Entry.of(content) != entry:
        raise StoreError(f"{step.title} changed while it was exported: {step.folder / name}. Run the export again.")
    return content


def _plan(path: Path) -> bytes:
    try:
        if path.parent.is_symlink():
            raise OSError("its folder is a link")
        return read_regular(path, PLAN_BYTES)
    except OSError as error:
        raise StoreError(f"{path} is not exported: {error.strerror or error}. Delete it, and export again.") from None


def plan_files(store: Store, left_out: TellLeftOut | None = None) -> list[Path]:
    """What a store remembers of the plans that were run into it. left_out: is told of what no import would take."""
    store.refuse_links("plans")
    found = []
    for path in sorted((store.path / "plans").glob("*/plan.json")):
        with leaving_out(left_out):
            if not PLAN_ID.fullmatch(path.parent.name):
                raise StoreError(
                    f"{path} is not exported: {path.parent.name[:100]!r} is no id of a plan. Rename or delete its folder."
                )
            found.append(path)
    return found


def chains(store: Store, prefixes: Sequence[str]) -> list[StoredStep]:
    """The steps whose ids begin so, with their ancestors; all steps if none are named."""
    store.refuse_links("steps")
    if not prefixes:
        return store.steps()
    found = {step.id: step for prefix in prefixes for step in store.chain(store.find(prefix).id)}
    return list(found.values())


def monitored(store: Store, name: str) -> list[StoredObserved]:
    """The observed steps of one monitor; SpecError if there is none of this name."""
    found = store.observed(name)
    if not found:
        names = ", ".join(dict.fromkeys(step.name for step in store.observed()))
        raise SpecError(f"{store.path} holds no observed steps of {name!r}; of others: {names or 'none'}.")
    return found
