"""alpha, the share of rehearsal in a batch: given, or counted from the batches of the training; never assumed.

What is measured is linear in it, so terms are measured with a half of each and weighted when alpha is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.measuring.quantities import COEFFICIENTS, QUANTITIES
from forgetscope.measuring.sums import Sums

NO_LABEL = torch.iinfo(torch.int64).min
ONE_EACH = "Give one whole number for each image of the batch."
REHEARSED, ADDED = ("sic", "cic"), ("nic", "all_nic")  # what alpha weighs, and what the rest of a batch does


class Alpha:
    """given: by the user. rehearsing: whether there is a memory; without one nothing is rehearsed, and alpha is 0."""

    def __init__(self, given: object, rehearsing: bool) -> None:
        given = given.item() if isinstance(given, Tensor) and given.numel() == 1 else given
        known = isinstance(given, Real) and not isinstance(given, bool)
        if given is not None and not (known and (0 < given < 1 or (given == 0 and not rehearsing))):  # type: ignore[operator]
            raise InputError(
                f"alpha = {given!r} is not between 0 and 1: it is the share of rehearsal images in a batch. Leave it out and "
                "call step.batch(labels) in the loop to have it counted."
            )
        self._told = None if given is None else float(given)  # type: ignore[arg-type]
        self.rehearsing = rehearsing
        self._strange = torch.tensor(NO_LABEL)  # the largest label of neither past nor new classes
        self.counts = torch.zeros(4, dtype=torch.long)  # images of past classes, of new classes, of any; batches

    def count(self, labels: object, past: Sequence[int], new: Sequence[int]) -> None:
        """One batch. Nothing waits for a GPU here: what a batch held is looked at when alpha is asked for."""
        found = _checked(labels)
        if not len(found):
            return
        is_past, is_new = (torch.isin(found, torch.tensor(list(ids), device=found.device)) for ids in (past, new))
        of_past, of_new = is_past.sum(), is_new.sum()
        batch = torch.stack([of_past, of_new, torch.full_like(of_past, len(found)), torch.ones_like(of_past)])
        self.counts = self.counts.to(batch.device) + batch
        strange = found.masked_fill(is_past | is_new, NO_LABEL).max()
        self._strange = torch.maximum(self._strange.to(strange.device), strange)

    def check(self) -> None:
        """That batches held only classes of the step, where alpha is counted from them. Waits for a GPU."""
        label = int(self._strange)
        if self._given is None and label != NO_LABEL:
            past, new, images, _ = self.counts.tolist()
            raise InputError(
                f"step.batch(labels) was given label {label}, which is of no class in past=, memory= or new=, and "
                f"{counted(images - past - new, 'image')} like this of {images:,}. Give labels as they are there, or alpha=."
            )

    @property
    def _given(self) -> float | None:
        return self._told if self.rehearsing else None

    @property
    def value(self) -> float | None:
        """None: nobody can know."""
        past, new, *_ = self.counts.tolist()
        if self._given is not None:
            return self._given
        return past / (past + new) if past + new else None if self.rehearsing else 0.0

    @property
    def source(self) -> str | None:
        if self.value is None:
            return None
        return "batches" if self._given is None and int(self.counts[3]) else "given"

    @property
    def said(self) -> str:
        past, new, images, batches = self.counts.tolist()
        others = f" ({images - past - new:,} of them of classes of neither)" if images > past + new else ""
        told = f"{counted(batches, 'batch/batches')} of {counted(images, 'image')}{others}"
        if self.value is None:
            return "Alpha is unknown, because no batch was told, so terms are missing: give alpha=, or call step.batch(labels)."
        if self._given is None:
            unused = f" The alpha that was given, {self._told:g}, does not apply without memory=." if self._told else ""
            counts = f"Alpha {self.value:.4g}, counted in {told}." if batches else "Nothing is rehearsed: alpha is 0."
            return counts + unused
        other = past / (past + new) if past + new else self._given
        beside = f"; {told} had {other:.4g}" if abs(other - self._given) > 0.01 else ""
        return f"Alpha {self._given:g}, given{beside}."


def _checked(labels: object) -> Tensor:
    """[n] int64. By shape and type alone: values would have to be waited for."""
    try:
        found = labels.detach() if isinstance(labels, Tensor) else torch.as_tensor(np.asarray(labels))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{_given_as(labels)}, a {type(labels).__name__}, which is no list of labels. {ONE_EACH}") from None
    if found.ndim > 1:
        one_hot = " Of one-hot labels these are labels.argmax(dim=1)." if found.ndim == 2 and found.shape[1] > 1 else ""
        raise InputError(f"{_given_as(labels)}, of shape {tuple(found.shape)}. {ONE_EACH}{one_hot}")
    if found.numel() and (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool):
        raise InputError(f"{_given_as(labels)}, of type {found.dtype}. {ONE_EACH}")
    return found.reshape(-1).long()


def _given_as(labels: object) -> str:
    return f"step.batch(labels) was given {' '.join(repr(labels).split()):.60}"


def weighted(sums: Sums, alpha: float | None, *, only_memory: bool = False, weight: float = 1.0) -> Sums:
    """Sums of terms that were measured with a half of each, as they are with this alpha; without one they are missing.

    only_memory: past images are the memory, so NIC is not known either: what was measured in its place is an estimate.
    weight: what a probe counts for."""
    rehearsed = torch.nan if alpha is None else 2 * alpha
    added = torch.nan if alpha is None else 2 * (1 - alpha)
    weights = dict.fromkeys(REHEARSED, rehearsed) | dict.fromkeys(ADDED, torch.nan if only_memory else added)
    factors = torch.tensor([weights.get(name, 1.0) for name in QUANTITIES], dtype=torch.float64)[:, None]
    values = [probe * factors for probe in sums.values]
    pairs: Tensor | None = None
    if sums.pairs is not None:
        past, columns = sums.pairs.shape
        pairs = sums.pairs * torch.tensor([rehearsed] * past + [added] * (columns - past), dtype=torch.float64)
    variances = None if sums.variances is None else sums.variances * factors[: len(COEFFICIENTS)].square()
    facts = (sums.log_sim, sums.names, sums.head_nodes, alpha)
    return Sums(sums.nodes, list(sums.iterations), values, pairs, *facts, variances, weight)
