"""How many images of each past class are kept. A quota depends on class sizes and budget only: equal sizes, equal quotas."""

import math
from collections.abc import Mapping

from forgetscope.characters import counted
from forgetscope.errors import SpecError
from forgetscope.spec import RehearsalSpec


def quotas(spec: RehearsalSpec, class_sizes: Mapping[int, int], whole: Mapping[int, int] | None = None) -> dict[int, int]:
    """Per past class, in the order of head nodes, as `class_sizes` has them. whole: with what is set aside for validation."""
    if spec.memory is not None:
        return _divided(spec.memory, class_sizes)
    if spec.retention is None:
        raise SpecError("A step with rehearsal needs retention or memory.")
    of = class_sizes if spec.retained_of is None or whole is None else whole
    return {label: min(size, retained(of[label], spec.retention)) for label, size in class_sizes.items()}


def retained(images: int, retention: float) -> int:
    """The rounded share, at least one."""
    return max(1, math.floor(retention * images + 0.5))


def _divided(memory: int, class_sizes: Mapping[int, int]) -> dict[int, int]:
    """floor(M / classes) each, the remainder to the lowest head nodes; a class never gets more than it has."""
    each, rest = divmod(memory, len(class_sizes))
    if each == 0:
        raise SpecError(
            f"memory = {counted(memory, 'image')} cannot hold one of each of {counted(len(class_sizes), 'past class')}. "
            f"Use at least {len(class_sizes)}."
        )
    return {label: min(size, each + (node < rest)) for node, (label, size) in enumerate(class_sizes.items())}
