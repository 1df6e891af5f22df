"""What monitors saw, with the words of an experiment, and means over equal settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import forgetscope as fs
from forgetscope.analysis.observed import monitors
from forgetscope.errors import DamagedStep, SpecError, StoreError
from forgetscope.store import Store, commit_observed, parquet_bytes, write_running
from observed_steps import NAMES, incomplete, observe, observed_record
from strangers import put


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    observe(store)
    return store


def test_an_observed_step_reads_as_an_experiment_does(store: Store) -> None:
    observed = fs.open_observed(store.path, "birds")
    assert observed.classes["step"].value_counts().to_dict() == {1: 2, 2: 4, 3: 6}
    assert observed.past_classes()["class_name"].tolist() == list(NAMES.values())[:4]  # most forgotten first
    assert observed.past_classes(2)["forgetting"].tolist() == pytest.approx([0.375, 0.1875])
    assert set(observed.probes["iteration"]) == {0, 10, 20}
    second, third = observed.summaries
    assert (second.step, second.past_classes, third.past_classes) == (2, 2, 4)
    # By hand: of 20 test images 16 were right when learned; now 10 and 13.
    assert second.mean_forgetting == pytest.approx(((16 - 10) / 16 + (16 - 13) / 16) / 2)
    assert second.forgetting_range == pytest.approx(3 / 16)
    assert third.correlations["sic"] == 1
    assert not second.paired
    assert repr(observed) == "Observed(birds: Sequential, 3 steps)"
    assert "wren" in observed._repr_html_()


def test_the_latest_is_taken_without_a_name(store: Store) -> None:
    commit_observed(store, observed_record(1, "ants"), "2026-01-02T00:00:00+00:00")
    assert fs.open_observed(store.path).name == "ants"
    with pytest.raises(SpecError, match="nothing of a monitor 'bees'; its monitors: ants, birds"):
        fs.open_observed(store.path, "bees")


def test_a_store_without_observed_steps_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "empty")
    store.prepare()
    with pytest.raises(StoreError, match="holds no observed steps yet"):
        fs.open_observed(store.path)


def test_what_is_incomplete_or_running_is_in_no_frame(store: Store) -> None:
    commit_observed(store, incomplete(4), "2026-01-02")
    write_running(store, observed_record(5, status="running"))
    observed = fs.open_observed(store.path, "birds")
    assert (len(observed.steps), [step.number for step in observed.incomplete]) == (3, [4])
    assert [step.number for step in observed.running] == [5]
    assert set(observed.classes["step"]) == {1, 2, 3}
    assert repr(observed) == "Observed(birds: Sequential, 3 steps, 1 step incomplete)"


@pytest.mark.parametrize("kind", ["incomplete", "running"])
def test_where_nothing_came_to_its_end_frames_are_empty(tmp_path: Path, kind: str) -> None:
    store = Store(tmp_path / "store")
    if kind == "running":
        write_running(store, observed_record(1, status="running"))
    else:
        commit_observed(store, incomplete(1))
    (observed,) = monitors(store)
    assert (len(observed.classes), observed.summaries, len(observed.past_classes())) == (0, [], 0)
    assert "class_id" in observed.classes


def test_a_step_that_was_not_evaluated_has_no_forgetting(store: Store) -> None:
    record = observed_record(2, "unseen")
    classes = record.tables["classes"]
    for column in ("accuracy", "forgetting"):
        place = classes.column_names.index(column)
        classes = classes.set_column(place, column, pa.nulls(len(classes), pa.float64()))
    tables = {**record.tables, "classes": classes}
    commit_observed(
        store, observed_record(2, "unseen", tables={k: v for k, v in tables.items() if k not in ("confusion", "predictions")})
    )
    (summary,) = fs.open_observed(store.path, "unseen").summaries
    assert np.isnan(summary.mean_forgetting)
    assert np.isnan(summary.accuracy)


def test_a_damaged_step_is_told_and_left_out(store: Store) -> None:
    step = store.observed_step("birds", 3)
    put(step, "confusion.parquet", parquet_bytes(step.table("confusion").slice(1)))
    told: list[str] = []
    (observed,) = monitors(store, lambda error: told.append(str(error)))
    assert [step.number for step in observed.steps] == [1, 2]
    assert "birds/3 is damaged" in told[0]
    with pytest.raises(DamagedStep, match="birds/3"):
        monitors(store)


def test_equal_settings_are_averaged_and_others_are_not(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for name in ("a", "b"):
        observe(store, 3, name, settings={"lr": 0.1, "memory": 10})
    observe(store, 2, "c", settings={"memory": 10, "lr": 0.2})
    observe(store, 2, "d", settings={})
    commit_observed(store, incomplete(4, "a", settings={"lr": 0.1, "memory": 10}))
    found = fs.analyse_observed(store.path)
    assert [(group.setting, group.step, group.experiments) for group in found.groups] == [
        (("lr=0.1", "memory=10"), 2, 2),
        (("lr=0.1", "memory=10"), 3, 2),
        (("lr=0.2", "memory=10"), 2, 1),
        (("no settings",), 2, 1),
    ]
    means = found.tables["observed_settings"]
    row = means[(means["quantity"] == "mean_forgetting") & (means["step"] == 2)].iloc[0]
    assert (row["mean"], row["n"], row["low"], row["high"]) == pytest.approx((0.28125, 2, 0.28125, 0.28125))
    steps = found.tables["observed_steps"]
    assert steps[["monitor", "step"]].to_numpy().tolist() == [["a", 2], ["a", 3], ["b", 2], ["b", 3], ["c", 2], ["d", 2]]
    assert found.tables["observed_classes"].columns[:2].tolist() == ["monitor", "step"]
    assert len(found.tables["observed_classes"]) == 2 * (2 + 4 + 6) + 2 * (2 + 4)


def test_the_order_of_settings_does_not_matter_and_truth_is_no_number(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    observe(store, 2, "a", settings={"x": 1, "y": 2})
    observe(store, 2, "b", settings={"y": 2, "x": 1})
    observe(store, 2, "c", settings={"y": 2, "x": True})
    assert [group.experiments for group in fs.analyse_observed(store).groups] == [2, 1]
