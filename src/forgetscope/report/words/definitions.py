"""What the words mean: a short definition where a word stands, and all about it for whoever asks.

Pages show `short` on focus, hover and tap, terminals under their tables, documents in a box; `forgetscope explain` prints all.
The sentences are in `definitions.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BOX = ("SIC", "CIC", "NIC", "FG", "FG-R", "FG-HG", "ρ", "ρₚ", "step", "partition", "retention", "by noise", "true spread")


@dataclass(frozen=True)
class Definition:
    """Of one word. Whatever there is nothing to say of is empty."""

    term: str  # as it is written in tables
    short: str  # a sentence of at most 160 characters, without the term
    text: str
    brief: str = ""  # a few words for the line under a terminal's tables
    formula: str = ""
    reading: str = ""  # what small, large and negative values say
    acting: str = ""  # what one can do about it
    aliases: tuple[str, ...] = ()  # what else people type


def definitions() -> dict[str, Definition]:
    """By term, in the order of legends and boxes."""
    return _read(False)


def explained() -> dict[str, Definition]:
    """The same, then the everyday words that stand in no legend."""
    return _read(False) | _read(True)


@cache
def _read(everyday: bool) -> dict[str, Definition]:
    every = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    entries = {term: entry for term, entry in every.items() if entry.pop("everyday", False) is everyday}
    return {
        term: Definition(
            term, aliases=tuple(entry.pop("aliases", ())), **{name: " ".join(text.split()) for name, text in entry.items()}
        )
        for term, entry in entries.items()
    }


def boxed() -> list[Definition]:
    """What stands in the box of a document."""
    return [definitions()[term] for term in BOX]


def defined(word: str) -> Definition | None:
    """By term or alias, in any case."""
    wanted = word.strip().casefold()
    named = ((one, {one.term.casefold(), *map(str.casefold, one.aliases)}) for one in explained().values())
    return next((one for one, names in named if wanted in names), None)


def legend(words: Iterable[str]) -> str:
    """A paragraph for what a table has: `SIC: how far ... FG-R: ...`; words that need no definition are passed over."""
    wanted = set(words)
    found = (one for one in definitions().values() if one.term in wanted)
    return " ".join(f"{one.term}: {one.short[0].lower()}{one.short[1:]}" for one in found)
