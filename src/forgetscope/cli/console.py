"""How commands talk to a person or a program: tables, JSON, errors and exit codes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from typer.core import TyperGroup

from forgetscope.characters import visible, visible_json, wrapped
from forgetscope.errors import OWN_CODE, TRACEBACK, ForgetscopeError, Interrupted, StoreError

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPE = 200  # characters of a line of prose under tables where there is no terminal


class Commands(TyperGroup):
    """A group of commands whose list in `--help` has the whole first sentence of each, however long.

    It prints this project's own errors as one paragraph and exits with their code; all else is a bug and shows itself."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("\nInterrupted. Run the same command again to continue.", err=True)
            raise typer.Exit(Interrupted.exit_code) from None
        except ForgetscopeError as error:
            if os.environ.get(TRACEBACK):
                echo("".join(traceback.format_exception(error)), err=True)
            text = str(error).replace(OWN_CODE, f"{OWN_CODE[:-1]}; --traceback shows all.")
            echo(f"Error: {visible(text)}", err=True)
            raise typer.Exit(error.exit_code) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for name in self.list_commands(ctx):
            if command := self.get_command(ctx, name):
                command.short_help = command.get_short_help_str(limit=sys.maxsize)  # else it is cut to the line
        super().format_commands(ctx, formatter)


def command_group(help: str) -> typer.Typer:
    """Commands under one name."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, cls=Commands)


class Unreadable:
    """Steps and plans of a store that cannot be read: the others are shown, and these are named."""

    def __init__(self) -> None:
        self.problems: dict[str, StoreError] = {}

    def __call__(self, problem: StoreError) -> None:
        self.problems.setdefault(str(problem), problem)

    def tell(self, shown: bool) -> None:
        """On standard error; an error if there is nothing else to show."""
        for text, problem in self.problems.items():
            if not shown:
                raise problem
            echo(f"Left out: {text}", err=True)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines, wrapped at words as wide as the terminal is; what is in them cannot control it."""
    stream = sys.stderr if err else sys.stdout
    lines, width = visible(text, lines=True).split("\n"), width_of(stream)
    print("\n".join(lines if width is None else _wrapped(lines, width)), file=stream, flush=True)


def width_of(stream: TextIO) -> int | None:
    """Of the terminal, or as COLUMNS says; None for a file or pipe, which has none: nothing is wrapped there."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    return shutil.get_terminal_size().columns if stream.isatty() else None


def onward(*commands: Sequence[str | Path] | str, found: str = "", err: bool = False) -> None:
    """How a command ends: what was found, and what comes next. Each command has a line of its own, to be copied into a shell,
    whatever its files are called; one that is given as a text is written as it is. err: where what is found is data."""
    if found:
        echo(found, err=err)
    first, *others = (one if isinstance(one, str) else shlex.join(["forgetscope", *map(str, one)]) for one in commands)
    lines = [f"Next: {first}", *(f"      {command}" for command in others)]
    print("\n".join(map(visible, lines)), file=sys.stderr if err else sys.stdout, flush=True)


def _wrapped(lines: list[str], width: int) -> list[str]:
    from rich.cells import cell_len

    return [part for line in lines for part in wrapped(line, width, cell_len)]


def note(text: str) -> None:
    """On standard error, by the way."""
    echo(text, err=True)


def patiently() -> AbstractContextManager[Callable[[str, int, int], None]]:
    """A display of how far a command is that takes longer than it is pleasant to wait without one."""
    from forgetscope.progress import counting

    return counting(patience=2.0)


def print_view(view: RenderableType, *, legend: bool = True) -> None:
    """Print tables, and briefly what the words in their heads mean. Where there is no terminal they are as wide as they are."""
    from rich.console import Console

    from forgetscope.report.terminal.columns import legend_line, plain, widest_table

    width = width_of(sys.stdout)
    console = Console(highlight=False, width=max(PIPE, widest_table(view)) if width is None else width)
    console.print(view, crop=False)
    if legend and (told := legend_line(view)):
        console.print(plain(told, "dim"), crop=False)


def print_either(document: Callable[[], object], view: Callable[[], RenderableType], as_json: bool) -> None:
    """For a program, or for a person."""
    if as_json:
        print_json(document())
    else:
        print_view(view())


def print_json(value: object) -> None:
    """Paths are strings there."""
    unicode = sys.stdout.encoding.lower().startswith("utf")  # elsewhere, JSON's own escapes
    print(visible_json(json.dumps(value, indent=1, ensure_ascii=not unicode, default=os.fspath)), flush=True)
