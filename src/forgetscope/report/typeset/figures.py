"""The paper's figures for print, drawn from an analysis' frames. Nothing is estimated here."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from forgetscope.analysis.exhibits import Kind
from forgetscope.analysis.paper.tables import matching, records
from forgetscope.analysis.results import Analysis
from forgetscope.report.exhibited import exhibited
from forgetscope.report.typeset.ink import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Area, printing, shown
from forgetscope.report.typeset.swarm import fitted
from forgetscope.report.words.captions import benchmark_title, boxes_caption, course_caption, origin, share_text, swarms_caption

WIDTH = 7.16  # inches: both columns of an IEEE page
TALLEST = 8.4  # inches: what fits on a page with a caption
POINTS = 72  # in an inch
DOT = 2.4  # points: diameter of a class, where there is room
Dashes = Literal["-", "--", "-."]
LINES: dict[str, tuple[str, Dashes]] = {"SIC": (BLUE, "-"), "CIC": (VERMILION, "--"), "NIC": (GREEN, "-.")}
FILLS = (SKY, ORANGE, GREEN, PURPLE, VERMILION, BLUE)
# Columns of `controlled_boxes` under matplotlib's names.
BXP = {"med": "median", "q1": "quartile_lo", "q3": "quartile_hi", "whislo": "whisker_lo", "whishi": "whisker_hi"}
QUARTER = 25  # per cent of training, which the paper finds to be enough


@dataclass(frozen=True)
class Drawing(ABC):
    """One figure: `name` is for files, `caption` is plain text, `frame` holds what is drawn, `beside` what it also takes."""

    name: str
    caption: str
    frame: pd.DataFrame
    beside: pd.DataFrame | None = None
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
        return area.figure


class Swarms(Drawing):
    """A panel per partition; a swarm per step, a disc per past class."""

    value, describe = "forgetting", staticmethod(swarms_caption)
    left, bottom, top, gap = 0.62, 0.42, 0.2, 0.1

    def height(self, width: float) -> float:
        rows, columns = len(self.retentions), len(self.increments)
        panel = 0.75 * (width - self.left - self.gap * columns) / max(columns, 3)
        return min(TALLEST, self.bottom + self.top + rows * (panel + self.gap))

    def draw(self, area: Area) -> None:
        rows, columns = len(self.retentions), len(self.increments)
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
        for row, retention in enumerate(self.retentions):
            for column, increment in enumerate(self.increments):
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

    @property
    def retentions(self) -> list[str]:
        return list(dict.fromkeys(self.frame["rehearsal_pct"]))

    @property
    def increments(self) -> list[str]:
        return list(dict.fromkeys(self.frame["class_pct"]))


class Curves(Drawing):
    """A column per step number; means of both correlations with their intervals, then their standard deviations."""

    value, describe = "mean", staticmethod(course_caption)
    left, bottom, top, gap = 0.62, 0.42, 0.26, 0.14
    between = 0.24  # columns: room for the ends of the axes' labels
    rows = (
        ("mean", "rho", "mean ρ", 3),  # the last number is the height
        ("mean", "rho_p", "mean ρₚ", 3),
        ("sd", "rho", "sd of ρ", 2),
        ("sd", "rho_p", "sd of ρₚ", 2),
    )

    def height(self, width: float) -> float:
        return min(TALLEST, self.bottom + self.top + max(4.0, 0.75 * width))

    def draw(self, area: Area) -> None:
        steps = [subset for subset in dict.fromkeys(self.frame["subset"]) if "_" not in subset]  # all steps with a number
        width = (area.width - self.left) / len(steps) - self.between
        unit = (area.height - self.bottom - self.top - self.gap * len(self.rows)) / sum(parts for *_, parts in self.rows)
        bottom = area.height - self.top
        for number, (value, statistic, title, parts) in enumerate(self.rows):
            bottom -= parts * unit + self.gap
            last = number == len(self.rows) - 1
            for column, step in enumerate(steps):
                axes = area.axes(self.left + column * (width + self.between), bottom, width, parts * unit)
                self._panel(axes, step, value, statistic)
                axes.tick_params(labelbottom=last, labelleft=column == 0)
                if number == 0:
                    axes.set_title(f"step {shown(step)}")
                if column == 0:
                    axes.set_ylabel(title)
        _below(area, self.left, "share of training whose probes are used (%)")
        handles = [Line2D([], [], color=color, linestyle=style, label=name) for name, (color, style) in LINES.items()]
        _legend(area, handles, handlelength=3.2)

    def _panel(self, axes: Axes, step: str, value: str, statistic: str) -> None:
        known = False
        for name, (color, style) in LINES.items():
            curve = matching(self.frame, subset=step, quantity=name, statistic=statistic)
            share = 100 * curve["share"].to_numpy()
            axes.plot(share, curve[value].to_numpy(), color=color, linestyle=style, linewidth=1.1, label=name)
            if value == "mean":
                axes.fill_between(share, curve["mean_lo"].to_numpy(), curve["mean_hi"].to_numpy(), color=color, alpha=0.2, lw=0)
            known |= bool(curve[value].notna().any())
        axes.axvline(QUARTER, color=GREY, linewidth=0.6, linestyle=":", zorder=0)
        drawn = self.frame[self.frame["quantity"].isin(list(LINES)) & self.frame["statistic"].isin(("rho", "rho_p"))]
        if value == "mean":
            axes.axhline(0, color=GREY, linewidth=0.5, zorder=0)
            axes.set_ylim(*_limits(pd.concat([drawn[name] for name in ("mean", "mean_lo")]), include=(0.0, 1.0)))
        else:
            axes.set_ylim(*_limits(drawn["sd"], include=(0.0,)))
        axes.set_xlim(0, 100)
        if not known:
            axes.text(0.5, 0.5, "no value", color=GREY, ha="center", va="center", transform=axes.transAxes)


class Boxes(Drawing):
    """A panel per benchmark and step number; a box per partition, a dot per past class."""

    value, describe, together = "rho", staticmethod(boxes_caption), True
    left, bottom, top, gap = 0.62, 0.42, 0.16, 0.36
    between = 0.12

    def height(self, width: float) -> float:
        rows = len(self._benchmarks)
        return min(TALLEST, self.bottom + self.top + rows * (0.3 * max(width, 5.0) + self.gap))

    def draw(self, area: Area) -> None:
        steps = list(dict.fromkeys(self.frame["subset"]))
        increments = list(dict.fromkeys(self.frame["class_pct"]))
        rows = len(self._benchmarks)
        low, high = _limits(self.frame["rho"], include=(0.0, 1.0))
        width = (area.width - self.left) / len(steps) - self.between
        height = (area.height - self.bottom - self.top) / rows - self.gap
        for row, (_, group) in enumerate(self._benchmarks):
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
            Patch(facecolor=_fill(i), edgecolor="black", linewidth=0.6, label=shown(f"{share_text(level)} new classes"))
            for i, level in enumerate(increments)
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
                     boxprops={"facecolor": _fill(increments.index(row["class_pct"])), "linewidth": 0.6},
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

    @property
    def _benchmarks(self) -> list[tuple[object, pd.DataFrame]]:
        return list(self.frame.groupby(["benchmark", "policy"], sort=False))


def _fill(number: int) -> str:
    return FILLS[number % len(FILLS)]


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
            caption = drawn.describe(group) + origin(analysis.collection, group)
            found.append(drawn(name if number == 1 else f"{name}-{number}", caption, group, one.beside))
    return found


DRAWN: dict[Kind, type[Drawing]] = {"swarm": Swarms, "course": Curves, "boxes": Boxes}
