"""Tables of a step held against one another: what fits its checksum may still be no table of this step.

Each function raises ValueError, which says what does not fit.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forgetscope.measuring.keepsakes import Carried, Keepsake, Spread, variances
from forgetscope.measuring.quantities import FORECAST
from forgetscope.store.tablefiles import WITH_FORECAST
from forgetscope.store.tables import forecast_of_classes

Ids = NDArray[np.int64]
Features = NDArray[np.float32]


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


def keepsakes_of(
    table: pa.Table, kind: Spread, introduced: Mapping[int, int], *, forecast: bool = False, counted: bool = False
) -> dict[int, Keepsake | None]:
    """By class; None where nothing was kept. introduced: of the step's past classes, in order, which step learned them.

    forecast: whether what a forecast needs must stand beside them. counted: whether accuracies are of all images, and so
    whole numbers of them."""
    _check_past(table, kind, introduced)
    beside = _beside_keepsakes(table, forecast, counted)
    found: dict[int, Keepsake | None] = {}
    for i, row in enumerate(table.select(["class_id", "features_step", "images", "training_accuracy"]).to_pylist()):
        label, step, images, accuracy = row.values()
        facts = {fact is not None for fact in (step, images, accuracy)}
        if step not in (None, introduced[label]) or images == 0 or not 0 <= (accuracy or 0) <= 1 or len(facts) > 1:
            said = f"features_step is {step}, images {images}, training_accuracy {accuracy}"
            raise ValueError(f"no keepsake of class {label}, which step {introduced[label]} learned: {said}")
        kept = Keepsake(step, images, accuracy, *_features_of(table, i, label, kind), *beside[i])
        found[label] = kept if True in facts else None
    return found


def carried_of(table: pa.Table, kind: Spread, past: Sequence[int]) -> dict[int, Carried | None]:
    """By class; None where nothing is known. past: the step's past classes, in order."""
    _check_past(table, kind, past)
    found: dict[int, Carried | None] = {}
    for i, (label, error) in enumerate(zip(past, table["error"].to_pylist(), strict=True)):
        mean, spread = _features_of(table, i, label, kind)
        if not (error is None or (0 <= error < np.inf and mean is not None)):
            raise ValueError(f"error of class {label} is {error}")
        found[label] = None if mean is None or spread is None else Carried(mean, spread, np.nan if error is None else error)
    return found


def _check_past(table: pa.Table, kind: Spread, past: Collection[int]) -> None:
    """That it has a row of each of these classes, in order, and this kind of spread."""
    if kind not in table.column_names or (ids := table["class_id"].to_pylist()) != list(past):
        held = f"classes {', '.join(map(str, ids[:5])) or 'none'}" if kind in table.column_names else f"no {kind}"
        raise ValueError(f"not mean and {kind} of the classes that were past in this step, in this order: {held}")


def _features_of(table: pa.Table, row: int, label: int, kind: Spread) -> tuple[Features | None, Features | None]:
    """Mean and spread of a class; None where they are missing."""
    lists = (table[name][row].values for name in ("mean", kind))
    mean, spread = (None if one is None else one.to_numpy(zero_copy_only=False) for one in lists)
    if spread is not None and mean is not None and (least := variances(spread, kind, len(mean)).min()) < 0:
        raise ValueError(f"{kind} of class {label} has a variance of {least}")
    return mean, spread


def _beside_keepsakes(table: pa.Table, forecast: bool, counted: bool) -> list[tuple[float | None, ...]]:
    """Leave-one-out accuracy and probability of each row; the latter is missing while no later step could tell it."""
    there = [name for name in WITH_FORECAST if name in table.column_names]
    if there != list(WITH_FORECAST if forecast else ()):
        raise ValueError(
            f"{' and '.join(there) or 'neither accuracy nor probability'} in a step with{'out' * (not forecast)} forecast"
        )
    if not forecast:
        return [()] * len(table)
    rows = list(zip(*(table[name].to_pylist() for name in WITH_FORECAST), strict=True))
    facts = (table[name].to_pylist() for name in ("class_id", "images"))
    for label, images, (accuracy, probability) in zip(*facts, rows, strict=True):
        is_odd = accuracy is not None and not _is_share(accuracy, images or 0, counted)
        if is_odd or (probability is not None and (accuracy is None or not 0 < probability <= 1)):
            said = f"accuracy is {accuracy} of {images} images, probability {probability}"
            raise ValueError(f"no keepsake of class {label}: {said}")
    return rows


def _is_share(value: float, images: int, counted: bool) -> bool:
    """Of so many images: of all, where they are counted, else of some of them."""
    right = value * images
    near = abs(right - round(right)) <= 1e-6 * max(images, 1)
    return 0 <= value <= 1 and (value == 0 or right > 0.999) and (near or not counted)


def forecasts_of(probes: pa.Table, past: Ids) -> NDArray[np.float64]:
    """[probes, forecast, P], as they were made; past: the ids of the step's past classes."""
    _check_forecast_columns(probes, asked=True)
    values = np.stack([probes[name].to_numpy() for name in FORECAST])
    ids, rounds = probes["class_id"].to_numpy(), len(probes) // max(1, len(past))
    if not rounds or not np.array_equal(ids, np.tile(past, rounds)):
        raise ValueError("no forecast for each probe and past class")
    forecast, low, high = values[:3]
    known = ~np.isnan(values[:3])  # an interval may be missing, where there are too few classes
    wrong = known[1] & ~((low <= forecast) & (forecast <= high) & (high <= 1))
    odd = (known[1] != known[2]) | wrong | np.isinf(values).any(axis=0)
    if odd.any():
        i = int(odd.argmax())
        raise ValueError(f"forecast is {forecast[i]} of class {ids[i]}, between {low[i]} and {high[i]}")
    return values.reshape(len(FORECAST), rounds, len(past)).swapaxes(0, 1)


def check_forecasts(classes: pa.Table, by_probe: NDArray[np.float64], weight: float | None) -> None:
    """That of the last probe is that of the class, and estimates are summed. classes: of past ones alone.

    weight: of a probe in sums; None: the step diverged, and its classes have none."""
    _check_forecast_columns(classes, asked=True)
    expected = np.full(by_probe.shape[1:], np.nan) if weight is None else forecast_of_classes(by_probe, weight)
    for name, wanted in zip(FORECAST, expected, strict=True):
        found = classes[name].to_numpy()
        same = np.isclose(found, wanted, rtol=1e-9, atol=1e-12, equal_nan=True)
        if not same.all():
            i = int((~same).argmax())
            raise ValueError(f"{name} of class {classes['class_id'][i]} is {found[i]}, and by probes.parquet {wanted[i]}")


def check_unforecast(table: pa.Table) -> None:
    """Of a step that makes none."""
    _check_forecast_columns(table, asked=False)


def _check_forecast_columns(table: pa.Table, *, asked: bool) -> None:
    there = [column for column in FORECAST if column in table.column_names]
    if len(there) != asked * len(FORECAST):
        raise ValueError(f"{', '.join(there) or 'no forecast'} in a step with{'out' * (not asked)} forecast")
