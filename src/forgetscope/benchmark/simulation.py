"""A store of any benchmark's shape in which the relation between coefficients and forgetting is known: nothing is trained.

Analysis, reports and scale can be tried on it. It needs neither the data set nor torch. The model is in `docs/simulation.md`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtr

from forgetscope.benchmark.controlled import RERUNS, controlled_plan
from forgetscope.benchmark.plans import Job, Plan, benchmark_plan, chain_of
from forgetscope.benchmark.records import record_plan
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.truth import Truth
from forgetscope.choices import canonical_calibration
from forgetscope.data.library import DataFacts, data_facts
from forgetscope.errors import SpecError
from forgetscope.learning.budgets import Prices, neyman, quotas, stores_logits
from forgetscope.learning.sampling import iterations_per_epoch
from forgetscope.measuring.forgetting import forgetting
from forgetscope.options import demand
from forgetscope.randomness import Streams
from forgetscope.spec import RehearsalSpec, StepSpec, step_id
from forgetscope.store import StepRecord, Store, TableName
from forgetscope.store.tables import (
    ClassFacts,
    Indices,
    Measurements,
    Predictions,
    Values,
    class_table,
    confusion_table,
    pairs_table,
    predictions_table,
    probes_table,
    rehearsal_table,
)

# Of real coefficients: their means and standard deviations over classes, in the order SIC, CIC, NIC, ALL-NIC.
MEANS, SCALES = np.array([0.5, 0.05, 1.0, 0.5]), np.array([0.2, 0.1, 0.4, 0.3])
LOG_SIM_MEAN, LOG_SIM_SCALE = -1.0, 0.5
LEVELS = np.array([0.5, 0.2, 1.0, 0.1])  # of norms and losses, which nothing depends on
SPREAD = 0.3  # of the logarithms of what quotas by the spread of gradients go by
FEATURES = 64  # of the networks that are not there
SIC, CIC, NIC = range(3)
Mask = NDArray[np.bool_]


@dataclass
class Simulated:
    """What became of a simulation."""

    plans: list[str]  # their ids
    written: int = 0
    present: int = 0  # steps that were there already, and whole
    quarantined: int = 0  # steps that were there already, but damaged: written anew
    reruns: int = 0  # steps of controlled experiments among all of them, besides those that they repeat


def simulate(
    spec: BenchmarkSpec,
    store: Store | Path | str,
    seed: int = 0,
    truth: Truth | None = None,
    *,
    reruns: int = RERUNS,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Simulated:
    """Write the steps of a benchmark, and `reruns` further runs of one step per partition, that the store lacks.

    Every number in a table is a function of spec, seed and truth. Every record and plan is marked as simulated.

    >>> import forgetscope as fs
    >>> benchmark = fs.BenchmarkSpec(name="small", image_size=8, increments=[0.02], retentions=[0.08], experiments=2)
    >>> fs.simulate(benchmark, "simulated", reruns=0).written
    6
    """
    truth, store = Truth() if truth is None else truth, store if isinstance(store, Store) else Store(store)
    demand("spec", spec, BenchmarkSpec, 'a benchmark, such as fs.BenchmarkSpec.load("glyphs")')
    demand("truth", truth, Truth, "a forgetscope.benchmark.truth.Truth, such as Truth(noise=0.2)")
    if canonical_calibration(spec.template.calibration) is not None:
        raise SpecError(
            f"calibration = {spec.template.calibration!r}: a simulated step has no network whose predictions it could act on. "
            "Leave it out."
        )
    data = data_facts(spec.template.dataset, spec.template.image_size)
    simulation = Simulation(seed, truth, replace(data, digest=truth.digest(seed)), spec.template.image_size)
    made = _plans(spec, simulation.data, reruns)
    plans = [replace(plan, about={**plan.about, "simulated": simulation.mark}) for plan in made]
    store.prepare()
    for plan in plans:
        record_plan(store, plan)
    jobs = {id: job for plan in plans for id, job in plan.jobs.items()}
    result = Simulated([plan.id for plan in plans], reruns=sum(len(r.others) for plan in plans for r in plan.reruns))
    for done, id in enumerate(jobs, start=1):
        _add(store, simulation, chain_of(jobs, id), result)
        progress("steps", done, len(jobs))
    return result


def _plans(spec: BenchmarkSpec, data: DataFacts, reruns: int) -> list[Plan]:
    plans = [benchmark_plan(spec, data)]
    if reruns:
        with suppress(SpecError):  # no partition leaves a choice of new classes; the benchmark itself is fine
            plans.append(controlled_plan(spec, data, reruns))
    return plans


def _add(store: Store, simulation: Simulation, chain: Sequence[Job], result: Simulated) -> None:
    id = chain[-1].id
    if store.expel(id):
        result.quarantined += 1
    elif id in store:
        result.present += 1
        return
    with store.lock(id, lambda text: None):
        store.commit(simulation.record(chain), datetime.now(UTC).isoformat(timespec="seconds"), durable=False)
    result.written += 1


class _Classes(NamedTuple):
    """The classes of one step of a chain, and what their first step decides."""

    ids: tuple[int, ...]
    introduced: int
    expected: Values  # test images recognised when just learned, on average over test images; the true accuracy
    right: Mask  # [classes, test images]: which are recognised when just learned
    difficulty: Values  # [classes, test images]: what stays with an image from step to step, standard normal
    order: Indices  # [classes, training images]: in which they are kept for rehearsal


class _Latent(NamedTuple):
    """Standardised coefficients of the P past classes of a step, and where they come from."""

    z: Values  # [P, 3]
    parent: Values  # [P, 3], the parent's part
    sources: Values  # [P, N, 3], the part of each new class; parts add up to z
    forgetting: Values  # [P]


@dataclass(frozen=True)
class Simulation:
    """One seed and truth over one data set's shape."""

    seed: int
    truth: Truth
    data: DataFacts
    image_size: int | None = None
    environment: Mapping[str, object] = field(
        default_factory=lambda: {
            "python": platform.python_version(),
            **{package: version(package) for package in ("forgetscope", "numpy", "pyarrow")},
        }
    )

    @cached_property
    def mark(self) -> dict[str, Any]:
        """What says in a record that it is simulated."""
        return {"seed": self.seed, "truth": self.truth.recorded}

    def record(self, chain: Sequence[Job]) -> StepRecord:
        """The last step of a chain, which begins with a first step."""
        spec, (tables, forgotten) = chain[-1].spec, self._tables([job.spec for job in chain])
        said = bool(self.truth.image_share) and len(forgotten) > 0
        true = {"forgetting": [None if np.isnan(fg) else fg for fg in forgotten.tolist()]} if said else {}
        return StepRecord(
            id=chain[-1].id,
            parent=chain[-1].parent,
            spec=spec,
            data={
                "name": self.data.name,
                "image_size": self.image_size,
                "shape": self.data.shape,
                "digest": self.data.digest,
                "classes": self.data.classes,
            },
            environment=self.environment,
            timings={"seconds": 0.0, "probe_seconds": 0.0},
            history=_history(spec.training.epochs),
            tables=tables,
            network=str(chain[0].spec.network),
            state={},
            simulated={**self.mark, **true},
        )

    def _tables(self, specs: Sequence[StepSpec]) -> tuple[dict[TableName, pa.Table], Values]:
        """And the true forgetting of its past classes."""
        keys = _keys(specs)
        spec, key = specs[-1], keys[-1]
        groups = [self._learned(own, step, alone=step.step == 1) for own, step in zip(keys, specs, strict=True)]
        ids = [id for group in groups for id in group.ids]
        past = len(ids) - len(spec.classes)
        right = np.concatenate([group.right for group in groups])
        when_learned, measured, forgotten = right.mean(axis=1), None, np.empty(0)
        if past:
            latent = self._latent(keys[-2], key, spec, past)
            expected, difficulty = (
                np.concatenate([getattr(group, name) for group in groups[:-1]]) for name in ("expected", "difficulty")
            )
            left = np.clip(expected * (1 - latent.forgetting), 0, self._test_images)
            right[:past] = self._recognised(key, "test images now", left, difficulty)
            forgotten = forgetting(expected, left)
            measured = self._measurements(key, spec, latent)
        rehearsal = self._rehearsal(specs, keys, groups)
        facts = ClassFacts(
            ids=ids,
            names=[f"class {id}" for id in ids],
            introduced=[group.introduced for group in groups for _ in group.ids],
            train_images=[self._train_images(spec)] * len(ids),
            when_learned=when_learned,
            accuracy=right.mean(axis=1),
        )
        tables: dict[TableName, pa.Table] = {
            "classes": class_table(facts, rehearsal, measured),
            "probes": probes_table(measured, ids[:past]),
            "pairs": pairs_table(measured, ids, past),
            "rehearsal": rehearsal_table(rehearsal),
        }
        return tables | self._tested(key, ids, past, right), forgotten

    def _learned(self, key: str, spec: StepSpec, alone: bool) -> _Classes:
        """alone: these classes are the only ones in the step that learns them."""
        truth, classes, test = self.truth, len(spec.classes), self._test_images
        rng = self._stream(key, "learned")
        expected = (truth.accuracy + truth.accuracy_sd * rng.standard_normal(classes)) * test
        expected = np.clip(expected if truth.image_share else np.rint(expected), 1, test)
        expected[rng.random(classes) < truth.never_learned] = 0
        if alone and classes == 1:
            expected[:] = test  # there is no other class to take it for
        images = np.tile(np.arange(self._train_images(spec)), (classes, 1))
        difficulty = self._stream(key, "difficulty").standard_normal((classes, test))
        right = self._recognised(key, "test images", expected, difficulty)
        return _Classes(spec.classes, spec.step, expected, right, difficulty, rng.permuted(images, axis=1))

    def _recognised(self, key: str, what: str, expected: Values, difficulty: Values) -> Mask:
        """[classes, test images]: so many on average, the easier ones rather than others; or the first, as many as expected."""
        share, test = self.truth.image_share, self._test_images
        if not share:
            return np.arange(test) < np.rint(expected)[:, None]
        strays = self._stream(key, what).standard_normal(difficulty.shape)
        level: Values = test * ndtr(np.sqrt(share) * difficulty + np.sqrt(1 - share) * strays)
        return level < expected[:, None]

    def _rehearsal(self, specs: Sequence[StepSpec], keys: Sequence[str], groups: Sequence[_Classes]) -> dict[int, Indices]:
        """Of the last step, which may keep of a class what is left of what steps before it kept."""
        quota, train = dict[int, int](), self._train_images(specs[-1])
        for number, spec in enumerate(specs[1:], start=1):
            if spec.rehearsal is not None and (spec is specs[-1] or spec.rehearsal.quota is not None):
                quota = self._quotas(spec.rehearsal, train, groups[:number], keys[number - 1], quota)
        of = [pair for group in groups[:-1] for pair in zip(group.ids, group.order, strict=True)]
        return {id: id * train + order[: quota[id]] for id, order in of}

    def _quotas(
        self, spec: RehearsalSpec, train: int, past: Sequence[_Classes], parent: str, kept: Mapping[int, int]
    ) -> dict[int, int]:
        """Of each past class. parent: the key of the step before; kept: how many images that had. How the gradients of the
        classes that it learned spread is drawn."""
        introduced, whole = {id: group.introduced for group in past for id in group.ids}, round(self.data.train_images)
        sizes = dict.fromkeys(introduced, train)
        prices = Prices.of(spec, self.data.shape, introduced, features=FEATURES, stores_logits=stores_logits(spec))
        balanced = quotas(spec, sizes, dict.fromkeys(sizes, whole), prices)
        if spec.quota is None:
            return balanced
        spreads = self._stream(parent, "spread").lognormal(0.0, SPREAD, len(past[-1].ids)).tolist()
        weights = {**dict(zip(past[-1].ids, spreads, strict=True)), **kept}
        return neyman(balanced, introduced, weights, {**sizes, **kept})

    def _latent(self, parent_key: str, key: str, spec: StepSpec, past: int) -> _Latent:
        """Steps with the same parent share everything but the new classes' part and the noise."""
        truth, new = self.truth, len(spec.classes)
        rng = self._stream(parent_key, "past classes")
        intercept, slopes = truth.intercept_sd * rng.standard_normal(), truth.slope_sd * rng.standard_normal(3)
        parent = np.sqrt(truth.parent_share) * _correlated(rng, (past,), truth.parent_correlation)
        affinities = _correlated(self._stream(parent_key, "new classes"), (past, self.data.classes), truth.rerun_correlation)
        sources = np.sqrt((1 - truth.parent_share) / new) * affinities[:, list(spec.classes)]
        z = parent + sources.sum(axis=1)
        noise = truth.noise * self._stream(key, "noise").standard_normal(past)
        y = intercept + (z * (truth.effects + slopes)).sum(axis=1) + noise
        severity = truth.severity(spec.rehearsal.retention if spec.rehearsal else None)
        return _Latent(z, parent, sources, severity * (truth.mean_forgetting + truth.spread * y))

    def _measurements(self, key: str, spec: StepSpec, latent: _Latent) -> Measurements | None:
        truth, past = self.truth, len(latent.z)
        epochs = [0, *(epoch for epoch in range(1, spec.training.epochs + 1) if spec.is_probed(epoch))]
        if spec.rehearsal is None or spec.rehearsal.probe_every == 0:
            return None
        rng, nic = self._stream(key, "measures"), latent.z[:, NIC]
        all_nic, log_sim = (r * nic + np.sqrt(1 - r**2) * rng.standard_normal(past) for r in (truth.all_nic, truth.log_sim))
        totals = MEANS[:, None] + SCALES[:, None] * np.vstack([latent.z.T, all_nic])  # [coefficients, P]
        steps = np.diff(np.linspace(0, 1, len(epochs) + 1) ** (np.log(0.5) / np.log(truth.half_way)))[:, None, None]
        strays = np.sqrt(steps) * rng.standard_normal((len(epochs), 4, past))
        strays -= steps * strays.sum(axis=0)  # a Brownian bridge: partial sums stray, totals do not
        terms = steps * totals + truth.wander * SCALES[:, None] * strays
        if past == 1:
            terms[:, CIC] = 0  # there is no other past class
        levels = LEVELS[:, None] * np.exp(0.1 * rng.standard_normal((len(epochs), 4, past)))
        used = len(spec.classes) * self._train_images(spec)
        per_epoch = iterations_per_epoch(used, spec.training.batch - round(spec.rehearsal.alpha * spec.training.batch))
        sums = terms.sum(axis=0)
        return Measurements(
            iterations=[epoch * per_epoch for epoch in epochs],
            values=np.concatenate([terms / spec.probe_weight, levels], axis=1),
            totals=sums,
            pairs=np.hstack([_past_pairs(rng, sums[SIC], sums[CIC]), _new_pairs(latent)]),
            log_sim=LOG_SIM_MEAN + LOG_SIM_SCALE * log_sim,
        )

    def _tested(self, key: str, ids: Sequence[int], past: int, right: Mask) -> dict[TableName, pa.Table]:
        """Confusion, and predictions of test images where these are drawn. Mistakes fall on the other classes at random."""
        k, test, rng = len(ids), self._test_images, self._stream(key, "mistakes")
        if not self.truth.image_share:
            correct = right.sum(axis=1)
            shares = (1 - np.eye(k)) / max(1, k - 1)
            counts = rng.multinomial(test - correct, shares) if k > 1 else np.zeros((k, k), np.int64)
            return {"confusion": confusion_table(counts + np.diag(correct), ids)}
        true = np.repeat(np.arange(k), test)
        predicted = np.where(right.ravel(), true, (true + rng.integers(1, max(2, k), k * test)) % k)
        is_past = predicted < past
        found = Predictions(
            past=past,
            image=(np.array(ids)[:, None] * test + np.arange(test)).ravel(),
            true=true,
            predicted=predicted,
            best_past=np.where(is_past, predicted, rng.integers(0, max(1, past), k * test)),
            best_new=np.where(is_past, rng.integers(past, k, k * test), predicted),
            margin=(np.where(is_past, 1, -1) * np.abs(rng.standard_normal(k * test))).astype(np.float32),
        )
        return {"confusion": confusion_table(found.confusion(k), ids), "predictions": predictions_table(found, ids)}

    @property
    def _test_images(self) -> int:
        return round(self.data.test_images)

    def _train_images(self, spec: StepSpec) -> int:
        train = round(self.data.train_images)
        return train - round((spec.training.validation or 0.0) * train)

    def _stream(self, key: str, what: str) -> np.random.Generator:
        return Streams(self.seed, 0)("simulation", f"{key}/{what}")


def _keys(specs: Sequence[StepSpec]) -> list[str]:
    """What the draws of each step depend on. Not its id: with another truth, whatever that does not change stays the same."""
    keys: list[str] = []
    for spec in specs:
        keys.append(step_id(keys[-1] if keys else None, spec, ""))
    return keys


def _correlated(rng: np.random.Generator, shape: tuple[int, ...], correlation: Values) -> Values:
    """Standard normal vectors with these correlations, [*shape, 3]."""
    drawn: Values = rng.standard_normal((*shape, 3)) @ np.linalg.cholesky(correlation).T
    return drawn


def _past_pairs(rng: np.random.Generator, sic: Values, cic: Values) -> Values:
    """[P, P]: the diagonal is SIC, the rest of each row adds up to CIC."""
    past = len(sic)
    others = 1 - np.eye(past)
    strays: Values = SCALES[CIC] / np.sqrt(past) * rng.standard_normal((past, past)) * others
    strays += (cic - strays.sum(axis=1))[:, None] * others / max(1, past - 1)
    strays[np.diag_indices(past)] = sic
    return strays


def _new_pairs(latent: _Latent) -> Values:
    """[P, N]: each row adds up to NIC."""
    shared = (MEANS[NIC] + SCALES[NIC] * latent.parent[:, [NIC]]) / latent.sources.shape[1]
    pairs: Values = shared + SCALES[NIC] * latent.sources[:, :, NIC]
    return pairs


def _history(epochs: int) -> list[dict[str, float]]:
    done = np.arange(1, epochs + 1) / epochs
    losses, accuracies = np.round(2 * np.exp(-4 * done), 4), np.round(1 - 0.8 * np.exp(-4 * done), 4)
    return [
        {"epoch": epoch, "loss": loss, "accuracy": accuracy}
        for epoch, loss, accuracy in zip(range(1, epochs + 1), losses.tolist(), accuracies.tolist(), strict=True)
    ]
