"""`forgetscope watch`: what is being trained, and which classes it is losing."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

import forgetscope as fs
from forgetscope.cli import options as option
from forgetscope.cli.console import echo, onward, print_json, print_view
from forgetscope.errors import SpecError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from forgetscope.underway.alarms import Raised
    from forgetscope.underway.running import UnderWay

EVERY = 2.0  # seconds between two looks
ALARMS = 8  # that a screen shows, the latest


def watch(
    store: option.StoreArgument = option.DEFAULT_STORE,
    once: Annotated[bool, typer.Option("--once", help="Look once, print, and end.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.2, max=3600, metavar="SECONDS", help="Between two looks.")] = EVERY,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables; without --once, a line after each change.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Show it as a page in a browser of this machine; prints its address.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Of the page. Default: one that is free.", show_default=False)
    ] = None,
    alarm: Annotated[
        list[str] | None,
        typer.Option(
            "--alarm",
            metavar="CONDITION",
            help="Print a line once for each class of which this holds, such as 'forecast > 0.5' or 'bird: sic >= 1'. Can be "
            "given several times.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--exec", metavar="COMMAND", help="Run this, too, with the facts in FORGETSCOPE_... of its environment."),
    ] = None,
) -> None:
    """Watch what is being trained: every running step of the store, and the past classes that it is losing.

    Of each step: epoch, time left and loss, and the five classes most at risk: their rank and how it moved since the last
    probe, SIC and NIC so far, the loss on all of a class's images and on its rehearsed ones, how much will have been forgotten
    in the end where that can be forecast, and why. It writes nothing, takes no lock and slows no run; runs on other machines
    are seen where the file system is shared. Ctrl-C ends it."""
    if page and (once or as_json):
        raise SpecError(
            f"--page with {'--once' if once else '--json'}: a page is neither for scripts nor looked at once. Leave one out."
        )
    if page and (alarm or command is not None):
        raise SpecError("--page with --alarm: a page says nothing by itself. Watch for alarms in another terminal.")
    if port is not None and not page:
        raise SpecError(f"--port {port} is that of a page: add --page, or leave it out.")
    opened = fs.Store.existing(store)
    if page:
        _serve(opened, every, port)
        return
    watched = Watch(opened, alarm or [], command)
    if once:
        _print_once(watched, as_json)
        return
    with _ended_quietly():
        if as_json:
            _lines(watched, every)
        elif sys.stdout.isatty():
            _screen(watched, every)
        else:
            _blocks(watched, every)


def _serve(store: fs.Store, every: float, port: int | None) -> None:
    import asyncio

    from forgetscope.watching.serving import serve

    def told(address: str) -> None:
        echo(f"A page that follows {store.path}, for a browser on this machine; whoever has the address can see it:")
        print(address, flush=True)
        echo("Ctrl-C ends this; nothing that runs is touched.")

    with _ended_quietly():
        asyncio.run(serve(store, every, port or 0, told))


class Watch:
    """What is seen of a store, look by look, and which alarms went off."""

    def __init__(self, store: fs.Store, alarms: Sequence[str], command: str | None) -> None:
        from forgetscope.underway.alarms import Alarm, Alarms
        from forgetscope.underway.commands import AlarmCommands
        from forgetscope.underway.running import Lookout

        if command is not None and not alarms:
            raise SpecError("--exec runs a command for each alarm, and there is none. Say which: --alarm 'forecast > 0.5'.")
        self.store = store
        self.problems: list[str] = []  # of files that cannot be read
        self.notes: list[str] = []  # of alarms and their commands
        self.raised: list[Raised] = []
        self.lookout = Lookout(store, self.problems.append)
        self.alarms = Alarms(map(Alarm.parse, alarms))
        self.commands = None if command is None else AlarmCommands(command, store.path, self.notes.append)

    def look(self) -> tuple[list[UnderWay], list[Raised]]:
        """What is under way, and the alarms that this look set off."""
        found = self.lookout.look()
        new = self.alarms.raised(found)
        self.raised += new
        self.notes += self.alarms.unknown(found)
        if self.commands is not None:
            self.commands.add(new)
        return found, new

    def document(self, found: Sequence[UnderWay], new: Sequence[Raised]) -> dict[str, Any]:
        from forgetscope.report.document import watch_document

        return watch_document(found, self.lookout.finished(), new if self.alarms.alarms else None)

    def view(self, found: Sequence[UnderWay], alarms: Sequence[Raised]) -> RenderableType:
        from forgetscope.report.terminal.running import watch_view

        return watch_view(str(self.store.path), found, self.lookout.finished(), [*self.problems, *self.notes], alarms)

    def tell(self) -> None:
        """Of alarms and their commands, on standard error."""
        while self.notes:
            echo(self.notes.pop(0), err=True)

    def end(self) -> None:
        if self.commands is not None:
            self.commands.leave()
        self.tell()


def _print_once(watched: Watch, as_json: bool) -> None:
    found, new = watched.look()
    if watched.commands is not None:
        watched.commands.wait()
    watched.tell()
    if as_json:
        print_json(watched.document(found, new))
        return
    print_view(watched.view(found, new))
    place = shlex.quote(str(watched.store.path))
    onward(f"forgetscope watch {place}", f"forgetscope show {place}")


def _screen(watched: Watch, every: float) -> None:
    """On a screen of its own; what was on the terminal is there again when it ends, and then the alarms are on it."""
    from rich.console import Console, Group
    from rich.live import Live

    from forgetscope.report.terminal.columns import plain

    console = Console(highlight=False)
    try:
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            before = ""
            while True:
                view = watched.view(watched.look()[0], watched.raised[-ALARMS:])
                view = Group(view, plain(""), plain("Ctrl-C ends this; nothing that runs is touched.", "dim"))
                with console.capture() as drawn:
                    console.print(view)
                if drawn.get() != before:
                    before = drawn.get()
                    live.update(view, refresh=True)
                time.sleep(every)
    finally:
        for one in watched.raised:
            echo(f"Alarm: {one}")
        watched.end()


def _blocks(watched: Watch, every: float) -> None:
    """Into a file or a pipe: all of it after each change of a step, and a line for each alarm."""
    for found, new in _changes(watched, every):
        print_view(watched.view(found, new))
        echo()


def _lines(watched: Watch, every: float) -> None:
    import json

    for found, new in _changes(watched, every):
        print(json.dumps(watched.document(found, new)), flush=True)


def _changes(watched: Watch, every: float) -> Iterator[tuple[list[UnderWay], list[Raised]]]:
    """What is under way, whenever a step began, ended, fell silent, or came to another epoch or probe, or an alarm went off."""
    before: object = None
    try:
        while True:
            found, new = watched.look()
            watched.tell()
            state = [(one.key, one.is_alive, one.progress.epoch, one.probes) for one in found]
            if state != before or new:
                before = state
                yield found, new
            time.sleep(every)
    finally:
        watched.end()


@contextmanager
def _ended_quietly() -> Iterator[None]:
    """To watch no longer is no failure; on SIGTERM, too, the terminal is left as it was."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
