"""What a person sees while a plan is run: a bar on a terminal, plain lines elsewhere; both with the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forgetscope.characters import counted, visible
from forgetscope.engines.dispatch import Watcher
from forgetscope.report.words.units import duration

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from forgetscope.benchmark.plans import Job, Plan
    from forgetscope.engines.dispatch import Prospect

LINE_SECONDS = 2.0  # plain lines come no faster than this


@contextmanager
def watch(*, enabled: bool = True) -> Iterator[Watcher]:
    """A display on standard error, for the block, of a plan that is being run."""
    if not enabled or sys.stderr is None:  # closed
        yield Watcher()
    elif sys.stderr.isatty():
        with _bar() as bar:
            yield _Teller(_Bar(bar), lambda text: bar.console.print(visible(text), markup=False, highlight=False))
    else:
        yield _Teller(_Lines(), _print)


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


class _Teller(Watcher):
    """Time left from the costs of what is done, in this run, and of what is left; at first from the estimate.

    Of a single experiment the step that runs is told with its loss and accuracy, else how many steps are done."""

    def __init__(self, display: Callable[[str, float, bool], None], say: Callable[[str], None]) -> None:
        self._display, self._say = display, say
        self._costs: Mapping[str, float] = {}
        self._left: dict[str, float] = {}
        self._before: dict[str, float] = {}  # of a step that a snapshot continues, what was done in an earlier run
        self._begun: dict[str, float] = {}
        self._done = self._bad = self._count = self._steps = 0
        self._total = self._started = 0.0
        self._seconds: float | None = None
        self._single = False

    def planned(self, plan: Plan, ahead: Prospect) -> None:
        self._single, self._steps = not plan.recorded, len(plan.jobs)
        done, concerned = len(ahead.done & ahead.part), len(ahead.part)
        if self._single and done == concerned:
            self._say(f"Nothing to do: {'the only step is' if done == 1 else f'all {done} steps are'} in the store already.")
        elif done:
            self._say(f"{counted(done, 'step', 'is/are', of=concerned)} in the store already.")
        if (estimate := ahead.estimate) is not None:
            self._seconds = estimate.seconds
            self._say(f"{counted(len(ahead.todo), 'step')}, about {duration(self._seconds)} with {estimate.jobs} at a time.")
        self._costs, self._left = ahead.costs, {id: ahead.costs[id] for id in ahead.todo}
        self._total, self._count, self._started = sum(self._left.values()), len(self._left), time.monotonic()

    def started(self, job: Job) -> None:
        if job.id not in self._left:  # its record turned out to be of no use
            self._left[job.id] = self._costs[job.id]
            self._total, self._count = self._total + self._costs[job.id], self._count + 1
        self._begun.setdefault(job.id, 0.0)
        if self._single:
            self._tell(f"step {job.spec.step}/{self._steps}: {counted(len(job.spec.classes), 'new class')}", important=True)
        else:
            self._tell(self._counts() + self._time_left(), important=self._done == 0)

    def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
        epochs = job.spec.training.epochs
        self._before.setdefault(job.id, (epoch - 1) / epochs * self._costs[job.id] if self._begun[job.id] == 0 else 0.0)
        self._begun[job.id] = epoch / epochs * self._costs[job.id]
        counts, learned = f"epoch {epoch:{len(str(epochs))}}/{epochs}", f"loss {loss:.3f}  accuracy {100 * accuracy:.0f} %"
        text = f"step {job.spec.step}/{self._steps}  {counts}  {learned}" if self._single else self._counts()
        self._tell(text + self._time_left(), important=self._single and epoch == epochs)

    def ended(self, job: Job) -> None:
        self._forget(job)
        self._done += 1
        if not self._single:
            self._tell(self._counts() + self._time_left(), important=True)

    def ended_badly(self, job: Job, message: str, blocked: int) -> None:
        self._forget(job)
        self._bad += 1
        effect = f" {counted(blocked, 'step', 'that builds/that build')} on it will not be run." if blocked else ""
        self._say(f"Step {job.spec.step} ({job.id[:8]}): {message}{effect}")

    def note(self, text: str) -> None:
        self._say(text)

    def _forget(self, job: Job) -> None:
        self._begun.pop(job.id, None)
        self._left.pop(job.id, None)

    def _counts(self) -> str:
        text = f"{counted(self._done, 'step', of=self._count)} done, {len(self._begun)} running"
        return text + (f", {self._bad} failed" if self._bad else "")

    def _ahead(self) -> float:
        return sum(self._left.values()) - sum(self._begun.values())

    def _time_left(self) -> str:
        left, elapsed = self._ahead(), time.monotonic() - self._started
        got = self._total - left - sum(self._before.values())
        if got > 0.02 * self._total or (self._seconds is None and got > 0):
            return f"  {_clock(elapsed * left / got)} left"
        return "" if self._seconds is None else f"  {_clock(max(0.0, self._seconds - elapsed))} left"

    def _tell(self, text: str, *, important: bool) -> None:
        self._display(text, 1 - self._ahead() / self._total if self._total else 1.0, important)


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
