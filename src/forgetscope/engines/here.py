"""The engine in this process: one job after the other, with nobody in between. A single experiment is run so by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

from forgetscope.benchmark.costs import Rates
from forgetscope.engines.dispatch import Dispatch
from forgetscope.engines.executor import Executor
from forgetscope.engines.work import OnThisMachine, Place, Work
from forgetscope.experiment.stopping import Stop


@dataclass(frozen=True, kw_only=True)
class Here(Place):
    """In this process, one step at a time; by default with all cores.

    >>> import forgetscope as fs
    >>> fs.Here(threads=1).threads
    1
    """

    threads: int | None = None

    @contextmanager
    def hired(self, work: Work) -> Iterator[HereEngine]:
        yield HereEngine(work)


class HereEngine(OnThisMachine):
    name, count = "here", 1

    def __init__(self, work: Work) -> None:
        self.work = work

    @cached_property
    def _executor(self) -> Executor:
        return Executor.ready(self.work.setup())

    def calibrate(self, stop: Stop) -> Rates:
        return self._executor.calibrate(self.work.plan.template.model_dump(exclude_unset=True))

    def run(self, dispatch: Dispatch, stop: Stop) -> None:
        while (job := dispatch.take()) is not None:
            execute = self._executor.compute if dispatch.raising else partial(self._executor.run, log=False)
            dispatch.ended(job, execute(self.work.request(job), partial(dispatch.epoch_ended, job), dispatch.note, stop))
