"""Borderless tables and prose of plain text: no cell, title or remark can hold markup or control a terminal.

What is printed fits the terminal: prose wraps at words, tables as `fitting` says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.text import Text

from forgetscope.characters import visible, wrapped
from forgetscope.report.terminal.fitting import TextColumn, fit
from forgetscope.report.words.definitions import definitions

Head = str | tuple[str, ...]  # of several lines
SHORTER = {"spread": "true spread"}  # words in heads, and the terms that define them


class Prose:
    """Text as it is, whatever it holds, wrapped at words."""

    def __init__(self, text: str, style: str = "") -> None:
        self.text, self.style = visible(text), style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in wrapped(self.text, options.max_width, cell_len):
            yield _line(line, self.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(max(map(cell_len, self.text.split()), default=0), cell_len(self.text))


class PlainTable:
    """Names to the left and numbers to the right, under dim heads."""

    def __init__(self) -> None:
        self.columns: list[TextColumn] = []
        self.styles: list[str] = []

    def add_column(self, head: Head, *, number: bool = False, setting: bool = False) -> None:
        """setting: of columns that are said once instead where they are the same in every row."""
        parts = (head,) if isinstance(head, str) else head
        self.columns.append(TextColumn("\n".join(map(visible, parts)), number, setting))

    def add_row(self, *cells: str, style: str = "") -> None:
        """Of fewer cells than columns the rest stays empty."""
        for column, cell in zip_longest(self.columns, cells, fillvalue=""):
            assert isinstance(column, TextColumn), "more cells than columns"
            column.cells.append(visible(cell))
        self.styles.append(style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.columns:
            return
        fitted = fit(self.columns, self.styles, options.max_width)
        for text, style in fitted.lines:
            yield _line(text, style)
        if fitted.common:
            yield Prose(f"In every row: {', '.join(fitted.common)}", "dim")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(self.natural, options.max_width), self.natural)

    @property
    def natural(self) -> int:
        """Its width where nothing is wrapped."""
        return (
            max((cell_len(text) for text, _ in fit(self.columns, self.styles, 10**9).lines), default=0) if self.columns else 0
        )


def plain(text: str, style: str = "") -> Prose:
    return Prose(text, style)


def make_table(names: Iterable[Head], numbers: Iterable[Head], settings: Iterable[str] = ()) -> PlainTable:
    """A table of left-aligned names, then right-aligned numbers. settings: those of them that are said once where all rows
    have the same."""
    table, once = PlainTable(), set(settings)
    for name in names:
        table.add_column(name, setting=name in once)
    for name in numbers:
        table.add_column(name, number=True, setting=name in once)
    return table


def titled(title: str, table: PlainTable, *remarks: str) -> Group:
    return Group(plain(title, "bold"), table, *(plain(remark, "dim") for remark in remarks))


def apart(*parts: RenderableType) -> Group:
    """With an empty line between each two."""
    return Group(*[line for part in parts for line in (Text(), part)][1:])


def legend_line(view: RenderableType) -> str:
    """What the words in the heads of its tables and in their first columns mean, briefly; empty where there are none."""
    found = {SHORTER.get(word, word) for table in _tables(view) for word in _words_of(table)}
    named = {term: word for word, term in SHORTER.items()}
    told = [
        f"{named.get(one.term, one.term)}: {one.brief}" for one in definitions().values() if one.term in found and one.brief
    ]
    return f"{' · '.join(told)} (more: `forgetscope explain {told[0].partition(':')[0]}`)" if told else ""


def widest_table(view: RenderableType) -> int:
    """How wide its tables are as they are."""
    return max((table.natural for table in _tables(view)), default=0)


def _words_of(table: PlainTable) -> set[str]:
    """Defined terms, also those in heads like `ρ SIC`."""
    first = table.columns[0].cells if table.columns else []
    texts = [column.name for column in table.columns] + [cell.strip() for cell in first if not cell[:1].isdigit()]
    return {*texts, *(word for text in texts for word in text.split(" "))}


def _tables(view: RenderableType) -> Iterator[PlainTable]:
    if isinstance(view, PlainTable):
        yield view
    elif isinstance(view, Group):
        for part in view.renderables:
            yield from _tables(part)


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ignore")
