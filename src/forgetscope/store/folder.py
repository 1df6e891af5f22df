"""Immutable step records on disk: a folder per step, built under a temporary name and renamed into place.

    STORE/steps/<id>/        committed steps; a reader sees all of one or nothing, and needs no lock
    STORE/observed/          the same of what a monitor saw (`observed`)
    STORE/calibrated/        the same of what acts on a step's predictions (`calibrated`)
    STORE/working/<id>/      snapshots and probes so far of a step that is being run
    STORE/working/<id>.lock  avoids double work; correctness rests on the rename
    STORE/quarantine/        damaged steps, and incomplete ones that were observed again, kept for inspection

Of a finished step only the state, which a further step starts from, may be freed later; a marker then stands in its place.
No file is a pickle. Every file is verified against its manifest when it is read.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import safetensors.numpy

from forgetscope.errors import DamagedStep, SpecError, StoreError, WriteError
from forgetscope.files import cannot_write, locked, put_aside, sync_folder, told, write_new
from forgetscope.spec import StepSpec
from forgetscope.store.observed import MONITOR, NUMBER, RUNNING, RunningObserved, StoredObserved
from forgetscope.store.stepfiles import MARKERS, STATE, TableName
from forgetscope.store.stored import ALL_TABLES, SCHEMA, TABLES, StoredStep, Tensors
from forgetscope.store.tables import json_bytes, manifest_bytes, parquet_bytes

FOLDERS = ("steps", "working", "plans", "observed", "calibrated", "quarantine")

# What `measure` says in `extra`.
ALL_LAYERS, EVERY_ITERATION, RELEASED, OF_METHOD = "all layers", "every iteration", "released", "method"


@dataclass(frozen=True)
class StepRecord:
    """Everything that a finished step leaves behind."""

    id: str
    parent: str | None
    spec: StepSpec
    data: Mapping[str, object]  # name, image_size, shape, digest, classes
    environment: Mapping[str, object]  # what equal bits depend on: device, instruction set, threads, library versions
    timings: Mapping[str, float]  # seconds
    history: Sequence[Mapping[str, float]]  # per epoch
    tables: Mapping[TableName, pa.Table]
    network: str
    state: Tensors
    divergence: Mapping[str, object] | None = None  # epoch, iteration and loss, if training ended that way
    simulated: Mapping[str, object] | None = None  # seed and truth, if nothing was trained
    start: Mapping[str, str] | None = None  # SHA-256 of the weights that training started from
    kept: Mapping[str, int] | None = None  # bytes of past classes' images, logits and keepsakes that training had


TellLeftOut = Callable[[StoreError], None]


@contextmanager
def leaving_out(tell: TellLeftOut | None) -> Iterator[None]:
    """What is wrong with a step in the block is told, and the step left out; without anybody to tell, it is an error."""
    try:
        yield
    except StoreError as error:
        if tell is None:
            raise
        tell(error)


class Store:
    """A folder of steps. Opening it reads nothing.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> [step.spec.step for step in fs.Store("results").chain(result.id)]
    [1, 2]
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def existing(cls, path: Path | str) -> Store:
        """For commands that look: the folder must be a store already."""
        store = cls(path)
        if not any((store.path / name).is_dir() for name in ("steps", "observed")):
            raise StoreError(
                f"There is no store at {store.path}. "
                "Make one with `forgetscope run` or `forgetscope demo`, or name another folder."
            )
        return store

    def prepare(self) -> None:
        """For commands that write: make the folders and see that they can be written, and that they are the store's own."""
        self.refuse_links(*FOLDERS)
        try:
            for name in ("steps", "working"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=self.path / name):
                    pass
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"Cannot write to the store {self.path}: {reason}. Choose another folder with --store.") from None
        self.refuse_links(*(f"{name}/{path.name}" for name in FOLDERS[1:5] for path in (self.path / name).glob("*")))

    def refuse_links(self, *names: str) -> None:
        """What a store that somebody else filled links to is not its own: it is neither packed nor written to."""
        for name in names:
            if (path := self.path / name).is_symlink():
                raise StoreError(
                    f"{path} is a link to {path.readlink()}. The folders of a store are no links, which could lead to files "
                    f"that are none of its own. Remove it; to keep a store elsewhere, link to the whole store."
                )

    def __contains__(self, id: str) -> bool:
        path = self.path / "steps" / id
        return path.is_dir() and not path.is_symlink()

    def step(self, id: str) -> StoredStep:
        return StoredStep(self.path / "steps" / id)

    def ids(self) -> set[str]:
        """Of all committed steps."""
        return folders_in(self.path / "steps")

    def steps(self) -> list[StoredStep]:
        """All committed steps, ordered by id."""
        return [self.step(id) for id in sorted(self.ids())]

    def readable(self, left_out: TellLeftOut | None = None) -> list[StoredStep]:
        """All steps whose records can be read, ordered by id. What is wrong with the others is told to `left_out`; without it,
        the first of them is an error."""
        found = []
        for step in self.steps():
            with leaving_out(left_out):
                _ = step.spec
                found.append(step)
        return found

    def connected(self, steps: Iterable[StoredStep], left_out: TellLeftOut | None = None) -> dict[str, StoredStep]:
        """Those of these steps whose ancestors are all among them, by id, parents first."""
        whole: dict[str, StoredStep] = {}
        for step in sorted(steps, key=lambda step: (step.number, step.id)):
            with leaving_out(left_out):
                if step.parent is not None:
                    self._refuse_misfit(step, whole.get(step.parent))
                whole[step.id] = step
        return whole

    def _refuse_misfit(self, step: StoredStep, parent: StoredStep | None) -> None:
        """A step must fit the one that it builds on."""
        if parent is None:
            again = "" if str(step.parent) in self else " Run its experiment again with `forgetscope run`."
            raise StoreError(
                f"Step {str(step.parent)[:8]} is missing in {self.path}, or damaged; step {step.id[:8]} builds on it.{again}"
            )
        if parent.number + 1 != step.number:
            raise step.damaged("step.json", f"step {step.number} that builds on a step {parent.number}")

    def chain(self, id: str) -> list[StoredStep]:
        """A step and its ancestors, first step first."""
        steps: list[StoredStep] = []
        next_id: str | None = id
        while next_id is not None:
            if next_id not in self:
                raise StoreError(
                    f"Step {next_id[:8]} is missing in {self.path}. Run its experiment again with `forgetscope run`."
                )
            steps.insert(0, self.step(next_id))
            if len(steps) > 1:
                self._refuse_misfit(steps[1], steps[0])
            next_id = steps[0].parent
        return steps

    def experiments(self, left_out: TellLeftOut | None = None) -> list[list[StoredStep]]:
        """The chains that no other step continues, latest commit last. left_out: as of `readable`."""
        return chains_of(self.connected(self.readable(left_out), left_out))

    def find(self, prefix: str) -> StoredStep:
        """The step whose id begins with `prefix`."""
        found = [id for id in self.ids() if id.startswith(prefix)]
        if len(found) != 1:
            more = f" and {len(found) - 5} more" if len(found) > 5 else ""
            which = f": {', '.join(id[:12] for id in sorted(found)[:5])}{more}" if found else ""
            listing = f"`forgetscope show {shlex.quote(str(self.path))}` lists them."
            raise SpecError(f"{len(found) or 'No'} steps in {self.path} begin with {prefix!r}{which}. {listing}")
        return self.step(found[0])

    def observed(self, name: str | None = None) -> list[StoredObserved]:
        """All observed steps that were committed, or those of one monitor, by name and number. Reads none of them."""
        self.refuse_links("observed")
        names = [one for one in folders_in(self.path / "observed") if MONITOR.fullmatch(one) and name in (None, one)]
        found = [self.path / "observed" / one / number for one in names for number in folders_in(self.path / "observed" / one)]
        steps = [StoredObserved(folder) for folder in found if NUMBER.fullmatch(folder.name)]
        return sorted(steps, key=lambda step: (step.name, step.number))

    def readable_observed(self, left_out: TellLeftOut | None = None, name: str | None = None) -> list[StoredObserved]:
        """The same whose records can be read. left_out: as of `readable`."""
        steps: list[StoredObserved] = []
        found: list[StoredObserved] = []
        with leaving_out(left_out):
            steps = self.observed(name)
        for step in steps:
            with leaving_out(left_out):
                _ = step.info
                found.append(step)
        return found

    def observed_step(self, name: str, number: int) -> StoredObserved:
        """One of them; SpecError where it is not there."""
        numbers = {step.number: step for step in self.observed(name)}
        if number not in numbers:
            there = f"of {name!r} there are {', '.join(map(str, numbers))}" if numbers else f"there is no monitor {name!r}"
            listing = f"`forgetscope show {shlex.quote(str(self.path))}` lists them."
            raise SpecError(f"{self.path} holds no observed step {number} of {name!r}: {there}. {listing}")
        return numbers[number]

    def observing(self) -> list[RunningObserved]:
        """Observed steps that are not committed: of a training that runs, or that ended without a word."""
        found = [self.path / "working" / name for name in sorted(folders_in(self.path / "working")) if RUNNING.fullmatch(name)]
        return [step for step in map(RunningObserved, found) if not self.finished(step.key)]

    def finished(self, id: str) -> bool:
        """Whether what works under this name is committed: a step, a calibration of one, or an observed step that does not give
        way to another."""
        if (named := RUNNING.fullmatch(id)) is None:
            beside = (self.path / "calibrated" / step for step in folders_in(self.path / "calibrated"))
            return id in self or any(id in folders_in(folder) for folder in beside)
        folder = self.path / "observed" / named["name"] / named["number"]
        return folder.name in folders_in(folder.parent) and not StoredObserved(folder).gives_way

    def commit(self, record: StepRecord, committed: str, *, durable: bool = True) -> StoredStep:
        """Write a step whole. If another process was first, its step is verified and ours discarded.

        durable: wait until the disk has it. Otherwise a power cut may damage it, which is noticed when it is read."""
        contents = _contents(record, committed)
        contents["manifest.json"] = manifest_bytes(contents)

        def write(folder: Path) -> None:
            for name, data in contents.items():
                write_new(folder / name, data, durable=durable)

        if not self.install(record.id, write, durable=durable) and self.step(record.id).state_freed:
            self._bring_back(self.step(record.id), contents, write)
        shutil.rmtree(self.working(record.id), ignore_errors=True)
        return self.step(record.id)

    def _bring_back(self, step: StoredStep, contents: Mapping[str, bytes], write: Callable[[Path], None]) -> None:
        """Put what was left out, and has been recomputed, into its place.

        Under another environment its last bits may differ; then the record as it was goes to quarantine and ours stands."""
        gone = [name for name in MARKERS if step.left_out(name)]
        if any(hashlib.sha256(contents.get(name, b"")).hexdigest() != step.manifest[name]["sha256"] for name in gone):
            self.quarantine(step.folder)
            self.install(step.id, write)
            return
        with told(step.folder / gone[-1]), self._building(step.id) as folder:
            for name in gone:
                write_new(folder / name, contents[name])
                os.replace(folder / name, step.folder / name)
            sync_folder(step.folder)

    def install(self, id: str, write: Callable[[Path], None], *, durable: bool = True) -> bool:
        """Put a step in place whole; False if another was first: then that one is verified and ours discarded.

        write: fills the folder that it is given with files, as durable as the step is to be; if it raises, nothing is left
        of them."""
        ours = self.put_in_place(self.path / "steps" / id, id, write, durable=durable)
        if not ours:
            self.step(id).verify()
        return ours

    def put_in_place(self, target: Path, id: str, write: Callable[[Path], None], *, durable: bool = True) -> bool:
        """Put a folder in place whole; False if there is one already, which stays as it is. id: what its lock is called by."""
        with self._building(id) as building:
            try:
                write(building)
                with told(building):
                    if durable:
                        sync_folder(building)
                    building.chmod(0o755)  # mkdtemp makes it private; a store may be shared
                try:
                    os.rename(building, target)
                    ours = True
                except OSError as error:
                    if target.is_symlink() or not target.is_dir():
                        raise cannot_write(target, error) from None
                    ours = False
            except WriteError:
                if building.exists():
                    raise
                return self.put_in_place(target, id, write, durable=durable)  # `gc` took it for a leftover: no lock kept it
            if durable:
                with told(target):
                    sync_folder(target.parent)
        return ours

    @contextmanager
    def _building(self, id: str) -> Iterator[Path]:
        """A folder to put a step together in. Nothing is left of it."""
        with told(self.path / "working"):
            building = Path(tempfile.mkdtemp(prefix=f"commit-{id[:8]}-", dir=self.path / "working"))
        try:
            yield building
        finally:
            shutil.rmtree(building, ignore_errors=True)

    def expel(self, id: str, note: Callable[[str], None] = lambda text: None) -> str | None:
        """Move the step to quarantine if it is damaged, and say so. None if it is whole, or not there."""
        if self.damage(id) is None:
            return None
        with self.lock(id, note):
            damage = self.damage(id)  # asked again: another process may have replaced the step meanwhile
            if damage is None:
                return None
            folder = self.step(id).folder
            return f"Step {id[:8]} is damaged: {folder / damage.file}: {damage.reason}. Moved to {self.quarantine(folder)}"

    def damage(self, id: str) -> DamagedStep | None:
        """What is wrong with the files of a step; None if it is whole, or not there."""
        try:
            if id in self:
                self.step(id).verify()
        except DamagedStep as damage:
            return damage
        return None

    def quarantine(self, path: Path) -> Path:
        """Move a step's folder or a file out of the way, never deleting it."""
        self.refuse_links(*FOLDERS)
        parts = path.relative_to(self.path).parts
        return put_aside(path, self.path / "quarantine", "-".join(parts if parts[0] == "observed" else parts[1:]))

    def working(self, id: str) -> Path:
        """Where a running step keeps its snapshots."""
        return self.path / "working" / id

    def lock_file(self, id: str) -> Path:
        """Whoever runs or commits a step holds the lock on it."""
        return self.path / "working" / f"{id}.lock"

    def lock(self, id: str, note: Callable[[str], None]) -> AbstractContextManager[None]:
        """Hold the step's advisory lock; `note` is told if another process has it."""
        waiting = f"Another process is running step {id[:8]}; waiting for it."
        return locked(self.lock_file(id), note, waiting, done=lambda: id in self)


def folders_in(folder: Path) -> set[str]:
    """Names of the folders in one, which are no links; none if it is not there."""
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")}


def chains_of(steps: Mapping[str, StoredStep]) -> list[list[StoredStep]]:
    """Of steps with all their ancestors: the chains that none of them continues, latest commit last."""
    parents = {step.parent for step in steps.values()}
    tips = sorted((step.info["committed"], id) for id, step in steps.items() if id not in parents)
    return [_chain(steps, tip) for _, tip in tips]


def _chain(steps: Mapping[str, StoredStep], tip: str) -> list[StoredStep]:
    chain, parent = [steps[tip]], steps[tip].parent
    while parent is not None:
        chain.append(steps[parent])
        parent = steps[parent].parent
    return chain[::-1]


def _contents(record: StepRecord, committed: str) -> dict[str, bytes]:
    info = {
        "schema": SCHEMA,
        "id": record.id,
        "parent": record.parent,
        "status": "done" if record.divergence is None else "diverged",
        "divergence": None if record.divergence is None else dict(record.divergence),
        "spec": record.spec.model_dump(mode="json"),
        "network": record.network,
        "data": dict(record.data),
        "environment": dict(record.environment),
        "timings": dict(record.timings),
        "history": [dict(epoch) for epoch in record.history],
        "committed": committed,
    }
    beside = {"simulated": record.simulated, "start": record.start, "kept": record.kept}
    info |= {name: dict(facts) for name, facts in beside.items() if facts is not None}
    contents = {"step.json": json_bytes(info)}
    for name in (*TABLES, *(name for name in ALL_TABLES if name in record.tables and name not in TABLES)):
        contents[f"{name}.parquet"] = parquet_bytes(record.tables[name], name)
    contents[STATE] = safetensors.numpy.save(record.state)
    return contents
