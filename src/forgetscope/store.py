"""Immutable step records on disk: a folder per step, built under a temporary name and renamed into place.

    STORE/steps/<id>/        committed steps; a reader sees all of one or nothing, and needs no lock
    STORE/working/<id>/      snapshots and probes so far of a step that is being run
    STORE/working/<id>.lock  avoids double work; correctness rests on the rename
    STORE/quarantine/        damaged steps, kept for inspection

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

from forgetscope.errors import DamagedStep, SpecError, StoreError
from forgetscope.files import locked, sync_folder, write_durably
from forgetscope.spec import StepSpec

SCHEMA = 1

TableName = Literal["classes", "probes", "pairs", "rehearsal", "confusion"]
TABLES: tuple[TableName, ...] = get_args(TableName)
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
        info: dict[str, Any] = json.loads(self._verified("step.json"))
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

    def table(self, name: TableName) -> pa.Table:
        return pq.read_table(pa.BufferReader(self._verified(f"{name}.parquet")))

    def state(self) -> Tensors:
        """The tensors that the next step starts from."""
        tensors: Tensors = safetensors.numpy.load(self._verified("state.safetensors"))
        return tensors

    def verify(self) -> None:
        """Read and check every file; raises DamagedStep at the first that does not match."""
        for name in self._manifest:
            self._verified(name)
        _ = self.info

    @cached_property
    def _manifest(self) -> dict[str, dict[str, Any]]:
        try:
            manifest: dict[str, dict[str, Any]] = json.loads((self.folder / "manifest.json").read_bytes())
            missing = {"step.json", "state.safetensors", *(f"{name}.parquet" for name in TABLES)} - set(manifest)
        except (OSError, ValueError, TypeError) as error:
            raise self._damaged("manifest.json", str(error)) from None
        if missing:
            raise self._damaged("manifest.json", f"no entry for {min(missing)}")
        return manifest

    def _verified(self, name: str) -> bytes:
        expected = self._manifest[name]
        try:
            content = (self.folder / name).read_bytes()
        except OSError as error:
            raise self._damaged(name, error.strerror or str(error)) from None
        if hashlib.sha256(content).hexdigest() != expected.get("sha256"):
            raise self._damaged(name, f"{len(content)} bytes that do not match the checksum")
        return content

    def _damaged(self, name: str, reason: str) -> DamagedStep:
        return DamagedStep(
            f"Step {self.id[:8]} is damaged: {self.folder / name}: {reason}. "
            "Run its experiment again with `forgetscope run`: that moves the step to quarantine and recomputes it."
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

    def steps(self) -> list[StoredStep]:
        """All committed steps, ordered by id."""
        folder = self.path / "steps"
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
        return [self.step(name) for name in names if not name.startswith(".")]

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
        found = [step for step in self.steps() if step.id.startswith(prefix)]
        if len(found) != 1:
            count = len(found) or "No"
            raise SpecError(f"{count} steps in {self.path} begin with {prefix!r}. `forgetscope show {self.path}` lists them.")
        return found[0]

    def commit(self, record: StepRecord, committed: str) -> StoredStep:
        """Write a step whole. If another process was first, its step is verified and ours discarded."""
        target = self.path / "steps" / record.id
        building = Path(tempfile.mkdtemp(prefix=f"commit-{record.id[:8]}-", dir=self.path / "working"))
        try:
            contents = _contents(record, committed)
            manifest = {
                name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in contents.items()
            }
            contents["manifest.json"] = _json(manifest)
            for name, data in contents.items():
                write_durably(building / name, data)
            sync_folder(building)
            building.chmod(0o755)  # mkdtemp makes it private; a store may be shared
            try:
                os.rename(building, target)
            except OSError:
                if not target.is_dir():
                    raise
                self.step(record.id).verify()
            sync_folder(target.parent)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        shutil.rmtree(self.working(record.id), ignore_errors=True)
        return self.step(record.id)

    def quarantine(self, id: str) -> Path:
        """Move a damaged step out of the way, never deleting it."""
        folder = self.path / "quarantine"
        folder.mkdir(exist_ok=True)
        number = 1
        while (target := folder / f"{id}-{number}").exists():
            number += 1
        os.rename(self.path / "steps" / id, target)
        return target

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
    contents = {"step.json": _json(info)}
    for name in TABLES:
        contents[f"{name}.parquet"] = parquet_bytes(record.tables[name])
    contents["state.safetensors"] = safetensors.numpy.save(record.state)
    return contents


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode()
