"""`forgetscope watch`: what is being trained, and which classes it is losing."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

import forgetscope as fs
from forgetscope.cli import options as option
from forgetscope.cli.console import echo, onward, print_json, print_view
from forgetscope.errors import SpecError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from forgetscope.underway.running import Lookout, UnderWay

EVERY = 2.0  # seconds between two looks


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
) -> None:
    """Watch what is being trained: every running step of the store, and the past classes that it is losing.

    Of each step: epoch, time left and loss, and the five classes most at risk: their rank and how it moved since the last
    probe, SIC and NIC so far, the loss on all of a class's images and on its rehearsed ones, and why. It writes nothing, takes
    no lock and slows no run; runs on other machines are seen where the file system is shared. Ctrl-C ends it."""
    from forgetscope.underway.running import Lookout

    if page and (once or as_json):
        raise SpecError(
            f"--page with {'--once' if once else '--json'}: a page is neither for scripts nor looked at once. Leave one out."
        )
    if port is not None and not page:
        raise SpecError(f"--port {port} is that of a page: add --page, or leave it out.")
    opened, problems = fs.Store.existing(store), list[str]()
    if page:
        _serve(opened, every, port)
        return
    lookout = Lookout(opened, problems.append)
    if once:
        _print_once(lookout, opened, problems, as_json)
        return
    with _ended_quietly():
        if as_json:
            _lines(lookout, every)
        elif sys.stdout.isatty():
            _screen(lookout, opened, problems, every)
        else:
            _blocks(lookout, opened, problems, every)


def _serve(store: fs.Store, every: float, port: int | None) -> None:
    import asyncio

    from forgetscope.watching.serving import serve

    def told(address: str) -> None:
        echo(f"A page that follows {store.path}, for a browser on this machine; whoever has the address can see it:")
        print(address, flush=True)
        echo("Ctrl-C ends this; nothing that runs is touched.")

    with _ended_quietly():
        asyncio.run(serve(store, every, port or 0, told))


def _print_once(lookout: Lookout, store: fs.Store, problems: list[str], as_json: bool) -> None:
    from forgetscope.report.document import watch_document

    if as_json:
        print_json(watch_document(lookout.look(), lookout.finished()))
        return
    view = _view(lookout, store, problems)
    print_view(view)
    place = shlex.quote(str(store.path))
    onward(f"forgetscope watch {place}", f"forgetscope show {place}")


def _view(lookout: Lookout, store: fs.Store, problems: list[str]) -> RenderableType:
    from forgetscope.report.terminal.running import watch_view

    return watch_view(str(store.path), lookout.look(), lookout.finished(), problems)


def _screen(lookout: Lookout, store: fs.Store, problems: list[str], every: float) -> None:
    """On a screen of its own; what was on the terminal is there again when it ends."""
    from rich.console import Console, Group
    from rich.live import Live

    from forgetscope.report.terminal.columns import plain

    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        before = ""
        while True:
            view = Group(
                _view(lookout, store, problems), plain(""), plain("Ctrl-C ends this; nothing that runs is touched.", "dim")
            )
            with console.capture() as drawn:
                console.print(view)
            if drawn.get() != before:
                before = drawn.get()
                live.update(view, refresh=True)
            time.sleep(every)


def _blocks(lookout: Lookout, store: fs.Store, problems: list[str], every: float) -> None:
    """Into a file or a pipe: all of it after each change of a step."""
    from forgetscope.report.terminal.running import watch_view

    for found in _changes(lookout, every):
        print_view(watch_view(str(store.path), found, lookout.finished(), problems))
        echo()


def _lines(lookout: Lookout, every: float) -> None:
    import json

    from forgetscope.report.document import watch_document

    for found in _changes(lookout, every):
        print(json.dumps(watch_document(found, lookout.finished())), flush=True)


def _changes(lookout: Lookout, every: float) -> Iterator[list[UnderWay]]:
    """What is under way, whenever a step began, ended, fell silent, or came to another epoch or probe."""
    before: object = None
    while True:
        found = lookout.look()
        state = [(one.key, one.is_alive, one.progress.epoch, one.probes) for one in found]
        if state != before:
            before = state
            yield found
        time.sleep(every)


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
