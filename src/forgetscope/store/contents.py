"""Tables of a step held against one another: what fits its checksum may still be no table of this step.

Each function raises ValueError, which says what does not fit.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forgetscope.measuring.keepsakes import Keepsake, Spread

Ids = NDArray[np.int64]


def check_predictions(table: pa.Table, confusion: pa.Table, past: Ids, new: Ids) -> None:
    """table: all of `predictions`, empty where the step diverged; past and new: the ids of the step's classes."""
    true, predicted, best_new = (table[name].to_numpy().astype(np.int64) for name in ("true", "predicted", "best_new"))
    of_past, known = np.isin(predicted, past), np.asarray(table["margin"].is_valid())
    missing, margin = table["best_past"].null_count, table["margin"].to_numpy()
    if missing != (0 if len(past) else len(table)) or (not len(past) and known.any()):
        raise ValueError(f"best_past is missing in {missing} of {len(table)} rows of a step with {len(past)} past classes")
    best_past = table["best_past"].to_numpy().astype(np.int64) if len(past) else np.full(len(table), -1)
    for name, ids, of in (("true", true, (*past, *new)), ("best_new", best_new, new), ("best_past", best_past, past)):
        strange = ids[~np.isin(ids, of)] if len(past) or name != "best_past" else ids[:0]
        if len(strange):
            raise ValueError(
                f"{name} is {strange[0]}, no {name.removeprefix('best_').replace('true', 'such')} class of the step"
            )
    wrong = (predicted != np.where(of_past, best_past, best_new)) | (known & (of_past != (margin >= 0)))
    if wrong.any():
        i = int(wrong.argmax())
        bests = f"the best past class {best_past[i]}, the best new class {best_new[i]} and margin {margin[i]}"
        raise ValueError(f"predicted is {predicted[i]} where {bests}")
    listed, count = (
        (confusion[name].to_numpy().astype(np.int64) for name in ("true", "predicted")),
        confusion["count"].to_numpy(),
    )
    codes, place = np.unique(np.concatenate([_code(true, predicted), _code(*listed)]), return_inverse=True)
    here, there = np.bincount(place[: len(true)], minlength=len(codes)), np.zeros(len(codes), np.int64)
    there[place[len(true) :]] = count
    for code, found, counted in zip(*(values[here != there].tolist() for values in (codes, here, there)), strict=True):
        of, taken = divmod(code, _CODE)
        raise ValueError(f"{found} images of class {of} are taken for class {taken}, and confusion.parquet counts {counted}")


_CODE = 2**31  # more than any id of a class


def _code(true: Ids, predicted: Ids) -> Ids:
    return true * _CODE + predicted


def check_observed_classes(classes: pa.Table, number: int, head_nodes: int) -> None:
    """classes: of an observed step; number: the step's. The introduced_step of what was learned before the monitor is 0."""
    for column, most in (("introduced_step", number), ("head_node", head_nodes - 1)):
        values = classes[column].to_numpy()
        if len(strange := values[values > most]):
            raise ValueError(f"{column} is {strange[0]} in step {number} with {head_nodes} head nodes")
    for column in ("accuracy", "accuracy_when_learned"):
        shares = classes[column].drop_null().to_numpy()
        if len(strange := shares[~((shares >= 0) & (shares <= 1))]):
            raise ValueError(f"{column} is {strange[0]}, which is no share")


def check_labels(table: pa.Table, column: str, of: Ids, what: str) -> None:
    """what: which classes may stand in this column, in words."""
    ids = table[column].to_numpy()
    if len(strange := ids[~np.isin(ids, of)]):
        raise ValueError(f"{column} is {strange[0]}, no {what} class of classes.parquet")


def check_sources(pairs: pa.Table, new: Ids) -> None:
    """pairs: the table; new: the ids of the step's new classes."""
    source, is_new = pairs["source_class_id"].to_numpy(), pairs["source_is_new"].to_numpy(zero_copy_only=False)
    if len(strange := source[np.isin(source, new) != is_new]):
        raise ValueError(f"source_is_new is wrong of class {strange[0]}, by classes.parquet")


def keepsakes_of(table: pa.Table, kind: Spread, introduced: Mapping[int, int]) -> dict[int, Keepsake | None]:
    """By class; None where nothing was kept. introduced: of the step's past classes, in order, which step learned them."""
    if kind not in table.column_names or (ids := table["class_id"].to_pylist()) != list(introduced):
        held = f"classes {', '.join(map(str, ids[:5])) or 'none'}" if kind in table.column_names else f"no {kind}"
        raise ValueError(f"not mean and {kind} of the classes that were past in this step, in this order: {held}")
    found: dict[int, Keepsake | None] = {}
    for i, row in enumerate(table.select(["class_id", "features_step", "images", "training_accuracy"]).to_pylist()):
        label, step, images, accuracy = row.values()
        facts = {fact is not None for fact in (step, images, accuracy)}
        if step not in (None, introduced[label]) or images == 0 or not 0 <= (accuracy or 0) <= 1 or len(facts) > 1:
            said = f"features_step is {step}, images {images}, training_accuracy {accuracy}"
            raise ValueError(f"no keepsake of class {label}, which step {introduced[label]} learned: {said}")
        lists = (table[name][i].values for name in ("mean", kind))
        mean, spread = (None if one is None else one.to_numpy(zero_copy_only=False) for one in lists)
        if spread is not None and mean is not None and (least := _variances(spread, kind, len(mean)).min()) < 0:
            raise ValueError(f"{kind} of class {label} has a variance of {least}")
        found[label] = Keepsake(step, images, accuracy, mean, spread) if True in facts else None
    return found


def _variances(spread: NDArray[np.float32], kind: Spread, features: int) -> NDArray[np.float32]:
    """[features]: of a covariance, the diagonal, with which each row of its upper triangle begins."""
    begins = np.cumsum([0, *range(features, 1, -1)])
    return spread if kind == "variance" else spread[begins]
