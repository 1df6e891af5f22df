"""The explorer's data: every class of every step with its final values, and all about the classes of the steps in detail."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from forgetscope.analysis.experiments import MEASURES
from forgetscope.analysis.paper.points import swarms
from forgetscope.analysis.results import Analysis
from forgetscope.data.images import DataSet, image_sheet
from forgetscope.outputs import Progress, unheard
from forgetscope.report.pages.packing import numbers, packed
from forgetscope.store import COEFFICIENTS, Store, StoredStep, past_rows

DataSource = Callable[[dict[str, Any]], DataSet | None]

DIGITS = 4  # significant, of final values
CURVE_DIGITS = 3  # of trajectories, which are most of the page
MOMENTS = 21  # of a trajectory that are kept at most, first and last included
SOURCES = 6  # classes that interfered most, for better or worse
CONFUSIONS = 5
REHEARSED = 8  # images of a class, at most, in the order of selection
SIDES = (32, 24, 16)  # pixels of an image, at most; the largest that leaves room for two images of each class
TRIAL = 512  # images whose size in bytes stands for all
COLUMNS = 64  # images side by side in a sheet
IMAGE_BYTES = 2_500_000  # of all sheets of a page together


@dataclass
class Sheet:
    """The images of one data set that a page shows."""

    data: DataSet
    wanted: list[list[int]] = field(default_factory=list)  # training images of a class, most important first
    thumbnails: dict[int, int] = field(default_factory=dict)  # class -> training image
    _each: dict[int, float] = field(default_factory=dict)  # side -> bytes of an image

    def built(self, budget: int) -> tuple[dict[int, int], int, bytes]:
        """Place of each image, their side, and the sheet: as large and as many per class as the budget allows, at least one."""
        choices = ((side, kept) for side in SIDES for kept in range(REHEARSED, 1, -1))
        side, kept = next((choice for choice in choices if self._size(*choice) <= budget), (SIDES[-1], 1))
        side, chosen = min(side, max(self.data.shape)), self._chosen(kept)
        return {index: place for place, index in enumerate(chosen)}, side, image_sheet(self.data, chosen, side, COLUMNS)

    def _chosen(self, kept: int) -> list[int]:
        return list(dict.fromkeys([*self.thumbnails.values(), *(i for images in self.wanted for i in images[:kept])]))

    def _size(self, side: int, kept: int) -> float:
        """Bytes of such a sheet, judged by a part of it."""
        if side not in self._each:
            part = self._chosen(REHEARSED)[:TRIAL]
            self._each[side] = len(image_sheet(self.data, part, min(side, max(self.data.shape)), COLUMNS)) / max(1, len(part))
        return self._each[side] * len(self._chosen(kept))


@dataclass
class Explorer:
    """What the page embeds. Apart from each other, so that a browser reads only what it shows: an index, the steps of every
    partition (its `runs` in the index is their position), and image sheets by the position of their data set."""

    index: dict[str, Any]
    runs: list[list[dict[str, Any]]]
    sheets: dict[int, bytes]
    environments: list[dict[str, Any]]  # distinct, in which steps were made
    names: dict[tuple[str, int], str]  # benchmark and class id -> class name

    def embedded(self) -> dict[str, str]:
        """Texts of the page's elements that the scripts read, by id."""
        sheets = {f"sheet-{position}": base64.b64encode(sheet).decode() for position, sheet in self.sheets.items()}
        runs = {f"data-runs-{position}": packed(runs) for position, runs in enumerate(self.runs)}
        return {"data-explorer": packed(self.index), **runs, **sheets}


def explore(analysis: Analysis, find_data: DataSource, progress: Progress = unheard) -> Explorer:
    """Of a whole store. find_data: from a step's record of its data to the data set, where it is here."""
    store = Store.existing(analysis.store)
    builder = _Builder(find_data)
    samples = analysis.collection.samples
    total, done = sum(len(sample.steps) for sample in samples), 0
    groups = []
    for sample in samples:
        cells = []
        for step in sample.numbers:
            for cell, drawn in swarms(sample, step):
                rest = [i for i in np.flatnonzero(sample.mask(cell)).tolist() if i not in drawn]
                runs = []
                for i in (*drawn, *rest):
                    stored = store.step(sample.steps[i].facts.id)
                    runs.append(builder.run(stored, detailed=i in drawn, benchmark=sample.benchmark))
                    done += 1
                    progress("steps shown", done, total)
                cells.append(builder.cell(runs, step=step, retention=cell.retention, increment=cell.increment))
        groups.append({"benchmark": sample.benchmark, "policy": sample.policy, "cells": cells})
    return builder.finished(groups)


def explore_chain(steps: Sequence[StoredStep], find_data: DataSource) -> Explorer:
    """Of one experiment: every step in detail."""
    builder = _Builder(find_data)
    cells = []
    for step in steps:
        if step.spec.step > 1:
            run = builder.run(step, detailed=True, benchmark="")
            cells.append(builder.cell([run], step=step.spec.step, retention="", increment=""))
    return builder.finished([{"benchmark": "", "policy": "", "cells": cells}])


class _Builder:
    def __init__(self, find_data: DataSource) -> None:
        self.find_data = find_data
        self.runs: list[list[dict[str, Any]]] = []
        self.data: list[dict[str, Any]] = []  # per data set: names, and where its images are
        self.sheets: dict[int, Sheet | None] = {}
        self.data_of: dict[str, int] = {}  # benchmark -> position of its data set
        self.environments: list[dict[str, Any]] = []
        self.names: dict[tuple[str, int], str] = {}
        self._keys: dict[str, int] = {}

    def cell(self, runs: list[dict[str, Any]], **where: Any) -> dict[str, Any]:
        self.runs.append(runs)
        return {**where, "runs": len(self.runs) - 1}

    def run(self, step: StoredStep, *, detailed: bool, benchmark: str) -> dict[str, Any]:
        rows = step.table("classes").to_pandas()
        position = self.data_of[benchmark] = self._data(step)
        for id, name in zip(rows["class_id"].tolist(), rows["class_name"].tolist(), strict=True):
            self.data[position]["names"][str(id)] = name
            self.names[benchmark, id] = name
        if step.info["environment"] not in self.environments:
            self.environments.append(step.info["environment"])
        past = rows[past_rows(rows, step.number)]
        run: dict[str, Any] = {"id": step.id, "seed": step.spec.seed, "data": position, "classes": past["class_id"].tolist()}
        for name in ("forgetting", "accuracy_when_learned", "accuracy", *MEASURES):
            run[name] = numbers(past[name].to_numpy(np.float64).tolist(), DIGITS)
        if past["missing"].notna().any():
            run["missing"] = [None if pd.isna(reason) else str(reason) for reason in past["missing"]]
        if detailed:
            run["detail"] = self._detail(step, past["class_id"].tolist(), position)
        return run

    def finished(self, groups: list[dict[str, Any]]) -> Explorer:
        known = {position: sheet for position, sheet in self.sheets.items() if sheet is not None}
        encoded = {}
        for position, sheet in known.items():
            places, side, encoded[position] = sheet.built(IMAGE_BYTES // len(known))
            self.data[position] |= {"side": side, "columns": COLUMNS}
            self.data[position]["thumbnails"] = {str(id): places[index] for id, index in sheet.thumbnails.items()}
            for run in (run for runs in self.runs for run in runs):
                if run["data"] == position and "detail" in run:
                    chosen = run["detail"]["rehearsal"]
                    run["detail"]["rehearsal"] = [[places[i] for i in images if i in places] for images in chosen]
        index = {"measures": MEASURES, "groups": groups, "data": self.data, "data_of": self.data_of}
        return Explorer(index, self.runs, encoded, self.environments, self.names)

    def _data(self, step: StoredStep) -> int:
        facts = step.info["data"]
        key = f"{facts['name']} {facts['image_size']} {facts['digest']}"
        if key not in self._keys:
            self._keys[key] = len(self.data)
            found = self.find_data(facts)
            self.data.append({"name": facts["name"], "names": {}})
            self.sheets[self._keys[key]] = None if found is None else Sheet(found)
        return self._keys[key]

    def _detail(self, step: StoredStep, classes: list[int], position: int) -> dict[str, Any]:
        rehearsed = step.table("rehearsal").to_pandas().sort_values(["class_id", "position"], kind="stable")
        by_class = {id: rows["image"].tolist() for id, rows in rehearsed.groupby("class_id")}
        images = [by_class.get(id, []) for id in classes]
        sheet = self.sheets[position]
        if sheet is not None:
            count = len(sheet.data.train.labels)
            sheet.wanted += [[image for image in chosen[:REHEARSED] if image < count] for chosen in images]
            for id in (*classes, *step.spec.classes):
                if id not in sheet.thumbnails and len(found := np.flatnonzero(sheet.data.train.labels == id)):
                    sheet.thumbnails[id] = int(found[0])
        return {
            **_trajectories(step, classes),
            "accuracies": _accuracies(step, classes),
            "rehearsed": [len(chosen) for chosen in images],
            "rehearsal": [] if sheet is None else [chosen[:REHEARSED] for chosen in images],
            "new": list(step.spec.classes),
            "sources": _sources(step.table("pairs").to_pandas(), classes),
            "confusions": _confusions(step.table("confusion").to_pandas(), classes),
        }


def _accuracies(step: StoredStep, classes: list[int]) -> list[list[float | None]]:
    """Per class: its test accuracy after every step so far, null before it was learned and where a step is not in the store."""
    store, columns = Store(step.folder.parents[1]), [dict[int, float]() for _ in range(step.spec.step)]
    current: StoredStep | None = step
    while current is not None:
        table = current.table("classes")
        columns[current.spec.step - 1] = dict(zip(table["class_id"].to_pylist(), table["accuracy"].to_pylist(), strict=True))
        parent = store.step(current.parent) if current.parent is not None and current.parent in store else None
        current = parent if parent is not None and parent.number + 1 == current.number else None
    return [numbers((column.get(id, np.nan) for column in columns), DIGITS) for id in classes]


def _trajectories(step: StoredStep, classes: list[int]) -> dict[str, Any]:
    """Each coefficient so far, at moments spread evenly over training; once a term is missing, so are later sums."""
    iterations, sums = step.partial_sums(classes)
    count = len(iterations)
    if not count:
        return {"iterations": []}
    kept = np.unique(np.linspace(0, count - 1, min(count, MOMENTS)).round().astype(int))
    lines = sums[kept].transpose(1, 2, 0).tolist()  # of each coefficient, one per class
    curves = {name: [numbers(line, CURVE_DIGITS) for line in own] for name, own in zip(COEFFICIENTS, lines, strict=True)}
    return {"iterations": iterations[kept].tolist(), **curves}


def _sources(pairs: pd.DataFrame, classes: list[int]) -> list[list[list[float | None]]]:
    """Per class: the source classes with the largest terms of either sign, strongest first."""
    if pairs.empty:
        return [[] for _ in classes]
    order = pairs["term"].abs().sort_values(ascending=False, kind="stable").index
    strongest = pairs.loc[order].dropna(subset="term").groupby("class_id").head(SOURCES)
    return _grouped(strongest, "class_id", ["source_class_id", "term"], classes)


def _confusions(counts: pd.DataFrame, classes: list[int]) -> list[list[list[float | None]]]:
    """Per class: what its test images are taken for, itself left out, and the share of them."""
    shares = counts.assign(share=counts["count"] / counts.groupby("true")["count"].transform("sum"))
    wrong = shares[shares["true"] != shares["predicted"]].sort_values("count", ascending=False, kind="stable")
    return _grouped(wrong.groupby("true").head(CONFUSIONS), "true", ["predicted", "share"], classes)


def _grouped(frame: pd.DataFrame, key: str, columns: list[str], classes: list[int]) -> list[list[list[float | None]]]:
    """Per class: its rows of these columns."""
    found: dict[int, list[list[float | None]]] = {}
    for id, row in zip(frame[key].tolist(), frame[columns].to_numpy(np.float64).tolist(), strict=True):
        found.setdefault(id, []).append(numbers(row, DIGITS))
    return [found.get(id, []) for id in classes]
