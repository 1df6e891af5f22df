"""What one step contributes to an analysis: its facts, its past classes' forgetting and coefficients, and how they go together.

Computed from the step's files once; a later analysis takes it from the cache.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.inputs.associations import associations_of
from forgetscope.analysis.inputs.cache import Arrays, Cache
from forgetscope.analysis.inputs.recognised import Seen, barely_learned_of, recognised, seen_by
from forgetscope.analysis.inputs.training_shares import SHARES, probes_within
from forgetscope.analysis.statistics.noise import Recognised, noise_of_step, sampling_variances
from forgetscope.errors import StoreError
from forgetscope.measuring.forgetting import forgetting_half_gap, forgetting_range
from forgetscope.measuring.quantities import FORECAST
from forgetscope.store import COEFFICIENTS, Recording, Setting, Store, StoredStep, StoredTables, exactness, past_rows

Values = NDArray[np.float64]

KNOWN = ("forgetting", *COEFFICIENTS, "log_sim")  # of a class, for it to be ranked by everything
READERS = 2  # threads; hashing, decoding and sorting run without the interpreter's lock
BATCH = 64  # steps that are on their way at once
RECENT = 16  # steps whose test images are remembered for those that follow them


@dataclass(frozen=True)
class StepFacts:
    """What a step is, from its step.json."""

    id: str
    parent: str | None
    step: int
    seed: int
    new_classes: tuple[int, ...]
    setting: Setting
    data_classes: int | None  # of the whole data set, where it is recorded
    simulated: dict[str, Any] | None
    diverged: bool
    exactness: tuple[float, ...]  # of what it measured
    released_nic: bool  # whether it measured NIC as the released scripts have it, too
    committed: str

    @property
    def recording(self) -> Recording:
        return Recording(self.id, self.parent, self.seed, self.new_classes, self.setting, self.exactness, self.committed)


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
    forecast: Values  # [6, P]: as in `quantities.FORECAST`; NaN where there is none
    images: Values  # [P]: test images
    paired: NDArray[np.bool_]  # [P]: single test images are known, of now and of when the class was learned
    variances: Values  # [P]: of forgetting, by the noise of the test images alone; NaN where forgetting is undefined
    noise: Values  # [4]: as in `statistics.noise.Noise`
    learned: Values  # [P]: accuracy when learned; NaN where unknown
    now: Values  # [P]: accuracy
    barely: NDArray[np.bool_]  # [P]: as in `statistics.learned`
    clear_noise: Values  # [4]: as `noise`, of the other classes alone

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
    arrays: dict[str, Arrays] = {}
    images: dict[str, list[str]] = {}  # by id, the digests of what says which test images were recognised
    damaged: list[str] = []
    step_of, seen = lru_cache(RECENT)(store.step), lru_cache(RECENT)(seen_by)

    def read(id: str) -> Arrays:
        step = store.step(id)
        images[id] = _digests(step, "classes", "confusion", "predictions")
        return cache.get("step", f"{id} {_digests(step, 'step.json', 'classes', 'probes')}", lambda: _arrays(step))

    def compare(id: str) -> Arrays:
        """With when its classes were learned, for which all facts must be known."""
        chain = (id, *_ancestors(facts, id))

        def compute(*before: str) -> Arrays:
            return _noise_arrays(step_of(id), {facts[other].step: step_of(other) for other in before}, seen)

        try:
            return cache.get("noise", f"{id} {[images[own] for own in chain]}", lambda: compute(*chain[1:]))
        except StoreError:  # of a damaged ancestor; not kept, because it may be made anew
            return compute()

    for id, found in _in_batches(read, ids, partial(progress, "steps read")):
        if isinstance(found, StoreError):
            damaged.append(id)
            continue
        facts[id] = _facts_from(found.pop("facts"))
        if found:
            arrays[id] = found
    # Each step right after those that it was built on, which are still remembered then.
    chains = sorted(arrays, key=lambda id: (id, *_ancestors(facts, id))[::-1])
    for id, found in _in_batches(compare, chains, partial(progress, "steps compared")):
        if isinstance(found, StoreError):
            damaged.append(id)
        else:
            arrays[id] |= found
    for id in damaged:
        for known in (facts, arrays):
            known.pop(id, None)
    measured = {id: MeasuredStep(facts[id], **own) for id, own in arrays.items()}  # type: ignore[arg-type]
    return ReadSteps(facts, measured, tuple(sorted(damaged)))


def _in_batches(
    read: Callable[[str], Arrays], ids: Sequence[str], progress: Callable[[int, int], None]
) -> Iterator[tuple[str, Arrays | StoreError]]:
    def tried(id: str) -> Arrays | StoreError:
        try:
            return read(id)
        except StoreError as error:
            return error

    with ThreadPoolExecutor(READERS) as pool:
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            yield from zip(batch, pool.map(tried, batch), strict=True)
            progress(start + len(batch), len(ids))


def _digests(step: StoredStep, *names: str) -> list[str]:
    """Of those of these files that the step has."""
    files = (name if "." in name else f"{name}.parquet" for name in names)
    return [step.manifest[file]["sha256"] for file in files if file in step.manifest]


def _ancestors(facts: Mapping[str, StepFacts], id: str) -> Iterator[str]:
    """As far as they are in the store and can be read."""
    parent = facts[id].parent
    while parent is not None and parent in facts:
        yield parent
        parent = facts[parent].parent


def _noise_arrays(
    step: StoredStep, ancestors: Mapping[int, StoredStep], seen_by: Callable[[StoredTables], Seen | None]
) -> Arrays:
    found, paired = recognised(step, ancestors, seen_by)
    barely = barely_learned_of(step, found.learned, found.images)
    clear = Recognised(*(column[~barely] for column in found))
    noise = np.array(noise_of_step(found))
    return {
        **{"images": found.images, "paired": paired, "variances": sampling_variances(found), "noise": noise},
        **{"learned": found.learned.astype(np.float64), "now": found.now.astype(np.float64), "barely": barely},
        "clear_noise": np.array(noise_of_step(clear)) if barely.any() else noise,
    }


def partial_sums(step: StoredStep) -> Values:
    """[probes, 3, C]: SIC, CIC and NIC of the classes with nothing missing, from the first probes only."""
    past = step.past_classes("class_id", *KNOWN)
    return step.partial_sums(past["class_id"])[1][:, :3, _stacked(past)[1]]


def _arrays(step: StoredStep) -> Arrays:
    facts = _facts(step)
    arrays: Arrays = {"facts": np.frombuffer(json.dumps(asdict(facts)).encode(), np.uint8)}
    if facts.step == 1 or facts.diverged:
        return arrays
    past = step.past_classes("class_id", *KNOWN)
    every, complete = _stacked(past)
    sums = step.partial_sums(past["class_id"])[1][:, :, complete]
    forgetting, *measures = every[:, complete]
    shares = [probes_within(share, len(sums)) for share in SHARES]
    empty = np.full((3, int(complete.sum())), np.nan)
    found = associations_of(np.concatenate([sums, [measures[:4]]]), measures[4], forgetting)
    return arrays | {
        "class_ids": past["class_id"].astype(np.int64),
        "forgetting": every[0],
        "complete": complete,
        "measures": every[1:],
        "early": np.stack([sums[n - 1, :3] if n else empty for n in shares]),
        "associations": found[-1],
        "course": found[:-1].astype(np.float32),
        "forecast": _forecast(step, len(complete)),
    }


def _forecast(step: StoredStep, past: int) -> Values:
    """[forecast, P]; missing of steps that make none."""
    if not step.forecasts:
        return np.full((len(FORECAST), past), np.nan)
    table = step.table("classes", ["introduced_step", *FORECAST])
    with step.naming("classes.parquet"):
        if absent := [name for name in FORECAST if name not in table.column_names]:
            raise ValueError(f"no column {absent[0]}, in a step with forecast")
    rows = past_rows(table, step.number)
    return np.stack([table[name].to_numpy()[rows] for name in FORECAST]).astype(np.float64)


def _stacked(past: dict[str, NDArray[Any]]) -> tuple[Values, NDArray[np.bool_]]:
    """[6, P]: forgetting and the measures; and [P]: where all of them are known."""
    every = np.stack([past[name].astype(np.float64) for name in KNOWN])
    complete: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(every))
    return every, complete


def _facts(step: StoredStep) -> StepFacts:
    return StepFacts(
        id=step.id,
        parent=step.parent,
        step=step.number,
        seed=step.spec.seed,
        new_classes=step.spec.classes,
        setting=step.setting,
        data_classes=step.info["data"].get("classes"),
        simulated=step.simulated,
        diverged=step.divergence is not None,
        exactness=exactness(step.info["spec"]),
        released_nic=bool((step.info["spec"]["rehearsal"] or {}).get("released_nic")),
        committed=step.info["committed"],
    )


def _facts_from(array: NDArray[np.generic]) -> StepFacts:
    values = json.loads(array.tobytes())
    setting = Setting(**{**values["setting"], "shape": tuple(values["setting"]["shape"])})
    lists = {name: tuple(values[name]) for name in ("new_classes", "exactness")}
    return StepFacts(**{**values, **lists, "setting": setting})
