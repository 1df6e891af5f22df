"""Plans, their progress and what was simulated, as tables for a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from forgetscope.benchmark.costs import PlanCosts
from forgetscope.benchmark.plans import Plan
from forgetscope.benchmark.space import Drawn, Partition
from forgetscope.benchmark.status import Status
from forgetscope.benchmark.truth import Truth
from forgetscope.characters import counted
from forgetscope.data.augmentation import earlier_augmentation
from forgetscope.report.terminal.columns import make_table, titled
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.units import duration, size_text

if TYPE_CHECKING:
    from forgetscope.benchmark.simulation import Simulated

FAILURES_SHOWN = 10
LISTED = 3  # classes of a step


def plan_document(
    plan: Plan, done: int, estimate: PlanCosts | None, missing: str | None, earlier: int = 0, uncalibrated: int = 0
) -> dict[str, Any]:
    """`missing` says why there is no estimate; `earlier` counts steps that `left_behind` finds, `uncalibrated` those to run
    that are there and lack a calibration."""
    partitions = plan.partitions()
    return {
        "plan": plan.id,
        "kind": plan.about["kind"],
        "dataset": plan.data.name,
        "network": plan.template.network,
        "experiments": len(plan.chains),
        "measured_steps": {str(step): sum(len(ids) for ids in cells.values()) for step, cells in partitions.items()},
        "partitions": {
            str(step): [{**asdict(partition), "steps": len(ids)} for partition, ids in cells.items()]
            for step, cells in partitions.items()
        },
        "reruns": sum(len(reruns.others) for reruns in plan.reruns),
        "steps": len(plan.jobs),
        "steps_done": done,
        "steps_not_reused": earlier,
        "steps_to_run": len(plan.jobs) - done,
        "steps_uncalibrated": uncalibrated,
        "steps_shared": plan.steps_shared,
        "estimate": {"missing": missing} if estimate is None else asdict(estimate),
    }


def plan_view(
    plan: Plan, done: int, estimate: PlanCosts | None, missing: str | None, earlier: int = 0, uncalibrated: int = 0
) -> RenderableType:
    table = make_table((), ("step", "increment", "retention", "measured steps"))
    for step, cells in plan.partitions().items():
        for partition, ids in cells.items():
            table.add_row(str(step), *_shares(partition), str(len(ids)))
    shared = counted(plan.steps_shared, "more is shared/more are shared")
    lines = [f"{counted(len(plan.chains), 'experiment')}, {counted(len(plan.jobs), 'distinct step')} ({shared})"]
    if plan.reruns:
        times = counted(sum(len(reruns.others) for reruns in plan.reruns), "time")
        lines.append(f"{counted(len(plan.reruns), 'step', 'is/are')} run again, {times} in all")
    lines.append(f"{counted(done, 'step', 'is/are')} done, {counted(len(plan.jobs) - done, 'is/are')} to run")
    lines += _uncalibrated(uncalibrated)
    if earlier:
        crop = earlier_augmentation(plan.data.name, plan.data.shape[0]) or plan.data.augmentation
        lines.append(
            f"{counted(earlier, 'step', 'was/were')} made by an earlier version with a crop of {crop.crop} pixels, now "
            f"{plan.data.augmentation.crop}; readable as before, not reused (--set crop={crop.crop} does)"
        )
    if estimate is None:
        lines.append(f"No estimate: {missing}")
    else:
        time = f"about {duration(estimate.seconds)} with {counted(estimate.jobs, 'job')} at a time"
        memory, disk = (size_text(round(size)) for size in (estimate.memory, estimate.disk))
        lines.append(f"They take {time}, {memory} of memory and {disk} on disk")
    return titled(f"Plan {plan.id}: {plan.data.name}, {plan.template.network}", table, *lines)


def sample_document(drawn: list[Drawn]) -> list[dict[str, Any]]:
    return [
        {
            **asdict(experiment.partition),
            "policy": experiment.policy,
            "number": experiment.number,
            "seed": experiment.run.seed,
            "sequence_seed": experiment.run.sequence_seed,
            "sequence": [list(group) for group in experiment.sequence],
        }
        for experiment in drawn
    ]


def sample_view(drawn: list[Drawn]) -> RenderableType:
    numbers = ("increment", "retention", "number", "seed")
    table = make_table(("classes of each step", "policy"), numbers, settings=("policy", "increment", "retention"))
    for experiment in drawn:
        first = (" ".join(map(str, group[:LISTED])) for group in experiment.sequence)
        more = (f" ... ({len(group)})" if len(group) > LISTED else "" for group in experiment.sequence)
        classes = " | ".join(map("".join, zip(first, more, strict=True)))
        own = (str(experiment.number), str(experiment.run.seed))
        table.add_row(classes, experiment.policy, *_shares(experiment.partition), *own)
    return table


def status_view(status: Status) -> RenderableType:
    table = make_table((), ("step", "increment", "retention", "done", "running", "failed", "diverged"))
    for cell in status.cells:
        step = "re-runs" if cell.step is None else str(cell.step)
        counts = [f"{cell.done} of {cell.total}", *(str(n or "") for n in (cell.running, cell.failed, cell.diverged))]
        table.add_row(step, *_shares(cell.partition), *counts)
    lines = [f"{counted(status.done, 'step', 'is/are', status.total)} done" + ("" if status.active else "; nothing is running")]
    lines += _uncalibrated(status.uncalibrated)
    if not status.active and status.done + status.blocked + len(status.failures) < status.total:
        lines.append("The command that runs this plan does the rest.")
    lines += [f"  running: {job['step'][:8]}, epoch {job['epoch']} of {job['epochs']}" for job in status.running]
    if status.seconds_left is not None and status.steps_per_hour is not None:
        lines.append(f"{counted(round(status.steps_per_hour), 'step')} per hour, {duration(status.seconds_left)} left")
    for step, message in list(status.failures.items())[:FAILURES_SHOWN]:
        lines.append(f"  failed: {step[:8]}: {message}")
    if len(status.failures) > FAILURES_SHOWN:
        lines.append(f"  and {len(status.failures) - FAILURES_SHOWN} more")
    if status.diverged:
        lines += [f"{counted(status.diverged, 'step', 'diverged: it is/diverged: they are')} kept and excluded from statistics"]
    if n := status.blocked:
        lines += [f"{counted(n, 'step', 'builds/build')} on one that failed or diverged and {'are' if n > 1 else 'is'} not run"]
    return titled(f"Plan {status.plan}", table, *lines)


def simulation_document(result: Simulated, seed: int, truth: Truth) -> dict[str, Any]:
    expected = truth.expected_correlations()
    return {**asdict(result), "seed": seed, "truth": truth.model_dump(), "expected_correlations": expected}


def simulation_view(result: Simulated, store: str, seed: int, truth: Truth) -> RenderableType:
    """What a simulation wrote, and the truth behind it."""
    table = make_table(("truth",), ("value",))
    table.add_column("")
    for name, info in Truth.model_fields.items():
        table.add_row(name, f"{getattr(truth, name):g}", info.description or "")
    expected = (f"{name.upper().replace('_', '-')} {PLAIN.number(rho)}" for name, rho in truth.expected_correlations().items())
    written = f"{counted(result.written, 'step')} written to {store}, {result.present} were there already"
    damaged = f", {counted(result.quarantined, 'damaged one', 'is/are')} in quarantine" if result.quarantined else ""
    return titled(
        f"Simulated with seed {seed}: {written}{damaged}",
        table,
        f"{counted(result.reruns, 'step')} of these repeat another with other new classes",
        f"Correlation with forgetting that follows: {', '.join(expected)}",
        f"Plans: {', '.join(result.plans)}",
    )


def _uncalibrated(count: int) -> list[str]:
    return [f"{counted(count, 'further step is/further steps are')} trained, and not calibrated yet"] if count else []


def _shares(partition: Partition | None) -> tuple[str, str]:
    return ("", "") if partition is None else (f"{100 * partition.increment:g} %", f"{100 * partition.retention:g} %")
