"""Pages of text, figures and tables without LaTeX: filled from the top; what does not fit begins the next page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path

from forgetscope.report.typeset.figures import POINTS, Drawing
from forgetscope.report.typeset.ink import FONT, GREY, SMALL, TEXT, Area, shown
from forgetscope.report.typeset.layout import Line, TableCell, Tabular
from forgetscope.report.words.captions import EMPTY
from forgetscope.report.words.notation import Notation

PAPER = (8.27, 11.69)  # inches: A4
MARGIN = 0.72
WIDTH = PAPER[0] - 2 * MARGIN
LEADING = 1.4  # height of a line of text over its size
COLUMN_GAP = 9.0  # points
BOX_GAP = 0.1  # inches between a frame and what is in it
CAPTION_GAP = 0.04  # inches between a table and what is said above it


class PrintNotation(Notation):
    """What the font cannot show is named."""

    def text(self, text: str) -> str:
        return shown(text)


class Pages:
    """A document in the making. To be used within `printing()`."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self.turn()

    def turn(self) -> None:
        """Begin a new page."""
        self._area = Area.whole(*PAPER)
        self.figures.append(self._area.figure)
        self._top = PAPER[1] - MARGIN  # inches above the lower edge: where the next thing begins

    def skip(self, inches: float) -> None:
        self._top -= inches

    def write(self, text: str, size: float = TEXT, *, bold: bool = False, color: str = "black") -> None:
        """A paragraph; its lines are broken to fit."""
        for line in wrapped(text, WIDTH * POINTS, size, bold):
            self._need(size * LEADING / POINTS)
            weight = "bold" if bold else "normal"
            self._area.text(MARGIN, self._top, line, size=size, weight=weight, color=color, va="top")
            self._top -= size * LEADING / POINTS

    def box(self, title: str, paragraphs: Sequence[str]) -> None:
        """Short paragraphs within a frame, which stands on one page."""
        inner, leading = WIDTH - 2 * BOX_GAP, TEXT * LEADING / POINTS
        lines = [line for text in paragraphs for line in wrapped(text, inner * POINTS, TEXT)]
        height = 2 * BOX_GAP + (len(lines) + 1.5) * leading
        self._need(height)
        across, up = PAPER
        corner, extent = (MARGIN / across, (self._top - height) / up), (WIDTH / across, height / up)
        frame = Rectangle(corner, *extent, fill=False, edgecolor=GREY, linewidth=0.6, transform=self._area.figure.transFigure)
        self._area.figure.add_artist(frame)
        self._area.text(MARGIN + BOX_GAP, self._top - BOX_GAP, title, size=TEXT, weight="bold", va="top")
        for number, line in enumerate(lines):
            self._area.text(MARGIN + BOX_GAP, self._top - BOX_GAP - (number + 1.5) * leading, line, size=TEXT, va="top")
        self._top -= height

    def draw(self, drawing: Drawing, heading: str) -> None:
        """A figure with its caption below."""
        height = drawing.height(WIDTH)
        text = f"{heading}. {drawing.caption}"
        self._need(height + (len(list(wrapped(text, WIDTH * POINTS, TEXT))) + 1) * TEXT * LEADING / POINTS)
        drawing.draw(Area(self._area.figure, MARGIN, self._top - height, WIDTH, height))
        self._top -= height
        self.write(text)
        self.skip(0.3)

    def tabulate(self, text: str, layout: Tabular) -> None:
        """A table below its caption. If it fits on a page, it stands on one; otherwise its head is repeated."""
        table = _Table(layout)
        above = len(list(wrapped(text, WIDTH * POINTS, TEXT))) * TEXT * LEADING / POINTS + CAPTION_GAP
        if above + table.height <= PAPER[1] - 2 * MARGIN:
            self._need(above + table.height)
        self.write(text)
        self.skip(CAPTION_GAP)
        if not layout.lines:
            self.write(EMPTY, color=GREY)
        else:
            self._tabulate(table)
        self.skip(0.3)

    def number(self) -> None:
        """Put its number on every page; to be called last."""
        for number, figure in enumerate(self.figures, start=1):
            figure.text(0.5, 0.5 * MARGIN / PAPER[1], f"{number} of {len(self.figures)}", ha="center", va="center", color=GREY)

    def _tabulate(self, table: _Table) -> None:
        self._rule(0.8, table.width)
        for line in table.head:
            self._line(table, line)
        for line in table.body:
            if self._top - table.line_height(line) < MARGIN:
                self._rule(0.8, table.width)
                self.turn()
                self._rule(0.8, table.width)
                for head in table.head:
                    self._line(table, head)
            if line.role != "row":
                self._rule(0.4, table.width)
            self._line(table, line)
        self._rule(0.8, table.width)

    def _line(self, table: _Table, line: Line) -> None:
        middle = self._top - table.line_height(line) / 2
        weight = "bold" if line.role == "benchmark" else "normal"
        for cell, left, width, align in table.places(line):
            main, *below = cell.text.split("\n")
            across = MARGIN + left + {"l": 0.0, "c": width / 2, "r": width}[align]
            side = {"l": "left", "c": "center", "r": "right"}[align]
            raised = 0.5 * table.scale * SMALL * LEADING / POINTS if below else 0.0
            self._area.text(
                across, middle + raised, main, size=table.scale * TEXT, ha=side, va="center_baseline", weight=weight
            )
            for text in below:
                lowered = middle - 0.5 * table.scale * TEXT * LEADING / POINTS
                small = {"size": table.scale * SMALL, "color": GREY}
                self._area.text(across, lowered, text, ha=side, va="center_baseline", **small)
        self._top -= table.line_height(line)

    def _rule(self, thickness: float, width: float) -> None:
        across, up = PAPER
        ends, height = (MARGIN / across, (MARGIN + width) / across), self._top / up
        rule = Line2D(ends, (height, height), color="black", linewidth=thickness, transform=self._area.figure.transFigure)
        self._area.figure.add_artist(rule)

    def _need(self, height: float) -> None:
        """A new page, unless so many inches are left on this one."""
        if self._top - height < MARGIN and self._top < PAPER[1] - MARGIN:
            self.turn()


class _Table:
    """Where the cells of a table go: columns as wide as what they hold, all smaller where the page is not wide enough."""

    def __init__(self, layout: Tabular) -> None:
        self.columns = layout.columns
        self.head = [line for line in layout.lines if line.role == "head"]
        self.body = [line for line in layout.lines if line.role != "head"]
        natural = [0.0] * len(layout.columns)  # points
        for line in layout.lines:
            for cell, position in _positions(line):
                if line.role in ("head", "row"):
                    main, *below = cell.text.split("\n")
                    widest = max(text_width(main, TEXT), *(text_width(text, SMALL) for text in below), 0.0)
                    needed = widest / cell.span - COLUMN_GAP * (cell.span - 1) / cell.span
                    for column in range(position, position + cell.span):
                        natural[column] = max(natural[column], needed)
        total = sum(natural) + COLUMN_GAP * max(0, len(natural) - 1)
        self.scale = min(1.0, WIDTH * POINTS / total) if total else 1.0
        self._widths = [self.scale * width / POINTS for width in natural]
        self._gap = self.scale * COLUMN_GAP / POINTS
        self.width = self.scale * total / POINTS
        self.height = sum(map(self.line_height, layout.lines))

    def line_height(self, line: Line) -> float:
        """Inches."""
        double = any("\n" in cell.text for cell in line.cells)
        return self.scale * LEADING * (TEXT * 1.1 + (SMALL * 1.1 if double else 0.0)) / POINTS

    def places(self, line: Line) -> Iterator[tuple[TableCell, float, float, str]]:
        """Each cell with its left edge, its width and its alignment."""
        for cell, position in _positions(line):
            left = sum(self._widths[:position]) + self._gap * position
            width = sum(self._widths[position : position + cell.span]) + self._gap * (cell.span - 1)
            whole = line.role in ("benchmark", "step")  # what stands over a part of a table begins at its left
            yield cell, left, width, "l" if whole else "c" if cell.span > 1 else self.columns[position]


def _positions(line: Line) -> Iterator[tuple[TableCell, int]]:
    position = 0
    for cell in line.cells:
        yield cell, position
        position += cell.span


def wrapped(text: str, width: float, size: float, bold: bool = False) -> Iterator[str]:
    """Lines of at most this width in points; a word that is longer is broken anywhere."""
    line = ""
    for word in _pieces(shown(text).split(" "), width, size, bold):
        longer = f"{line} {word}" if line else word
        if line and text_width(longer, size, bold) > width:
            yield line
            longer = word
        line = longer
    yield line


def _pieces(words: Sequence[str], width: float, size: float, bold: bool) -> Iterator[str]:
    for word in words:
        rest = word
        while text_width(rest, size, bold) > width:
            fitting = max(1, next(n for n in range(1, len(rest) + 1) if text_width(rest[:n], size, bold) > width) - 1)
            yield rest[:fitting]
            rest = rest[fitting:]
        yield rest


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Points."""
    return size * sum(_advance(character, bold) for character in text)


@cache
def _advance(character: str, bold: bool) -> float:
    """Of one character, over its size. Without kerning, which makes lines a little shorter than they are taken for."""
    font = FontProperties(family=FONT, size=100, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(character, font, False)
    return float(width) / 100
