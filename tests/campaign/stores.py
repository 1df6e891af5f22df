"""Simulated stores that never touch a disk: their shape is collected once from a real one, then every step is drawn anew.

Of a step only what claims look at is drawn, by the parts of `Simulation` that decide it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.inputs.associations import associations_of
from forgetscope.analysis.inputs.cache import Arrays, Cache, content_of
from forgetscope.analysis.inputs.measured_steps import MeasuredStep, StepFacts, read_steps
from forgetscope.analysis.inputs.samples import Collected, Sample, collect
from forgetscope.analysis.paper.cells import Tabulation, tidy
from forgetscope.analysis.paper.claims import answers
from forgetscope.analysis.paper.joint_model import JointModels, _fit, padded
from forgetscope.analysis.paper.verdicts import Verdict, claim_frames
from forgetscope.analysis.statistics.pooling import Spreads
from forgetscope.benchmark.simulation import Simulation, _keys, simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.truth import Truth
from forgetscope.data.library import data_facts
from forgetscope.spec import StepSpec
from forgetscope.store import Store

Values = NDArray[np.float64]
Options = Mapping[str, float]  # of a truth, besides `BLANK`
World = Callable[["Place"], Options]

BLANK = dict.fromkeys(("sic_effect", "cic_effect", "nic_effect", "sic_cic", "sic_nic", "cic_nic", "rerun_sic_nic"), 0.0)
CACHE = Cache(None)


def silent(what: str, done: int, total: int) -> None:
    """Nothing is shown."""


class Place(NamedTuple):
    """Of a step, counted from 0 but for its number; experiments within a partition."""

    step: int
    retention: int
    increment: int
    dataset: int
    experiment: int


@dataclass(frozen=True)
class Shape:
    """Of a store. tables: the ANOVAs that are asked about."""

    experiments: int  # of a partition
    increments: tuple[tuple[float, ...], ...] = ((0.1,),)  # of each data set
    retentions: tuple[float, ...] = (0.2,)
    datasets: tuple[str, ...] = ("cifar100",)
    steps: int = 2
    reruns: int = 0
    epochs: int = 4
    joint: bool = False  # whether the joint model is asked about
    tables: tuple[str, ...] = ()

    @cached_property
    def skeleton(self) -> Skeleton:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            for dataset, increments in zip(self.datasets, self.increments, strict=True):
                options = {"experiments": self.experiments, "steps": self.steps, "epochs": self.epochs}
                levels = {"increments": list(increments), "retentions": list(self.retentions)}
                simulate(BenchmarkSpec.load(dataset, {**options, **levels}), store, reruns=self.reruns)
            collection = collect(store, read_steps(store, CACHE, silent))
            chains = {id: [step.spec for step in store.chain(id)] for id in store.ids()}
        return Skeleton(self, collection, {id: (specs[-1], _keys(specs)) for id, specs in chains.items()})


@dataclass(frozen=True)
class Skeleton:
    """Which steps a store has, and what their draws depend on."""

    shape: Shape
    collection: Collected
    draws: dict[str, tuple[StepSpec, list[str]]]  # by id

    def drawn(self, world: World, seed: int) -> Collected:
        """The same store with results that follow a world."""
        samples, reruns = [], []
        for sample in self.collection.samples:
            options = {step.facts.id: world(place) for step, place in zip(sample.steps, self._places(sample), strict=True)}
            steps = self._measured([(step, options[step.facts.id]) for step in sample.steps], seed)
            samples.append(replace(sample, steps=steps, values={}))
            for runs in (runs for runs in self.collection.reruns if runs.sample is sample):
                again = self._measured([(run, options[runs.runs[0].facts.id]) for run in runs.runs], seed)
                reruns.append(replace(runs, sample=samples[-1], runs=tuple(again)))
        return replace(self.collection, samples=samples, reruns=reruns)

    def _places(self, sample: Sample) -> list[Place]:
        dataset, seen, places = self.shape.datasets.index(sample.dataset), dict[Any, int](), []
        for cell in sample.cells:
            seen[cell] = seen.get(cell, -1) + 1
            levels = sample.retentions(cell.step).index(cell.retention), sample.increments(cell.step).index(cell.increment)
            places.append(Place(cell.step, *levels, dataset, seen[cell]))
        return places

    def _measured(self, steps: list[tuple[MeasuredStep, Options]], seed: int) -> list[MeasuredStep]:
        """In the order that is given; those with as many past classes are ranked at once."""
        found = [self._drawn(step.facts, len(step.class_ids), options, seed) for step, options in steps]
        made: dict[int, MeasuredStep] = {}
        for past in {len(step.class_ids) for step, _ in steps}:
            chosen = [i for i, (step, _) in enumerate(steps) if len(step.class_ids) == past]
            sums, log_sim, forgetting = (np.stack([found[i][part] for i in chosen]) for part in range(3))
            ranked = associations_of(sums, log_sim, forgetting)
            for n, i in enumerate(chosen):
                measures = np.vstack([sums[n, -1], log_sim[n]])
                made[i] = replace(
                    steps[i][0],
                    forgetting=forgetting[n],
                    complete=np.ones(past, bool),
                    measures=measures,
                    early=measures[None, :3],  # all of training: claims ask the joint model of nothing else
                    associations=ranked[n, -1],
                    course=ranked[n].astype(np.float32),
                )
        return [made[i] for i in range(len(steps))]

    def _drawn(self, facts: StepFacts, past: int, options: Options, seed: int) -> tuple[Values, Values, Values]:
        """Partial sums [probes, 4, P], LOG-SIM [P] and forgetting [P], in whole test images as far as they go."""
        simulation, (spec, keys) = _simulation(facts.setting.dataset, seed, tuple(options.items())), self.draws[facts.id]
        latent = simulation._latent(keys[-2], keys[-1], spec, past)
        measured = simulation._measurements(keys[-1], spec, latent)
        assert measured is not None
        truth, test = simulation.truth, simulation._test_images
        accuracy = truth.accuracy + truth.accuracy_sd * simulation._stream(keys[-1], "campaign").standard_normal(past)
        correct = np.clip(np.rint(accuracy * test), 1, test)
        now = np.clip(np.rint(correct * (1 - latent.forgetting)), 0, test)
        return np.cumsum(measured.values[:, :4], axis=0), measured.log_sim, (correct - now) / correct


class Fitted(Cache):
    """Joint models of all partitions of many stores, fitted together: a tenth of the time."""

    def __init__(self, stores: list[Collected]) -> None:
        super().__init__(None)
        self.fits: dict[str, Arrays] = {}
        parts: dict[tuple[int, ...], dict[str, tuple[Values, Values]]] = {}  # by shape and content
        for sample in (sample for store in stores for sample in store.samples):
            for cell in (cell for number in sample.numbers for cell in sample.partitions(number)):
                x, y = padded([sample.steps[i] for i in np.flatnonzero(sample.mask(cell))])
                parts.setdefault(x.shape, {})[content_of(x, y)] = x, y
        for alike in parts.values():
            found = _fit(*map(np.stack, zip(*alike.values(), strict=True)))
            self.fits |= {key: {name: array[i] for name, array in found.items()} for i, key in enumerate(alike)}

    def get(self, what: str, content: str, compute: Callable[[], Arrays]) -> Arrays:
        return self.fits[content]


def verdicts(shape: Shape, world: World, seeds: Iterable[int]) -> Iterator[dict[str, Verdict]]:
    """On every claim that can be asked of a store, as `claims` has them; for each seed."""
    stores = [shape.skeleton.drawn(world, seed) for seed in seeds]
    cache = Fitted(stores) if shape.joint else CACHE
    for store in stores:
        yield _verdicts(shape, store, JointModels(cache, silent))


def _verdicts(shape: Shape, collection: Collected, joint: JointModels) -> dict[str, Verdict]:
    if shape.joint:
        joint.add_to_values(collection.samples)
    else:
        joint.weights = lambda sample, cell: {}  # type: ignore[method-assign]
    tabulation = Tabulation(collection, joint, Spreads(CACHE, 100, silent), "sum")
    tables = dict.fromkeys(TABLES, _nothing()) | tabulation.frames(shape.tables)
    claims = claim_frames(answers(collection, joint, tables))["claims"]
    return dict(zip(claims["claim"], claims["verdict"], strict=True))


@cache
def _nothing() -> pd.DataFrame:
    return tidy("", ())


@cache
def _simulation(dataset: str, seed: int, options: tuple[tuple[str, float], ...]) -> Simulation:
    return Simulation(seed, Truth(**{**BLANK, "noise": 1.0, **dict(options)}), data_facts(dataset, None), environment={})
