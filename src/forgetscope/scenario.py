"""Class sequences: which classes each incremental step introduces. A head's nodes follow step order, then class number."""

from collections.abc import Sequence

from forgetscope.characters import counted
from forgetscope.errors import SpecError
from forgetscope.randomness import Streams
from forgetscope.spec import RunSpec

Increments = tuple[tuple[int, ...], ...]


def sequence_of(run: RunSpec, classes: int) -> Increments:
    """The class sequence of a run over a data set with so many classes: as it spells it out, or drawn."""
    if run.sequence is not None:
        return explicit_sequence(run.sequence, classes)
    seed = run.seed if run.sequence_seed is None else run.sequence_seed
    return class_sequence(classes, run.increment, run.steps, seed)


def class_sequence(classes: int, increment: float, steps: int, seed: int) -> Increments:
    """Draw `steps` disjoint groups of `increment * classes` classes each, every group sorted."""
    per_step = increment * classes
    if abs(per_step - round(per_step)) > 1e-9 or round(per_step) < 1:
        below = max(1, int(per_step))
        raise SpecError(
            f"increment = {increment:g} of {counted(classes, 'class')} is {per_step:g} classes per step, not a whole number. "
            f"Nearest valid values: {below / classes:g} and {(below + 1) / classes:g}."
        )
    size = round(per_step)
    if steps * size > classes:
        raise SpecError(
            f"{steps} steps of {counted(size, 'class')} need {steps * size} classes, but the data set has {classes}. "
            f"Use at most {counted(classes // size, 'step')}"
            + (f" or an increment of at most {classes // steps / classes:g}." if steps <= classes else ".")
        )
    order = Streams(seed, 0)("class-sequence").permutation(classes)
    return tuple(tuple(sorted(order[i * size : (i + 1) * size].tolist())) for i in range(steps))


def explicit_sequence(groups: Sequence[Sequence[int]], classes: int) -> Increments:
    """A sequence as the user gave it: sorted groups of existing classes, none empty, no class twice."""
    seen: set[int] = set()
    for step, group in enumerate(groups, start=1):
        if not group:
            raise SpecError(f"Step {step} of the sequence introduces no class. Remove it or name its classes.")
        for label in group:
            if not 0 <= label < classes:
                raise SpecError(
                    f"Class {label} in step {step} of the sequence does not exist: the data set has classes 0 to {classes - 1}."
                )
            if label in seen:
                raise SpecError(
                    f"Class {label} appears twice in the sequence, again in step {step}. A class is introduced once."
                )
            seen.add(label)
    if not groups:
        raise SpecError("The sequence is empty. Name the classes of at least one step, for example [[0, 1], [2, 3]].")
    return tuple(tuple(sorted(group)) for group in groups)
