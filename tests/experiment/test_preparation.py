"""What a step starts from, where somebody else's hand was in the store and made the checksums fit."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest

from conftest import TINY, run_experiment
from forgetscope.data.library import load_data
from forgetscope.errors import DamagedStep
from forgetscope.experiment.preparation import prepare
from forgetscope.experiment.settings import choose_settings
from forgetscope.spec import RunSpec
from forgetscope.store import Store, TableName, parquet_bytes
from strangers import put


def column(table: pa.Table, name: str, values: object, type: pa.DataType | None = None) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, pa.array(values, type or table.schema.field(name).type))


def forged(table: pa.Table, harm: str) -> pa.Table:
    """Of the second step of two classes each, whose rehearsal set is of classes 0 and 1."""
    if "class_id" in harm or "introduced" in harm or "head" in harm or "accuracy" in harm:
        name, _, values = harm.partition(" = ")
        return column(table, name, json.loads(values))
    images = table["image"].to_numpy().copy()
    if harm == "an image that is not there":
        images[0] = 10**6
    elif harm == "an image of another class":
        images[0] = images[-1]
    elif harm == "an image twice":
        images[1] = images[0]
    elif harm == "images as fractions":
        return column(table, "image", images, pa.float64())
    elif harm == "an image less":
        return table.slice(1)
    elif harm == "another order":
        return table.take(list(reversed(range(len(table)))))
    else:
        return column(table, "class_id", [*table["class_id"].to_pylist()[:-1], 3])
    return column(table, "image", images)


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("classes", "class_id = [0, 10000, 2, 3]"),
        ("classes", "class_id = [0, 0, 2, 3]"),
        ("classes", "class_id = [0, 4, 2, 3]"),
        ("classes", "class_id = [1, 0, 2, 3]"),
        ("classes", "introduced_step = [1, 2, 2, 2]"),
        ("classes", "head_node = [1, 0, 2, 3]"),
        ("classes", "accuracy_when_learned = [7.0, 0.5, 0.5, 0.5]"),
        ("rehearsal", "an image that is not there"),
        ("rehearsal", "an image of another class"),
        ("rehearsal", "an image twice"),
        ("rehearsal", "an image less"),
        ("rehearsal", "another order"),
        ("rehearsal", "images as fractions"),
        ("rehearsal", "a class that was not past"),
    ],
)
def test_a_run_names_the_step_whose_tables_cannot_be_its_own(
    store: Store, chain: list[str], name: TableName, harm: str
) -> None:
    """Checksums that fit prove nothing: whoever goes on from such a step would learn from other images than it says."""
    parent = store.step(chain[1])
    put(parent, f"{name}.parquet", parquet_bytes(forged(parent.table(name), harm)))
    shutil.rmtree(store.step(chain[2]).folder)
    with pytest.raises(DamagedStep) as error:
        run_experiment(RunSpec(**TINY), store, device="cpu", threads=1)
    assert f"Step {parent.id[:8]} is damaged: {parent.folder / name}.parquet: " in str(error.value)
    assert "computes " in str(error.value)
    assert store.ids() == set(chain[:2])


def test_ancestors_that_are_not_here_are_not_missed(store: Store, chain: list[str]) -> None:
    """Somebody may be computing one of them again just now."""
    first, second, third = map(store.step, chain)
    shutil.rmtree(first.folder)
    data = load_data("glyphs", 8)
    step = prepare(second, third.spec, data, choose_settings("cpu", 1))
    assert step.past == (0, 1, 2, 3)
