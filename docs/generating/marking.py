"""Markdown, as far as what is generated needs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`[^`]*`)")


def code(text: str) -> str:
    return f"`{text}`"


def prose(text: str) -> str:
    """A text that was written for a terminal: no markup but code in backticks; pages that it names become links."""
    parts = _CODE.split(" ".join(text.split()))
    parts[::2] = [_linked(re.sub(r"([*_<>\[\]|$\\])", r"\\\1", part)) for part in parts[::2]]
    return "".join(parts)


def _linked(text: str) -> str:
    return re.sub(r"docs/(\w+\.md)", r"[\1](../\1)", text)


def entry(name: str, text: str) -> str:
    """Of a list of definitions."""
    return f"{name}\n: {prose(text)}\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace(chr(10), ' ') for cell in line)} |\n" for line in lines)
