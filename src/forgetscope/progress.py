"""What a person sees while an experiment runs: a bar on a terminal, plain lines elsewhere; both with the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from forgetscope.characters import visible

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from forgetscope.benchmark.plans import Job
    from forgetscope.engines.dispatch import Watcher
    from forgetscope.experiment.chain import Plan, PlannedStep, Progress
    from forgetscope.learning.rsgd import EpochEnd
    from forgetscope.store import StoredStep

LINE_SECONDS = 2.0  # plain lines come no faster than this


@contextmanager
def watch(*, enabled: bool = True) -> Iterator[Progress]:
    """A progress display on standard error for the block."""
    from forgetscope.experiment.chain import Silence

    if not enabled or sys.stderr is None:  # closed
        yield Silence()
    elif sys.stderr.isatty():
        with _bar() as bar:
            yield _Watcher(_Bar(bar), lambda text: bar.console.print(visible(text), markup=False, highlight=False))
    else:
        yield _Watcher(_Lines(), _print)


@contextmanager
def counting(patience: float = 0.0) -> Iterator[Callable[[str, int, int], None]]:
    """A display on standard error for bytes or images done, out of so many (0: unknown).

    Nothing is shown of what takes fewer than `patience` seconds."""
    if sys.stderr.isatty():
        bar = _bar()
        try:
            yield _Counter(_Bar(bar), patience)
        finally:
            bar.stop()
    else:
        yield _Counter(_Lines(), patience)


class _Counter:
    """Tells the time left of one thing at a time: first the bytes, then the images."""

    def __init__(self, display: Callable[[str, float, bool], None], patience: float) -> None:
        self._display, self._silent_until = display, time.monotonic() + patience
        self._what, self._started, self._before = "", 0.0, 0

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self._what:
            self._what, self._started, self._before = what, time.monotonic(), done  # a resumed download starts in the middle
        if time.monotonic() < self._silent_until:
            return
        scale, unit = (1e6, "MB") if what == "bytes" else (1, what)
        text = f"{done / scale:,.0f} {unit}"
        if total:
            new = max(1, done - self._before)
            left = (time.monotonic() - self._started) * (total - done) / new
            text = f"{done / scale:,.0f} of {total / scale:,.0f} {unit}  {_clock(left)} left"
        self._display(text, done / total if total else 0.0, done == total)


class _Watcher:
    """Keeps count of the work done and left; hands a line of text and a fraction to the display."""

    def __init__(self, display: Callable[[str, float, bool], None], say: Callable[[str], None]) -> None:
        self._display, self._say = display, say
        self._ahead: dict[int, float] = {}  # work of each step that is still to come
        self._steps = 0
        self._total = self._done = 0.0
        self._started = time.monotonic()

    def planned(self, plan: Plan) -> None:
        self._steps = len(plan.steps)
        self._ahead = {step.spec.step: step.work * step.spec.training.epochs for step in plan.steps if not step.done}
        self._total = sum(self._ahead.values())
        done = self._steps - len(self._ahead)
        if not self._ahead:
            self._say(f"Nothing to do: all {self._steps} steps are in the store already.")
        elif done:
            self._say(f"{done} of {self._steps} steps are in the store already.")

    def step_started(self, step: PlannedStep) -> None:
        self._started = self._started if self._done else time.monotonic()
        self._display(f"step {step.spec.step}/{self._steps}: {len(step.spec.classes)} new classes", self._fraction(), True)

    def epoch_ended(self, step: PlannedStep, end: EpochEnd) -> None:
        epochs = step.spec.training.epochs
        self._done += step.work
        self._ahead[step.spec.step] = (epochs - end.epoch) * step.work
        left = (time.monotonic() - self._started) * sum(self._ahead.values()) / self._done
        text = (
            f"step {step.spec.step}/{self._steps}  epoch {end.epoch:{len(str(epochs))}}/{epochs}  "
            f"loss {end.loss:.3f}  accuracy {100 * end.accuracy:.0f} %  {_clock(left)} left"
        )
        self._display(text, self._fraction(), end.epoch == epochs)

    def step_ended(self, step: PlannedStep, record: StoredStep) -> None:
        self._ahead.pop(step.spec.step, None)

    def note(self, text: str) -> None:
        self._say(text)

    def _fraction(self) -> float:
        return 1 - sum(self._ahead.values()) / self._total if self._total else 1.0


@contextmanager
def watch_plan(
    jobs: Mapping[str, Job], costs: Mapping[str, float], todo: Collection[str], seconds: float | None
) -> Iterator[Watcher]:
    """A display on standard error for a plan that is being run; `seconds`: how long it will take, if that was estimated."""
    if sys.stderr.isatty():
        with _bar() as bar:
            say = partial(bar.console.print, markup=False, highlight=False)
            yield _PlanWatcher(_Bar(bar), lambda text: say(visible(text)), jobs, costs, todo, seconds)
    else:
        yield _PlanWatcher(_Lines(), _print, jobs, costs, todo, seconds)


class _PlanWatcher:
    """Time left from the costs of what is done, in this run, and of what is left; at first from the estimate."""

    def __init__(
        self,
        display: Callable[[str, float, bool], None],
        say: Callable[[str], None],
        jobs: Mapping[str, Job],
        costs: Mapping[str, float],
        todo: Collection[str],
        seconds: float | None,
    ) -> None:
        self._display, self._say, self._costs, self._seconds = display, say, costs, seconds
        self._left = {id: costs[id] for id in todo}
        self._total, self._count = sum(self._left.values()), len(self._left)
        self._before: dict[str, float] = {}  # of a step that a snapshot continues, what was done in an earlier run
        self._begun: dict[str, float] = {}
        self._done = self._bad = 0
        self._started = time.monotonic()

    def started(self, job: Job) -> None:
        if job.id not in self._left:  # its record turned out to be of no use
            self._left[job.id] = self._costs[job.id]
            self._total, self._count = self._total + self._costs[job.id], self._count + 1
        self._begun.setdefault(job.id, 0.0)
        self._tell(important=self._done == 0)

    def epoch_ended(self, job: Job, epoch: int) -> None:
        share = (epoch - 1) / job.spec.training.epochs * self._costs[job.id]
        self._before.setdefault(job.id, share if self._begun[job.id] == 0 else 0.0)
        self._begun[job.id] = epoch / job.spec.training.epochs * self._costs[job.id]
        self._tell(important=False)

    def ended(self, job: Job) -> None:
        self._begun.pop(job.id, None)
        self._left.pop(job.id, None)
        self._done += 1
        self._tell(important=True)

    def ended_badly(self, job: Job, message: str, blocked: int) -> None:
        self._begun.pop(job.id, None)
        self._left.pop(job.id, None)
        self._bad += 1
        effect = f" {blocked} steps that build on it will not be run." if blocked else ""
        self._say(f"Step {job.spec.step} ({job.id[:8]}): {message}{effect}")

    def note(self, text: str) -> None:
        self._say(text)

    def _tell(self, *, important: bool) -> None:
        left = sum(self._left.values()) - sum(self._begun.values())
        got = self._total - left - sum(self._before.values())
        elapsed = time.monotonic() - self._started
        text = f"{self._done} of {self._count} steps done, {len(self._begun)} running"
        text += f", {self._bad} failed" if self._bad else ""
        if got > 0.02 * self._total or (self._seconds is None and got > 0):
            text += f"  {_clock(elapsed * left / got)} left"
        elif self._seconds is not None:
            text += f"  {_clock(max(0.0, self._seconds - elapsed))} left"
        self._display(text, 1 - left / self._total if self._total else 1.0, important)


class _Lines:
    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, text: str, fraction: float, important: bool) -> None:
        now = time.monotonic()
        if important or now - self._last >= LINE_SECONDS:
            self._last = now
            _print(text)


class _Bar:
    def __init__(self, bar: RichProgress) -> None:
        self._bar = bar
        self._task = bar.add_task("preparing", total=1.0)

    def __call__(self, text: str, fraction: float, important: bool) -> None:
        self._bar.start()  # once: nothing is drawn before there is something to tell
        self._bar.update(self._task, description=visible(text), completed=fraction)


def _bar() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %"), TextColumn("{task.description}", markup=False))
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


def _print(text: str) -> None:
    print(visible(text), file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
