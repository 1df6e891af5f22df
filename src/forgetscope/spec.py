"""What is to be run, as frozen values checked once at the edge and identified by their content.

`RunSpec` is what a user writes: one experiment, a chain of steps. `StepSpec` is what identifies one step: the resolved
values of everything that can change its numbers, and nothing else. So a first step knows no rehearsal policy, and every
retention rate of the same sequence and seed shares it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, ValidationError, model_validator

from forgetscope.characters import counted
from forgetscope.choices import (
    CALIBRATIONS,
    METHODS,
    NAMED_CODE,
    canonical_calibration,
    canonical_method,
    named_method,
    needs_forecast,
    needs_held_out,
)
from forgetscope.errors import SpecError
from forgetscope.options import checked, explain, nearest, read_toml, toml_value

PROTOCOL = 1  # raised by any change that alters numbers; a golden test guards it

BESIDE_THE_PROBES = ("all_layers_every", "every_iteration", "released_nic", "method_interference", "forecast")
REPLACED_BY_SEQUENCE = ("increment", "steps", "sequence_seed")
HOW_MUCH_IS_KEPT = ("memory", "memory_bytes", "retention")  # options that exclude each other

POLICIES = (
    "uniform",
    "herding",
    "nearest-mean",
    "entropy",
    "boundary",
    "uncertainty",
    "least-forgotten",
    "gradient-diversity",
    "gradient-matching",
)
Sampling = Literal["iid", "reshuffled", "reshuffled-short"]
Precision = Literal["float32", "bfloat16"]
Kept = Literal["variance", "covariance"]  # of a past class's features, beside their mean
Real = Annotated[float, BeforeValidator(lambda given: repr(given) if isinstance(given, bool) else given)]  # true is not 1.0
Share = Annotated[Real, Field(gt=0, le=1)]
OpenShare = Annotated[Real, Field(gt=0, lt=1)]
Seed = Annotated[StrictInt, Field(ge=0, le=2**63 - 1)]  # what SQL and Parquet can hold
Epochs = Annotated[StrictInt, Field(ge=0, le=100_000)]
Batch = Annotated[StrictInt, Field(ge=2, le=65_536)]
# What probes = "auto" takes: a probe after each epoch, up to so many, and so many images of each past class: fewer in long
# training, which has more probes to add up, and more where much of a class is kept (of a memory that is not known), because
# then SIC and CIC are small differences. {epochs up to: (images, images where much is kept)}
AUTOMATIC_IMAGES = {10: (100, 100), 40: (60, 100), 100: (40, 80), 100_000: (30, 60)}
MOST_AUTOMATIC_PROBES, MUCH = 101, 0.15


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Asked(Frozen):
    """Options that a person gives: what is wrong with them is told in words."""

    def __init__(self, /, **options: Any) -> None:
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise SpecError(explain(error, type(self))) from None


class RunSpec(Asked):
    """One experiment: a sequence of incremental steps, a rehearsal policy and a seed.

    >>> import forgetscope as fs
    >>> fs.RunSpec(steps=2, epochs=20, policy="herding").retention
    0.08
    >>> fs.RunSpec(polciy="herding")
    Traceback (most recent call last):
    forgetscope.errors.SpecError: There is no option 'polciy'. Did you mean 'policy'?
    """

    dataset: str = Field("glyphs", description="Data set to learn.")
    image_size: Annotated[StrictInt, Field(ge=8, le=256)] | None = Field(
        None, description="Side of the images in pixels. Not set: the data set's own."
    )
    network: str = Field(
        "resnet8",
        description="CIFAR ResNet of depth 6n + 2 (resnet8, resnet20, resnet32, ...) or resnet18; with a projection to 64 "
        "features before the head: resnet8-projected, ...; or your own: package.module:factory.",
    )
    initialisation: Literal["fan-in", "fan-out"] = Field(
        "fan-in",
        description="He initialisation of convolutions, by the inputs of a node (fan-in) or by the outputs, as in the released "
        "scripts. Not of your own network.",
    )
    initial_weights: Literal["seeded", "unseeded"] = Field(
        "seeded",
        description="seeded: they follow from the seed. unseeded: the network is built before the seed is set, as in the "
        "released scripts: every first step draws its own, from all that it is made of, so that it can be made again.",
    )
    increment: Share = Field(0.10, description="Share of the data set's classes that each step introduces.")
    steps: Annotated[StrictInt, Field(ge=1, le=1000)] = Field(3, description="Number of incremental steps.")
    sequence_seed: Seed | None = Field(None, description="Seed of the class sequence alone. Not set: the same as seed.")
    sequence: tuple[tuple[StrictInt, ...], ...] | None = Field(
        None,
        description="Class numbers of each step, for example [[0, 1], [2, 3]]. Replaces increment, steps and sequence_seed.",
    )
    policy: str = Field(
        "uniform",
        description=f"Which images of past classes are kept for rehearsal: {', '.join(POLICIES)}, "
        "or your own: package.module:function.",
    )
    method: str = Field(
        "replay",
        description=f"What steps after the first learn by (docs/methods.md): {', '.join(METHODS)}, or your own: "
        "package.module:Class. Options go into brackets: distillation(weight=0.5).",
    )
    calibration: str = Field(
        "none",
        description="What acts on predictions alone once a step is trained (docs/methods.md): "
        f"{', '.join(CALIBRATIONS)}. Options go into brackets: evening(strength=0.5).",
    )
    retention: Share = Field(0.08, description="Share of each past class's training images that is kept.")
    retained_of: Literal["used", "all"] = Field(
        "used",
        description="Of which images retention is a share where validation sets some aside: used: of those that are left. all: "
        "of the whole class, as in the released scripts.",
    )
    memory: Annotated[StrictInt, Field(ge=1, le=10**9)] | None = Field(
        None, description="Images kept of all past classes together, divided anew in each step. Replaces retention."
    )
    memory_bytes: Annotated[StrictInt, Field(ge=1, le=10**15)] | None = Field(
        None,
        description="Bytes for all that is kept of all past classes together: images, stored logits, keepsakes and what "
        "forecasts carry on. As many images as that leaves room for, divided as memory is. Replaces retention.",
    )
    quota: Literal["balanced", "neyman"] = Field(
        "balanced",
        description="How images are divided among classes that one step introduced. balanced: by class size. neyman: more to "
        "classes whose gradients vary more, in all as many (docs/policies.md).",
    )
    alpha: OpenShare | tuple[OpenShare, ...] = Field(
        0.5,
        description="Share of rehearsal images in a batch, from the second step on; a list has one for each of these steps.",
    )
    sampling: Sampling = Field(
        "iid",
        description="iid: draws with replacement, as the paper has it. reshuffled: passes without replacement, a short last "
        "batch is filled up. reshuffled-short: it is left short, as in the released scripts.",
    )
    validation: Annotated[Real, Field(ge=0, le=0.5)] = Field(
        0.0, description="Share of each class's training images that is set aside and not used at all."
    )
    epochs: Annotated[Epochs, Field(ge=1)] = Field(20, description="Passes over the new data in each step.")
    first_batch: Batch = Field(64, description="Images per iteration in the first step.")
    batch: Batch = Field(128, description="Images per iteration from the second step on, new and rehearsed together.")
    learning_rate: Annotated[Real, Field(gt=0, le=100)] = Field(
        0.1, description="At the start of each step; annealed to 0 by a cosine."
    )
    momentum: Annotated[Real, Field(ge=0, lt=1)] = Field(0.9, description="Momentum of SGD.")
    weight_decay: Annotated[Real, Field(ge=0, le=10)] = Field(5e-4, description="On all parameters.")
    precision: Precision = Field(
        "float32",
        description="Arithmetic of the training passes. bfloat16: mixed precision; weights and measurements stay in float32.",
    )
    crop: Annotated[StrictInt, Field(ge=0, le=128)] | None = Field(
        None, description="Augmentation: zero pixels around an image before a random crop. Not set: the data set's own."
    )
    flip: StrictBool | None = Field(None, description="Augmentation: flip half of the images. Not set: the data set's own.")
    brightness: Annotated[Real, Field(ge=0, le=1)] | None = Field(
        None, description="Augmentation: brightness factors from 1 - b to 1 + b. Not set: the data set's own."
    )
    brightness_rounded: StrictBool = Field(
        False, description="Augmentation: round pixels to 8 bits again after the brightness, as the released scripts do."
    )
    normalisation: Literal["own", "cifar10"] = Field(
        "own",
        description="own: by mean and deviation of the data set's training pixels. cifar10: by those of CIFAR-10, as the "
        "released scripts do with Tiny-ImageNet.",
    )
    probe_every: Epochs = Field(1, description="Epochs between two measurements of interference; 0 measures nothing.")
    probes: Annotated[StrictInt, Field(ge=2, le=100_001)] | Literal["auto"] | None = Field(
        None,
        description="How many measurements, spread evenly from before training to its end, in place of probe_every; means of "
        "them times epochs + 1 are the coefficients. auto: cheap ones, with probe_images, by a fixed table (docs/probe.md).",
    )
    probe_images: Annotated[StrictInt, Field(ge=4, le=10**6)] | None = Field(
        None,
        description="Images of each past class that a measurement looks at: estimates with standard errors. Which ones is "
        "fixed by the seed, and differs between measurements, because a sample that stayed would repeat its error in each. "
        "Not set: all of them, exactly.",
    )
    all_layers_every: Epochs = Field(
        0,
        description="Epochs between two measurements over all parameters, beside those of the last layer; 0: none. "
        "Each costs about as much as training on every past and new image once.",
    )
    every_iteration: StrictBool = Field(
        False, description="Measure also before every single iteration. For small runs: each is a pass over all images."
    )
    released_nic: StrictBool = Field(
        False, description="Measure also NIC with the wrong entry that the released scripts read in second steps."
    )
    method_interference: StrictBool = Field(
        False,
        description="Measure at every probe also SIC, CIC and NIC of what the method's own loss does, beside the paper's of "
        "plain cross-entropy (docs/methods.md). Of replay they are the same.",
    )
    keepsake: Literal["none", Kept] = Field(
        "none",
        description="What each step keeps of a past class besides images: mean and variance, or covariance, of its features "
        "under the network that learned it. Training is the same with all of them, but for memory_bytes.",
    )
    forecast: StrictBool = Field(
        False,
        description="Predict at every probe how much each past class is forgotten, from keepsakes, memory and new images. "
        'Training is the same, but for memory_bytes. Implies keepsake = "variance", unless it is "covariance".',
    )
    script_behaviour: Literal["text", "released"] = Field(
        "text",
        description="released: whatever the paper's released scripts do otherwise than its text, as far as there is an option "
        "for it (docs/beyond.md). An option that is given as well wins.",
    )
    draws: Seed = Field(
        0,
        description="From the second step on, other draws of memory, batches and augmentation; first step, classes and initial "
        "weights stay. 0: those of the seed.",
    )
    seed: Seed = Field(0, description="Everything random follows from it.")

    @model_validator(mode="before")
    @classmethod
    def _as_released(cls, options: Any) -> Any:
        return {**as_released(options), **options, **_implied(options)} if isinstance(options, Mapping) else options

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
        if self.sequence is not None:
            clash = [name for name in REPLACED_BY_SEQUENCE if name in self.model_fields_set]
            if clash:
                raise ValueError(
                    f"sequence and {clash[0]} exclude each other: the sequence already says it. Remove one of them"
                )
        self._check_memory()
        self._check_probes()
        beside = [name for name in BESIDE_THE_PROBES if getattr(self, name)]
        if beside and self.probe_every == 0:
            raise ValueError(f"{beside[0]} is measured beside the probes, and probe_every = 0 takes none. Set it to 1")
        if self.image_size is not None:
            self.check_crop(self.image_size)
        if self.initialisation != "fan-in" and ":" in self.network:
            raise ValueError(f"initialisation = {self.initialisation!r}: {self.network} draws its own. Leave the option out")
        if self.policy not in POLICIES and not NAMED_CODE.fullmatch(self.policy):
            raise ValueError(f"policy = {self.policy!r} is not known.{nearest(self.policy, POLICIES)}".rstrip("."))
        _ = canonical_method(self.method), canonical_calibration(self.calibration)  # or an error
        if needs_held_out(self.calibration) and not self.validation:
            raise ValueError(
                f"calibration = {self.calibration!r} looks at images that are held out, and validation = 0 holds out none. "
                "Set it, for example to 0.04"
            )
        steps = self.steps if self.sequence is None else len(self.sequence)
        if isinstance(self.alpha, tuple) and len(self.alpha) != steps - 1:
            given, wanted = counted(len(self.alpha), "value"), counted(steps - 1, "step")
            raise ValueError(f"alpha has {given} for {wanted} with rehearsal. Give one for each")
        for alpha in self.alpha if isinstance(self.alpha, tuple) else (self.alpha,):
            kept = alpha * self.batch
            if abs(kept - round(kept)) > 1e-9 or not 1 <= round(kept) < self.batch:
                raise ValueError(_whole_rehearsal(alpha, self.batch))
        return self

    def _check_memory(self) -> None:
        given = [name for name in HOW_MUCH_IS_KEPT if name in self.model_fields_set and getattr(self, name) is not None]
        if len(given) > 1:
            both = f"{given[0]} and {given[1]}"
            raise ValueError(f"{both} exclude each other: both say how much is kept. Remove one of them")
        if self.memory_bytes is not None and named_method(self.method)[0] == "joint":
            raise ValueError(
                f"memory_bytes = {self.memory_bytes}: method = 'joint' trains on all past images, however many bytes they are. "
                "Leave memory_bytes out"
            )
        if self.memory_bytes is not None and needs_held_out(self.calibration):
            raise ValueError(
                f"memory_bytes = {self.memory_bytes}: calibration = {self.calibration!r} keeps held-out images of past classes "
                "besides, when the step is trained. Say how many images it may keep: use memory in place of memory_bytes"
            )

    def _check_probes(self) -> None:
        if self.probes is not None and "probe_every" in self.model_fields_set:
            raise ValueError("probes and probe_every exclude each other: both say when to measure. Remove one of them")
        if isinstance(self.probes, int) and self.probes > self.epochs + 1:
            most = f"Use at most epochs + 1 = {self.epochs + 1}"
            raise ValueError(f"probes = {self.probes}: there is one before training and one after each epoch. {most}")
        if self.probe_images is not None and self.probe_every == 0:
            raise ValueError(f"probe_images = {self.probe_images}: probe_every = 0 takes no probes. Set it to 1")
        for name in ("released_nic", "method_interference"):
            if getattr(self, name) and self.probing[1] is not None:
                raise ValueError(
                    f"{name} is measured on all images, not on {self.probing[1]} of a class. Leave one of them out"
                )

    @property
    def probing(self) -> tuple[int | None, int | None]:
        """How many probes, and images of each past class, as numbers; None where probe_every says when, or all images count."""
        if self.probes != "auto":
            return self.probes, self.probe_images
        much = not self.keeps_a_share or self.retention > MUCH
        images = next(two[much] for epochs, two in AUTOMATIC_IMAGES.items() if self.epochs <= epochs)
        return min(self.epochs + 1, MOST_AUTOMATIC_PROBES), self.probe_images or images

    def check_crop(self, side: int) -> None:
        """Of a crop that is moved by more than half of the image too little is left."""
        if (self.crop or 0) > side // 2:
            raise SpecError(f"crop = {self.crop} pixels around images of {side} x {side}: use at most {side // 2}.")

    def alpha_of(self, step: int) -> float:
        """The share of rehearsal images in a batch of this step, which is at least the second."""
        return self.alpha[step - 2] if isinstance(self.alpha, tuple) else self.alpha

    @property
    def keeps_a_share(self) -> bool:
        """Of each past class, as retention says; else there is a memory of a fixed size."""
        return self.memory is None and self.memory_bytes is None

    @property
    def code(self) -> tuple[str, ...]:
        """The names of all that may be a user's own: network, policy and method."""
        return self.network, self.policy, named_method(self.method)[0]

    @property
    def given(self) -> dict[str, Any]:
        """Its options that are set, but for what follows from script_behaviour: to make another run of."""
        chosen = self.model_dump(exclude_unset=True)
        follows = as_released(chosen)
        return {name: value for name, value in chosen.items() if name not in follows or value != follows[name]}

    @classmethod
    def from_toml(cls, path: str | Path, overrides: Mapping[str, object] | None = None) -> Self:
        """Read a run from a TOML file; overrides win."""
        path = Path(path)
        values = read_toml(path, "`forgetscope config` prints a file to start from.")
        return checked(cls, path.name, values, overrides or {})

    def to_toml(self, *, comments: bool = False) -> str:
        """Every option with its value; options that are not set appear commented out, which `comments` explains."""
        lines = []
        for name, field in type(self).model_fields.items():
            replaced = (self.sequence is not None and name in REPLACED_BY_SEQUENCE) or (
                (not self.keeps_a_share and name == "retention") or (self.probes is not None and name == "probe_every")
            )
            value = None if replaced else getattr(self, name)
            if comments:
                lines += ["", f"# {field.description}"]
            lines.append(f"# {name} =" if value is None else f"{name} = {toml_value(value)}")
        return "\n".join(lines).strip() + "\n"


class AugmentationSpec(Frozen):
    """`crop`: zero pixels added on each side before a random crop; `brightness`: factors from 1 - b to 1 + b."""

    crop: int = 0
    flip: bool = False
    brightness: float = 0.0
    brightness_rounded: Literal[True] | None = None  # to 8 bits


class TrainingSpec(Frozen):
    """How one step is trained. `batch` is K, the images of one iteration."""

    epochs: int
    batch: int
    learning_rate: float
    momentum: float
    weight_decay: float
    augmentation: AugmentationSpec
    sampling: Sampling = "iid"
    validation: float | None = None
    precision: Literal["bfloat16"] | None = None  # not set: float32
    normalisation: Literal["cifar10"] | None = None  # not set: the data set's own
    initialisation: Literal["fan-out"] | None = None  # of the first step that later ones build on; not set: fan-in
    initial_weights: Literal["unseeded"] | None = None  # likewise; not set: from the seed


class RehearsalSpec(Frozen):
    """What a step does with past classes; a first step has none."""

    alpha: float
    policy: str
    policy_source: str | None = None  # SHA-256 of the file that holds a user's own policy
    method: str | None = None  # with its options, in one form; not set: replay
    method_source: str | None = None  # SHA-256 of the file that holds a user's own
    retention: float | None  # exactly one of these three is set
    memory: int | None = None
    memory_bytes: int | None = None
    quota: Literal["neyman"] | None = None  # not set: balanced
    retained_of: Literal["all"] | None = None  # not set: of the images that are used
    probe_every: int
    all_layers_every: int | None = None
    every_iteration: Literal[True] | None = None
    released_nic: Literal[True] | None = None
    method_interference: Literal[True] | None = None  # of a method that is not replay
    keepsake: Kept | None = None
    forecast: Literal[True] | None = None
    probes: int | None = None  # in place of probe_every
    probe_images: int | None = None
    draws: int | None = None  # of memory and batches; not set: those of the seed


class StepSpec(Frozen):
    """Identifies one step, together with its parent and the data. Everything resolved, nothing irrelevant."""

    protocol: int = PROTOCOL
    step: int
    seed: int
    classes: tuple[int, ...]  # this step's new classes, sorted
    training: TrainingSpec
    network: str | None  # in a first step only: later ones inherit it
    network_source: str | None = None  # SHA-256 of the file that holds a user's own network
    rehearsal: RehearsalSpec | None  # from the second step on

    def is_probed(self, epoch: int) -> bool:
        """Whether a probe follows this epoch, which counts from 1 (0: before the first): every so many, and always the last."""
        if self.rehearsal is not None and self.rehearsal.probes is not None:
            return is_spread(epoch, self.rehearsal.probes, self.training.epochs)
        return self._is_due(epoch, self.rehearsal.probe_every if self.rehearsal else 0)

    @property
    def probe_weight(self) -> float:
        """What each probe counts for in a coefficient: a given number of them stand for one after each epoch and one before."""
        number = self.rehearsal.probes if self.rehearsal else None
        return 1.0 if number is None else (self.training.epochs + 1) / number

    def is_probed_in_all_layers(self, epoch: int) -> bool:
        """The same for probes over all parameters."""
        return self._is_due(epoch, (self.rehearsal.all_layers_every or 0) if self.rehearsal else 0)

    def _is_due(self, epoch: int, every: int) -> bool:
        return every > 0 and (epoch % every == 0 or epoch == self.training.epochs)


def is_spread(epoch: int, probes: int, epochs: int) -> bool:
    """Whether one of so many probes, spread evenly from before training to its end, follows this epoch (0: before the first).

    >>> [epoch for epoch in range(21) if is_spread(epoch, probes=6, epochs=20)]
    [0, 4, 8, 12, 16, 20]
    """
    gaps = probes - 1
    return any(epoch == (2 * i * epochs + gaps) // (2 * gaps) for i in range(gaps + 1))  # the nearest epochs


def as_released(options: Mapping[str, Any]) -> dict[str, Any]:
    """What script_behaviour = "released" sets in a run with these options: what the paper's released scripts do on such data
    with such a network. Empty where it is not asked for."""
    if options.get("script_behaviour") != "released":
        return {}
    network, tiny = str(options.get("network")), options.get("dataset") == "tiny-imagenet"
    found: dict[str, Any] = {"sampling": "reshuffled-short", "validation": 0.1, "retained_of": "all"}
    found |= {"initial_weights": "unseeded", "brightness_rounded": True}
    if ":" not in network:
        found["initialisation"] = "fan-out"
    if options.get("probe_every") != 0 and not options.get("probe_images") and options.get("probes") != "auto":
        found["released_nic"] = True
    if tiny:
        found["normalisation"] = "cifar10"
    if tiny or network == "resnet18":
        found["network"] = "resnet18-projected"
    return found


def _implied(options: Mapping[str, Any]) -> dict[str, Any]:
    """Evening from keepsakes starts from a forecast, and that from keepsakes."""
    calibration, found = options.get("calibration"), dict[str, Any]()
    if isinstance(calibration, str) and needs_forecast(calibration):
        found["forecast"] = True
    if {**options, **found}.get("forecast") is True and options.get("keepsake", "none") == "none":
        found["keepsake"] = "variance"
    return found


def step_specs(
    run: RunSpec, sequence: Sequence[Sequence[int]], augmentation: AugmentationSpec, sources: Mapping[str, str] | None = None
) -> list[StepSpec]:
    """Resolve a run: one spec per step. `augmentation` is the data set's own, where the run sets nothing.

    sources: SHA-256 of the code behind a user's own policy, method and network, by the names that the run gives them."""
    sources = sources or {}
    chosen = {name: getattr(run, name) for name in ("crop", "flip", "brightness") if getattr(run, name) is not None}
    augmentation = augmentation.model_copy(update=chosen)
    if run.brightness_rounded and augmentation.brightness:
        augmentation = augmentation.model_copy(update={"brightness_rounded": True})
    method = {"method": canonical_method(run.method), "method_source": sources.get(named_method(run.method)[0])}
    specs, (probes, images) = [], run.probing
    for step, classes in enumerate(sequence, start=1):
        training = _training(
            epochs=run.epochs,
            batch=run.first_batch if step == 1 else run.batch,
            learning_rate=run.learning_rate,
            momentum=run.momentum,
            weight_decay=run.weight_decay,
            augmentation=augmentation,
            sampling=run.sampling,
            validation=run.validation or None,
            precision=None if run.precision == "float32" else run.precision,
            normalisation=None if run.normalisation == "own" else run.normalisation,
            initialisation=None if run.initialisation == "fan-in" else run.initialisation,
            initial_weights=None if run.initial_weights == "seeded" else run.initial_weights,
        )
        rehearsal = None
        if step > 1:
            rehearsal = _rehearsal(
                alpha=run.alpha_of(step),
                policy=run.policy,
                policy_source=sources.get(run.policy),
                **method,
                **_how_much_is_kept(run),
                probe_every=run.probe_every,
                all_layers_every=run.all_layers_every or None,
                every_iteration=run.every_iteration or None,
                released_nic=run.released_nic or None,
                method_interference=(run.method_interference and method["method"] is not None) or None,
                keepsake=None if run.keepsake == "none" else run.keepsake,
                forecast=run.forecast or None,
                probes=probes,
                probe_images=images,
                draws=run.draws or None,
            )
        specs.append(
            StepSpec(
                step=step,
                seed=run.seed,
                classes=tuple(sorted(classes)),
                training=training,
                network=run.network if step == 1 else None,
                network_source=sources.get(run.network) if step == 1 else None,
                rehearsal=rehearsal,
            )
        )
    return specs


def _how_much_is_kept(run: RunSpec) -> dict[str, Any]:
    """Of past classes, as a step's rehearsal says it."""
    return {
        "retention": run.retention if run.keeps_a_share else None,
        "memory": run.memory,
        "memory_bytes": run.memory_bytes,
        "quota": None if run.quota == "balanced" else run.quota,
        "retained_of": "all" if run.retained_of == "all" and run.validation and run.keeps_a_share else None,
    }


# Equal ones are one object: a plan of a hundred thousand steps has a few of them.
_training, _rehearsal = lru_cache(maxsize=1000)(TrainingSpec), lru_cache(maxsize=1000)(RehearsalSpec)


def step_id(parent: str | None, spec: StepSpec, data_digest: str) -> str:
    """128 bits in hexadecimal: the name of a step's folder. What is not set does not count, so new options keep old ids."""
    return canonical_id(parent, spec.model_dump(mode="json", exclude_none=True), data_digest)


def canonical_id(parent: str | None, spec: Mapping[str, Any], data_digest: str) -> str:
    """The id of a specification as it is recorded."""
    content = {"parent": parent, "spec": spec, "data": data_digest}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _whole_rehearsal(alpha: float, batch: int) -> str:
    below = min(max(int(alpha * batch), 1), batch - 1)
    alphas = sorted({below / batch, min(below + 1, batch - 1) / batch})
    unit = Fraction(alpha).limit_denominator(1000).denominator
    whole = abs(alpha * unit - round(alpha * unit)) < 1e-9  # else no batch of a reasonable size suits this alpha
    batches = sorted({max(1, batch // unit) * unit, (batch // unit + 1) * unit}) if whole else []
    return (
        f"alpha * batch = {alpha:g} * {batch} = {alpha * batch:g} rehearsal images per iteration is not a whole number "
        f"from 1 to {batch - 1}. Nearest alpha: {' or '.join(f'{a:g}' for a in alphas)}"
        + (f"; nearest batch for this alpha: {' or '.join(map(str, batches))}" if batches else "")
    )
