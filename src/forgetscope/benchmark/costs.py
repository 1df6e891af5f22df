"""What a plan will take: time, memory and disk, from rates that were measured on this machine."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from forgetscope.benchmark.plans import Job, Plan
from forgetscope.choices import named_method
from forgetscope.measuring.keepsakes import FITTED_IMAGES, spread_length
from forgetscope.measuring.subsampled.quotas import new_quota
from forgetscope.spec import StepSpec

# Of a stored step: per probe and class, per pair, per test image, per number of a keepsake, all the rest.
PROBE_ROW_BYTES, PAIR_BYTES, PREDICTION_BYTES, KEPT_BYTES, FILES_BYTES = 75, 10, 8, 4, 25_000

FORECAST_BYTES = 50  # per probe and class
FORECAST_PASSES = 3  # what a forecast takes, in passes over its images through a small network; of a large one, less


@dataclass(frozen=True)
class Rates:
    """Measured in as many processes at a time as the plan will use."""

    first_image: float  # seconds per trained image, first steps
    image: float  # seconds per trained image, later steps
    measured_image: float  # seconds per image of a probe
    evaluated_image: float  # seconds per test image, and per image that a policy looks at
    epoch: float  # seconds at the end of an epoch: snapshot and probes so far
    step: float  # seconds at the start and at the end of a step
    memory: float  # bytes of a process, without a step's own images
    state: float  # bytes of a network
    features: float = 64.0  # that its head takes; those of before did not say

    @classmethod
    def mean(cls, rates: Collection[Rates]) -> Rates:
        return cls(**{name: sum(getattr(r, name) for r in rates) / len(rates) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class PlanCosts:
    """Of the steps that are still to do."""

    seconds: float
    jobs: int  # processes at a time
    memory: float  # bytes of the largest of them, at the same time
    disk: float  # bytes
    rates: Rates


def estimate(plan: Plan, todo: Collection[str], rates: Rates, jobs: int) -> PlanCosts:
    costs = {id: step_seconds(plan.jobs[id], plan, rates) for id in todo}
    height, width = plan.data.shape
    image_bytes = 3 * height * width
    largest = sorted((_held(plan.jobs[id], plan, image_bytes, rates) for id in todo), reverse=True)[:jobs]
    return PlanCosts(
        seconds=makespan({id: plan.jobs[id] for id in todo}, costs, jobs),
        jobs=jobs,
        memory=rates.memory * jobs + sum(largest),
        disk=sum(step_bytes(plan.jobs[id], plan, rates) for id in todo),
        rates=rates,
    )


def step_seconds(job: Job, plan: Plan, rates: Rates) -> float:
    spec, data = job.spec, plan.data
    new, past = (count * _used_images(spec, plan) for count in (len(spec.classes), job.past_classes))
    seen = (len(spec.classes) + job.past_classes) * data.test_images
    seconds = rates.step + spec.training.epochs * rates.epoch + seen * rates.evaluated_image
    if spec.rehearsal is None:
        return seconds + spec.training.epochs * new * rates.first_image
    seconds += spec.training.epochs * new / (1 - spec.rehearsal.alpha) * rates.image
    seconds += _probes(spec) * _probed_images(job, plan) * rates.measured_image
    seconds += _iterations(spec, new) * (past + new) * rates.measured_image
    seconds += _probes_of_all_layers(spec) * (past + new) * rates.image
    if spec.rehearsal.policy != "uniform":
        seconds += past * rates.evaluated_image
    if spec.rehearsal.forecast:  # at the start, at each probe and in the end
        looked = (len(spec.classes) + job.past_classes) * min(_used_images(spec, plan), FITTED_IMAGES)
        seconds += (_probes(spec) + 2) * looked * FORECAST_PASSES * rates.measured_image
    seconds += _looked_at_by_method(job, plan, rates) * rates.evaluated_image
    if spec.rehearsal.keepsake is not None or spec.rehearsal.quota is not None:  # features, predictions of what was learned
        learned = len(plan.jobs[job.parent].spec.classes) if job.parent in plan.jobs else job.past_classes
        seconds += 2 * learned * _used_images(spec, plan) * rates.evaluated_image
    return seconds


def step_work(job: Job, plan: Plan) -> float:
    """The same in units of a trained image, where nothing was measured: for shares of the whole."""
    return step_seconds(job, plan, Rates(1.0, 1.0, 0.4, 0.4, 10.0, 100.0, 0, 0))


def step_bytes(job: Job, plan: Plan, rates: Rates) -> float:
    spec, past = job.spec, job.past_classes
    pairs = past * (past + len(spec.classes)) * PAIR_BYTES
    probes = _probes(spec) + _probes_of_all_layers(spec) + _iterations(spec, len(spec.classes) * _used_images(spec, plan))
    predicted = (past + len(spec.classes)) * plan.data.test_images * PREDICTION_BYTES
    kind = spec.rehearsal.keepsake if spec.rehearsal else None
    kept = 0.0 if kind is None else past * (rates.features + spread_length(kind, int(rates.features))) * KEPT_BYTES
    if spec.rehearsal is not None and spec.rehearsal.forecast:  # where they were carried to, and a forecast for each probe
        kept = 2 * kept + _probes(spec) * past * FORECAST_BYTES
    method = named_method(spec.rehearsal.method)[0] if spec.rehearsal and spec.rehearsal.method else None
    kept += _kept_images(job, plan, rates) * past * KEPT_BYTES if method == "dark-logits" else 0.0
    return FILES_BYTES + rates.state + pairs + probes * past * PROBE_ROW_BYTES + predicted + kept


def makespan(todo: Mapping[str, Job], costs: Mapping[str, float], workers: int) -> float:
    """Seconds until all is done, if each free worker takes the job with the longest way to go among those that can start."""
    ahead = longest_ahead(todo, costs)
    children: dict[str | None, list[str]] = {}
    for job in todo.values():
        children.setdefault(job.parent if job.parent in todo else None, []).append(job.id)
    ready = [(-ahead[id], id) for id in children.get(None, [])]
    heapq.heapify(ready)
    running: list[tuple[float, str]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < workers:
            id = heapq.heappop(ready)[1]
            heapq.heappush(running, (now + costs[id], id))
        now, finished = heapq.heappop(running)
        for id in children.get(finished, []):
            heapq.heappush(ready, (-ahead[id], id))
    return now


def longest_ahead(todo: Mapping[str, Job], costs: Mapping[str, float]) -> dict[str, float]:
    """Per job: its own cost and that of the costliest way through what builds on it. `todo` has parents first."""
    ahead = {id: costs[id] for id in todo}
    for job in reversed(list(todo.values())):
        if job.parent in ahead:
            ahead[job.parent] = max(ahead[job.parent], costs[job.parent] + ahead[job.id])
    return ahead


def _looked_at_by_method(job: Job, plan: Plan, rates: Rates) -> float:
    """Images of which a method of ours has logits before training begins; of a user's own nothing is known."""
    rehearsal = job.spec.rehearsal
    if rehearsal is None or rehearsal.method is None:
        return 0.0
    new, kept = len(job.spec.classes) * _used_images(job.spec, plan), _kept_images(job, plan, rates)
    return {"distillation": new + kept, "dark-logits": kept}.get(named_method(rehearsal.method)[0], 0.0)


def _kept_images(job: Job, plan: Plan, rates: Rates) -> float:
    """In the memory, of all past classes."""
    rehearsal, there = job.spec.rehearsal, job.past_classes * _used_images(job.spec, plan)
    if rehearsal is None:
        return 0.0
    if rehearsal.retention is not None:
        return rehearsal.retention * there
    if rehearsal.memory_bytes is None:
        return float(rehearsal.memory or 0)
    prices = plan.prices(job.id, rehearsal, int(rates.features))
    room = rehearsal.memory_bytes - prices.besides * job.past_classes
    return min(there, max(1.0, room / sum(prices.images.values())) * job.past_classes)


def _used_images(spec: StepSpec, plan: Plan) -> float:
    return plan.data.train_images * (1 - (spec.training.validation or 0.0))


def _held(job: Job, plan: Plan, image_bytes: int, rates: Rates) -> float:
    """Bytes: a step's new images and, for the probe, all of its past classes'; for one of all layers, a gradient of each."""
    images = (len(job.spec.classes) + job.past_classes) * _used_images(job.spec, plan) * image_bytes
    return images + (job.past_classes * rates.state if _probes_of_all_layers(job.spec) else 0)


def _probes(spec: StepSpec) -> int:
    if spec.rehearsal is not None and spec.rehearsal.probes is not None:
        return spec.rehearsal.probes
    return _times(spec, spec.rehearsal.probe_every if spec.rehearsal else 0)


def _probed_images(job: Job, plan: Plan) -> float:
    """Those that one probe looks at."""
    of_each, new = _used_images(job.spec, plan), len(job.spec.classes)
    some = job.spec.rehearsal.probe_images if job.spec.rehearsal else None
    if some is None:
        return (job.past_classes + new) * of_each
    return job.past_classes * min(some, of_each) + new * min(new_quota(some, new), of_each)


def _probes_of_all_layers(spec: StepSpec) -> int:
    return _times(spec, (spec.rehearsal.all_layers_every or 0) if spec.rehearsal else 0)


def _times(spec: StepSpec, every: int) -> int:
    return 1 + -(-spec.training.epochs // every) if every else 0


def _iterations(spec: StepSpec, new_images: float) -> float:
    """Those that are measured each."""
    if spec.rehearsal is None or not spec.rehearsal.every_iteration:
        return 0
    per_batch = spec.training.batch * (1 - spec.rehearsal.alpha)
    return spec.training.epochs * math.ceil(new_images / per_batch)
