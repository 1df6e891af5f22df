"""What fits its checksum and contradicts the other tables of its step is damage, wherever it is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from forgetscope.errors import DamagedStep
from forgetscope.housekeeping.verification import verify_store
from forgetscope.measuring.keepsakes import Keepsake
from forgetscope.store import Store, parquet_bytes
from forgetscope.store.contents import keepsakes_of
from forgetscope.store.tables import keepsakes_table
from strangers import put

GOLDEN = Path(__file__).parents[1] / "golden"


def column(table: pa.Table, name: str, values: object) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, pa.array(values, table.schema.field(name).type))


def one(table: pa.Table, name: str, value: object) -> pa.Table:
    """With this value in the first row."""
    return column(table, name, [value, *table[name].to_pylist()[1:]])


def every(table: pa.Table, name: str, value: object) -> pa.Table:
    return column(table, name, [value] * len(table))


def turned(table: pa.Table) -> pa.Table:
    return column(table, "margin", [-margin or -1.0 for margin in table["margin"].to_pylist()])


PREDICTIONS: dict[str, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    "half": (
        r"\d+ images of class \d+ are taken for class \d+, and confusion.parquet counts \d+",
        lambda t: t.slice(len(t) // 2),
    ),
    "none": (r"0 images of class \d+ are taken for class \d+, and confusion.parquet counts \d+", lambda t: t.slice(0, 0)),
    "true": ("true is 12345, no such class of the step", lambda t: one(t, "true", 12345)),
    "predicted": ("predicted is 12345 where the best past class", lambda t: every(t, "predicted", 12345)),
    "all right": ("predicted is", lambda t: column(t, "predicted", t["true"].to_pylist())),
    "best new": ("best_new is 0, no new class of the step", lambda t: every(t, "best_new", 0)),
    "best past": ("best_past is 4, no past class of the step", lambda t: one(t, "best_past", 4)),
    "no best past": (r"best_past is missing in \d+ of \d+ rows of a step with 2 past", lambda t: every(t, "best_past", None)),
    "margin": (r"and margin", turned),
    "twice": ("rows with the same image", lambda t: one(t, "image", t["image"][1].as_py())),
}


@pytest.mark.parametrize("harm", PREDICTIONS)
def test_predictions_that_are_not_those_of_the_step_are_named(store: Store, chain: list[str], harm: str) -> None:
    step, (reason, harmed) = store.step(chain[1]), PREDICTIONS[harm]
    put(step, "predictions.parquet", parquet_bytes(harmed(step.table("predictions"))))
    (found,) = verify_store(store).damage
    assert found.path == step.folder / "predictions.parquet"
    with pytest.raises(DamagedStep, match=reason) as error:
        store.step(step.id).predictions()
    assert error.value.reason == found.reason


def test_a_first_step_has_no_past_class_to_prefer(store: Store, chain: list[str]) -> None:
    step = store.step(chain[0])
    put(step, "predictions.parquet", parquet_bytes(every(step.table("predictions"), "margin", 1.0)))
    assert [damage.path.name for damage in verify_store(store).damage] == ["predictions.parquet"]


def test_where_a_logit_was_not_finite_there_is_no_margin(store: Store, chain: list[str]) -> None:
    step = store.step(chain[1])
    put(step, "predictions.parquet", parquet_bytes(every(step.table("predictions"), "margin", None)))
    assert verify_store(store).damage == []


def test_a_step_that_lost_its_predictions_with_their_checksum_is_named(store: Store, chain: list[str]) -> None:
    step = store.step(chain[1])
    (step.folder / "predictions.parquet").unlink()
    manifest = {name: entry for name, entry in step.manifest.items() if name != "predictions.parquet"}
    (step.folder / "manifest.json").write_text(json.dumps(manifest))
    (found,) = verify_store(store).damage
    assert (found.path.name, found.reason) == ("predictions.parquet", "not there, and every step of its version has it")


KEEPSAKES: dict[str, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    "none": ("not mean and covariance of the classes that were past in this step, in this order", lambda t: t.slice(0, 0)),
    "classes": ("in this order: classes 90, 91", lambda t: column(t, "class_id", range(90, 90 + len(t)))),
    "step": ("features_step is 77", lambda t: every(t, "features_step", 77)),
    "accuracy": ("training_accuracy 7.5", lambda t: every(t, "training_accuracy", 7.5)),
    "variance": (
        "has a variance of -1.0",
        lambda t: column(t, "covariance", np.full((len(t), 2080), -1.0).tolist()).cast(t.schema),
    ),
}


@pytest.mark.parametrize(
    ("accuracy", "probability", "counted", "is_sound"),
    [
        (0.5, None, True, True),
        (0.5, 0.3, True, True),
        (0.0, None, True, True),
        (0.001, None, True, False),  # of 200 images
        (1e-12, None, True, False),
        (1e-12, None, False, False),
        (0.123, None, True, False),
        (0.123, None, False, True),  # counted on some of them
        (0.5, 0.0, True, False),
        (0.5, 1.5, True, False),
        (None, 0.5, True, False),
    ],
)
def test_what_a_forecast_needs_is_held_against_what_it_can_be(
    accuracy: float | None, probability: float | None, counted: bool, is_sound: bool
) -> None:
    numbers = np.ones(4, np.float32)
    table = keepsakes_table({7: Keepsake(1, 200, 0.5, numbers, numbers, accuracy, probability)}, "variance", forecast=True)
    if is_sound:
        found = keepsakes_of(table, "variance", {7: 1}, forecast=True, counted=counted)
        assert found[7] is not None
        assert (found[7].accuracy, found[7].probability) == (accuracy, probability)
    else:
        with pytest.raises(ValueError, match=r"no keepsake of class 7: accuracy is .* of 200 images, probability"):
            keepsakes_of(table, "variance", {7: 1}, forecast=True, counted=counted)


@pytest.mark.parametrize("harm", KEEPSAKES)
def test_keepsakes_that_are_not_those_of_the_step_are_named(tmp_path: Path, harm: str) -> None:
    store = Store(shutil.copytree(GOLDEN / "schema-2", tmp_path / "store"))
    step = next(
        step for step in store.steps() if step.has("keepsakes") and "covariance" in step.table("keepsakes").column_names
    )
    reason, harmed = KEEPSAKES[harm]
    put(step, "keepsakes.parquet", parquet_bytes(harmed(step.table("keepsakes"))))
    (found,) = verify_store(store).damage
    assert found.path == step.folder / "keepsakes.parquet"
    assert reason in found.reason
