"""Every command that a page shows is one: the command line, the Makefile and the folders know all of its words."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
from shown import ROOT, Command, scripts, shown_commands

from forgetscope.cli.app import app

COMMANDS = [*shown_commands(), *scripts()]
PLACEHOLDER = re.compile(r"[A-Z]")  # for a number


def of(program: str) -> list[Command]:
    return list(dict.fromkeys(command for command in COMMANDS if command.words[0] == program))


def flaw(command: Command) -> str | None:
    """What the real command line says against it, without running anything."""
    known: Any = typer.main.get_command(app)
    name, words, context = "forgetscope", list(command.words[1:]), None
    try:
        while True:
            for parameter in known.params:
                parameter.callback = None  # prints a version, installs completion
            context = known.make_context(name, words, parent=context, resilient_parsing=False)
            if not hasattr(known, "commands"):
                return None
            rest = [*context._protected_args, *context.args]
            if not rest:
                return None  # options alone
            name, known, words = known.resolve_command(context, rest)
    except Exception as error:
        said = error.format_message() if hasattr(error, "format_message") else str(error)
        kind = type(error).__name__
        partial = kind in ("NoArgsIsHelpError", "MissingParameter")
        stands_for_a_number = kind == "BadParameter" and any(PLACEHOLDER.fullmatch(word) for word in command.words)
        return None if not command.whole and (partial or stands_for_a_number) else f"{kind}: {said}"


def test_pages_show_commands() -> None:
    assert len(of("forgetscope")) > 150
    assert len(of("make")) > 10


def test_the_command_line_knows_every_command_that_is_shown_with_its_options() -> None:
    assert {str(command): said for command in of("forgetscope") if (said := flaw(command))} == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("forgetscope shwo results", "shwo"),
        ("forgetscope show results --stepp 2", "--stepp"),
        ("forgetscope store verify results --qarantine", "--qarantine"),
        ("forgetscope show results --step two", "integer"),
        ("forgetscope run", "config"),
    ],
)
def test_what_is_no_command_is_found(words: str, said: str) -> None:
    assert said in (flaw(Command("a page", tuple(words.split()), whole=True)) or "")


def test_make_has_every_target_that_is_shown() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {(str(command), word) for command in of("make") for word in command.words[1:] if "=" not in word}
    assert {said for said, word in shown if word.islower() and word not in targets} == set()


def test_every_script_and_every_test_that_is_shown_is_there() -> None:
    paths = re.compile(r"(?:benchmarks|examples|docs|tests)/\S+")
    shown = {(str(command), word) for program in ("python", "pytest") for command in of(program) for word in command.words[1:]}
    named = {(said, word.partition("::")[0]) for said, word in shown if paths.fullmatch(word)}
    assert len(named) > 20
    assert {said for said, word in named if not (ROOT / word).exists()} == set()
