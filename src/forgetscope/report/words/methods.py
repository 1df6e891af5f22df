"""Methods: a paragraph for a paper, made from the specifications, and what reproduces a store."""

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from forgetscope.analysis.inputs.samples import Sample, size_of_level
from forgetscope.analysis.results import Analysis
from forgetscope.benchmark.space import BenchmarkSpec, presets
from forgetscope.benchmark.truth import Truth
from forgetscope.characters import counted
from forgetscope.errors import SpecError
from forgetscope.options import toml_value
from forgetscope.report.words.headlines import counted_steps
from forgetscope.report.words.reading import left_out_sentences
from forgetscope.store import StoredStep

LISTED = 12  # seeds that are named; of more, how many there are


@dataclass(frozen=True)
class Command:
    """A command, and the file that it needs if any."""

    command: str
    file: tuple[str, str] | None = None  # name and content


def paragraphs(analysis: Analysis) -> list[str]:
    """Per benchmark what was done, then the statistics and what was excluded."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"listed": _listed, "counted": counted}
    template = environment.from_string(resources.files(__package__).joinpath("methods.txt.j2").read_text(encoding="utf-8"))
    text = template.render(
        benchmarks=[_described(samples) | {"reruns": _reruns(analysis, samples)} for samples in _by_benchmark(analysis)],
        resamples=analysis.resamples,
        coding=analysis.coding,
        controls=analysis.controls,
        excluded=left_out_sentences(analysis),
    )
    return [re.sub("[ \n]+", " ", paragraph).strip(" ") for paragraph in text.split("\n\n")]


def facts(analysis: Analysis, environments: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Versions, seeds and digests."""
    rows = []
    for name in dict.fromkeys(name for environment in environments for name in environment):
        values = dict.fromkeys(str(environment[name]) for environment in environments if name in environment)
        rows.append((f"Made with: {name.replace('_', ' ')}", ", ".join(values)))
    for samples in _by_benchmark(analysis):
        name = samples[0].benchmark
        seeds = sorted({step.facts.seed for sample in samples for step in sample.steps})
        shown = ", ".join(map(str, seeds[:LISTED])) + (f" and {len(seeds) - LISTED} more" if len(seeds) > LISTED else "")
        rows.append((f"Seeds of {name}", shown))
        digests = dict.fromkeys(step.facts.setting.digest for sample in samples for step in sample.steps)
        rows.append((f"Data digest of {name}", ", ".join(digests)))
    return rows


def commands(plans: Sequence[Mapping[str, Any]], unplanned: Sequence[Sequence[StoredStep]]) -> list[Command]:
    """What reproduces the plans that were run into a store, then experiments that belong to none."""
    found = [command for plan in plans if (command := _command(plan, plans)) is not None]
    return [*found, *_single(unplanned)]


def _by_benchmark(analysis: Analysis) -> list[list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in analysis.collection.samples:
        if sample.steps:
            groups.setdefault(sample.benchmark, []).append(sample)
    return list(groups.values())


def _described(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the template tells. Samples of one benchmark differ in nothing but the policy."""
    places = [(sample, number) for sample in samples for number in sample.numbers]
    numbers = sorted({number for _, number in places})
    retentions = list(dict.fromkeys(level for sample, number in places for level in sample.retentions(number)))
    shares = [level for level in retentions if " " not in level]
    kept = [f"{_listed(shares, 'or')}\u202f% of each past class’s training images"] if shares else []
    kept += [f"{level} of all past classes together" for level in retentions if level.endswith("images")]
    kept += [f"as many images as {level} hold beside all else" for level in retentions if level.endswith("bytes")]
    setting, roots = samples[0].steps[0].facts.setting, [set(sample.root) for sample in samples]
    return {
        **{"benchmark": samples[0].benchmark, "dataset": samples[0].dataset, "simulated": samples[0].simulated},
        "released_nic": any(one.facts.released_nic for sample in samples for one in sample.steps),
        **{"setting": setting, "kept": kept, "policies": [sample.policy for sample in samples]},
        "steps": [counted_steps(sum(int((sample.number == n).sum()) for sample in samples), n) for n in numbers],
        "increments": sorted({level for sample, number in places for level in sample.increments(number)}, key=size_of_level),
        "shared": any(sample.paired for sample in samples) or len(set().union(*roots)) < sum(map(len, roots)),
    }


def _reruns(analysis: Analysis, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Of controlled experiments: in how many partitions, of how many runs, and whether the original step is among these."""
    counts: dict[tuple[int, bool], int] = {}
    for found in analysis.collection.reruns:
        if found.runs and any(found.sample is sample for sample in samples):
            original = any(step.facts.id == found.runs[0].facts.id for step in found.sample.steps)
            counts[len(found.runs), original] = counts.get((len(found.runs), original), 0) + 1
    return [{"runs": runs, "original": original, "partitions": count} for (runs, original), count in counts.items()]


def _listed(parts: Sequence[str], word: str = "and") -> str:
    *others, last = parts
    return f"{', '.join(others)} {word} {last}" if others else last


def _command(plan: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]) -> Command | None:
    name = f"{plan['id']}.toml"
    shown = shlex.quote(name)
    if plan["kind"] in ("compare", "arms", "variants"):
        command, option, values = "compare", "--policies", [",".join(plan.get("policies") or ())]
        if plan["kind"] == "arms":
            command, option, values = "compare --no-again", "--arm", plan["arms"]  # again is among them
        elif plan["kind"] == "variants":
            command, option, values = "variants", "--vary", plan["vary"]
        chosen = " ".join(f"{option} {shlex.quote(value)}" for value in values)
        return Command(f"forgetscope {command} {shown} {chosen} --pairs {plan['pairs']} --store results", (name, plan["run"]))
    text = str(plan["benchmark"])
    preset = _preset(text)
    source, needed = (shown, (name, text)) if preset is None else (preset, None)
    simulated, controlled = plan.get("simulated"), plan["kind"] == "controlled"
    if simulated and controlled:
        return None  # the command of its benchmark makes it too
    if simulated:
        again = [
            p["runs"] for p in plans if p["kind"] == "controlled" and p["benchmark"] == text and p.get("simulated") == simulated
        ]
        usual = Truth().model_dump()
        truth = "".join(
            f" --truth {shlex.quote(f'{name}={value:g}')}"
            for name, value in {"image_share": 0.0, **simulated["truth"]}.items()  # not recorded where none were drawn
            if value != usual.get(name)
        )
        reruns = again[0] if again else 0
        return Command(
            f"forgetscope simulate {source} --seed {simulated['seed']} --reruns {reruns}{truth} --store results", needed
        )
    if controlled:
        return Command(f"forgetscope controlled {source} --runs {plan['runs']} --store results", needed)
    return Command(f"forgetscope bench run {source} --store results", needed)


def _preset(text: str) -> str | None:
    """The preset that a recorded benchmark is, if it is one."""
    try:
        spec = BenchmarkSpec(**tomllib.loads(text))
    except SpecError:  # it was recorded before there was such a limit
        return None
    return spec.name if spec.name in presets() and BenchmarkSpec.load(spec.name) == spec else None


def _single(chains: Sequence[Sequence[StoredStep]]) -> Iterator[Command]:
    """One file for all experiments with the same options, and a command for each."""
    files: dict[str, list[str]] = {}
    for chain in chains:
        first, last = chain[0], chain[-1].spec
        options: dict[str, Any] = {"dataset": first.info["data"]["name"], "image_size": first.info["data"]["image_size"]}
        options |= {"network": first.info["network"], "first_batch": first.spec.training.batch}
        options |= last.training.model_dump(exclude={"augmentation", "batch"}) | last.training.augmentation.model_dump()
        own: dict[str, Any] = {"seed": last.seed, "sequence": [list(step.spec.classes) for step in chain]}
        if last.rehearsal is not None:
            kept = ("policy", "retention")
            options |= {"batch": last.training.batch} | last.rehearsal.model_dump(
                exclude={*kept, "policy_source", "method_source", "alpha"}
            )
            alphas = [step.spec.rehearsal.alpha for step in chain if step.spec.rehearsal is not None]
            options["alpha"] = alphas if len(set(alphas)) > 1 else alphas[0]
            own |= {name: value for name, value in last.rehearsal.model_dump(include=set(kept)).items() if value is not None}
        text = "".join(f"{name} = {toml_value(value)}\n" for name, value in options.items() if value is not None)
        settings = " ".join(f"--set {shlex.quote(f'{name}={toml_value(value)}')}" for name, value in own.items())
        files.setdefault(text, []).append(settings)
    for number, (text, runs) in enumerate(files.items(), start=1):
        name = f"run-{number}.toml"
        yield Command("\n".join(f"forgetscope run {name} --store results {settings}" for settings in runs), (name, text))
