"""Borderless tables of plain text: no cell, title or remark can hold markup or control a terminal."""

from collections.abc import Iterable
from typing import Any

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


class PlainTable(Table):
    """A table whose rows hold text as it is: rich would read a string as markup."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def make_table(names: Iterable[str | Text], numbers: Iterable[str | Text]) -> PlainTable:
    """A table of left-aligned names, then right-aligned numbers."""
    table = PlainTable(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(_heading(name), overflow="fold")
    for name in numbers:
        table.add_column(_heading(name), justify="right", no_wrap=True)
    return table


def titled(title: str, table: Table, *remarks: str) -> RenderableType:
    # Not rich's own titles and captions: those wrap at the table's width, which may be narrow.
    return Group(plain(title, "bold"), table, *(plain(remark, "dim") for remark in remarks))


def apart(*parts: RenderableType) -> RenderableType:
    """With an empty line between each two."""
    return Group(*[line for part in parts for line in (Text(), part)][1:])


def _heading(text: str | Text) -> Text:
    return plain(text) if isinstance(text, str) else text
