"""Is everything in a store as it was written? Looking reads all of it and changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from forgetscope.data.limits import SNAPSHOT_BYTES
from forgetscope.errors import DamagedStep, StoreError
from forgetscope.files import locked_if_free, matches_checksum, open_regular, size_of
from forgetscope.outputs import Progress, unheard
from forgetscope.store import (
    CARRIED,
    KEEPSAKES,
    RunningObserved,
    Store,
    StoredCalibration,
    StoredObserved,
    StoredStep,
    StoredTables,
    all_calibrations,
)
from forgetscope.store.calibrated import CALIBRATION, ID
from forgetscope.store.columns import SCHEMAS
from forgetscope.store.observed import ALL_OBSERVED_TABLES, MONITOR, RECORD, RUNNING


@dataclass(frozen=True)
class Damage:
    path: Path
    reason: str
    # What to move so that it can be made again; None: that mends nothing.
    move: Path | None = field(default=None, compare=False)
    foreign: bool = field(default=False, compare=False)  # the step is not what its id says, and others may build on it


@dataclass(frozen=True)
class Verification:
    """What was read, and every file of it that is not as it should be."""

    steps: int
    calibrations: int
    observed: int
    snapshots: int
    bytes: int
    damage: list[Damage]


def verify_store(store: Store, progress: Progress = unheard) -> Verification:
    """Check every file of every step and of its calibrations, every parent, every id and every snapshot."""
    steps, observed, running, beside = store.steps(), store.observed(), store.observing(), all_calibrations(store)
    snapshots = sorted((store.path / "working").glob("*/snapshot-[01]"))
    sizes = {path: size_of(path) for path in (*(step.folder for step in (*steps, *beside, *observed, *running)), *snapshots)}
    total, done = sum(sizes.values()), 0
    damage, harmed = list(_strays(store)), set()
    for step in steps:
        found = step_damage(step, store)
        harmed |= {step.id} if found else set()
        damage += found
        done += sizes[step.folder]
        progress("bytes", done, total)
    for one in beside:
        damage += calibration_damage(one, beside=one.step.id in store and one.step.id not in harmed)
        if one.step.id not in store:
            damage.append(Damage(one.folder / CALIBRATION, f"its step {one.step.id[:8]} is not in the store"))
        done += sizes[one.folder]
        progress("bytes", done, total)
    for seen in (*observed, *running):
        damage += observed_damage(seen)
    for path in snapshots:
        damage += _snapshot_damage(path)
    progress("bytes", total, total)
    return Verification(len(steps), len(beside), len(observed), len(snapshots), total, damage)


def _strays(store: Store) -> Iterator[Damage]:
    """What lies where only steps, calibrations and observed steps are, and is none."""
    steps = store.path / "steps"
    for path in sorted(steps.glob("*")):
        if not path.is_dir() or path.is_symlink():
            yield Damage(path, "not a folder with a step", path)
    known = {step.folder for step in (*all_calibrations(store), *store.observed())}
    for kind, form, what in (("calibrated", ID, "calibration"), ("observed", MONITOR, "step")):
        for path in sorted((store.path / kind).glob("*")):
            misplaced = not path.is_dir() or path.is_symlink() or not form.fullmatch(path.name)
            for place in [path] if misplaced else sorted(path.glob("*")):
                if place not in known:
                    yield Damage(place, f"not a folder with a {what}", place)


def expel_damaged(store: Store, verified: Verification) -> tuple[list[str], list[Damage]]:
    """Move what is damaged to quarantine: what was moved where, and the damage that is left.

    With a step that is not what its id says goes everything that builds on it. Left is what no move mends, missing parents and
    records of a newer version, and what a run is working on."""
    store.prepare()
    told = {path: _moved(store, path) for path in {damage.move: None for damage in verified.damage} if path is not None}
    moved = [text for text in told.values() if text]
    foreign = {damage.move.name for damage in verified.damage if damage.move and damage.foreign and told[damage.move]}
    for step in _descendants(store, foreign):
        with store.lock(step.id, unheard):
            moved.append(f"Step {step.id[:8]} builds on such a step. Moved to {store.quarantine(step.folder)}")
    left = [damage for damage in verified.damage if damage.move is None or told[damage.move] is None]
    return moved, [damage for damage in left if damage.path.parent.exists()]


def _moved(store: Store, path: Path) -> str | None:
    """If it is still damaged, and no run is at it."""
    kind, id = path.relative_to(store.path).parts[:2]
    if kind == "working":
        with locked_if_free(store.lock_file(id)) as free:
            again = observed_damage(RunningObserved(path)) if RUNNING.fullmatch(path.name) else _snapshot_damage(path)
            return f"{path} is damaged. Moved to {store.quarantine(path)}" if free and list(again) else None
    if kind == "observed":
        return _moved_observed(store, path)
    if kind == "calibrated":
        return _moved_calibration(store, path)
    if not (store.path / kind / id).is_dir() or path.name != id:
        return f"{path} is no file of a step. Moved to {store.quarantine(path)}"
    with store.lock(id, unheard):
        found = [damage for damage in step_damage(store.step(id), store) if damage.move == path]
        told = f"Step {id[:8]} is damaged: {found[0].path}: {found[0].reason}" if found else ""
        return f"{told}. Moved to {store.quarantine(path)}" if found else None


def is_observed(store: Store, path: Path) -> bool:
    """Whether what lies there is of an observed step, committed or running."""
    kind, name = path.relative_to(store.path).parts[:2]
    return kind == "observed" or (kind == "working" and RUNNING.fullmatch(name) is not None)


def _moved_observed(store: Store, path: Path) -> str | None:
    step = next((step for step in store.observed() if step.folder in (path, path.parent)), None)
    if step is None or path != step.folder:
        return f"{path} is no file of an observed step. Moved to {store.quarantine(path)}"
    found = [damage for damage in observed_damage(step) if damage.move == path]
    told = f"{step.title} is damaged: {found[0].path}: {found[0].reason}" if found else ""
    return f"{told}. Moved to {store.quarantine(path)}" if found else None


def _moved_calibration(store: Store, path: Path) -> str | None:
    one = next((one for one in all_calibrations(store) if one.folder in (path, path.parent)), None)
    if one is None or path != one.folder:
        return f"{path} is no file of a calibration. Moved to {store.quarantine(path)}"
    with locked_if_free(store.lock_file(one.id)) as free:
        beside = one.step.id in store and not step_damage(one.step, store)
        found = [damage for damage in calibration_damage(one, beside=beside) if damage.move == path]
        told = f"{one.title} is damaged: {found[0].path}: {found[0].reason}" if found and free else ""
        return f"{told}. Moved to {store.quarantine(path)}" if told else None


def _descendants(store: Store, ids: set[str]) -> list[StoredStep]:
    """Whatever builds on these, as far as records can be read."""
    children: dict[str | None, list[StoredStep]] = {}
    for step in store.steps() if ids else ():
        if not list(file_damage(step)) and record_problem(step)[0] is None:
            children.setdefault(step.parent, []).append(step)
    found, new = [], [step for id in ids for step in children.get(id, [])]
    while new:
        found += new
        new = [child for step in new for child in children.get(step.id, [])]
    return found


def step_damage(step: StoredStep, store: Store) -> list[Damage]:
    """Everything that is wrong with one step and its place in the store."""
    damage, record = list(file_damage(step)), step.folder / "step.json"
    if {found.path.name for found in damage} & {"manifest.json", record.name}:
        return damage  # a record that cannot be read says nothing about parent and id
    problem, newer = record_problem(step)
    problem = problem or lineage_problem(step, store)
    if problem:
        return [*damage, Damage(record, problem, None if newer else step.folder, foreign=True)]
    damage = damage or list(contents_damage(step))
    if step.parent is not None and step.parent not in store:
        return [*damage, Damage(record, f"its parent {step.parent[:8]} is not in the store")]
    return damage


def observed_damage(step: StoredObserved) -> list[Damage]:
    """Everything that is wrong with one observed step, or with one that runs."""
    damage = [] if isinstance(step, RunningObserved) else list(file_damage(step))
    if damage:
        return damage
    problem, newer = record_problem(step)
    if problem:
        return [Damage(step.folder / RECORD, problem, None if newer else step.folder)]
    try:
        if isinstance(step, RunningObserved):
            for name in filter(step.has, ALL_OBSERVED_TABLES):
                step.table(name)
        else:
            step.check_contents()
    except DamagedStep as error:
        return [Damage(step.folder / error.file, error.reason, step.folder)]
    return []


def calibration_damage(one: StoredCalibration, *, beside: bool = True) -> list[Damage]:
    """Everything that is wrong with one calibration. beside: whether its step is there and whole, to hold it against."""
    damage = list(file_damage(one))
    if damage:
        return damage
    if strange := sorted(one.manifest.keys() - one.needed):
        return [Damage(one.folder / strange[0], "no file of a calibration", one.folder)]
    problem, newer = record_problem(one)
    if problem:
        return [Damage(one.folder / CALIBRATION, problem, None if newer else one.folder)]
    try:
        if beside:
            one.check_contents()
    except DamagedStep as error:
        return [Damage(one.folder / error.file, error.reason, one.folder)]
    return []


def contents_damage(step: StoredStep) -> Iterator[Damage]:
    """Tables that are whole, as is the record, and contradict others of the step; and one that is lost."""
    if not step.has("predictions") and step.simulated is None and step.info["schema"] >= 2:
        yield Damage(step.folder / "predictions.parquet", "not there, and every step of its version has it", step.folder)
    kept = {KEEPSAKES: step.keepsakes, CARRIED: step.carried}
    for read in (step.predictions, step.check_forecasts, *(read for file, read in kept.items() if not step.left_out(file))):
        try:
            read()
        except DamagedStep as error:
            yield Damage(step.folder / error.file, error.reason, step.folder)


def lineage_problem(step: StoredStep, store: Store) -> str | None:
    """What is wrong with the parent or the network that a record names: it must be its specification's, or its parent's."""
    named = step.info.get("network")
    if step.parent is None:
        return None if named == step.spec.network else f"its network is {named}, and its specification says {step.spec.network}"
    parent = store.step(step.parent)
    if step.parent not in store or record_problem(parent)[0]:
        return None  # nothing to compare with
    if parent.number + 1 != step.number:
        return f"step {step.number} that builds on a step {parent.number}"
    inherited = parent.info.get("network")
    return None if named == inherited else f"its network is {named}, and its parent has {inherited}"


def file_damage(step: StoredTables) -> Iterator[Damage]:
    """Files that are missing, altered, or that the manifest does not name."""
    try:
        manifest = step.manifest
    except DamagedStep as error:
        yield Damage(step.folder / error.file, error.reason, step.folder)
        return
    for name in manifest:
        try:
            step.check(name)
            if name.removesuffix(".parquet") in SCHEMAS:
                step.table(name.removesuffix(".parquet"))  # type: ignore[arg-type]
        except DamagedStep as error:
            if not step.left_out(name):
                yield Damage(step.folder / error.file, error.reason, step.folder)
    for path in sorted(step.folder.iterdir()):
        if path.name not in {*manifest, "manifest.json", *step.markers.values()}:
            yield Damage(path, "not in the manifest", path)


def record_problem(step: StoredTables) -> tuple[str | None, bool]:
    """What is wrong with a record whose files are whole, which must be the one that its id promises; and whether it is a newer
    schema, which is not ours to judge."""
    try:
        _ = step.info
    except DamagedStep as error:
        return error.reason, False
    except StoreError as error:
        return str(error), True
    return None, False


def _snapshot_damage(path: Path) -> Iterator[Damage]:
    try:
        with open_regular(path, SNAPSHOT_BYTES) as file:
            whole = matches_checksum(file)
            size = file.tell()
    except FileNotFoundError:
        return  # its step has finished meanwhile
    except OSError as error:
        yield Damage(path, error.strerror or str(error), path)
        return
    if not whole:
        yield Damage(path, f"{size} bytes that do not match the checksum; a run goes on from the other snapshot", path)
