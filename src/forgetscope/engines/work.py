"""What is to be done and where, as every engine takes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from forgetscope.benchmark.costs import Rates
from forgetscope.benchmark.plans import Job, Plan, chain_of
from forgetscope.engines.dispatch import Dispatch
from forgetscope.experiment.stopping import Stop
from forgetscope.spec import RunSpec
from forgetscope.store import Store


@dataclass(frozen=True)
class Work:
    """A plan, the store for it, and how each of its jobs is computed."""

    plan: Plan
    store: Store
    device: str = "auto"
    threads: int = 1
    channels_last: bool = True

    def setup(self) -> dict[str, Any]:
        """What a worker must know before its first job."""
        return {
            "store": str(self.store.path.resolve()),
            "dataset": self.plan.data.name,
            "image_size": self.plan.image_size,
            "digest": self.plan.data.digest,
            "sources": dict(self.plan.sources),
            "device": self.device,
            "threads": self.threads,
            "channels_last": self.channels_last,
        }

    def request(self, job: Job) -> dict[str, Any]:
        """What a worker must know of a job."""
        first, spec = (step.model_dump(mode="json") for step in (chain_of(self.plan.jobs, job.id)[0].spec, job.spec))
        return {"id": job.id, "parent": job.parent, "spec": spec, "first": first}


class Engine(Protocol):
    """Something that has workers."""

    @property
    def work(self) -> Work: ...

    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int:
        """Jobs at a time."""

    def calibrate(self, run: RunSpec, logs: Path, stop: Stop) -> Rates:
        """Rates with all workers at work at the same time, as they will be."""

    def run(self, dispatch: Dispatch, logs: Path, stop: Stop) -> None:
        """Run until nothing is left that can be run. logs: the folder for what workers write to standard error."""

    def prepare(self, memory: float, disk: float) -> None:
        """Before the first job: see that everything is there. memory: bytes of a job; disk: bytes of all; 0 if not known."""
