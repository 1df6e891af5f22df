"""Runs one job of a plan in this process and says what became of it. Every engine's workers do that and nothing else."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forgetscope.benchmark.costs import Rates
from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.errors import TRACEBACK, DamagedData, DataError, ForgetscopeError, Interrupted
from forgetscope.experiment.calibration import calibrate_locked
from forgetscope.experiment.chain import run_locked
from forgetscope.experiment.settings import Settings, choose_settings
from forgetscope.experiment.speed import measure_rates
from forgetscope.experiment.stopping import Stop
from forgetscope.learning.plugins import load_all
from forgetscope.outputs import Note
from forgetscope.spec import RunSpec, StepSpec
from forgetscope.store import Store, StoredStep

Setup = Mapping[str, Any]  # what `Work.setup` says; as JSON can hold it
Request = Mapping[str, Any]  # what `Work.request` says of a job
OnEpoch = Callable[[int, float, float], None]  # its number, loss and accuracy


@dataclass(frozen=True)
class Executor:
    """Holds what all jobs of a plan have in common, loaded once per process."""

    data: DataSet
    store: Store
    settings: Settings
    sources: Mapping[str, str]  # SHA-256 of a user's own code, by name

    @classmethod
    def ready(cls, setup: Setup) -> Executor:
        """Data and code must be those that the plan was made with."""
        load_all(setup["sources"])
        settings = choose_settings(**setup["settings"])
        data = load_data(setup["dataset"], setup["image_size"])
        if data.digest != setup["digest"]:
            raise DataError(
                f"The data set {data.name!r} was replaced while the run worked: it is {data.digest[:8]}, and the plan was made "
                f"with {setup['digest'][:8]}. Nothing more was run. Run the same command again: it plans with what is here."
            )
        return cls(data, Store(Path(setup["store"])), settings, setup["sources"])

    def run(self, job: Request, on_epoch: OnEpoch, note: Note, stop: Stop | None = None, *, log: bool = True) -> dict[str, Any]:
        """As `compute`, where an error is an event as well: failed, or refused if no other job would do better.
        log: whether standard error is a log, which gets all that led to the error."""
        try:
            return self.compute(job, on_epoch, note, stop)
        except Interrupted:
            raise
        except DamagedData as error:  # no step can be right with them
            return {"event": "refused", "message": str(error)}
        except Exception as error:
            kind, known = type(error).__name__, isinstance(error, ForgetscopeError)
            if not known or error.__cause__ is not None:  # a bug, or a user's own code
                if log:
                    traceback.print_exc()
                for line in traceback.format_exc().splitlines() if os.environ.get(TRACEBACK) else ():
                    note(line)
            return {"event": "failed", "message": str(error) if known else f"{kind}: {error}", "kind": kind if known else ""}

    def compute(self, job: Request, on_epoch: OnEpoch, note: Note, stop: Stop | None = None) -> dict[str, Any]:
        """An event: done (perhaps diverged), or parent, which must be done again first."""
        parent = None if job["parent"] is None else self._usable(job["parent"])
        if isinstance(parent, str):
            return {"event": "parent", "text": parent}
        spec, first = (StepSpec.model_validate(job[name]) for name in ("spec", "first"))
        common = (self.data, self.store, self.settings, lambda end: on_epoch(end.epoch, end.loss, end.accuracy), note, stop)
        step = run_locked(job["id"], spec, parent, *common, first)
        if parent is not None and step.divergence is None:
            for calibration in job["calibrations"]:
                calibrate_locked(step, parent, calibration, self.data, self.store, self.settings, note, first)
        return {"event": "done", "seconds": step.info["timings"]["seconds"], "diverged": step.divergence}

    def calibrate(self, run: Mapping[str, Any]) -> Rates:
        return measure_rates(RunSpec(**run), self.data, self.store, self.settings, self.sources)

    def _usable(self, id: str) -> StoredStep | str:
        """The step to start from, verified; or why it must be done again first. A damaged one is moved to quarantine."""
        expelled, step = self.store.expel(id), self.store.step(id)
        if id not in self.store:
            return f"{expelled or f'Step {id[:8]} is gone'}; computing it again."
        if step.state_freed:
            return f"The state of step {id[:8]} was freed and is needed again; recomputing it."
        return step
