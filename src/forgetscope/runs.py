"""Plan, run and compare, as Python and the command line do it alike."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.questions.arms import ArmMeasure, compare_arms
from forgetscope.analysis.questions.controlled import ControlledStep, controlled_results
from forgetscope.analysis.questions.policies import PolicyComparison, compare_policies, planned_experiments
from forgetscope.analysis.questions.variants import VariantComparison, compare_variants
from forgetscope.benchmark.arms import chains_by_arm
from forgetscope.benchmark.controlled import Controlled
from forgetscope.benchmark.pairs import Comparison, Variants
from forgetscope.benchmark.plans import Plan, chain_of
from forgetscope.benchmark.recipes import Contrast, Spec, Wanted, plan_of, templates_of
from forgetscope.benchmark.records import Journal, folder_of
from forgetscope.benchmark.shards import Shard
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.data.library import load_data
from forgetscope.engines.dispatch import Outcome, Watcher
from forgetscope.engines.running import carry_out
from forgetscope.engines.work import Place
from forgetscope.errors import DataError, ForgetscopeError, SpecError
from forgetscope.options import demand
from forgetscope.progress import watch as display
from forgetscope.spec import RunSpec
from forgetscope.store import Store, has_calibrations

Compared = list[PolicyComparison] | list[ArmMeasure] | list[VariantComparison] | list[ControlledStep]
SPECS = (RunSpec, BenchmarkSpec, Comparison, Variants, Controlled)


@dataclass(frozen=True)
class Failed:
    """An experiment of a plan that did not come to its end.

    >>> import forgetscope as fs
    >>> fs.Failed("3f2a", "77c0", "diverged at iteration 12").message
    'diverged at iteration 12'
    """

    id: str  # by which it would be known: of its last step
    step: str  # the one that failed, that diverged, or whose workers died
    message: str


def plan(spec: Spec) -> Plan:
    """The steps that a run, a benchmark, a comparison, variants or controlled experiments need.

    Glyphs are drawn, if they are not here. Where other data are not here, the steps are counted and have no final ids.

    >>> import forgetscope as fs
    >>> len(fs.plan(fs.Comparison(fs.RunSpec(steps=2), ["uniform", "herding"], pairs=3)).jobs)
    9
    """
    _demand_spec(spec, "fs.plan", SPECS)
    for run in templates_of(spec):
        try:
            load_data(run.dataset, run.image_size)
        except DataError:  # which `plan_of` says too, if nothing is known about them
            break
    return plan_of(spec)


class Options(TypedDict, total=False):
    """Of `run`, which says what they mean."""

    on: Place | None
    watch: Watcher | None
    device: str | None
    threads: int | None
    channels_last: bool | None
    compile: bool | None
    progress: bool
    estimate: bool
    shard: str | None
    retry: bool


@overload
def run(spec: RunSpec, store: str | Path | Store = ..., **options: Unpack[Options]) -> Experiment: ...
@overload
def run(
    spec: BenchmarkSpec | Contrast | Plan, store: str | Path | Store = ..., **options: Unpack[Options]
) -> list[Experiment | Failed]: ...
def run(
    spec: Wanted,
    store: str | Path | Store = "forgetscope-store",
    *,
    on: Place | None = None,
    watch: Watcher | None = None,
    device: str | None = None,
    threads: int | None = None,
    channels_last: bool | None = None,
    compile: bool | None = None,
    progress: bool = True,
    estimate: bool = False,
    shard: str | None = None,
    retry: bool = False,
) -> Experiment | list[Experiment | Failed]:
    """Run a specification or a plan, or what is missing of it in the store.

    A RunSpec gives its Experiment, or raises what went wrong: on every engine the same class of forgetscope.errors (its
    `__cause__`, and what is none of them, in this process only). Anything else gives a list in the order of the plan: of each
    chain, then of each rerun, its Experiment or why it has none; a step that fails stops nothing but what builds on it.

    on: fs.Here(), fs.Local(jobs=2) or fs.Ray(address=...). device, threads, channels_last (the memory layout) and compile
    (through torch.compile) are short for those of fs.Here: recorded, and without effect on an id. watch: an fs.Watcher, told
    what happens; by default a display on standard error, if there is `progress`. estimate: measure first how long it will
    take. shard: "2/8" is the second of eight parts. retry: steps of a plan that failed before are tried again.

    Ctrl-C, SIGTERM and SIGUSR1 save a snapshot and stop: forgetscope.errors.Interrupted. The same call continues.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> [step.spec.classes for step in result.steps]
    [(0, 1, 2), (3, 4)]
    """
    _demand_spec(spec, "fs.run", (*SPECS, Plan))
    given = {"device": device, "threads": threads, "channels_last": channels_last, "compile": compile}
    opened, place = _opened(store), _place(on, {name: value for name, value in given.items() if value is not None})
    told = {name for name in vars(Watcher) if not name.startswith("_")}
    if watch is not None and (isinstance(watch, type) or not told <= {*dir(watch)}):
        raise SpecError(f"watch = {watch!r} is not valid: it should be an fs.Watcher, or have all of its methods.")
    part, single = Shard.parse(shard) if shard else None, isinstance(spec, RunSpec)
    with display(enabled=progress) if watch is None else nullcontext(watch) as watcher:
        made, outcome = carry_out(spec, opened, place, watcher, estimating=estimate, shard=part, again=retry, raising=single)
    if single:
        chain = made.chains[0]
        return Experiment(opened.chain(chain.steps[-1]), calibration=chain.calibration)
    return experiments(made, opened, outcome, part)


@overload
def compare(
    spec: Comparison, store: str | Path | Store = ..., **options: Unpack[Options]
) -> list[PolicyComparison] | list[ArmMeasure]: ...
@overload
def compare(spec: Variants, store: str | Path | Store = ..., **options: Unpack[Options]) -> list[VariantComparison]: ...
@overload
def compare(spec: Controlled, store: str | Path | Store = ..., **options: Unpack[Options]) -> list[ControlledStep]: ...
def compare(spec: Contrast, store: str | Path | Store = "forgetscope-store", **options: Unpack[Options]) -> Compared:
    """Run a comparison, or what is missing of it in the store, and say what it shows: the rows that `forgetscope compare`,
    `variants` or `controlled` prints; of arms one per step, arm and measure. What failed, as fs.run tells, is in no row; no
    row is an error. Options: as of fs.run.

    >>> import forgetscope as fs
    >>> spec = fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1)
    >>> rows = fs.compare(fs.Comparison(spec, ["uniform", "herding"], pairs=1), "results", progress=False)
    >>> [row.policy for row in rows]
    ['uniform', 'herding']
    """
    _demand_spec(spec, "fs.compare", (Comparison, Variants, Controlled))
    found = run(spec, store, **options)
    rows = results(spec, plan_of(spec), _opened(store))
    if not rows and not options.get("shard"):  # of one part there may be none yet
        reason = next((f" {each.message}" for each in found if isinstance(each, Failed)), "")
        raise ForgetscopeError(nothing_shown(spec) + reason)
    return rows


def nothing_shown(spec: Contrast) -> str:
    """What is wrong with a comparison that has no row."""
    kind = "arm" if isinstance(spec, Comparison) and spec.in_arms else "policy"
    under = f" under {spec.compared_with} and another {kind}" if isinstance(spec, Comparison) else ""
    return "No step was picked." if isinstance(spec, Controlled) else f"No pair came to its end{under}."


def results(spec: Contrast, plan: Plan, store: Store) -> Compared:
    """What a comparison shows, of as much of it as the store has."""
    match spec:
        case Comparison() if spec.in_arms:
            return compare_arms(store, chains_by_arm(plan))
        case Comparison():
            return compare_policies(planned_experiments(store, plan.chains), spec.compared_with)
        case Variants():
            return compare_variants(store, chains_by_arm(plan))
        case Controlled():
            return controlled_results(store, plan.reruns)


def experiments(plan: Plan, store: Store, outcome: Outcome, shard: Shard | None = None) -> list[Experiment | Failed]:
    """Of each chain of a plan, or of those in a part of it, and of each rerun."""
    part = plan.jobs.keys() if shard is None else shard.steps(plan)
    said = {step: str(event["message"]) for step, event in Journal(folder_of(store, plan)).failures(set()).items()}
    said |= outcome.bad
    chains: list[tuple[Sequence[str], str | None]] = [(chain.steps, chain.calibration) for chain in plan.chains]
    ends = {chain.steps[-1] for chain in plan.chains}
    again = (id for picked in plan.reruns for id in (picked.original, *picked.others) if id not in ends)
    chains += [(tuple(job.id for job in chain_of(plan.jobs, id)), None) for id in again]
    return [_experiment(steps, calibration, store, said) for steps, calibration in chains if steps[-1] in part]


def _experiment(chain: Sequence[str], calibration: str | None, store: Store, said: Mapping[str, str]) -> Experiment | Failed:
    for id in chain:
        if id not in store:
            return Failed(chain[-1], id, said.get(id, "It was not run."))
        if facts := store.step(id).divergence:
            return Failed(chain[-1], id, f"diverged at iteration {facts['iteration']}")
        if id in said and not has_calibrations(store, id, [calibration] if calibration and id != chain[0] else []):
            return Failed(chain[-1], id, said[id])
    return Experiment([store.step(id) for id in chain], calibration=calibration)


def _demand_spec(spec: object, function: str, known: Sequence[type]) -> None:
    if not isinstance(spec, tuple(known)):
        kinds = ", ".join(kind.__name__ for kind in known[:-1])
        made = "fs.RunSpec(**options)" if isinstance(spec, Mapping) else "fs.RunSpec.from_toml(path)"
        if RunSpec not in known:
            made = f'fs.Comparison({"spec" if isinstance(spec, RunSpec) else made}, ["uniform", "herding"])'
        advice = "fs.run takes a plan" if isinstance(spec, Plan) else f"make one with {made}"
        if isinstance(spec, BenchmarkSpec):
            advice = "make one with fs.Controlled(spec), or give it to fs.run"
        raise SpecError(f"{function} takes a {kinds} or {known[-1].__name__}, not a {type(spec).__name__}: {advice}.")


def _opened(store: object) -> Store:
    if not isinstance(store, str | Path | Store):
        raise SpecError(f"store = {store!r} is not the path of a folder.")
    return store if isinstance(store, Store) else Store(store)


def _place(on: Place | None, given: Mapping[str, Any]) -> Place:
    if on is None:
        from forgetscope.engines.here import Here  # which needs torch

        return Here(**given)
    demand("on", on, Place, "an engine, such as fs.Here(), fs.Local(jobs=2) or fs.Ray()")
    if given:
        raise SpecError(f"{', '.join(given)}: say it where you say on which engine: on=fs.{type(on).__name__}(...).")
    return on
