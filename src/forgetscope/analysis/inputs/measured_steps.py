"""What one step contributes to an analysis: its facts, its past classes' forgetting and coefficients, and how they go together.

Computed from the step's files once; a later analysis takes it from the cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.inputs.associations import associations_of
from forgetscope.analysis.inputs.cache import Arrays, Cache
from forgetscope.analysis.inputs.training_shares import SHARES, probes_within
from forgetscope.errors import StoreError
from forgetscope.measuring.forgetting import forgetting_half_gap, forgetting_range
from forgetscope.store import COEFFICIENTS, Store, StoredStep

Values = NDArray[np.float64]

READERS = 2  # threads; hashing, decoding and sorting run without the interpreter's lock
BATCH = 64  # steps that are on their way at once


@dataclass(frozen=True)
class StepFacts:
    """What a step is, from its step.json."""

    id: str
    parent: str | None
    step: int
    seed: int
    new_classes: tuple[int, ...]
    dataset: str
    digest: str
    network: str
    retention: float | None
    memory: int | None
    policy: str
    options: dict[str, Any]  # everything else that steps of one benchmark have in common
    simulated: dict[str, Any] | None
    diverged: bool


@dataclass(frozen=True)
class MeasuredStep:
    """A step with past classes that came to its end. P counts the past classes, C those with nothing missing."""

    facts: StepFacts
    class_ids: NDArray[np.int64]  # [P]
    forgetting: Values  # [P]; NaN where undefined
    complete: NDArray[np.bool_]  # [P]: forgetting and every measure are known
    measures: Values  # [5, P]: SIC, CIC, NIC, ALL-NIC, LOG-SIM; NaN where missing
    early: Values  # [shares, 3, C]: SIC, CIC, NIC from the first probes only
    associations: Values  # as named in `associations.ASSOCIATIONS`, from all probes
    course: NDArray[np.float32]  # [probes, associations]: from the first probes only

    @property
    def severity(self) -> tuple[float, float]:
        """FG-R and FG-HG."""
        return forgetting_range(self.forgetting), forgetting_half_gap(self.forgetting)

    @property
    def ranked(self) -> Values:
        """[C]: the forgetting of the classes that can be ranked by everything."""
        known: Values = self.forgetting[self.complete]
        return known


@dataclass(frozen=True)
class ReadSteps:
    """All of a store."""

    facts: dict[str, StepFacts]  # every step, by id
    measured: dict[str, MeasuredStep]
    damaged: tuple[str, ...]


def read_steps(store: Store, cache: Cache, progress: Callable[[str, int, int], None]) -> ReadSteps:
    """Read what the cache does not know yet, a few steps at a time."""
    ids = sorted(store.ids())
    facts: dict[str, StepFacts] = {}
    measured: dict[str, MeasuredStep] = {}
    damaged: list[str] = []

    def read(id: str) -> Arrays | StoreError:
        step = store.step(id)
        try:
            files = [step.manifest[name]["sha256"] for name in ("step.json", "classes.parquet", "probes.parquet")]
            return cache.get("step", f"{id} {files}", lambda: _arrays(step))
        except StoreError as error:
            return error

    with ThreadPoolExecutor(READERS) as pool:
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            for id, arrays in zip(batch, pool.map(read, batch), strict=True):
                if isinstance(arrays, StoreError):
                    damaged.append(id)
                    continue
                facts[id] = _facts_from(arrays)
                if "forgetting" in arrays:
                    measured[id] = _measured_from(facts[id], arrays)
            progress("steps read", start + len(batch), len(ids))
    return ReadSteps(facts, measured, tuple(damaged))


def partial_sums(step: StoredStep) -> Values:
    """[probes, 3, C]: SIC, CIC and NIC of the classes with nothing missing, from the first probes only."""
    past = _past(step)
    return _cumulative(step, past["class_id"])[:, :3][:, :, _complete(past)]


def _arrays(step: StoredStep) -> Arrays:
    facts = _facts(step)
    arrays: Arrays = {"facts": np.frombuffer(json.dumps(vars(facts)).encode(), np.uint8)}
    if facts.step == 1 or facts.diverged:
        return arrays
    past = _past(step)
    complete = _complete(past)
    sums = _cumulative(step, past["class_id"])[:, :, complete]
    every = np.stack([past[name] for name in (*COEFFICIENTS, "log_sim")])
    measures = every[:, complete]
    forgetting = past["forgetting"][complete]
    shares = [probes_within(share, len(sums)) for share in SHARES]
    empty = np.full((3, int(complete.sum())), np.nan)
    found = associations_of(np.concatenate([sums, measures[None, :4]]), measures[4], forgetting)
    return arrays | {
        "class_ids": past["class_id"],
        "forgetting": past["forgetting"],
        "complete": complete,
        "measures": every,
        "early": np.stack([sums[n - 1, :3] if n else empty for n in shares]),
        "associations": found[-1],
        "course": found[:-1].astype(np.float32),
    }


def _facts(step: StoredStep) -> StepFacts:
    spec, info = step.spec, step.info
    rehearsal = spec.rehearsal
    rest = {} if rehearsal is None else rehearsal.model_dump(exclude={"policy", "policy_source", "retention", "memory"})
    options = {**spec.training.model_dump(mode="json"), **rest, "protocol": spec.protocol}
    options["image_size"] = info["data"].get("image_size")
    return StepFacts(
        id=step.id,
        parent=step.parent,
        step=spec.step,
        seed=spec.seed,
        new_classes=spec.classes,
        dataset=str(info["data"]["name"]),
        digest=str(info["data"]["digest"]),
        network=str(info["network"]),
        retention=rehearsal.retention if rehearsal else None,
        memory=rehearsal.memory if rehearsal else None,
        policy=rehearsal.policy if rehearsal else "",
        options=options,
        simulated=step.simulated,
        diverged=step.divergence is not None,
    )


def _facts_from(arrays: Arrays) -> StepFacts:
    values = json.loads(arrays["facts"].tobytes())
    return StepFacts(**{**values, "new_classes": tuple(values["new_classes"])})


def _measured_from(facts: StepFacts, arrays: Arrays) -> MeasuredStep:
    return MeasuredStep(facts, **{name: values for name, values in arrays.items() if name != "facts"})  # type: ignore[arg-type]


def _past(step: StoredStep) -> dict[str, NDArray[Any]]:
    """Columns of the past classes, in the order of the head's nodes."""
    table = step.table("classes", ["class_id", "introduced_step", "forgetting", *COEFFICIENTS, "log_sim"])
    past = table.column("introduced_step").to_numpy() < step.spec.step
    names = ("forgetting", *COEFFICIENTS, "log_sim")
    columns = {name: table.column(name).to_numpy(zero_copy_only=False)[past].astype(np.float64) for name in names}
    return {"class_id": table.column("class_id").to_numpy()[past].astype(np.int64), **columns}


def _complete(past: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    known: NDArray[np.bool_] = np.isfinite(np.stack([past[name] for name in ("forgetting", *COEFFICIENTS, "log_sim")])).all(
        axis=0
    )
    return known


def _cumulative(step: StoredStep, class_ids: NDArray[np.int64]) -> Values:
    """[probes, 4, P]: sums of the terms so far; once a term is missing, so is every later sum."""
    table = step.table("probes", ["probe", "class_id", *COEFFICIENTS])
    classes, probes = len(class_ids), table.num_rows // max(1, len(class_ids))
    terms = np.empty((probes, len(COEFFICIENTS), classes))
    ids = table.column("class_id").to_numpy()
    order = None
    if not np.array_equal(ids, np.tile(class_ids, probes)):  # not as it is written here: put in order
        node = {id: i for i, id in enumerate(class_ids.tolist())}
        moments = table.column("probe").to_numpy()
        if len(ids) != probes * classes or len(np.unique(moments)) != probes or not node.keys() >= set(ids.tolist()):
            raise step.damaged("probes.parquet", "no row for each probe and past class of classes.parquet")
        order = np.lexsort(([node[id] for id in ids.tolist()], moments))
    for i, name in enumerate(COEFFICIENTS):
        values = table.column(name).to_numpy(zero_copy_only=False)
        terms[:, i] = (values if order is None else values[order]).reshape(probes, classes)
    return np.cumsum(terms, axis=0, out=terms)
