"""What is to be done and where, as every engine takes it."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from forgetscope.benchmark.costs import Rates
from forgetscope.benchmark.plans import Job, Plan, chain_of
from forgetscope.engines.dispatch import Dispatch
from forgetscope.errors import StoreError
from forgetscope.experiment.stopping import Stop
from forgetscope.options import demand_at_least
from forgetscope.store import Store

if TYPE_CHECKING:
    from forgetscope.experiment.settings import Settings


@dataclass(frozen=True)
class Work:
    """A plan, the store for it, and how each of its jobs is computed."""

    plan: Plan
    store: Store
    device: str = "auto"
    threads: int = 1
    channels_last: bool = True
    compile: bool = False

    def setup(self) -> dict[str, Any]:
        """What a worker must know before its first job."""
        return {
            "store": str(self.store.path.resolve()),
            "dataset": self.plan.data.name,
            "image_size": self.plan.template.image_size,
            "digest": self.plan.data.digest,
            "sources": dict(self.plan.sources),
            "settings": self.settings,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `choose_settings`."""
        return {name: getattr(self, name) for name in ("device", "threads", "channels_last", "compile")}

    def request(self, job: Job) -> dict[str, Any]:
        """What a worker must know of a job."""
        first, spec = (step.model_dump(mode="json") for step in (chain_of(self.plan.jobs, job.id)[0].spec, job.spec))
        calibrations = list(job.calibrations)
        return {"id": job.id, "parent": job.parent, "spec": spec, "first": first, "calibrations": calibrations}


class Engine(Protocol):
    """Something that has workers."""

    @property
    def work(self) -> Work: ...

    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int:
        """Jobs at a time."""

    def calibrate(self, stop: Stop) -> Rates:
        """Rates with all workers at work at the same time, as they will be."""

    def run(self, dispatch: Dispatch, stop: Stop) -> None:
        """Run until nothing is left that can be run."""

    def prepare(self, memory: float, disk: float) -> None:
        """Before the first job: see that everything is there. memory: bytes of a job; disk: bytes of all; 0 if not known."""


class OnThisMachine:
    """What engines have in common whose workers write to the store from here."""

    work: Work

    def prepare(self, memory: float, disk: float) -> None:
        free = shutil.disk_usage(self.work.store.path).free
        if free < disk:
            raise StoreError(
                f"The store {self.work.store.path} will need about {disk / 1e9:,.1f} GB; {free / 1e9:,.1f} GB are free there. "
                "Make room, or choose another folder with --store."
            )


@dataclass(frozen=True, kw_only=True)
class Place(ABC):
    """Where the steps of a plan are computed, and how each of them: what changes the last bits of a result at most."""

    device: str = "auto"
    threads: int | None = 1  # CPU threads of each job; None: all cores
    channels_last: bool = True
    compile: bool = False

    def __post_init__(self) -> None:
        demand_at_least(1, threads=self.threads, jobs=getattr(self, "jobs", None))

    def settings(self) -> Settings | None:
        """What this machine makes of it, or an error; None where other machines compute."""
        from forgetscope.experiment.settings import choose_settings

        return choose_settings(self.device, self.threads, channels_last=self.channels_last, compile=self.compile)

    @abstractmethod
    def hired(self, work: Work) -> AbstractContextManager[Engine]:
        """An engine for the work, and its workers for as long as the block lasts."""
