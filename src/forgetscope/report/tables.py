"""Borderless tables of plain text: no cell, title or remark can hold markup or control a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from forgetscope.characters import visible


def plain(text: str, style: str = "") -> Text:
    """Text as it is, whatever it holds. Newlines stay only where they are put by `lines`."""
    return Text(visible(text), style=style)


def lines(*texts: str) -> Text:
    """Several texts below each other, for a heading."""
    return Text("\n").join(map(plain, texts))


def make_table(names: Iterable[str | Text], numbers: Iterable[str | Text]) -> Table:
    """A table of left-aligned names, then right-aligned numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(_cell(name), overflow="fold")
    for name in numbers:
        table.add_column(_cell(name), justify="right", no_wrap=True)
    return table


def add_row(table: Table, *cells: str | Text, style: str | None = None) -> None:
    table.add_row(*map(_cell, cells), style=style)


def titled(title: str, table: Table, *remarks: str) -> RenderableType:
    # Not rich's own titles and captions: those wrap at the table's width, which may be narrow.
    return Group(plain(title, "bold"), table, *(plain(remark, "dim") for remark in remarks))


def _cell(content: str | Text) -> Text:
    return plain(content) if isinstance(content, str) else content
