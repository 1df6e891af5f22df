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
from forgetscope.benchmark.records import recorded_plans
from forgetscope.data.images import DataSet, image_sheet
from forgetscope.outputs import Progress, unheard
from forgetscope.report.pages.details import DIGITS, detail
from forgetscope.report.pages.packing import numbers, packed
from forgetscope.store import Store, StoredObserved, StoredStep, StoredTables, past_rows

DataSource = Callable[[dict[str, Any]], DataSet | None]

REHEARSED = 8  # images of a class, at most, in the order of selection,
REHEARSED_ALONE = 40  # and where a page is of one experiment
NAMED = 8  # characters of a step's id that tell it apart
FEWEST_NAMED = 2  # new classes that an experiment is named by
SEED = 10_000  # below it, a seed is one that somebody chose, and a name; others are derived from one
SIDES = (32, 24, 16)  # pixels of an image, at most; the largest that leaves room for two images of each class
TRIAL = 512  # images whose size in bytes stands for all
COLUMNS = 64  # images side by side in a sheet
IMAGE_BYTES = 2_500_000  # of all sheets of a page together


@dataclass
class Sheet:
    """The images of one data set that a page shows."""

    data: DataSet
    most: int = REHEARSED  # images of a class, besides the one that stands for it
    wanted: list[list[int]] = field(default_factory=list)  # training images of a class, most important first
    thumbnails: dict[int, int] = field(default_factory=dict)  # class -> training image
    _each: dict[int, float] = field(default_factory=dict)  # side -> bytes of an image

    def built(self, budget: int) -> tuple[dict[int, int], int, bytes]:
        """Place of each image, their side, and the sheet: as large and as many per class as the budget allows, at least one."""
        choices = ((side, kept) for side in SIDES for kept in range(self.most, 1, -1))
        side, kept = next((choice for choice in choices if self._size(*choice) <= budget), (SIDES[-1], 1))
        side, chosen = min(side, max(self.data.shape)), self._chosen(kept)
        return {index: place for place, index in enumerate(chosen)}, side, image_sheet(self.data, chosen, side, COLUMNS)

    def _chosen(self, kept: int) -> list[int]:
        return list(dict.fromkeys([*self.thumbnails.values(), *(i for images in self.wanted for i in images[:kept])]))

    def _size(self, side: int, kept: int) -> float:
        """Bytes of such a sheet, judged by a part of it."""
        if side not in self._each:
            part = self._chosen(self.most)[:TRIAL]
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
    total, done, numbers_of = sum(len(sample.steps) for sample in samples), 0, _numbers(store)
    groups = []
    for sample in samples:
        cells = []
        for step in sample.numbers:
            for cell, drawn in swarms(sample, step):
                runs, named = [], []
                for i in (*drawn, *(i for i in np.flatnonzero(sample.mask(cell)).tolist() if i not in drawn)):
                    stored = store.step(sample.steps[i].facts.id)
                    before = _before(store, stored) if i in drawn else None
                    runs.append(builder.run(stored, before, benchmark=sample.benchmark))
                    new = [builder.names[sample.benchmark, id] for id in stored.new_classes]
                    named.append((stored, _name(stored, numbers_of.get(stored.id)), new))
                    done += 1
                    progress("steps shown", done, total)
                where = {"step": step, "retention": cell.retention, "increment": cell.increment}
                cells.append({**where, "experiments": _told_apart(named), "runs": builder.added(runs)})
        groups.append({"benchmark": sample.benchmark, "policy": sample.policy, "cells": cells})
    return builder.finished(groups)


def explore_chain(steps: Sequence[StoredStep], find_data: DataSource) -> Explorer:
    """Of one experiment: every step in detail."""
    builder, cells = _Builder(find_data, REHEARSED_ALONE), []
    for i, step in enumerate(steps):
        if step.number > 1:
            where = {
                "step": step.number,
                "retention": "",
                "increment": "",
                "experiments": [[step.id[:NAMED], _name(step, None)]],
            }
            cells.append({**where, "runs": builder.added([builder.run(step, steps[:i], benchmark="")])})
    return builder.finished([{"benchmark": "", "policy": "", "cells": cells}])


def explore_observed(steps: Sequence[StoredObserved]) -> Explorer:
    """Of what a monitor saw: every step in detail. Its images are not known."""
    builder, cells = _Builder(lambda facts: None, REHEARSED_ALONE), []
    for i, step in enumerate(steps):
        if past_rows(step.table("classes").to_pandas(), step.number).any():
            where = {"step": step.number, "retention": "", "increment": "", "experiments": [[step.id, ""]]}
            cells.append({**where, "runs": builder.added([builder.run(step, steps[:i], benchmark="")])})
    return builder.finished([{"benchmark": "", "policy": "", "cells": cells}], counted="epoch")


def _numbers(store: Store) -> dict[str, int]:
    """By step: the number of its experiment in the first plan that has it, from 1. What is wrong with plans, others say."""
    found: dict[str, int] = {}
    for plan in recorded_plans(store, lambda problem: None):
        for chain in plan["chains"]:
            for id in chain["steps"]:
                found.setdefault(id, chain["number"] + 1)
    return found


def _name(step: StoredStep, number: int | None) -> str:
    """What tells an experiment from others, besides its id: number, a seed that somebody chose, policy and method."""
    policy, method = step.setting.policy[0], step.setting.method[0]
    parts = [
        "" if number is None else f"no. {number}",
        f"seed {step.spec.seed}" if number is None or step.spec.seed < SEED else "",
        "" if policy == "uniform" else policy,
        "" if method == "replay" else method,
    ]
    return " · ".join(filter(None, parts))


def _told_apart(named: Sequence[tuple[StoredStep, str, list[str]]]) -> list[list[str]]:
    """Of the experiments of a partition, each with its name and its new classes: the beginning of its id, and a name with as
    many of the classes as tell it from the others, two at least."""
    every = [new for *_, new in named]
    most = max(map(len, every), default=0)
    apart = (count for count in range(FEWEST_NAMED, most) if len({tuple(new[:count]) for new in every}) == len(every))
    count = next(apart, FEWEST_NAMED)
    return [
        [stored.id[:NAMED], " · ".join(filter(None, (name, f"new: {', '.join(new[:count])}{', …' * (count < len(new))}")))]
        for stored, name, new in named
    ]


def _before(store: Store, step: StoredStep) -> list[StoredStep]:
    """The steps that it was built on, first ones first, as far as they are in the store."""
    found: list[StoredStep] = []
    while (parent := (found or [step])[0].parent) is not None and parent in store:
        found.insert(0, store.step(parent))
    return found


class _Builder:
    def __init__(self, find_data: DataSource, rehearsed: int = REHEARSED) -> None:
        self.find_data = find_data
        self.rehearsed = rehearsed
        self.runs: list[list[dict[str, Any]]] = []
        self.data: list[dict[str, Any]] = []  # per data set: names, and where its images are
        self.sheets: dict[int, Sheet | None] = {}
        self.data_of: dict[str, int] = {}  # benchmark -> position of its data set
        self.environments: list[dict[str, Any]] = []
        self.names: dict[tuple[str, int], str] = {}
        self._keys: dict[str, int] = {}

    def added(self, runs: list[dict[str, Any]]) -> int:
        """The position of a partition's steps."""
        self.runs.append(runs)
        return len(self.runs) - 1

    def run(
        self, step: StoredStep | StoredObserved, before: Sequence[StoredTables] | None, *, benchmark: str
    ) -> dict[str, Any]:
        """before: the steps that it was built on, of one that is shown in detail."""
        rows = step.table("classes").to_pandas()
        position = self.data_of[benchmark] = self._data(step)
        for id, name in zip(rows["class_id"].tolist(), rows["class_name"].tolist(), strict=True):
            self.data[position]["names"][str(id)] = name
            self.names[benchmark, id] = name
        if step.info["environment"] not in self.environments:
            self.environments.append(step.info["environment"])
        past = rows[past_rows(rows, step.number)]
        run: dict[str, Any] = {"id": step.id, "data": position, "classes": past["class_id"].tolist()}
        for name in ("forgetting", "accuracy_when_learned", "accuracy", *MEASURES):
            run[name] = numbers(past[name].to_numpy(np.float64).tolist(), DIGITS)
        if past["missing"].notna().any():
            run["missing"] = [None if pd.isna(reason) else str(reason) for reason in past["missing"]]
        if before is not None:
            classes = past["class_id"].tolist()
            run["detail"] = detail(step, classes, before, simulated="simulated" in step.info)
            run["detail"] |= self._rehearsed(step, classes, position)
        return run

    def finished(self, groups: list[dict[str, Any]], counted: str = "iteration") -> Explorer:
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
        index = {"measures": MEASURES, "counted": counted, "groups": groups, "data": self.data, "data_of": self.data_of}
        return Explorer(index, self.runs, encoded, self.environments, self.names)

    def _data(self, step: StoredStep | StoredObserved) -> int:
        observed = isinstance(step, StoredObserved)  # by somebody whose data nobody knows
        facts = {"name": step.name, "image_size": "", "digest": ""} if observed else step.info["data"]
        key = f"{facts['name']} {facts['image_size']} {facts['digest']}"
        if key not in self._keys:
            self._keys[key] = len(self.data)
            found = self.find_data(facts)
            self.data.append({"name": facts["name"], "names": {}})
            self.sheets[self._keys[key]] = None if found is None else Sheet(found, self.rehearsed)
        return self._keys[key]

    def _rehearsed(self, step: StoredTables, classes: list[int], position: int) -> dict[str, Any]:
        """How many images of each class are rehearsed, and the first of them."""
        kept = step.table("rehearsal").to_pandas().sort_values(["class_id", "position"], kind="stable")
        by_class = {id: rows["image"].tolist() for id, rows in kept.groupby("class_id")}
        images = [by_class.get(id, []) for id in classes]
        sheet, shown = self.sheets[position], [chosen[: self.rehearsed] for chosen in images]
        if sheet is not None:
            count = len(sheet.data.train.labels)
            sheet.wanted += [[image for image in chosen if image < count] for chosen in shown]
            for id in (*classes, *step.new_classes):
                if id not in sheet.thumbnails and len(found := np.flatnonzero(sheet.data.train.labels == id)):
                    sheet.thumbnails[id] = int(found[0])
        return {"rehearsed": [len(chosen) for chosen in images], "rehearsal": [] if sheet is None else shown}
