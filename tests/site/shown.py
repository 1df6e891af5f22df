"""The commands that pages show: in blocks of a shell, and in the middle of a sentence."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if "_build" not in path.parts and path.name not in ("decisions.md", "CHANGELOG.md")  # which tell of what was once
)
PROGRAMS = ("forgetscope", "make", "python", "pytest")
_BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$|((?:^ {4}\S[^\n]*\n)+)", re.DOTALL | re.MULTILINE)
_SHELL = ("sh", "bash", "console", "")
_BETWEEN = {"&&", "||", ";", "|", "&", "(", ")", "do", "then", "else"}


@dataclass(frozen=True)
class Command:
    page: str
    words: tuple[str, ...]
    whole: bool  # else it is named in a sentence, where arguments may be left out

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def shown_commands() -> Iterator[Command]:
    for path in PAGES:
        page, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            if block[4] or block[2] in _SHELL:
                script = re.sub(r"\\\n\s*", " ", block[4] or block[3])
                for line in script.splitlines():
                    yield from (Command(page, words, True) for words in _commands(line.strip().removeprefix("$ ")))
        prose = _BLOCK.sub("\n", text)
        for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose):
            yield from (Command(page, words, False) for words in _commands(" ".join(code.split())))


def scripts() -> Iterator[Command]:
    """Of shell files that the site shows."""
    for path in sorted((ROOT / "docs").rglob("*.sh")):
        for line in re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8")).splitlines():
            yield from (Command(path.relative_to(ROOT).as_posix(), words, True) for words in _commands(line.strip()))


def _commands(line: str) -> Iterator[tuple[str, ...]]:
    """Each command of ours in a line, without redirections. A variable stands for a number or a part of a word, and for any
    words or none where it stands alone without quotes."""
    if not any(program in line for program in PROGRAMS):
        return
    line = re.sub(r"(?<!\S)(--?[\w-]+ )?\$\w+(?!\S)", lambda alone: f"{alone[1]}1" if alone[1] else "", line)
    lexer = shlex.shlex(re.sub(r"\$\{?\w+\}?", "1", line), posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "#", True
    try:
        words = list(lexer)
    except ValueError:  # a quote that does not end: it is prose
        return
    command: list[str] = []
    for word in [*words, ";"]:
        if word not in _BETWEEN:
            command.append(word)
            continue
        while command and re.fullmatch(r"\w+=\S*", command[0]):  # set for this command alone
            del command[0]
        if command and Path(command[0]).name in PROGRAMS:
            end = next((i for i, word in enumerate(command) if word in ("<", ">", ">>")), len(command))
            yield (Path(command[0]).name, *command[1:end])
        command = []
