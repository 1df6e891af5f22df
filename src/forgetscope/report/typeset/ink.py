"""How everything that is printed looks, and text that stays text.

Whatever is drawn and saved within `printing()` has the same bytes whenever the numbers are the same: a user's own settings of
matplotlib play no part, and files carry no date. Names are never read as mathematics, and text stays text in vector files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import IO, Literal

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font

from forgetscope.characters import visible

FONT = "DejaVu Sans"  # comes with matplotlib
TEXT, SMALL = 7.0, 5.6  # points
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
BLUE, VERMILION, GREEN, SKY, ORANGE, PURPLE = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#E69F00", "#CC79A7"
GREY = "#767676"
LINES = (BLUE, "#00795A", "#B84E00", "#A03D78")  # first, second, ... line: as on pages in light colours
STYLE = {
    "font.family": FONT,
    "font.size": TEXT,
    "text.parse_math": False,  # a class called `$\frac` is called so
    "axes.titlesize": TEXT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "forgetscope",
    "pdf.fonttype": 42,
}
# Without a date, and without the version of matplotlib, that a file would otherwise carry.
UNDATED: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": "forgetscope", "Producer": None},
    "svg": {"Date": None, "Creator": "forgetscope"},
    "png": {"Software": "forgetscope"},
}
DPI = 300


@contextmanager
def printing() -> Iterator[None]:
    with matplotlib.style.context(["default", STYLE]):
        yield


def save(figure: Figure, file: IO[bytes], format: Literal["pdf", "svg", "png"]) -> None:
    figure.savefig(file, format=format, dpi=DPI, metadata=UNDATED[format])


@dataclass(frozen=True)
class Area:
    """A part of a figure. Lengths are inches, from its lower left corner."""

    figure: Figure
    left: float
    bottom: float
    width: float
    height: float

    @classmethod
    def whole(cls, width: float, height: float) -> Area:
        return cls(Figure(figsize=(width, height)), 0.0, 0.0, width, height)

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        across, up = self.figure.get_size_inches()
        return self.figure.add_axes((*self._place(left, bottom), width / across, height / up))

    def text(self, left: float, bottom: float, text: str, **options: object) -> None:
        self.figure.text(*self._place(left, bottom), shown(text), **options)  # type: ignore[arg-type]

    def _place(self, left: float, bottom: float) -> tuple[float, float]:
        across, up = self.figure.get_size_inches()
        return (self.left + left) / across, (self.bottom + bottom) / up


def shown(text: str) -> str:
    """Text that the font can show: what it lacks is named by its number, what steers a terminal is escaped."""
    return "".join(c if ord(c) in _characters() or c == "\n" else f"U+{ord(c):04X}" for c in visible(text, lines=True))


@cache
def _characters() -> frozenset[int]:
    return frozenset(FT2Font(findfont(FontProperties(family=FONT))).get_charmap())
