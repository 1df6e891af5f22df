"""Every command with its arguments and options, from the command line itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from generating.marking import code, entry


def commands(_: str) -> str:
    root: Any = typer.main.get_command(_app())
    return "\n".join(_described(root, "forgetscope"))


def _app() -> typer.Typer:
    from forgetscope.cli.app import app

    return app


def _described(command: Any, name: str) -> Iterator[str]:
    """A section, then those of its subcommands."""
    yield f"## {name}\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    if example := (command.epilog or "").partition(": ")[2]:
        yield f"```sh\n{example}\n```\n"
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    for parameter in (*arguments, *options):
        yield entry(_shown(parameter), _said(parameter))
    for below in command.commands.values() if hasattr(command, "commands") else ():
        yield from _described(below, f"{name} {below.name}")


def _shown(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return code(parameter.metavar or parameter.name.upper())
    given = "" if parameter.is_flag else f" {parameter.metavar or _type(parameter).upper()}"
    names = [*sorted(parameter.opts, key=len, reverse=True), *parameter.secondary_opts]
    return ", ".join(code(f"{name}{given}") for name in names)


def _type(parameter: Any) -> str:
    named = parameter.type_descriptor.annotation
    return {int: "whole number", float: "number", str: "text"}.get(named, "path" if "Path" in str(named) else "text")


def _said(parameter: Any) -> str:
    said = parameter.help or ""
    return " ".join(
        filter(None, (said, _bounds(parameter.min, parameter.max), "" if "Default:" in said else _usual(parameter)))
    )


def _usual(parameter: Any) -> str:
    if parameter.required:
        return "Required."
    if getattr(parameter, "is_flag", False):
        names = parameter.opts if parameter.default else parameter.secondary_opts
        return f"Default: {code(names[0])}." if parameter.secondary_opts else ""
    return "" if parameter.default in (None, "") else f"Default: {code(str(parameter.default))}."


def _bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return ""
    return f"At least {low:,}." if high is None else f"From {low:,} to {high:,}."
