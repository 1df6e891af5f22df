"""Observed steps of a store: those of one monitor, with the words of an experiment, and means over equal settings.

Nothing here is ever mixed with planned steps. Which data, seeds and code a monitor saw is not known, only what its user put
into `settings`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from forgetscope.analysis.experiments import AVERAGED, MEASURES, Overview, StepFrames, StepSummary, averaged, summarise
from forgetscope.characters import counted
from forgetscope.errors import SpecError, StoreError
from forgetscope.store import RunningObserved, Store, StoredObserved, TellLeftOut, leaving_out
from forgetscope.store.observed import PROBING

Probing = tuple[tuple[str, int], ...]
OF_A_STEP = ("past_classes", "accuracy", "new_accuracy", *AVERAGED)


class Observed(StepFrames[StoredObserved]):
    """What one monitor saw: its observed steps, with the words of an `Experiment`.

    `steps` are those that were observed to their end. Others are in `incomplete`, or in `running` while they are not committed,
    and in no frame: they are excluded from statistics.

    >>> import torch, forgetscope as fs
    >>> images, labels = torch.randn(8, 4), torch.arange(8) % 2
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 2))
    >>> with fs.Monitor("results", "birds").step(network, new=(images, labels)) as step:
    ...     step.evaluate((images, labels))
    >>> observed = fs.open_observed("results", "birds")
    >>> observed
    Observed(birds: Sequential, 1 step)
    >>> observed.classes["class_id"].tolist()
    [0, 1]
    """

    simulated = None  # somebody trained it

    def __init__(self, chain: Sequence[StoredObserved], running: Sequence[RunningObserved] = ()) -> None:
        self.chain = list(chain)
        self.running = list(running)
        self.steps = [step for step in self.chain if step.incomplete is None]
        self.incomplete = [step for step in self.chain if step.incomplete is not None]

    @property
    def name(self) -> str:
        """The monitor's."""
        return [*self.chain, *self.running][0].name

    @property
    def label(self) -> str:
        return self.name

    @property
    def network(self) -> str:
        return str([*self.chain, *self.running][-1].info["network"])

    @cached_property
    def summaries(self) -> list[StepSummary]:
        """One summary per step that has past classes. Noise is from counts: test images may be others in every step."""
        return [summary for step in self.steps if (summary := summarise(step)).past_classes]

    @property
    def evaluated(self) -> list[StepSummary]:
        """Those of steps with test images, of which forgetting is known."""
        return [summary for summary in self.summaries if not math.isnan(summary.accuracy)]

    def others(self) -> list[str]:
        """The names of the other monitors in the store, as it is now."""
        store = Store([*self.chain, *self.running][0].store)
        return sorted({step.name for step in (*store.observed(), *store.observing())} - {self.name})

    def __repr__(self) -> str:
        left_out = f", {counted(len(self.incomplete), 'step')} incomplete" if self.incomplete else ""
        return f"Observed({self.name}: {self.network}, {counted(len(self.steps), 'step')}{left_out})"


def monitors(store: Store, left_out: TellLeftOut | None = None) -> list[Observed]:
    """What each monitor of a store saw, by name. left_out: is told of each step that cannot be read; without it, the first is
    an error."""
    found: dict[str, tuple[list[StoredObserved], list[RunningObserved]]] = {}
    for step in store.readable_observed(left_out):
        with leaving_out(left_out):
            step.check_contents()  # what is shown of it, other tables must not contradict
            found.setdefault(step.name, ([], []))[0].append(step)
    for running in store.observing():
        with leaving_out(left_out):
            _ = running.info
            found.setdefault(running.name, ([], []))[1].append(running)
    return [Observed(*found[name]) for name in sorted(found)]


def open_observed(path: str | Path, name: str | None = None) -> Observed:
    """What a monitor saw, from a store on disk: that of this name, or the one whose last step was committed last among those
    that have seen one to its end.

    >>> import torch, forgetscope as fs
    >>> images, labels = torch.randn(8, 4), torch.arange(8) % 2
    >>> with fs.Monitor("results", "owls").step(torch.nn.Sequential(torch.nn.Linear(4, 2)), new=(images, labels)):
    ...     pass
    >>> [step.number for step in fs.open_observed("results", "owls").steps]
    [1]
    """
    store = Store.existing(path)
    return chosen(store, monitors(store), name)


def chosen(store: Store, everything: Sequence[Observed], name: str | None) -> Observed:
    """Of these, the one of this name, or the latest."""
    found = [one for one in everything if name in (None, one.name)]
    if name is not None and not found:
        there = ", ".join(one.name for one in everything) or "there is none"
        raise SpecError(f"{store.path} holds nothing of a monitor {name!r}; its monitors: {there}.")
    if not found:
        raise StoreError(f"The store {store.path} holds no observed steps yet. `fs.Monitor` writes them (docs/monitor.md).")
    return max(found, key=lambda one: (bool(one.steps), max(step.info["committed"] for step in one.chain or one.running)))


@dataclass(frozen=True)
class ObservedAnalysis:
    """What the observed steps of a store have in common where their settings are equal."""

    store: Path
    groups: list[Overview]  # by settings and number of the step; `experiments` counts monitors, `diverged` incomplete steps
    monitors: list[Observed]

    @property
    def cannot_know(self) -> tuple[str, ...]:
        """What nothing here can tell, in sentences."""
        from forgetscope.report.words.findings import CANNOT_KNOW  # looking upward: words are the report's

        return CANNOT_KNOW

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """`observed_steps`, a row per monitor and step; `observed_settings`, one per settings, step and quantity, with its
        interval; `observed_classes`, one per monitor, step and class."""
        named = [one.classes.assign(monitor=one.name) for one in self.monitors]
        classes = pd.concat([frame for frame in named if len(frame)] or named[:1] or [pd.DataFrame()], ignore_index=True)
        return {
            "observed_settings": pd.DataFrame(self._estimates()),
            "observed_steps": pd.DataFrame(self._steps()),
            "observed_classes": classes[["monitor", *(name for name in classes if name != "monitor")]]
            if len(named)
            else classes,
        }

    def _steps(self) -> list[dict[str, object]]:
        return [
            {
                **{"monitor": one.name, "step": summary.step, "settings": said(one.numbered(summary.step))},
                **dict.fromkeys(PROBING) | one.numbered(summary.step).probing,
                **{name: getattr(summary, name) for name in OF_A_STEP},
                **{f"rho_{MEASURES[name]}": rho for name, rho in summary.correlations.items()},
            }
            for one in self.monitors
            for summary in one.summaries
        ]

    def _estimates(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for group in self.groups:
            found = {name: getattr(group, name) for name in (*AVERAGED, "spread", "reliability", "ceiling")}
            found |= {f"rho_{MEASURES[name]}": estimate for name, estimate in group.correlations.items()}
            keys = {"settings": " ".join(group.setting), "step": group.step, "monitors": group.experiments}
            rows += [
                {**keys, "quantity": name, "mean": one.value, "low": one.low, "high": one.high, "n": one.n}
                for name, one in found.items()
            ]
        return rows


def analyse_observed(store: str | Path | Store, left_out: TellLeftOut | None = None) -> ObservedAnalysis:
    """Means over monitors, by settings, how it was probed, and number of the step; never over planned steps.

    left_out: is told of each step that cannot be read; without it, the first is an error.

    >>> import torch, forgetscope as fs
    >>> network, images = torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.randn(16, 4)
    >>> past, new = (images[:8], torch.arange(8) % 2), (images[8:], 2 + torch.arange(8) % 2)
    >>> monitor = fs.Monitor("results", "birds", settings={"lr": 0.1})
    >>> with monitor.step(network, past=past, memory=(past[0][:4], past[1][:4]), new=new, alpha=0.5) as step:
    ...     step.evaluate((images, torch.cat([past[1], new[1]])))
    >>> [(group.setting, group.step, group.experiments) for group in fs.analyse_observed("results").groups]
    [(('lr=0.1',), 2, 1)]
    """
    opened = store if isinstance(store, Store) else Store.existing(store)
    found = monitors(opened, left_out)
    groups: dict[tuple[str, Probing, int], list[StepSummary]] = {}
    incomplete = Counter((*_of_group(step), step.number) for one in found for step in one.incomplete)
    for one in found:
        for summary in one.evaluated:
            groups.setdefault((*_of_group(one.numbered(summary.step)), summary.step), []).append(summary)
    rows = [averaged(own, _in_words(*key[:2]), incomplete[key]) for key, own in sorted(groups.items())]
    return ObservedAnalysis(opened.path, rows, found)


def said(step: StoredObserved) -> str:
    """The settings of a step as one text: equal texts are equal settings."""
    return json.dumps(dict(sorted(step.settings.items())), ensure_ascii=False)


def _of_group(step: StoredObserved) -> tuple[str, Probing]:
    """What steps must have in common to be averaged: settings, and how they were probed."""
    return said(step), tuple(step.probing.items())


def _in_words(settings: str, probing: Probing) -> tuple[str, ...]:
    """Exact probes after each epoch are not mentioned."""
    parts = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in json.loads(settings).items()]
    return (*(parts or ["no settings"]), *(f"{name}={value}" for name, value in probing))
