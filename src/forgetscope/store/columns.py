"""The tables of steps, column by column: type, unit, meaning, and what a run must ask for to have it.

All else follows from here: what is written, what is accepted when it is read, and the reference.
"""

from dataclasses import dataclass

import pyarrow as pa

from forgetscope.measuring.quantities import COEFFICIENTS, FORECAST, METHODS_OWN
from forgetscope.store.stepfiles import TableName

INT32, INT64, FLOAT, TEXT, TRUTH = pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_()
SINGLE, VECTOR = pa.float32(), pa.list_(pa.float32())
ERRORS = ("sic_se", "cic_se", "nic_se", "all_nic_se")  # of the coefficients, in their order
EXPECTED = ("expected_as_trained", "expected")  # forgetting, by a calibration that predicts it


@dataclass(frozen=True)
class StoreColumn:
    type: pa.DataType
    unit: str  # empty: it is a name, a number of something, or a truth value
    meaning: str
    asked: str = ""  # for what; empty: it is always there


@dataclass(frozen=True)
class StoreTable:
    row: str  # what a row is of
    columns: dict[str, StoreColumn]
    asked: str = ""  # for what; empty: every step has it
    note: str = ""


_KEPT = 'keepsake = "variance"', 'keepsake = "covariance"'
_SHARE, _LOST = "share", "share of the accuracy when learned; 1 is complete, negative a gain"
_NORM, _LOSS = "gradient norm", "nats"
_CLASS = StoreColumn(INT32, "", "the class: its number in the data set, or the label that a monitor was given")
_TERMS = {
    "sic": StoreColumn(FLOAT, _NORM, "the term of SIC at this probe"),
    "cic": StoreColumn(FLOAT, _NORM, "the term of CIC"),
    "nic": StoreColumn(FLOAT, _NORM, "the term of NIC"),
    "all_nic": StoreColumn(FLOAT, _NORM, "the term of ALL-NIC"),
    "gradient_norm": StoreColumn(FLOAT, _NORM, "of f_c, the gradient of the class on all its images"),
    "bias_norm": StoreColumn(FLOAT, _NORM, "of b_c, the difference between its rehearsed images' gradient and f_c"),
    "loss_full": StoreColumn(FLOAT, _LOSS, "mean loss on all its training images, D_c"),
    "loss_rehearsal": StoreColumn(FLOAT, _LOSS, "mean loss on its rehearsed images, R_c"),
}
_PROBES = {
    "probe": StoreColumn(INT32, "", "number of the probe, from 0"),
    "iteration": StoreColumn(INT64, "", "iterations of training before it"),
    "class_id": _CLASS,
    **_TERMS,
}


def _forecast(estimate: str) -> dict[str, StoreColumn]:
    said = {
        "forecast": (_LOST, "predicted forgetting up to this probe; of a step's end in `classes`"),
        "forecast_low": (_LOST, "lower end of its 95 % interval"),
        "forecast_high": (_LOST, "upper end"),
        "sic_estimate": (_NORM, f"{estimate} SIC, without past images"),
        "cic_estimate": (_NORM, f"{estimate} CIC, likewise; missing of all where one class has no keepsake"),
        "nic_estimate": (_NORM, f"{estimate} NIC, likewise"),
    }
    return {name: StoreColumn(FLOAT, *said[name], asked="forecast = true") for name in FORECAST}


_MEASURED = {
    **dict(
        zip(
            COEFFICIENTS,
            (
                StoreColumn(
                    FLOAT, _NORM, f"{name}: the sum of its terms over the probes, or with `probes` their mean times epochs + 1"
                )
                for name in ("SIC", "CIC", "NIC", "ALL-NIC")
            ),
            strict=True,
        )
    ),
    "log_sim": StoreColumn(FLOAT, "", "LOG-SIM, the similarity of the class to the new ones by its outputs"),
    **{name: StoreColumn(FLOAT, _NORM, f"standard error of `{name[:-3]}`", "probe_images") for name in ERRORS},
    **{
        name: StoreColumn(
            FLOAT, _NORM, f"`{name.removeprefix('method_')}` of what the step's method does", "method_interference = true"
        )
        for name in METHODS_OWN
    },
}


def _spreads(values: str) -> dict[str, StoreColumn]:
    return {
        "variance": StoreColumn(VECTOR, "feature squared", f"of each feature, over {values}", _KEPT[0]),
        "covariance": StoreColumn(
            VECTOR, "feature squared", "the upper triangle row by row, diagonal included; to 8 significant bits", _KEPT[1]
        ),
    }


TABLES: dict[TableName, StoreTable] = {
    "classes": StoreTable(
        "a class seen so far",
        {
            "class_id": _CLASS,
            "class_name": StoreColumn(TEXT, "", "its name"),
            "head_node": StoreColumn(INT32, "", "its output of the network, from 0"),
            "introduced_step": StoreColumn(INT32, "", "the step that learned it, from 1; 0: before a monitor began"),
            "train_images": StoreColumn(INT32, "images", "training images that the step may use"),
            "rehearsal_images": StoreColumn(INT32, "images", "how many of them are rehearsed; missing of new classes"),
            "share": StoreColumn(FLOAT, _SHARE, "p_c, its share of all rehearsed images"),
            "accuracy_when_learned": StoreColumn(FLOAT, _SHARE, "of its test images recognised after the step that learned it"),
            "accuracy": StoreColumn(FLOAT, _SHARE, "of its test images recognised now, among all classes seen so far"),
            "forgetting": StoreColumn(
                FLOAT, _LOST, "(accuracy when learned - accuracy) / accuracy when learned; missing of new classes"
            ),
            **_MEASURED,
            "missing_terms": StoreColumn(INT32, "probes", "at which a term was missing, and so the sum is"),
            "missing": StoreColumn(TEXT, "", "why a coefficient or a forecast is missing"),
            **_forecast("sum of the estimates of"),
        },
    ),
    "probes": StoreTable("a probe and past class", {**_PROBES, **_forecast("estimated term of")}),
    "pairs": StoreTable(
        "a past class and a source",
        {
            "class_id": _CLASS,
            "source_class_id": StoreColumn(INT32, "", "the class that acts on it"),
            "source_is_new": StoreColumn(TRUTH, "", "whether the source is a new class"),
            "term": StoreColumn(
                FLOAT, _NORM, "summed over probes: past sources add up to SIC (the class itself) and CIC, new ones to NIC"
            ),
        },
    ),
    "rehearsal": StoreTable(
        "a rehearsed image",
        {
            "class_id": _CLASS,
            "image": StoreColumn(INT64, "", "its index in the training images, or in the memory that a monitor was given"),
            "position": StoreColumn(INT32, "", "in the order of selection, from 0"),
        },
    ),
    "confusion": StoreTable(
        "a pair of classes that occurs on the test images",
        {
            "true": StoreColumn(INT32, "", 'the class of the images; in SQL `"true"`'),
            "predicted": StoreColumn(INT32, "", "the class of their largest output"),
            "count": StoreColumn(INT64, "images", "how many there are"),
        },
    ),
    "predictions": StoreTable(
        "a test image of the classes seen so far",
        {
            "image": StoreColumn(INT32, "", "its index in the test images"),
            "true": StoreColumn(INT32, "", "its class"),
            "predicted": StoreColumn(INT32, "", "the class of the largest output"),
            "best_past": StoreColumn(INT32, "", "of the largest past output; missing in first steps"),
            "best_new": StoreColumn(INT32, "", "of the largest new output"),
            "margin": StoreColumn(
                SINGLE, "logits", "largest past output minus largest new one; missing in first steps, or if not finite"
            ),
        },
        note="By head node of the true class, then by image. `margin` is not negative exactly where `predicted` is "
        "`best_past`. Empty in a step that diverged; not in steps of schema version 1.",
    ),
    "keepsakes": StoreTable(
        "a past class",
        {
            "class_id": _CLASS,
            "features_step": StoreColumn(INT32, "", "the step that learned the class, whose network the features are of"),
            "images": StoreColumn(INT32, "images", "training images that they are of"),
            "training_accuracy": StoreColumn(FLOAT, _SHARE, "of these recognised by that network, which was trained on them"),
            "mean": StoreColumn(VECTOR, "feature", "of each feature, over these images, not augmented"),
            **_spreads("these images"),
            "accuracy": StoreColumn(
                FLOAT, _SHARE, "`training_accuracy` without each image's own pull on the last layer", "forecast = true"
            ),
            "probability": StoreColumn(
                FLOAT, _SHARE, "mean probability of the class on features drawn from its keepsake", "forecast = true"
            ),
        },
        asked="keepsake",
        note="Of a class of which nothing was kept all but `class_id` is missing.",
    ),
    "carried": StoreTable(
        "a past class",
        {
            "class_id": _CLASS,
            "mean": StoreColumn(VECTOR, "feature", "where its features are believed to lie under the step's network"),
            **_spreads("what is believed"),
            "error": StoreColumn(FLOAT, _LOST, "standard error of the predicted forgetting so far"),
        },
        asked="forecast = true",
    ),
    "extra": StoreTable(
        "a probe of another kind and past class",
        {"measure": StoreColumn(TEXT, "", "`all layers`, `every iteration`, `released` or `method`"), **_PROBES},
        asked="all_layers_every, every_iteration, released_nic or method_interference",
        note="Of `released` only `nic` is set; of `method` only `sic`, `cic`, `nic` and `all_nic`.",
    ),
    "calibration": StoreTable(
        "a class seen so far",
        {
            "class_id": _CLASS,
            "scale": StoreColumn(FLOAT, "", "by which the class's logit is multiplied"),
            "offset": StoreColumn(FLOAT, "logits", "which is added to it then"),
            "calibrated_accuracy": StoreColumn(FLOAT, _SHARE, "of its test images recognised by the adjusted logits"),
            "calibrated_forgetting": StoreColumn(FLOAT, _LOST, "likewise; missing of new classes"),
            **{
                name: StoreColumn(FLOAT, _LOST, f"forgetting that it expected {how}, without test images", "evening")
                for name, how in zip(EXPECTED, ("without its offsets", "with them"), strict=True)
            },
        },
        asked="calibration",
        note="In `calibrated/<step id>/<id>/`, beside the step.",
    ),
}
SCHEMAS = {name: {column: one.type for column, one in table.columns.items()} for name, table in TABLES.items()}
# Columns that are there only where a run asks for them.
ONLY_IF_ASKED = {name: tuple(column for column, one in table.columns.items() if one.asked) for name, table in TABLES.items()}
