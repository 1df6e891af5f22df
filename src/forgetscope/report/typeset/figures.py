"""The paper's figures for print, drawn from an analysis' frames. Nothing is estimated here."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from forgetscope.analysis.exhibits.exhibit import Kind
from forgetscope.analysis.results import Analysis
from forgetscope.analysis.rows import matching, records
from forgetscope.report.exhibited import exhibited
from forgetscope.report.typeset.ink import (
    BLUE,
    GREEN,
    GREY,
    LINES,
    ORANGE,
    PURPLE,
    SKY,
    SMALL,
    VERMILION,
    Area,
    printing,
    shown,
)
from forgetscope.report.words.captions import (
    benchmark_title,
    boxes_caption,
    course_caption,
    origin,
    share_text,
    subset_text,
    swarms_caption,
)

WIDTH = 7.16  # inches: both columns of an IEEE page
TALLEST = 8.4  # inches: what fits on a page with a caption
POINTS = 72  # in an inch
DOT = 2.4  # points: diameter of a class, where there is room
Dashes = Literal["-", "--"]
COLUMNS = ("SIC", "CIC", "NIC")
CURVES: dict[str, tuple[str, str, Dashes]] = {"rho": ("ρ", LINES[0], "-"), "rho_p": ("ρₚ", LINES[2], "--")}
FILLS = (SKY, ORANGE, GREEN, PURPLE, VERMILION, BLUE)
# Columns of `controlled_boxes` under matplotlib's names.
BXP = {"med": "median", "q1": "quartile_lo", "q3": "quartile_hi", "whislo": "whisker_lo", "whishi": "whisker_hi"}
SHRINK = 0.9  # how much smaller the next size of discs is that is tried
QUARTER = 25  # per cent of training, which the paper finds to be enough


@dataclass(frozen=True)
class Drawing(ABC):
    """One figure: `name` is for files, `caption` is plain text, `frame` holds what is drawn, `beside` what it also takes."""

    name: str
    caption: str
    frame: pd.DataFrame
    beside: pd.DataFrame | None = None
    simulated: bool = False
    value: ClassVar[str]  # the column without which there is nothing to draw
    together: ClassVar[bool] = False  # all benchmarks in one figure

    @staticmethod
    @abstractmethod
    def describe(frame: pd.DataFrame) -> str:
        """Its caption."""

    @abstractmethod
    def height(self, width: float) -> float:
        """Inches."""

    @abstractmethod
    def draw(self, area: Area) -> None: ...

    def figure(self, width: float = WIDTH) -> Figure:
        """Alone, so many inches wide. To be saved within `printing()`."""
        with printing():
            area = Area.whole(width, self.height(width))
            self.draw(area)
            if self.simulated:  # a picture is passed on without its caption
                area.text(0.03, area.height - 0.03, "Simulated", size=SMALL, weight="bold", va="top")
        return area.figure


class Swarms(Drawing):
    """A panel per partition; a swarm per step, a disc per past class."""

    value, describe = "forgetting", staticmethod(swarms_caption)
    left, bottom, top, gap = 0.62, 0.42, 0.2, 0.1

    def height(self, width: float) -> float:
        rows, columns = (self.frame[name].nunique() for name in ("rehearsal_pct", "class_pct"))
        panel = 0.75 * (width - self.left - self.gap * columns) / max(columns, 3)
        return min(TALLEST, self.bottom + self.top + rows * (panel + self.gap))

    def draw(self, area: Area) -> None:
        retentions, increments = (self.frame[name].unique().tolist() for name in ("rehearsal_pct", "class_pct"))
        rows, columns = len(retentions), len(increments)
        width = (area.width - self.left) / columns - self.gap
        height = (area.height - self.bottom - self.top) / rows - self.gap
        low, high = _limits(self.frame["forgetting"], include=(0.0,))
        lanes = int(self.frame["swarm"].max())
        known = self.frame.dropna(subset="forgetting")
        swarms = [group for _, group in known.groupby(["rehearsal_pct", "class_pct", "swarm"], sort=False)]
        values = [group["forgetting"].to_numpy(np.float64) for group in swarms]
        scale = height * POINTS / (high - low)
        diameter, sideways = fitted([value * scale for value in values], width * POINTS / lanes, DOT)
        panels = {}
        for row, retention in enumerate(retentions):
            for column, increment in enumerate(increments):
                bottom = self.bottom + (rows - 1 - row) * (height + self.gap)
                axes = area.axes(self.left + column * (width + self.gap), bottom, width, height)
                axes.set(xlim=(0.5, lanes + 0.5), ylim=(low, high), xticks=range(1, lanes + 1))
                axes.axhline(0, color=GREY, linewidth=0.5, zorder=0)
                axes.tick_params(labelbottom=row == rows - 1, labelleft=column == 0)
                if row == 0:
                    axes.set_title(shown(f"{share_text(increment)} new classes"))
                if column == 0:
                    axes.set_ylabel(shown(f"{share_text(retention)} kept\nforgetting FG"))
                panels[retention, increment] = axes
        _below(area, self.left, "step, drawn at random")
        for group, value, aside in zip(swarms, values, sideways, strict=True):
            first = group.iloc[0]
            across = first["swarm"] + aside * lanes / (width * POINTS)
            axes = panels[first["rehearsal_pct"], first["class_pct"]]
            axes.scatter(across, value, s=(0.92 * diameter) ** 2, color=BLUE, linewidths=0)


class Curves(Drawing):
    """As in the paper, a row per subset of steps and a column per coefficient: means of both correlations along training, in a
    band of one standard deviation over steps, and within it the mean's interval."""

    value, describe = "mean", staticmethod(course_caption)
    left, bottom, top, gap = 0.74, 0.42, 0.4, 0.12

    def height(self, width: float) -> float:
        panel = 0.8 * (width - self.left) / len(COLUMNS)
        return min(TALLEST, self.bottom + self.top + len(self._subsets) * (max(1.2, panel) + self.gap))

    def draw(self, area: Area) -> None:
        rows, drawn = self._subsets, self.frame[self.frame["quantity"].isin(COLUMNS) & self.frame["statistic"].isin([*CURVES])]
        width = (area.width - self.left) / len(COLUMNS) - self.gap
        height = (area.height - self.bottom - self.top) / len(rows) - self.gap
        spread = (drawn["mean"] + sign * drawn["sd"].fillna(0) for sign in (-1, 1))
        low, high = _limits(pd.concat([*spread, drawn["mean_lo"]]).clip(-1, 1), include=(0.0, 1.0))
        for row, subset in enumerate(rows):
            for column, name in enumerate(COLUMNS):
                bottom = self.bottom + (len(rows) - 1 - row) * (height + self.gap)
                axes = area.axes(self.left + column * (width + self.gap), bottom, width, height)
                axes.set(xlim=(0, 100), ylim=(low, high), xticks=(QUARTER, 50, 75))
                self._panel(axes, subset, name)
                axes.tick_params(labelbottom=row == len(rows) - 1, labelleft=column == 0)
                if row == 0:
                    axes.set_title(name)
                if column == 0:
                    axes.set_ylabel(shown(subset_text(subset).replace(", ", "\n", 1)))
        _below(area, self.left, "share of training whose probes are used (%)")
        handles = [Line2D([], [], color=color, linestyle=style, label=text) for text, color, style in CURVES.values()]
        _legend(area, handles, handlelength=3.2)

    def _panel(self, axes: Axes, subset: str, name: str) -> None:
        axes.axhline(0, color=GREY, linewidth=0.5, zorder=0)
        axes.axvline(QUARTER, color=GREY, linewidth=0.6, linestyle=":", zorder=0)
        known = False
        for statistic, (text, color, style) in CURVES.items():
            curve = matching(self.frame, subset=subset, quantity=name, statistic=statistic)
            share, mean, sd = (curve[column].to_numpy(np.float64) for column in ("share", "mean", "sd"))
            interval = (curve["mean_lo"].to_numpy(), curve["mean_hi"].to_numpy())
            for ends, alpha in (((mean - sd, mean + sd), 0.15), (interval, 0.3)):
                axes.fill_between(100 * share, *ends, color=color, alpha=alpha, lw=0)
            axes.plot(100 * share, mean, color=color, linestyle=style, linewidth=1.1, label=text)
            known |= bool(curve["mean"].notna().any())
        if not known:
            axes.text(0.5, 0.5, "no value", color=GREY, ha="center", va="center", transform=axes.transAxes)

    @property
    def _subsets(self) -> list[str]:
        return list(dict.fromkeys(self.frame["subset"]))


class Boxes(Drawing):
    """A panel per benchmark and step number; a box per partition, a dot per past class."""

    value, describe, together = "rho", staticmethod(boxes_caption), True
    left, bottom, top, gap = 0.62, 0.42, 0.16, 0.36
    between = 0.12

    def height(self, width: float) -> float:
        rows = self.frame.groupby(["benchmark", "policy"]).ngroups
        return min(TALLEST, self.bottom + self.top + rows * (0.3 * max(width, 5.0) + self.gap))

    def draw(self, area: Area) -> None:
        steps = list(dict.fromkeys(self.frame["subset"]))
        increments = list(dict.fromkeys(self.frame["class_pct"]))
        groups = [group for _, group in self.frame.groupby(["benchmark", "policy"], sort=False)]
        rows = len(groups)
        low, high = _limits(self.frame["rho"], include=(0.0, 1.0))
        width = (area.width - self.left) / len(steps) - self.between
        height = (area.height - self.bottom - self.top) / rows - self.gap
        for row, group in enumerate(groups):
            for column, step in enumerate(steps):
                bottom = self.bottom + (rows - 1 - row) * (height + self.gap)
                axes = area.axes(self.left + column * (width + self.between), bottom, width, height)
                axes.set_ylim(low, high)
                self._panel(axes, matching(group, subset=step), increments, width * POINTS, height * POINTS / (high - low))
                axes.set_title(shown(f"{benchmark_title(group)}, step {step}"), pad=3)
                axes.tick_params(labelleft=column == 0)
                if column == 0:
                    axes.set_ylabel("ρ of NIC and SIC")
        _below(area, self.left, "share of images kept")
        handles = [
            Patch(facecolor=fill, edgecolor="black", linewidth=0.6, label=shown(f"{share_text(level)} new classes"))
            for level, fill in zip(increments, cycle(FILLS), strict=False)
        ]
        _legend(area, handles)

    def _panel(self, axes: Axes, classes: pd.DataFrame, increments: Sequence[str], width: float, scale: float) -> None:
        """width: points; scale: points per unit of ρ."""
        classes = classes.dropna(subset="rho")
        here = classes[["benchmark", "policy", "subset"]].drop_duplicates()
        boxes = classes[:0] if self.beside is None else self.beside.merge(here)
        retentions = list(dict.fromkeys(boxes["rehearsal_pct"]))
        slots = max(1, len(retentions)) * (len(increments) + 0.5)  # boxes stand at whole numbers, groups half a slot apart
        axes.axhline(0, color=GREY, linewidth=0.5, zorder=0)
        axes.set(xlim=(-0.75, slots - 0.75), xticks=[])
        if boxes.empty:
            axes.text(0.5, 0.5, "none in the store", color=GREY, ha="center", va="center", transform=axes.transAxes)
            return
        places = {
            (retention, increment): i * (len(increments) + 0.5) + j
            for i, retention in enumerate(retentions)
            for j, increment in enumerate(increments)
        }
        for row in records(boxes):
            box = {name: row[column] for name, column in BXP.items()}
            place = places[row["rehearsal_pct"], row["class_pct"]]
            axes.bxp([box], positions=[place], widths=0.72, showfliers=False, patch_artist=True, manage_ticks=False,
                     boxprops={"facecolor": FILLS[increments.index(row["class_pct"]) % len(FILLS)], "linewidth": 0.6},
                     medianprops={"color": "black", "linewidth": 1.4}, whiskerprops={"linewidth": 0.6},
                     capprops={"linewidth": 0.6})  # fmt: skip
        groups = [group for _, group in classes.groupby(["rehearsal_pct", "class_pct"], sort=False)]
        values = [group["rho"].to_numpy(np.float64) for group in groups]
        diameter, sideways = fitted([value * scale for value in values], 0.9 * width / slots, 0.8 * DOT)
        for group, value, aside in zip(groups, values, sideways, strict=True):
            first = group.iloc[0]
            across = places[first["rehearsal_pct"], first["class_pct"]] + aside * slots / width
            axes.scatter(across, value, s=(0.92 * diameter) ** 2, color="black", linewidths=0, zorder=3)
        middles = [i * (len(increments) + 0.5) + (len(increments) - 1) / 2 for i in range(len(retentions))]
        axes.set_xticks(middles, [shown(share_text(level)) for level in retentions])


def offsets(heights: NDArray[np.float64], diameter: float) -> NDArray[np.float64]:
    """How far to the side of the middle line each disc lies, in the unit of the heights.

    From the lowest disc up, each goes to the free place that is nearest to the middle; of two, to the left one."""
    placed = np.zeros(len(heights))
    order = np.argsort(heights, kind="stable")
    for position, i in enumerate(order):
        below = order[:position]
        near = below[heights[i] - heights[below] < diameter]
        reach = np.sqrt(np.maximum(0.0, diameter**2 - (heights[i] - heights[near]) ** 2))
        places = np.concatenate([[0.0], placed[near] - reach, placed[near] + reach])
        taken = np.abs(places[:, None] - placed[near]) < reach - 1e-9 * diameter
        free = places[~taken.any(axis=1)]  # never empty: beyond the outermost disc there is room
        placed[i] = free[np.lexsort((free, np.abs(free).round(9)))[0]]
    return placed


def fitted(swarms: Sequence[NDArray[np.float64]], width: float, largest: float) -> tuple[float, list[NDArray[np.float64]]]:
    """The largest diameter up to `largest` with which every swarm fits into a lane of this width; and the offsets."""
    diameter = largest
    while True:
        found = [offsets(heights, diameter) for heights in swarms]
        if all(2 * np.abs(placed).max(initial=0.0) + diameter <= width for placed in found):
            return diameter, found
        diameter *= SHRINK


def _limits(values: pd.Series[float], include: Sequence[float]) -> tuple[float, float]:
    """Of an axis that shows all values, with a little room."""
    known = [*values.dropna().tolist(), *include]
    low, high = min(known), max(known)
    room = 0.04 * ((high - low) or 1.0)
    return low - room, high + room


def _below(area: Area, left: float, text: str) -> None:
    """One label for the horizontal axes of all panels: in one column of a paper there is no room for one each."""
    area.text((left + area.width) / 2, 0.08, text, ha="center", va="bottom")


def _legend(area: Area, handles: Sequence[Artist], **options: float) -> None:
    """Above all panels."""
    middle, top = area.left + area.width / 2, area.bottom + area.height
    place = {"bbox_to_anchor": (middle, top), "bbox_transform": area.figure.dpi_scale_trans, "borderaxespad": 0.3}
    area.figure.legend(handles=handles, loc="upper center", ncols=len(handles), **place, **options)


def drawings(analysis: Analysis) -> list[Drawing]:
    """Every figure that the store has something for: per benchmark and policy, in the paper's order."""
    found: list[Drawing] = []
    for one in exhibited(analysis):
        if one.exhibit.kind not in DRAWN or not one.frame[DRAWN[one.exhibit.kind].value].notna().any():
            continue
        drawn, name = DRAWN[one.exhibit.kind], re.sub(r"[^A-Za-z0-9_-]+", "-", one.exhibit.name)
        each = one.frame.groupby(["benchmark", "policy"], sort=False)
        for number, group in enumerate([one.frame] if drawn.together else [group for _, group in each], start=1):
            made = origin(analysis.collection, group)
            own = name if number == 1 else f"{name}-{number}"
            found.append(drawn(own, drawn.describe(group) + made, group, one.beside, simulated=bool(made)))
    return found


DRAWN: dict[Kind, type[Drawing]] = {"swarm": Swarms, "course": Curves, "boxes": Boxes}
