"""Which steps are alike: what a step was made of and how, whatever its seed, its classes and what it builds on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from forgetscope.spec import AugmentationSpec, RehearsalSpec, TrainingSpec

Name = TypeVar("Name", bound=Hashable)
POLICY = ("policy", "policy_source")
METHOD = ("method", "method_source")
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
        for name in ("keepsake", "forecast"):  # no number depends on them
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
