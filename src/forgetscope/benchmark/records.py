"""What a store remembers of the plans that were run into it: which steps belong to which experiment, and what happened.

    STORE/plans/<plan id>/plan.json       what the plan is for, and its experiments as lists of step ids
    STORE/plans/<plan id>/journal.jsonl   a line per event: estimates, runs, steps that ended, failed or are to be retried

Steps are what counts; all of this can be lost without losing a result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forgetscope.benchmark.plans import Plan, Reruns
from forgetscope.benchmark.shards import Shard
from forgetscope.benchmark.space import Partition
from forgetscope.errors import StoreError
from forgetscope.files import is_locked, replace_durably, told
from forgetscope.store import Store

SCHEMA = 1


def record_plan(store: Store, plan: Plan, shard: Shard | None = None) -> Journal:
    """Remember a plan, if it is not remembered yet; the journal of it, or of a part."""
    folder = store.path / "plans" / plan.id
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "plan.json").exists():
        content = {
            "schema": SCHEMA,
            "id": plan.id,
            **plan.about,
            "data": asdict(plan.data) | {"augmentation": plan.data.augmentation.model_dump()},
            "image_size": plan.image_size,
            "network": plan.network,
            "chains": [chain.described() for chain in plan.chains],
            "reruns": [reruns.described() for reruns in plan.reruns],
        }
        replace_durably(folder / "plan.json", json.dumps(content, ensure_ascii=False).encode())
    return Journal(folder, "" if shard is None else f"-{shard}")


def recorded_plans(store: Store) -> list[dict[str, Any]]:
    """The plan.json of every plan that was run into this store, ordered by id."""
    plans = []
    for path in sorted((store.path / "plans").glob("*/plan.json")):
        try:
            plans.append(json.loads(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read ({error}). Delete it: running the plan again writes it anew.") from None
    return plans


def recorded_reruns(plan: Mapping[str, Any]) -> list[Reruns]:
    """The picked steps of a controlled experiment, from its plan.json."""
    return [
        Reruns(picked["original"], picked["step"], Partition(**picked["partition"]), tuple(picked["others"]))
        for picked in plan["reruns"]
    ]


@dataclass(frozen=True)
class Journal:
    """What happened to a plan, in order. A line that a crash cut short is passed over.

    Parts that are run by themselves have a file each, so that nobody else writes to it; whoever reads, reads all."""

    folder: Path
    part: str = ""

    @property
    def running(self) -> Path:
        """Where an engine notes every few moments what it is doing."""
        return self.folder / f"running{self.part}.json"

    @property
    def lock(self) -> Path:
        """Held by the process that runs the plan or this part of it."""
        return self.folder / f"run{self.part}.lock"

    def active(self) -> list[Journal]:
        """The journals of the parts that are being run now."""
        parts = [path.stem.removeprefix("run") for path in sorted(self.folder.glob("run*.lock"))]
        return [journal for part in parts if is_locked((journal := Journal(self.folder, part)).lock)]

    def write(self, event: str, **facts: object) -> None:
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, **facts})
        path = self.folder / f"journal{self.part}.jsonl"
        with told(path), path.open("ab") as file:
            file.write(f"\n{line}".encode())  # led by a line break: what a crash left behind spoils itself only

    def events(self) -> list[dict[str, Any]]:
        """Of all parts, in order of time."""
        found = [event for path in sorted(self.folder.glob("journal*.jsonl")) for event in _events(path)]
        return sorted(found, key=lambda event: str(event.get("time")))

    def own_events(self) -> list[dict[str, Any]]:
        """Of this part only."""
        path = self.folder / f"journal{self.part}.jsonl"
        return _events(path) if path.exists() else []

    def failures(self) -> dict[str, Mapping[str, Any]]:
        """Steps whose last event is a failure, by id."""
        return self._whose_last_is("failed")

    def diverged(self) -> set[str]:
        """Steps that are in the store, but nothing can build on them."""
        return set(self._whose_last_is("diverged"))

    def retry(self) -> list[str]:
        """Forget the failures; the steps that may be tried again."""
        failed = list(self.failures())
        for step in failed:
            self.write("retry", step=step)
        return failed

    def _whose_last_is(self, event: str) -> dict[str, Mapping[str, Any]]:
        last = {str(found["step"]): found for found in self.events() if "step" in found}
        return {step: found for step, found in last.items() if found["event"] == event}


def _events(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_bytes().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found
