"""What every command that trains does: run a plan with a display, and name the failures when everything else is done."""

from __future__ import annotations

import functools
import inspect
import shlex
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import forgetscope as fs
from forgetscope.cli import options as option
from forgetscope.errors import ForgetscopeError, Interrupted, SpecError
from forgetscope.threads import keep_memory

if TYPE_CHECKING:
    from forgetscope.benchmark.plans import Plan
    from forgetscope.benchmark.recipes import Wanted
    from forgetscope.benchmark.shards import Shard
    from forgetscope.engines.dispatch import Outcome
    from forgetscope.engines.work import Place


@contextmanager
def training() -> Iterator[None]:
    """A block that trains: signals stop it as Ctrl-C does, and what it frees it may need again."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.default_int_handler)  # until a run takes them over
    keep_memory()
    try:
        yield
    except (Interrupted, KeyboardInterrupt):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)  # it is being done; one more would only break the farewell
        raise


@dataclass(frozen=True)
class PlaceOptions:
    """The options of every command about a plan: where it is, and how its steps are computed."""

    store: option.Store = option.DEFAULT_STORE
    settings: option.Set = None
    jobs: option.Jobs = None
    device: option.Device = "auto"
    threads: option.JobThreads = 1
    channels_last: option.ChannelsLast = True
    compile: option.Compile = False

    def place(self) -> Place:
        """Where its steps are run, or would be."""
        return fs.Local(**self._of_every_place)

    @property
    def _of_every_place(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("jobs", "device", "threads", "channels_last", "compile")}


@dataclass(frozen=True)
class PlanOptions(PlaceOptions):
    """The options of a command that looks at a plan."""

    estimate: option.Estimate = True


@dataclass(frozen=True)
class RunOptions(PlanOptions):
    """The options of a command that runs a plan."""

    engine: option.Engine = "local"
    address: option.Address = None
    gpus_per_job: option.GpusPerJob = 0.0

    def place(self) -> Place:
        if self.engine == "ray":
            return fs.Ray(**self._of_every_place, address=self.address, gpus_per_job=self.gpus_per_job)
        if self.engine != "local":
            from forgetscope.options import nearest

            raise SpecError(f"--engine {self.engine!r} is not known.{nearest(self.engine, ('local', 'ray'))}")
        if self.address is not None or self.gpus_per_job:
            raise SpecError("--address and --gpus-per-job are for --engine ray. Add it, or leave them out.")
        return super().place()


def with_plan_options(command: Callable[..., None]) -> Callable[..., None]:
    """In place of its parameter `options`, the command line has the fields of that parameter's type."""
    own = inspect.signature(command, eval_str=True).parameters
    made = own["options"].annotation
    shared = inspect.signature(made, eval_str=True).parameters

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        command(options=made(**{name: given.pop(name) for name in shared}), **given)

    of_each = (shared.values() if name == "options" else [parameter] for name, parameter in own.items())
    wrapper.__signature__ = inspect.Signature(list(chain.from_iterable(of_each)))  # type: ignore[attr-defined]
    return wrapper


def work_off(
    wanted: Wanted, store: fs.Store, place: Place, *, estimating: bool, shard: Shard | None = None, again: Collection[str] = ()
) -> tuple[Plan, Outcome]:
    """Run what a plan still needs, with a display."""
    from forgetscope.engines.running import carry_out
    from forgetscope.progress import watch

    with training(), watch() as watcher:
        return carry_out(wanted, store, place, watcher, estimating=estimating, shard=shard, again=again)


def allow(plan: Plan, code: list[str]) -> None:
    """A recorded plan, which may be somebody else's, runs no code that the user does not name as well."""
    if names := sorted(plan.own_code - {*code}):
        add = " ".join(f"--code {shlex.quote(name)}" for name in names)
        raise SpecError(
            f"Plan {plan.id} names code to run, {', '.join(names)}, and a store does not decide what runs here. Name your own "
            f"file instead of the plan; or, if you know that code, add `{add}`."
        )


def name_failures(plan: Plan, store: fs.Store, outcome: Outcome) -> None:
    """A step that is not done makes the command fail, after everything else is done."""
    from forgetscope.benchmark.records import Journal, folder_of
    from forgetscope.characters import counted

    done, sentences = plan.done(store), []
    if failed := Journal(folder_of(store, plan)).failures(done):
        named = "".join(f" --code {shlex.quote(name)}" for name in sorted(plan.own_code))
        edited = " Where you edit your own code, run the same command instead: its steps are others then." if named else ""
        sentences.append(
            f"{counted(len(failed), 'step')} failed; everything else is done. "
            f"{str(next(iter(failed.values()))['message']).removesuffix('.')}. When the cause is gone: "
            f"`forgetscope bench retry {shlex.quote(plan.id)} --failed --store {shlex.quote(str(store.path))}{named}`.{edited}"
        )
    if died := outcome.died - done:
        steps = counted(len(died), "step", "is not done because its/are not done because their")
        sentences.append(f"{steps} workers died again and again. Run the same command again: it goes on from the snapshots.")
    if sentences:
        raise ForgetscopeError(" ".join(sentences))
