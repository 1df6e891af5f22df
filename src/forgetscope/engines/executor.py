"""Runs one job of a plan in this process and says what became of it. Every engine's workers do that and nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.errors import ForgetscopeError, Interrupted
from forgetscope.experiment.chain import run_locked
from forgetscope.experiment.settings import Settings, choose_settings
from forgetscope.experiment.stopping import Stop
from forgetscope.spec import StepSpec
from forgetscope.store import Store, StoredStep

Setup = Mapping[str, Any]  # store, dataset, image_size, device, threads, channels_last; as JSON can hold it


@dataclass(frozen=True)
class Executor:
    """Holds what all jobs of a plan have in common, loaded once per process."""

    data: DataSet
    store: Store
    settings: Settings

    @classmethod
    def ready(cls, setup: Setup) -> Executor:
        settings = choose_settings(setup["device"], setup["threads"], channels_last=setup["channels_last"])
        return cls(load_data(setup["dataset"], setup["image_size"]), Store(Path(setup["store"])), settings)

    def run(
        self,
        id: str,
        parent: str | None,
        spec: Mapping[str, Any],
        on_epoch: Callable[[int], None],
        note: Callable[[str], None],
        stop: Stop | None = None,
    ) -> dict[str, Any]:
        """An event: done (perhaps diverged), failed with a message, or parent, which must be done again first."""
        try:
            step = run_locked(
                id,
                StepSpec.model_validate(spec),
                None if parent is None else self._usable(parent),
                self.data,
                self.store,
                self.settings,
                lambda end: on_epoch(end.epoch),
                note,
                stop,
            )
            return {"event": "done", "seconds": step.info["timings"]["seconds"], "diverged": step.divergence}
        except _ParentUnusable as reason:
            return {"event": "parent", "text": str(reason)}
        except Interrupted:
            raise
        except ForgetscopeError as error:
            return {"event": "failed", "message": str(error)}
        except Exception as error:
            traceback.print_exc()
            return {"event": "failed", "message": f"{type(error).__name__}: {error}"}

    def _usable(self, id: str) -> StoredStep:
        """The step to start from, verified. A damaged one is moved to quarantine."""
        expelled, step = self.store.expel(id), self.store.step(id)
        if id not in self.store:
            raise _ParentUnusable(f"{expelled or f'Step {id[:8]} is gone'}; computing it again.")
        if step.state_freed:
            raise _ParentUnusable(f"The state of step {id[:8]} was freed and is needed again; recomputing it.")
        return step


class _ParentUnusable(Exception):
    """The step to start from must be done again first."""
