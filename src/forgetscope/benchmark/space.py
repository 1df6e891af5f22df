"""A benchmark: the product of class sequences, rehearsal policies and seeds, and a stratified sample of it.

Its k-th steps fall into partitions, one per increment and retention. Every experiment of the sample is a function of the
benchmark's seed, its partition and its number there: a larger sample contains the smaller one, and nothing depends on the
order in which experiments are drawn or run.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictInt, model_validator

from forgetscope.characters import counted
from forgetscope.errors import SpecError
from forgetscope.options import checked, nearest, read_toml, toml_value
from forgetscope.randomness import Streams
from forgetscope.scenario import Increments, class_sequence
from forgetscope.spec import HOW_MUCH_IS_KEPT, Asked, RunSpec, Seed, Share, as_released

DECIDED_BY_THE_SPACE = ("increment", "retention", "policy", "sequence", "sequence_seed", "memory", "memory_bytes")
SEEDS = 2**32
Experiments = Annotated[StrictInt, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, order=True)
class Partition:
    """A cell of the space: all k-th steps with this increment and this retention."""

    increment: float
    retention: float

    def __str__(self) -> str:
        return f"increment {100 * self.increment:g} %, retention {100 * self.retention:g} %"


class BenchmarkSpec(Asked):
    """What a benchmark's file says. Options that are not of the benchmark itself are those of every run in it.

    >>> import forgetscope as fs
    >>> spec = fs.BenchmarkSpec(name="small", increments=[0.1], retentions=[0.08, 0.2], experiments=2, epochs=5)
    >>> len(spec.partitions(2)), spec.template.epochs
    (2, 5)
    """

    def __init__(self, /, **options: Any) -> None:
        own = {name: value for name, value in options.items() if name in type(self).model_fields and name != "run"}
        rest = {name: value for name, value in options.items() if name not in own}
        if as_released(rest):
            own.setdefault("controlled_runs", "fresh")
        super().__init__(**own, run=rest)

    name: Annotated[str, Field(pattern=r"^[\w.-]{1,60}$")] = Field(
        description="At most 60 letters, digits, dots, hyphens and underscores."
    )
    increments: tuple[Share, ...] = Field((0.1, 0.2, 0.5), description="Shares of the classes that a step introduces.")
    retentions: tuple[Share, ...] = Field((0.08, 0.2, 0.4), description="Shares of a past class's images that are kept.")
    policies: tuple[str, ...] = Field(("uniform",), description="Rehearsal policies.")
    experiments: Experiments | tuple[Experiments, ...] = Field(
        40, description="How many to draw per partition and policy; a list has one number for each increment."
    )
    steps: Annotated[StrictInt, Field(ge=2, le=1000)] = Field(
        3, description="Steps of a sequence, where the classes suffice for them."
    )
    design: Literal["independent", "paired"] = Field(
        "independent",
        description="independent: a fresh sequence and seed per experiment, as in the paper. paired: the same sequences and "
        "seeds across policies and retentions; first steps are shared and comparisons are within pairs.",
    )
    controlled_runs: Literal["original", "fresh"] = Field(
        "original",
        description="Of controlled experiments. original: a random experiment of each partition, its step and runs of it with "
        "other new classes, as in the paper. fresh: experiment 0, as many runs, all with others, as in the released scripts.",
    )
    seed: Seed = Field(0, description="The sample follows from it.")
    run: Mapping[str, Any] = Field(default_factory=dict, description="Options of every run.")

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
        for name in ("increments", "retentions", "policies"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} = {list(values)} must name at least one value, and none twice")
        if isinstance(self.experiments, tuple) and len(self.experiments) != len(self.increments):
            wanted = counted(len(self.increments), "increment")
            raise ValueError(f"experiments = {list(self.experiments)} for {wanted}: give one number, or one for each of them")
        taken = [name for name in self.run if name in DECIDED_BY_THE_SPACE]
        if taken:
            plural = {"increment": "increments", "policy": "policies", **dict.fromkeys(HOW_MUCH_IS_KEPT, "retentions")}
            hint = f"Use {plural[taken[0]]}" if taken[0] in plural else "The sample decides it"
            raise ValueError(f"{taken[0]} is not an option of a benchmark. {hint}")
        unknown = [name for name in self.run if name not in RunSpec.model_fields]
        if unknown:
            names = sorted({*RunSpec.model_fields, *type(self).model_fields} - {"run", *DECIDED_BY_THE_SPACE})
            raise ValueError(f"There is no option {unknown[0]!r}.{nearest(unknown[0], names)}".rstrip("."))
        short = [increment for increment in self.increments if self.steps_of(increment) < 2]
        if short:
            raise ValueError(
                f"increments: {short[0]:g} leaves no classes for a second step, so nothing can be forgotten. Use at most 0.5"
            )
        for policy in self.policies:
            self.run_of(self.increments[0], self.retentions[0], policy, 0, 0)
        return self

    @classmethod
    def load(cls, name: str | Path, overrides: Mapping[str, object] | None = None) -> Self:
        """A preset by its name, or a TOML file; overrides win."""
        path, name = Path(name), str(name)
        if name not in presets() and not path.exists():
            raise SpecError(f"There is no preset and no file {name!r}.{nearest(name, presets())}")
        advice = "`forgetscope bench preset glyphs` prints one to start from."
        values = tomllib.loads(preset_text(name)) if name in presets() else read_toml(path, advice)
        if name in presets():  # it gives what the text has: nothing that anybody gave beside the scripts' behaviour
            values = {name: value for name, value in values.items() if name not in as_released({**values, **(overrides or {})})}
        return checked(cls, path.name, {"name": path.stem, **values}, overrides or {})

    def to_toml(self) -> str:
        """Every option of the benchmark itself, then those of its runs that are set."""
        own = {name: getattr(self, name) for name in type(self).model_fields if name != "run"}
        if self.controlled_runs == "original" and not as_released(self.run):
            del own["controlled_runs"]  # so that plans of before there was the option keep their ids
        return "".join(f"{name} = {toml_value(value)}\n" for name, value in {**own, **self.run}.items())

    def steps_of(self, increment: float) -> int:
        """How many steps a sequence has: as many as asked for, or as the classes suffice for."""
        return min(self.steps, int(1 / increment + 1e-9))

    def experiments_of(self, increment: float) -> int:
        """How many are drawn for each retention and policy."""
        return self.experiments[self.increments.index(increment)] if isinstance(self.experiments, tuple) else self.experiments

    def partitions(self, step: int) -> list[Partition]:
        """The cells into which the steps with this number fall."""
        increments = [increment for increment in self.increments if self.steps_of(increment) >= step]
        return [Partition(increment, retention) for increment in increments for retention in self.retentions]

    def run_of(self, increment: float, retention: float, policy: str, sequence_seed: int, seed: int) -> RunSpec:
        chosen = {"policy": policy, "sequence_seed": sequence_seed, "seed": seed, "steps": self.steps_of(increment)}
        return RunSpec(**{**self.run, **chosen, "increment": increment, "retention": retention})

    @cached_property
    def template(self) -> RunSpec:
        """A run with the options that all runs share."""
        return self.run_of(self.increments[0], self.retentions[0], self.policies[0], 0, 0)


@dataclass(frozen=True)
class Drawn:
    partition: Partition
    policy: str
    number: int  # within its partition and policy, from 0
    run: RunSpec
    sequence: Increments


def sample(spec: BenchmarkSpec, classes: int) -> list[Drawn]:
    """The experiments of a benchmark over a data set with so many classes: equally many i.i.d. draws per partition and policy.

    No pair of sequence and seed occurs twice, except across the retentions and policies of a paired design."""
    drawn, taken = [], set[tuple[Increments, int]]()
    everywhere = [(retention, policy) for retention in spec.retentions for policy in spec.policies]
    # What a draw is a function of, besides increment, number and seed, and the experiments that share it.
    shared = {f"{retention}/{policy}": [(retention, policy)] for retention, policy in everywhere}
    if spec.design == "paired":
        shared = {"None/None": everywhere}
    for increment, (key, members) in product(spec.increments, shared.items()):
        for number in range(spec.experiments_of(increment)):
            sequence_seed, seed, sequence = _draw(spec, classes, increment, f"{key}/{number}", taken)
            for retention, policy in members:
                run = spec.run_of(increment, retention, policy, sequence_seed, seed)
                drawn.append(Drawn(Partition(increment, retention), policy, number, run, sequence))
    order = {cell: i for i, cell in enumerate((p, policy) for p in spec.partitions(2) for policy in spec.policies)}
    return sorted(drawn, key=lambda d: (order[d.partition, d.policy], d.number))


def _draw(
    spec: BenchmarkSpec, classes: int, increment: float, key: str, taken: set[tuple[Increments, int]]
) -> tuple[int, int, Increments]:
    attempt = 0
    while True:
        name = f"{increment:g}/{key}/{attempt}"
        sequence_seed, seed = Streams(spec.seed, 0)("experiment", name).integers(SEEDS, size=2).tolist()
        sequence = class_sequence(classes, increment, spec.steps_of(increment), sequence_seed)
        if (sequence, seed) not in taken:
            taken.add((sequence, seed))
            return sequence_seed, seed, sequence
        attempt += 1


def presets() -> list[str]:
    folder = resources.files("forgetscope.benchmark") / "presets"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """A preset's file, comments included."""
    if name not in presets():
        raise SpecError(f"There is no preset {name!r}.{nearest(name, presets())}")
    return (resources.files("forgetscope.benchmark") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
