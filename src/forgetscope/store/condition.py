"""Which steps are alike: what a step was made of and how, whatever its seed, its classes and what it builds on.

And which of them record one training, with the same seed, classes and steps before, so that it counts once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from forgetscope.spec import BESIDE_THE_PROBES, AugmentationSpec, RehearsalSpec, TrainingSpec

Name = TypeVar("Name", bound=Hashable)
POLICY = ("policy", "policy_source")
METHOD = ("method", "method_source")
PROBING = ("probe_every", "probes", "probe_images")  # coefficients depend on these options, and no weight does
BESIDE_IMAGES = ("keepsake", "forecast")  # kept of past classes besides images
_NOT_SET = [
    {name: None if one.is_required() else one.default for name, one in model.model_fields.items()}
    for model in (TrainingSpec, RehearsalSpec)
]
_PLAIN = AugmentationSpec().model_dump()


@dataclass(frozen=True)
class Setting:
    """Steps with equal settings are alike. Own code counts by its content: a policy that was edited is another one."""

    dataset: str
    digest: str  # of the data; of a simulation, its seed and truth
    shape: tuple[int, int]
    network: str
    options: Mapping[str, Any] = field(hash=False)  # by the names of the specification, with how many `classes` are new
    network_source: str | None = None  # SHA-256 of the user's own, as the first step records it
    image_size: int | None = field(default=None, compare=False)  # as asked for; the data are what their digest says

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Setting:
        """From a step.json. Not from `StepSpec`, whose validation takes longer than all the rest in a store of many steps."""
        data, spec = info["data"], info["spec"]
        parts = (spec["training"], spec["rehearsal"])
        options = {
            name: value for unset, part in zip(_NOT_SET, parts, strict=True) if part for name, value in (unset | part).items()
        }
        # What is not set has nothing to say, whether or not a record has it.
        options["augmentation"] = {
            name: value for name, value in (_PLAIN | options["augmentation"]).items() if value is not None
        }
        options |= {"classes": len(spec["classes"]), "protocol": spec.get("protocol")}
        own_method = ":" in (options.get("method") or "")  # may learn from keepsakes
        in_place = () if options.get("memory_bytes") is None else BESIDE_IMAGES  # of images, which are then fewer
        for name in BESIDE_THE_PROBES if own_method else (*BESIDE_THE_PROBES, "keepsake"):  # no other number depends on them
            if name not in in_place:
                options.pop(name, None)
        height, width = data["shape"]
        size = data.get("image_size")
        return cls(data["name"], data["digest"], (height, width), info["network"], options, spec.get("network_source"), size)

    @property
    def data(self) -> str:
        """The data set in two words, for example `glyphs 16x16`."""
        return f"{self.dataset} {self.shape[1]}x{self.shape[0]}"

    @property
    def policy(self) -> tuple[str, str | None]:
        """Its name, empty in a first step, and the SHA-256 of the user's own."""
        return self.options.get("policy", ""), self.options.get("policy_source")

    @property
    def method(self) -> tuple[str, str | None]:
        """Its name with its options, replay where none is given, and the SHA-256 of the user's own."""
        return self.options.get("method") or "replay", self.options.get("method_source")

    def but_for(self, *names: str) -> Setting:
        """What is left when these options do not count."""
        return replace(self, options={name: value for name, value in self.options.items() if name not in names})


class Recording(NamedTuple):
    """A step as a recording of a training. A store may hold several of one, which measured or kept something else beside it."""

    id: str
    parent: str | None
    seed: int
    classes: tuple[int, ...]
    setting: Setting
    exactness: tuple[float, ...]  # images that a probe looks at, probes, and what was predicted, measured and kept besides
    committed: str

    @classmethod
    def of(cls, id: str, info: Mapping[str, Any]) -> Recording:
        """From a step.json."""
        spec, found = info["spec"], exactness(info["spec"])
        return cls(id, info["parent"], spec["seed"], tuple(spec["classes"]), Setting.of(info), found, info["committed"])


def exactness(spec: Mapping[str, Any]) -> tuple[float, ...]:
    """How exactly a step with this specification measures; the larger, the more so."""
    asked = spec["rehearsal"] or {}
    every, epochs = asked.get("probe_every", 0), spec["training"]["epochs"]
    if not every:
        return (0.0,)
    probes = asked.get("probes") or 1 + -(-epochs // every)
    beside = sum(bool(asked.get(name)) for name in (*BESIDE_THE_PROBES, "keepsake"))
    return asked.get("probe_images") or math.inf, float(probes), float(bool(asked.get("forecast"))), float(beside)


def trainings(recordings: Iterable[Recording]) -> dict[str, str]:
    """By id, the training that a step records, named by one of its recordings: equal for steps of equal seed, classes, data and
    options but for what is measured or kept beside training, on steps of which the same is true."""
    waiting = {one.id: one for one in recordings}
    found, names = dict[str, str](), dict[tuple[object, ...], str]()
    for id in waiting:
        chain = [id]
        while (parent := waiting[chain[-1]].parent) in waiting and parent not in found:
            chain.append(str(parent))
        for one in (waiting[own] for own in reversed(chain)):
            before = found.get(str(one.parent), one.parent)
            found[one.id] = names.setdefault((before, one.seed, one.classes, one.setting.but_for(*PROBING)), one.id)
    return found


def counting(recordings: Iterable[Recording], *, apart: bool = True) -> dict[str, str]:
    """By id of each recording, the one of the same training that counts: what measured most exactly, then what was committed
    last, then the first by id. apart: those that were probed otherwise, and so have another setting, count on their own."""
    given = sorted(recordings, key=lambda one: one.id)
    named, groups = trainings(given), dict[tuple[str, Setting | None], list[Recording]]()
    for one in given:
        groups.setdefault((named[one.id], one.setting if apart else None), []).append(one)
    best = {key: max(group, key=lambda one: (one.exactness, one.committed)).id for key, group in groups.items()}
    return {one.id: best[key] for key, group in groups.items() for one in group}


def told_apart(found: Iterable[tuple[Name, str | None]]) -> dict[tuple[Name, str | None], str]:
    """What to call things of these names and digests: by the name, and where several have it, with the digest's beginning."""
    distinct = set(found)
    count = Counter(name for name, _ in distinct)
    return {(name, digest): f"{name}@{digest[:8]}" if digest and count[name] > 1 else str(name) for name, digest in distinct}


def first_step(id: str, parents: Mapping[str, str | None]) -> str:
    """The id with which a step's chain begins, as far as these parents tell."""
    while (parent := parents.get(id)) is not None:
        id = parent
    return id
