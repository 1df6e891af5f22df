"""Which test images of its past classes a step recognises, and which of the same images the steps that learned them did.

An offset is a constant that is added to all past logits before the largest is taken: a device of evaluation, which moves the
balance between past and new classes and nothing else. Largest past minus largest new logit is in the predictions, so that no
network is needed."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.statistics.learned import barely_learned, classes_known
from forgetscope.analysis.statistics.matching import offset_for
from forgetscope.analysis.statistics.noise import Recognised
from forgetscope.errors import StoreError
from forgetscope.store import StoredStep, StoredTables, past_rows

Mask = NDArray[np.bool_]
NEAR = 1e-9  # accuracies are quotients of the same counts


class Seen(NamedTuple):
    """Of the test images of a step."""

    image: NDArray[np.int64]
    true: NDArray[np.int64]
    right: Mask


def seen_by(step: StoredTables, offset: float = 0.0) -> Seen | None:
    """None where single test images are unknown. Raises StoreError where the step is damaged."""
    if (table := step.predictions()) is None:
        return None
    image, true, predicted = (table[name].to_numpy().astype(np.int64) for name in ("image", "true", "predicted"))
    if offset:
        best_past, best_new = (table[name].to_numpy().astype(np.int64) for name in ("best_past", "best_new"))
        margin = table["margin"].to_numpy().astype(np.float64)
        predicted = np.where(np.isnan(margin), predicted, np.where(margin + offset >= 0, best_past, best_new))
    return Seen(image, true, true == predicted)


def accuracies(seen: Seen, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of these classes; NaN where there are no test images."""
    images = _per_class(seen.true, ids)
    return _per_class(seen.true[seen.right], ids) / np.where(images > 0, images, np.nan)


def matching_offset(step: StoredTables, mean_forgetting: float) -> float:
    """The offset with which the past classes of a step have this mean forgetting, as nearly as test images allow; 0 if they
    have it without one. NaN where no offset comes near, or where single images are unknown."""
    if (table := step.predictions()) is None:
        return math.nan
    past = step.past_classes("class_id", "accuracy_when_learned")
    ids, learned = past["class_id"][past["accuracy_when_learned"] > 0], past["accuracy_when_learned"]
    true, best_past, predicted = (table[name].to_numpy().astype(np.int64) for name in ("true", "best_past", "predicted"))
    weight = {id: 1 / (n * a * len(ids)) for id, n, a in zip(ids, _per_class(true, ids), learned[learned > 0], strict=True)}
    margin = table["margin"].to_numpy().astype(np.float64)
    gain = np.array([weight.get(id, 0.0) for id in true.tolist()])
    always = gain[np.isnan(margin) & (predicted == true)].sum()  # whatever the offset
    moved = (best_past == true) & (gain > 0) & ~np.isnan(margin)
    return offset_for(mean_forgetting + always, margin[moved], gain[moved])


def recognised(
    step: StoredTables,
    ancestors: Mapping[int, StoredStep],
    seen_by: Callable[[StoredTables], Seen | None] = seen_by,
    instead: Seen | None = None,
) -> tuple[Recognised, Mask]:
    """Of its past classes [P], in the order of the head's nodes; and of which of them single images are known both times.

    ancestors: by number. Where the step that introduced a class is not among them, or one of both has no predictions, or they
    are of other images, then and now are taken as independent. Raises StoreError where one of them is damaged, the step too.
    seen_by: may remember, for steps that are the ancestors of many. instead: of what the step recorded, as with an
    offset."""
    past = step.past_classes("class_id", "introduced_step", "accuracy_when_learned", "accuracy")
    ids, learned, now = past["class_id"], past["accuracy_when_learned"], past["accuracy"]
    now = now if instead is None else accuracies(instead, ids)
    both, paired = learned * now, np.zeros(len(ids), bool)
    seen = seen_by(step) if instead is None else instead
    images = _counts(step, ids) if seen is None else _per_class(seen.true, ids)
    for number, before in ancestors.items():
        then = None if seen is None else seen_by(before)
        if seen is None or then is None:
            continue
        _, here, there = np.intersect1d(seen.image, then.image, assume_unique=True, return_indices=True)
        same = seen.true[here] == then.true[there]
        label, right, was = seen.true[here][same], seen.right[here][same], then.right[there][same]
        known = (past["introduced_step"] == number) & (images > 0)
        for of, counted in ((label, images), (then.true, images), (label[right], now * images), (label[was], learned * images)):
            known &= np.abs(_per_class(of, ids) - counted) < NEAR * np.maximum(1, images)
        both = np.where(known, _per_class(label[right & was], ids) / np.maximum(1, images), both)
        paired |= known
    return Recognised(images, learned, now, both), paired


def recognised_if_whole(
    step: StoredTables, ancestors: Mapping[int, StoredStep], instead: Seen | None = None
) -> tuple[Recognised, Mask]:
    """The same; where an ancestor is damaged, from the counts of the step alone. Raises StoreError where the step is."""
    try:
        return recognised(step, ancestors, instead=instead)
    except StoreError:
        return recognised(step, {}, instead=instead)


def barely_learned_in(step: StoredTables) -> dict[int, bool]:
    """By past class: whether the network could hardly tell it from others when it had just learned it."""
    past = step.past_classes("class_id", "accuracy_when_learned")
    ids = past["class_id"]
    barely = barely_learned_of(step, past["accuracy_when_learned"], _counts(step, ids))
    return dict(zip(ids.tolist(), barely.tolist(), strict=True))


def barely_learned_of(step: StoredTables, learned: NDArray[np.float64], images: NDArray[np.float64]) -> Mask:
    """[P]: the same from accuracies when learned and counts of test images."""
    introduced = step.table("classes", ["introduced_step"])["introduced_step"].to_numpy()
    known = classes_known(introduced, introduced[past_rows({"introduced_step": introduced}, step.number)])
    return barely_learned(learned, images, known)


def _per_class(true: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """[P]: how many of these images have each class."""
    if not len(ids):
        return np.zeros(0)
    order = np.argsort(ids)
    node = order[np.minimum(np.searchsorted(ids, true, sorter=order), len(ids) - 1)]
    return np.bincount(node[ids[node] == true], minlength=len(ids)).astype(np.float64)


def _counts(step: StoredTables, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """[P]: how many test images each class has, by the counts of what they were taken for."""
    table = step.table("confusion", ["true", "count"])
    true, count = table["true"].to_numpy(), table["count"].to_numpy()
    return np.array([count[true == id].sum() for id in ids], np.float64)
