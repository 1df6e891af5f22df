"""Immutable step records on disk: a folder per step, built under a temporary name and renamed into place.

    STORE/steps/<id>/        committed steps; a reader sees all of one or nothing, and needs no lock
    STORE/working/<id>/      snapshots and probes so far of a step that is being run
    STORE/working/<id>.lock  avoids double work; correctness rests on the rename
    STORE/quarantine/        damaged steps, kept for inspection

Of a finished step only the state, which a further step starts from, may be freed later; a marker then stands in its place.
No file is a pickle. Every file is verified against its manifest when it is read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy
from numpy.typing import NDArray

from forgetscope.errors import DamagedStep, SpecError, StateFreed, StoreError
from forgetscope.files import cannot_write, locked, put_aside, sync_folder, told, write_durably, write_soon
from forgetscope.spec import StepSpec

SCHEMA = 1

TableName = Literal["classes", "probes", "pairs", "rehearsal", "confusion", "extra"]
ALL_TABLES: tuple[TableName, ...] = get_args(TableName)
TABLES = ALL_TABLES[:-1]  # those that every step has; `extra` is there where something was measured beside the probes
STATE = "state.safetensors"
FREED = "state.freed"  # the SHA-256 of a state that was freed; written before the state goes
ALL_LAYERS, EVERY_ITERATION, RELEASED = "all layers", "every iteration", "released"  # what `measure` says in `extra`
COEFFICIENTS = ("sic", "cic", "nic", "all_nic")  # columns of `classes`, and of `probes`, whose terms add up to them
Tensors = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class StepRecord:
    """Everything that a finished step leaves behind."""

    id: str
    parent: str | None
    spec: StepSpec
    data: Mapping[str, object]  # name, image_size, digest
    environment: Mapping[str, object]  # what equal bits depend on: device, instruction set, threads, library versions
    timings: Mapping[str, float]  # seconds
    history: Sequence[Mapping[str, float]]  # per epoch
    tables: Mapping[TableName, pa.Table]
    network: str
    state: Tensors
    divergence: Mapping[str, object] | None = None  # epoch, iteration and loss, if training ended that way
    simulated: Mapping[str, object] | None = None  # seed and truth, if nothing was trained
    start: Mapping[str, str] | None = None  # SHA-256 of the weights that training started from


@dataclass(frozen=True)
class StoredStep:
    """A committed step. Nothing is read before it is asked for; what is read is verified."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @cached_property
    def info(self) -> dict[str, Any]:
        """The content of step.json."""
        info: dict[str, Any] = json.loads(self.verified("step.json"))
        if info["schema"] > SCHEMA:
            raise StoreError(
                f"Step {self.id[:8]} in {self.folder.parents[1]} has schema version {info['schema']}; this forgetscope "
                f"reads up to {SCHEMA}. Upgrade it: `pip install --upgrade forgetscope`."
            )
        return info

    @property
    def parent(self) -> str | None:
        parent: str | None = self.info["parent"]
        return parent

    @cached_property
    def spec(self) -> StepSpec:
        return StepSpec.model_validate(self.info["spec"])

    @property
    def divergence(self) -> dict[str, Any] | None:
        """Epoch, iteration and loss at which training diverged; None for a step that came to its end."""
        facts: dict[str, Any] | None = self.info.get("divergence")
        return facts

    @property
    def simulated(self) -> dict[str, Any] | None:
        """Seed and truth of a simulation; None for a step that was trained."""
        facts: dict[str, Any] | None = self.info.get("simulated")
        return facts

    @property
    def start_weights(self) -> str | None:
        """SHA-256 of the network when training began, head grown; None where it was not recorded."""
        digest: str | None = self.info.get("start", {}).get("weights")
        return digest

    def has(self, name: TableName) -> bool:
        return f"{name}.parquet" in self.manifest

    def table(self, name: TableName, columns: Sequence[str] | None = None) -> pa.Table:
        """All columns, or some of them, which are decoded alone."""
        # Not pq.read_table: its threads, still starting when a short command ends beside torch, abort the process at exit.
        return pq.ParquetFile(pa.BufferReader(self.verified(f"{name}.parquet"))).read(columns=columns, use_threads=False)

    def state(self) -> Tensors:
        """The tensors that the next step starts from; raises StateFreed if they were freed."""
        try:
            content = self.verified(STATE)
        except DamagedStep:
            if not self.state_freed:
                raise
            raise StateFreed(
                f"The state of step {self.id[:8]} in {self.folder.parents[1]} was freed by `forgetscope store gc`; "
                "its results are all there. The next `forgetscope run` that builds on this step recomputes it."
            ) from None
        tensors: Tensors = safetensors.numpy.load(content)
        return tensors

    @property
    def state_freed(self) -> bool:
        """Whether the state is gone on purpose: it is not there, and the marker names the one that was."""
        try:
            marker = (self.folder / FREED).read_bytes()
        except OSError:
            return False
        return marker.decode("ascii", "replace") == self.manifest[STATE]["sha256"] and not (self.folder / STATE).exists()

    def verify(self) -> None:
        """Read and check every file; raises DamagedStep at the first that does not match. A freed state is no damage."""
        for name in self.manifest:
            try:
                self.verified(name)
            except DamagedStep:
                if name != STATE or not self.state_freed:  # asked afterwards: it may be freed while we look
                    raise
        _ = self.info

    @cached_property
    def manifest(self) -> dict[str, dict[str, Any]]:
        """SHA-256 and size of each file, by name."""
        try:
            manifest: dict[str, dict[str, Any]] = json.loads((self.folder / "manifest.json").read_bytes())
            missing = {"step.json", STATE, *(f"{name}.parquet" for name in TABLES)} - set(manifest)
            _ = [(entry["sha256"], entry["size"]) for entry in manifest.values()]
        except OSError as error:
            raise self._damaged("manifest.json", error.strerror or str(error)) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._damaged("manifest.json", f"no list of files and checksums ({error})") from None
        if missing:
            raise self._damaged("manifest.json", f"no entry for {min(missing)}")
        return manifest

    def verified(self, name: str) -> bytes:
        """The content of a file that the manifest names."""
        expected = self.manifest[name]
        try:
            content = (self.folder / name).read_bytes()
        except OSError as error:
            raise self._damaged(name, error.strerror or str(error)) from None
        if len(content) != expected["size"] or hashlib.sha256(content).hexdigest() != expected["sha256"]:
            raise self._damaged(name, f"{len(content)} bytes that do not match the checksum")
        return content

    def _damaged(self, name: str, reason: str) -> DamagedStep:
        return DamagedStep(
            f"Step {self.id[:8]} is damaged: {self.folder / name}: {reason}. "
            f"`forgetscope store verify {self.folder.parent.parent} --quarantine` moves it out of the way; then the command "
            "that made it computes it again.",
            name,
            reason,
        )


class Store:
    """A folder of steps. Opening it reads nothing."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def existing(cls, path: Path | str) -> Store:
        """For commands that look: the folder must be a store already."""
        store = cls(path)
        if not (store.path / "steps").is_dir():
            raise StoreError(
                f"There is no store at {store.path}. "
                "Make one with `forgetscope run` or `forgetscope demo`, or name another folder."
            )
        return store

    def prepare(self) -> None:
        """For commands that run: make the folders and see that they can be written."""
        try:
            for name in ("steps", "working"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path / "working"):
                pass
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"Cannot write to the store {self.path}: {reason}. Choose another folder with --store.") from None

    def __contains__(self, id: str) -> bool:
        return (self.path / "steps" / id).is_dir()

    def step(self, id: str) -> StoredStep:
        return StoredStep(self.path / "steps" / id)

    def ids(self) -> set[str]:
        """Of all committed steps."""
        folder = self.path / "steps"
        if not folder.is_dir():
            return set()
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")}

    def steps(self) -> list[StoredStep]:
        """All committed steps, ordered by id."""
        folder = self.path / "steps"
        return [StoredStep(folder / id) for id in sorted(self.ids())]

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
            next_id = steps[0].parent
        return steps

    def experiments(self) -> list[list[StoredStep]]:
        """The chains that no other step continues, latest commit last."""
        steps = {step.id: step for step in self.steps()}
        parents = {step.parent for step in steps.values()}
        tips = sorted(
            (step for step in steps.values() if step.id not in parents), key=lambda step: (step.info["committed"], step.id)
        )
        return [self.chain(tip.id) for tip in tips]

    def find(self, prefix: str) -> StoredStep:
        """The step whose id begins with `prefix`."""
        found = [id for id in self.ids() if id.startswith(prefix)]
        if len(found) != 1:
            count = len(found) or "No"
            raise SpecError(f"{count} steps in {self.path} begin with {prefix!r}. `forgetscope show {self.path}` lists them.")
        return self.step(found[0])

    def commit(self, record: StepRecord, committed: str, *, durable: bool = True) -> StoredStep:
        """Write a step whole. If another process was first, its step is verified and ours discarded.

        durable: wait until the disk has it. Otherwise a power cut may damage it, which is noticed when it is read."""
        contents = _contents(record, committed)
        manifest = {name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in contents.items()}
        contents["manifest.json"] = _json(manifest)

        def write(folder: Path) -> None:
            for name, data in contents.items():
                (write_durably if durable else write_soon)(folder / name, data)

        if not self.install(record.id, write, durable=durable) and self.step(record.id).state_freed:
            self._bring_back(self.step(record.id), contents[STATE], write)
        shutil.rmtree(self.working(record.id), ignore_errors=True)
        return self.step(record.id)

    def _bring_back(self, step: StoredStep, state: bytes, write: Callable[[Path], None]) -> None:
        """Put a state that was freed, and has been recomputed, into its place.

        Under another environment its last bits may differ; then the record as it was goes to quarantine and ours stands."""
        if hashlib.sha256(state).hexdigest() != step.manifest[STATE]["sha256"]:
            self.quarantine(step.folder)
            self.install(step.id, write)
            return
        waiting = self.working(step.id) / STATE
        write_durably(waiting, state)
        with told(step.folder / STATE):
            os.replace(waiting, step.folder / STATE)
            sync_folder(step.folder)

    def install(self, id: str, write: Callable[[Path], None], *, durable: bool = True) -> bool:
        """Put a step in place whole; False if another was first: then that one is verified and ours discarded.

        write: fills the folder that it is given with files, as durable as the step is to be; if it raises, nothing is left
        of them."""
        target = self.path / "steps" / id
        with told(self.path / "working"):
            building = Path(tempfile.mkdtemp(prefix=f"commit-{id[:8]}-", dir=self.path / "working"))
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
                if not target.is_dir():
                    raise cannot_write(target, error) from None
                self.step(id).verify()
                ours = False
            if durable:
                with told(target):
                    sync_folder(target.parent)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return ours

    def expel(self, id: str, blocked: Callable[[], None] = lambda: None) -> str | None:
        """Move the step to quarantine if it is damaged, and say so. None if it is whole, or not there."""
        if self.damage(id) is None:
            return None
        with self.lock(id, blocked):
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
        """Move a damaged step's folder or a file out of the way, never deleting it."""
        name = "-".join(path.relative_to(self.path).parts[1:])
        return put_aside(path, self.path / "quarantine", name)

    def working(self, id: str) -> Path:
        """Where a running step keeps its snapshots."""
        return self.path / "working" / id

    def lock(self, id: str, blocked: Callable[[], None]) -> AbstractContextManager[None]:
        """Hold the step's advisory lock; `blocked` is called before waiting."""
        return locked(self.path / "working" / f"{id}.lock", blocked, done=lambda: id in self)


def parquet_bytes(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


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
    if record.simulated is not None:
        info["simulated"] = dict(record.simulated)
    if record.start is not None:
        info["start"] = dict(record.start)
    contents = {"step.json": _json(info)}
    for name in (*TABLES, *(name for name in ALL_TABLES if name in record.tables and name not in TABLES)):
        contents[f"{name}.parquet"] = parquet_bytes(record.tables[name])
    contents[STATE] = safetensors.numpy.save(record.state)
    return contents


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode()
