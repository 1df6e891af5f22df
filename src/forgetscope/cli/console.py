"""How commands talk to a person or a program: tables, JSON, errors and exit codes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

import typer

from forgetscope.characters import visible, visible_json
from forgetscope.errors import ForgetscopeError, Interrupted

if TYPE_CHECKING:
    from rich.console import RenderableType

P = ParamSpec("P")


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Print this project's own errors as one paragraph and exit with their code; everything else is a bug and shows itself."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            typer.echo("\nInterrupted. Run the same command again to continue.", err=True)
            raise typer.Exit(Interrupted.exit_code) from None
        except ForgetscopeError as error:
            echo(f"Error: {visible(str(error))}", err=True)
            raise typer.Exit(error.exit_code) from None

    return wrapper


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines; what is in them cannot control the terminal."""
    typer.echo(visible(text, lines=True), err=err)


def print_view(view: RenderableType, *, whole: bool = False) -> None:
    """Print tables. `whole` lets lines be longer than the terminal is wide rather than break cells apart."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)  # a pipe has no width; never cut a table there
    if whole:
        needed = console.measure(view, options=console.options.update(max_width=100_000)).maximum
        console = Console(highlight=False, width=max(console.width, needed))
    console.print(view)


def print_json(value: object) -> None:
    sys.stdout.write(visible_json(json.dumps(value, indent=1, ensure_ascii=False)) + "\n")
