"""What is measured beside the probes: it is what it says, and nothing else is different because of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_stopping import StopsAtLook

from conftest import run_experiment
from forgetscope.analysis.experiments import Experiment
from forgetscope.errors import Interrupted, SpecError
from forgetscope.housekeeping.exporting import export_steps
from forgetscope.housekeeping.importing import import_steps
from forgetscope.housekeeping.sql import query, rows
from forgetscope.housekeeping.verification import verify_store
from forgetscope.spec import AugmentationSpec, RunSpec, step_specs
from forgetscope.store import ALL_LAYERS, EVERY_ITERATION, RELEASED, TABLES, Store, StoredStep

PLAIN = {
    "dataset": "squares",
    "sequence": ((0, 1), (2, 3), (4, 5)),
    "epochs": 3,
    "first_batch": 16,
    "batch": 16,
    "learning_rate": 0.05,
    "retention": 0.25,
}
EXTRA = {"all_layers_every": 2, "every_iteration": True, "released_nic": True}
ITERATIONS = 9  # of a step: three per epoch
QUANTITIES = ["sic", "cic", "nic", "all_nic", "gradient_norm", "bias_norm", "loss_full", "loss_rehearsal"]


def run(path: Path, **changes: Any) -> tuple[Store, Experiment]:
    store = Store(path)
    return store, run_experiment(RunSpec(**{**PLAIN, **changes}), store, device="cpu", threads=1)


@pytest.fixture(scope="module")
def measured(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StoredStep]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGETSCOPE_CACHE", str(squares))
        yield _measured(tmp_path_factory)


def _measured(tmp_path_factory: pytest.TempPathFactory) -> list[StoredStep]:
    store, plan = run(tmp_path_factory.mktemp("extra") / "store", **EXTRA)
    return store.chain(plan.id)


def extra(step: StoredStep, measure: str) -> pd.DataFrame:
    frame = step.table("extra").to_pandas()
    return frame[frame["measure"] == measure].drop(columns="measure").reset_index(drop=True)


def test_every_measure_has_its_rows_and_names_them(measured: list[StoredStep]) -> None:
    first, second, third = measured
    assert not first.has("extra")
    for step, past in ((second, 2), (third, 4)):
        assert extra(step, ALL_LAYERS)["iteration"].tolist() == list(np.repeat([0, 6, 9], past))  # epochs 0, 2 and the last
        assert extra(step, EVERY_ITERATION)["iteration"].tolist() == list(np.repeat(np.arange(ITERATIONS), past))
    assert extra(second, RELEASED)["iteration"].tolist() == list(np.repeat([0, 3, 6, 9], 2))
    assert extra(third, RELEASED).empty  # there the scripts read the right entry
    assert extra(second, RELEASED).drop(columns=["probe", "iteration", "class_id", "nic"]).isna().all().all()
    assert (extra(second, RELEASED)["nic"] != second.table("probes").to_pandas()["nic"]).all()
    assert set(second.info["timings"]) == {"seconds", "probe_seconds", "all_layers_seconds", "every_iteration_seconds"}


def test_before_an_iteration_it_is_exactly_what_the_probe_measures_there(measured: list[StoredStep]) -> None:
    for step in measured[1:]:
        probes = step.table("probes").to_pandas()
        common = probes[probes["iteration"] < ITERATIONS].reset_index(drop=True)  # the last probe follows the last update
        single = extra(step, EVERY_ITERATION)
        at_probes = single[single["iteration"].isin(common["iteration"])].reset_index(drop=True)
        assert len(common) == 3 * len(common["class_id"].unique())
        pd.testing.assert_frame_equal(at_probes.drop(columns="probe"), common.drop(columns="probe"), check_exact=True)


def test_all_layers_include_the_last(measured: list[StoredStep]) -> None:
    for step in measured[1:]:
        both = extra(step, ALL_LAYERS).merge(step.table("probes").to_pandas(), on=["iteration", "class_id"])
        assert (both["gradient_norm_x"] > both["gradient_norm_y"]).all()
        for name in ("loss_full", "loss_rehearsal"):
            np.testing.assert_allclose(both[f"{name}_x"], both[f"{name}_y"], rtol=1e-4)


def test_nothing_else_is_different(tmp_path: Path, measured: list[StoredStep]) -> None:
    store, plan = run(tmp_path / "store")
    plain = store.chain(plan.id)
    assert plain[0].id == measured[0].id
    assert plain[1].id != measured[1].id
    assert not any(step.has("extra") for step in plain)
    for without, with_extra in zip(plain, measured, strict=True):
        for name in ["state.safetensors", *(f"{name}.parquet" for name in (*TABLES, "predictions"))]:
            assert (without.folder / name).read_bytes() == (with_extra.folder / name).read_bytes(), name


def test_a_run_that_is_stopped_again_and_again_ends_in_the_same_bytes(tmp_path: Path, measured: list[StoredStep]) -> None:
    store, stops = Store(tmp_path / "store"), 0
    while len(store.steps()) < 2:
        with contextlib.suppress(Interrupted):
            spec = RunSpec(**{**PLAIN, **EXTRA, "sequence": PLAIN["sequence"][:2]})
            run_experiment(spec, store, device="cpu", threads=1, stop=StopsAtLook(9 + stops % 4))
        stops += 1
        assert stops < 100
    assert stops > 5
    for step in measured[:2]:
        for name in step.manifest:
            if name != "step.json":
                assert (store.step(step.id).folder / name).read_bytes() == (step.folder / name).read_bytes(), name


def test_the_table_is_verified_exported_imported_and_asked(tmp_path: Path, measured: list[StoredStep]) -> None:
    store = Store(measured[0].folder.parents[1])
    assert verify_store(store).damage == []
    export_steps(store.steps(), tmp_path / "all.tar")
    elsewhere = Store(tmp_path / "elsewhere")
    assert len(import_steps(tmp_path / "all.tar", elsewhere).new) == 3
    question = "SELECT measure, count(*) AS n FROM extra WHERE step = 2 GROUP BY ALL ORDER BY 1"
    assert rows(query(elsewhere, question)) == [
        {"measure": ALL_LAYERS, "n": 6},
        {"measure": EVERY_ITERATION, "n": 18},
        {"measure": RELEASED, "n": 8},
    ]


def test_what_is_off_is_not_part_of_a_step_s_identity() -> None:
    data = {"all_layers_every": 0, "every_iteration": False, "released_nic": False}
    plain, off = (step_specs(RunSpec(**{**PLAIN, **given}), PLAIN["sequence"], AugmentationSpec())[1] for given in ({}, data))
    assert plain.model_dump(exclude_none=True) == off.model_dump(exclude_none=True)
    assert "released_nic" not in plain.model_dump(exclude_none=True)["rehearsal"]


@pytest.mark.parametrize("name", ["all_layers_every", "every_iteration", "released_nic"])
def test_without_probes_there_is_nothing_beside_them(name: str) -> None:
    value = 1 if name == "all_layers_every" else True
    with pytest.raises(SpecError, match=f"{name} is measured beside the probes, and probe_every = 0 takes none"):
        RunSpec(**{name: value, "probe_every": 0})
