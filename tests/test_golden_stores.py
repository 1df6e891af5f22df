"""Stores of every schema version so far are read in full; see `tests/golden/README.md`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forgetscope.analysis.experiments import open_experiment
from forgetscope.analysis.observed import open_observed
from forgetscope.errors import StateFreed
from forgetscope.housekeeping.exporting import export_steps
from forgetscope.housekeeping.importing import import_steps
from forgetscope.housekeeping.inventory import take_inventory
from forgetscope.housekeeping.sql import query, rows
from forgetscope.housekeeping.verification import verify_store
from forgetscope.store import SCHEMA, Store
from forgetscope.store.observed import OBSERVED_SCHEMA

GOLDEN = Path(__file__).parent / "golden"
FIRST, SECOND = "f20597d033216fbfca4c78c5dd6c9c8f", "f3fa24f9a0557b800d1137b8758595ee"
VARIANCES, COVARIANCES = "cdafa5b911b9c91e80d9cbd4bd568823", "e86ca4e3fb857d890bd6437a28998c5d"
MARGINS, LEARNED, MEANS = 164.90508, [0.795, 0.26], [32.27700111269951, 34.181018024683]  # as version 2 wrote them


@pytest.fixture
def old() -> Store:
    return Store.existing(GOLDEN / "schema-1")


@pytest.fixture
def second() -> Store:
    return Store.existing(GOLDEN / "schema-2")


def test_there_is_a_store_of_every_version() -> None:
    observed = [f"observed-{i + 1}" for i in range(OBSERVED_SCHEMA)]
    made = [*observed, *(f"schema-{i + 1}" for i in range(SCHEMA))]
    assert sorted(path.name for path in GOLDEN.iterdir() if path.is_dir()) == made


def test_everything_in_it_is_whole(old: Store) -> None:
    verified = verify_store(old)
    assert verified.damage == []
    assert verified.steps == 2
    for step in old.steps():
        step.verify()


def test_its_frames_hold_the_numbers_that_were_written(old: Store) -> None:
    experiment = open_experiment(old.path)
    assert [step.id for step in experiment.steps] == [FIRST, SECOND]
    assert (experiment.data_title, experiment.network) == ("glyphs 8x8", "resnet8")
    past = experiment.past_classes().set_index("class_name")
    assert past["forgetting"].to_dict() == pytest.approx({"digit 0": 0.40476190476190477, "digit 1": -0.5909090909090908})
    assert past["sic"].to_dict() == pytest.approx({"digit 0": 0.4655887247225079, "digit 1": 0.7225772796142578})
    assert experiment.summaries[0].forgetting_range == pytest.approx(0.9956709956709956)
    frames = (experiment.classes, experiment.probes, experiment.pairs, experiment.rehearsal, experiment.confusion)
    assert [len(frame) for frame in frames] == [6, 6, 8, 32, 20]
    assert experiment.rehearsal["image"].tolist()[:5] == [132, 77, 45, 50, 82]
    assert experiment.probes["iteration"].unique().tolist() == [0, 13, 26]


def test_its_states_are_read_or_known_to_be_freed(old: Store) -> None:
    state = old.step(FIRST).state()
    assert np.abs(state["backbone.stem.0.weight"]).sum() == pytest.approx(94.46186828613281)
    with pytest.raises(StateFreed):
        old.step(SECOND).state()


def test_what_training_started_from_was_not_recorded_at_first(old: Store) -> None:
    assert [step.start_weights for step in old.steps()] == [None, None]


def test_it_can_be_asked_in_sql(old: Store) -> None:
    found = rows(
        query(old, "SELECT s.step, policy, avg(nic) AS nic FROM steps s JOIN classes ON step_id = id GROUP BY ALL ORDER BY 1")
    )
    assert found == [
        {"step": 1, "policy": None, "nic": None},
        {"step": 2, "policy": "uniform", "nic": pytest.approx((1.7332862731828562 + 1.777052251894684) / 2)},
    ]


def test_it_can_be_listed_exported_and_imported(old: Store, tmp_path: Path) -> None:
    held = take_inventory(old)
    assert (held.steps, held.experiments, held.states, held.freeable) == (2, 1, 1, 0)
    export_steps(old.steps(), tmp_path / "old.tar")
    assert import_steps(tmp_path / "old.tar", Store(tmp_path / "new")).new == [FIRST, SECOND]


def test_what_it_does_not_hold_is_said(old: Store) -> None:
    for step in old.steps():
        assert not step.has("predictions")
        assert not step.has("keepsakes")
        assert step.unpredicted == "was made by an earlier version, which recorded counts only"
    for name in ("predictions", "keepsakes"):
        assert rows(query(old, f"SELECT count(*) AS n FROM {name}")) == [{"n": 0}]


def test_the_second_version_has_predictions_and_keepsakes(second: Store) -> None:
    assert verify_store(second).damage == []
    assert second.ids() == {FIRST, VARIANCES, COVARIANCES}
    assert [step.unpredicted for step in second.steps()] == [None] * 3
    first, last = (second.step(id).table("predictions").to_pandas() for id in (FIRST, COVARIANCES))
    assert (len(first), len(last)) == (200, 400)
    assert first["margin"].isna().all()
    assert first["best_past"].isna().all()
    assert (last["predicted"] == np.where(last["margin"] >= 0, last["best_past"], last["best_new"])).all()
    assert last["margin"].sum() == pytest.approx(MARGINS, rel=1e-6)
    counted = last.groupby(["true", "predicted"]).size().reset_index(name="count")
    assert counted.equals(
        second.step(COVARIANCES).table("confusion").to_pandas().sort_values(["true", "predicted"], ignore_index=True)
    )
    whole, part = (second.step(id).table("keepsakes") for id in (COVARIANCES, VARIANCES))
    assert whole.select(range(5)).equals(part.select(range(5)))
    assert whole.to_pydict() | {"mean": 0, "covariance": 0} == {
        **{"class_id": [0, 1], "features_step": [1, 1], "images": [200, 200]},
        **{"training_accuracy": LEARNED, "mean": 0, "covariance": 0},
    }
    for row, covariance in zip(part.to_pylist(), whole["covariance"].to_pylist(), strict=True):
        matrix = np.zeros((64, 64), np.float32)
        matrix[np.triu_indices(64)] = covariance
        np.testing.assert_allclose(np.diag(matrix), row["variance"], rtol=2**-8)
        assert sum(row["mean"]) == pytest.approx(MEANS[row["class_id"]], rel=1e-6)
    with pytest.raises(StateFreed):
        second.step(VARIANCES).state()


def test_the_second_version_can_be_exported_imported_and_asked(second: Store, tmp_path: Path) -> None:
    export_steps(second.steps(), tmp_path / "second.tar")
    copy = Store(tmp_path / "new")
    assert set(import_steps(tmp_path / "second.tar", copy).new) == second.ids()
    found = rows(
        query(copy, "SELECT step, len(mean) AS d, len(variance) AS v, len(covariance) AS c FROM keepsakes ORDER BY ALL")
    )
    assert found == [{"step": 2, "d": 64, "v": v, "c": c} for v, c in ((64, None), (64, None), (None, 2080), (None, 2080))]
    found = rows(query(copy, 'SELECT step, avg(("true" = predicted)::INT) AS a FROM predictions GROUP BY ALL ORDER BY ALL'))
    accuracy = rows(query(copy, "SELECT step, avg(accuracy) AS a FROM classes GROUP BY ALL ORDER BY ALL"))
    assert [row["a"] for row in found] == pytest.approx([row["a"] for row in accuracy])


def test_observed_steps_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = Store.existing(GOLDEN / "observed-1")
    verified = verify_store(store)
    assert (verified.steps, verified.observed, verified.damage) == (0, 3, [])
    observed = open_observed(store.path, "birds")
    assert [step.number for step in observed.steps] == [1, 2]
    assert observed.incomplete[0].incomplete == "The training ended early: RuntimeError: no room"
    assert observed.steps[1].settings == {"lr": 0.05, "augmented": False, "note": "tiny"}
    past = observed.past_classes().set_index("class_name")
    assert past["forgetting"].to_dict() == pytest.approx({"owl": 0.875, "wren": 0.8, "kite": 0.0})
    assert past["sic"].round(3).to_dict() == {"owl": -0.059, "wren": 0.174, "kite": 0.007}
    frames = (observed.classes, observed.probes, observed.pairs, observed.rehearsal, observed.confusion)
    assert [len(frame) for frame in frames] == [8, 9, 15, 9, 18]
    export_steps([], tmp_path / "seen.tar", observed=store.observed())
    copy = Store(tmp_path / "copy")
    assert import_steps(tmp_path / "seen.tar", copy).new == [f"observed/birds/{i}" for i in (1, 2, 3)]
    asked = "SELECT status, count(*) AS n FROM observed JOIN observed_classes ON step_id = id GROUP BY status ORDER BY status"
    assert rows(query(copy, asked)) == [{"status": "done", "n": 8}, {"status": "incomplete", "n": 6}]
