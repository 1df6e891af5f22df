"""The picture of the first screen: every past class of the step that stands for the finding, by forgetting, as bars.

Only places and texts: the template makes markup of them, so that it is painted before any script runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from forgetscope.analysis.questions.example import WORST, Example, PastClass
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.opening import change

LINES = 24  # classes that have a line each; more stand side by side
TICKS = (0.1, 0.2, 0.25, 0.5, 1.0)  # distances, of which the first with at most five marks is taken


@dataclass(frozen=True)
class Bar:
    """A class; places are in percent of the scale. `band` is from where to how far it would reach by noise alone."""

    past: PastClass
    said: str  # such as `lost 44 %`
    accuracies: str
    narrow: str  # the same in points of percent, for a phone
    start: float
    length: float
    band: tuple[float, float] | None
    clipped: str  # `left` or `right` where it reaches beyond the scale
    kind: (
        str  # beside the band: `more`, `alike`, `less`; `barely` learned; `unknown`; or `unjudged`, where nothing is concluded
    )


@dataclass(frozen=True)
class Picture:
    step: str  # as addresses name it
    bars: list[Bar]
    ticks: list[tuple[float, str]]
    zero: float

    @property
    def worst(self) -> list[Bar]:
        """The most forgotten, of those that were forgotten at all, and not clearly less than the average."""
        known = [bar for bar in self.bars if bar.kind != "barely" and math.isfinite(bar.past.forgetting)]
        return [bar for bar in known[:WORST] if bar.kind != "less" and bar.past.forgetting > 0]

    @property
    def side_by_side(self) -> bool:
        return len(self.bars) > LINES

    @property
    def kinds(self) -> set[str]:
        return {bar.kind for bar in self.bars}

    @property
    def noise(self) -> bool:
        return any(bar.band for bar in self.bars)


def picture(example: Example, *, conclusive: bool = True) -> Picture:
    """Bars are on one scale, of the share of the accuracy that was lost: all of it at most, and at least minus that.
    conclusive: whether anything is concluded from its classes; else none is told from the others."""
    clear = [one for one in example.classes if not one.barely_learned and math.isfinite(one.forgetting)]
    mean = sum(one.forgetting for one in clear) / len(clear) if clear else math.nan
    ends = [0.0, *(one.forgetting for one in clear), *(end for one in clear for end in _alike(one, mean))]
    low, high = max(-1.0, math.floor(10 * min(ends)) / 10), min(1.0, max(0.1, math.ceil(10 * max(ends)) / 10))

    def place(value: float) -> float:
        return round(100 * (min(high, max(low, value)) - low) / (high - low), 2)

    bars = []
    for one in example.classes:
        forgotten = one.forgetting if math.isfinite(one.forgetting) else 0.0
        band = tuple(place(end) for end in _alike(one, mean))
        start, end = sorted((place(0.0), place(forgotten)))
        bars.append(
            Bar(
                past=one,
                said=change(one.forgetting) if math.isfinite(one.forgetting) else "unknown",
                accuracies=f"{PLAIN.percent(one.learned)} → {PLAIN.percent(one.now)}",
                narrow=f"{PLAIN.number(100 * one.learned, 0)}→{PLAIN.number(100 * one.now, 0)}",
                start=start,
                length=round(end - start, 2),
                band=(band[0], round(band[1] - band[0], 2)) if band else None,
                clipped="left" if forgotten < low else "right" if forgotten > high else "",
                kind=_kind(one, mean, conclusive),
            )
        )
    return Picture(example.step[:8], bars, list(_ticks(low, high)), place(0.0))


def _alike(one: PastClass, mean: float) -> tuple[float, ...]:
    """Within which its forgetting would be, had it been forgotten as all are on average; empty where noise is unknown."""
    reach = one.forgetting - one.low
    return () if one.barely_learned or not math.isfinite(reach + mean) else (mean - reach, mean + reach)


def _kind(one: PastClass, mean: float, conclusive: bool) -> str:
    if one.barely_learned:
        return "barely"
    if not conclusive:
        return "unjudged"
    band = _alike(one, mean)
    if not band:
        return "unknown"
    return "more" if one.forgetting > band[1] else "less" if one.forgetting < band[0] else "alike"


def _ticks(low: float, high: float) -> Iterator[tuple[float, str]]:
    distance = next(one for one in TICKS if (high - low) / one <= 4.01)
    for k in range(math.ceil(round(low / distance, 6)), math.floor(round(high / distance, 6)) + 1):
        yield round(100 * (k * distance - low) / (high - low), 2), PLAIN.percent(k * distance)
