"""How a table fits a terminal: which columns say the same in every row, which wrap at words, and when the whole is turned.

Everything here is text in cells. No word is ever broken: what fits nowhere gets a line of its own, however long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.cells import cell_len

from forgetscope.characters import wrapped

GAP = 2  # blanks between columns
PROSE = 24  # longer cells are sentences, and get at least so much room
STACKED = 60  # most rows of a table that is cut into parts below each other instead of being turned


@dataclass
class TextColumn:
    head: str  # newlines are kept
    number: bool = False  # to the right, and never wrapped
    setting: bool = False  # said once where it is the same in every row
    cells: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return " ".join(self.head.split())

    @property
    def natural(self) -> int:
        return max(map(cell_len, (*self.head.split("\n"), *self.cells)))

    @property
    def narrowest(self) -> int:
        """With the head wrapped at words, and cells as well where they are no numbers."""
        words = [word for cell in self.cells for word in cell.split(" ")] if not self.number else self.cells
        widest = max(map(cell_len, (*self.head.replace("\n", " ").split(" "), *words)), default=0)
        prose = not self.number and max(map(cell_len, self.cells), default=0) > PROSE
        return min(max(widest, PROSE), self.natural) if prose else widest


Line = tuple[str, str]  # and its style


@dataclass(frozen=True)
class FittedTable:
    """A table as lines, and what all rows have in common."""

    lines: list[Line]
    common: list[str]


def fit(columns: Sequence[TextColumn], styles: Sequence[str], width: int) -> FittedTable:
    """Whatever is least of a change: as it is; without columns that say nothing; wrapped at words; turned."""
    shown, constant = _parted(columns)
    common = [f"{column.name} {column.cells[0]}".strip() for column in constant if column.cells[0].strip()]
    natural = [column.natural for column in shown]
    if _total(natural) <= width:
        return FittedTable(_upright(shown, styles, natural), common)
    if (widths := _squeezed(shown, width)) is not None:
        return FittedTable(_upright(shown, styles, widths), common)
    return FittedTable(_shorter(shown, styles, width), common)


def _parted(columns: Sequence[TextColumn]) -> tuple[list[TextColumn], list[TextColumn]]:
    """Those to show, and settings that are the same in each of several rows; one is shown in any case."""
    gone = [column.setting and len(column.cells) > 1 and len(set(column.cells)) == 1 for column in columns]
    gone[:1] = [False] if all(gone) else gone[:1]
    return [c for c, out in zip(columns, gone, strict=True) if not out], [
        c for c, out in zip(columns, gone, strict=True) if out
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _squeezed(columns: Sequence[TextColumn], width: int) -> list[int] | None:
    """Widths at which heads and sentences are wrapped at words, if that is enough."""
    widths = [column.narrowest for column in columns]
    spare = width - _total(widths)
    if spare < 0:
        return None
    for place in sorted(range(len(columns)), key=lambda i: columns[i].natural - widths[i]):  # nearly whole ones first
        more = min(spare, columns[place].natural - widths[place])
        widths[place] += more
        spare -= more
    return widths


def _upright(columns: Sequence[TextColumn], styles: Sequence[str], widths: Sequence[int]) -> list[Line]:
    lines = []
    if any(column.head for column in columns):
        heads = [_wrapped_lines(column.head, width) for column, width in zip(columns, widths, strict=True)]
        lines += _beside(columns, heads, widths, "dim", at_foot=True)
    for row, style in enumerate(styles):
        cells = [
            [column.cells[row]] if column.number else _wrapped_lines(column.cells[row], width)
            for column, width in zip(columns, widths, strict=True)
        ]
        lines += _beside(columns, cells, widths, style)
    return lines


def _wrapped_lines(text: str, width: int) -> list[str]:
    return [line for part in text.split("\n") for line in wrapped(part, width, cell_len)]


def _beside(
    columns: Sequence[TextColumn], cells: Sequence[list[str]], widths: Sequence[int], style: str, *, at_foot: bool = False
) -> list[Line]:
    """Cells of one or several lines, side by side."""
    height = max(map(len, cells))
    filled = [[""] * (height - len(cell)) + cell if at_foot else cell + [""] * (height - len(cell)) for cell in cells]
    lines = []
    for parts in zip(*filled, strict=True):
        padded = (
            " " * (width - cell_len(part)) + part if column.number else part + " " * (width - cell_len(part))
            for column, part, width in zip(columns, parts, widths, strict=True)
        )
        lines.append(((" " * GAP).join(padded).rstrip(), style))
    return lines


def _shorter(columns: Sequence[TextColumn], styles: Sequence[str], width: int) -> list[Line]:
    """Turned, or in parts below each other that begin with the same column: whichever takes fewer lines."""
    turned = _turned(columns, width)
    stacked = _stacked(columns, styles, width) if len(styles) <= STACKED else None
    return turned if stacked is None or len(turned) < len(stacked) else stacked


def _stacked(columns: Sequence[TextColumn], styles: Sequence[str], width: int) -> list[Line] | None:
    first, others = columns[0], list(columns[1:])
    if any(one == after for one, after in pairwise(first.cells)):
        return None  # rows could not be told apart
    lines: list[Line] = []
    while others:
        count = len(others)
        while count and _total([first.narrowest, *(column.narrowest for column in others[:count])]) > width:
            count -= 1
        if not count:
            return None
        part = [first, *others[:count]]
        widths = _squeezed(part, width)
        assert widths is not None
        lines += [*([("", "")] if lines else []), *_upright(part, styles, widths)]
        others = others[count:]
    return lines


def _turned(columns: Sequence[TextColumn], width: int) -> list[Line]:
    """Rows become columns, as many side by side as fit; heads of columns stand before their values."""
    first, others = columns[0], list(columns[1:])
    heads = [f"{first.name} {cell}".strip() if first.number else cell for cell in first.cells]
    values = [[column.cells[row].replace("\n", " ") for column in others] for row in range(len(heads))]
    label = max([cell_len(column.name) for column in others] + [0])
    lines: list[Line] = []
    start = 0
    while start < len(heads):
        count, room = 0, width - label
        while start + count < len(heads):
            own = max(map(cell_len, (heads[start + count], *values[start + count])), default=0)
            if (room := room - GAP - own) < 0:
                break
            count += 1
        lines += [("", "")] if lines else []
        if count:
            block = slice(start, start + count)
            names = TextColumn("" if first.number else first.name, cells=[column.name for column in others])
            side = [TextColumn(head, True, cells=value) for head, value in zip(heads[block], values[block], strict=True)]
            lines += _upright(
                [names, *side], [""] * len(others), [max(label, cell_len(names.head)), *(c.natural for c in side)]
            )
        else:
            lines += _listed(heads[start], others, values[start], label, width)
        start += max(count, 1)
    return lines


def _listed(head: str, columns: Sequence[TextColumn], values: Sequence[str], label: int, width: int) -> list[Line]:
    """One row as a list; what is too long to stand beside its name stands below it."""
    lines = [(head, "bold")]
    for column, value in zip(columns, values, strict=True):
        name = column.name
        beside = wrapped(value, width - label - GAP, cell_len) if width > label + GAP else [value]
        if all(cell_len(line) <= width - label - GAP for line in beside):
            indents = (name + " " * (label - cell_len(name)), *[" " * label] * (len(beside) - 1))
            lines += [((indent + " " * GAP + line).rstrip(), "") for indent, line in zip(indents, beside, strict=True)]
        else:
            lines += [(name, ""), *((" " * GAP + line, "") for line in wrapped(value, width - GAP, cell_len))]
    return lines
