"""Final forgetting of classes while their step trains: from steps alike in the store, from what ships, or not at all."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forgetscope.store import Store, StoredStep, commit_observed, write_running
from forgetscope.store.verified import StoredTables
from forgetscope.underway.progress import PROGRESS, Beacon, Facts
from forgetscope.underway.running import Lookout, UnderWay
from observed_steps import observed_record
from underway.cut import cut_off, second_steps, without

PROBES = 11


@pytest.fixture
def store(replicated: Path, tmp_path: Path) -> Store:
    return Store(shutil.copytree(replicated, tmp_path / "store"))


def seen(store: Store) -> UnderWay:
    (one,) = Lookout(store).look()
    return one


def said_otherwise(folder: Path, change: Mapping[str, Any]) -> None:
    path = folder / PROGRESS
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")


def expected(steps: list[StoredStep], probes: int) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """Rows for a regression, from the tables as a user would make them."""
    frames = []
    for step in steps:
        table = step.table("probes").to_pandas().query("probe < @probes")
        last, first = table[table.probe == probes - 1].set_index("class_id"), table[table.probe == 0].set_index("class_id")
        frame = table.groupby("class_id")[["sic", "cic", "nic"]].mean()
        frame["nic_now"], frame["loss_gap"] = last.nic, last.loss_full - last.loss_rehearsal
        frame["loss_all"], frame["loss_before"] = last.loss_full, first.loss_full
        frame["y"] = step.table("classes").to_pandas().set_index("class_id").forgetting
        frames.append(frame.dropna())
    whole = pd.concat(frames)
    return whole.drop(columns="y"), whole.y.to_numpy()


def test_forecasts_are_a_ridge_regression_on_steps_alike_at_the_same_point_of_training(store: Store) -> None:
    steps = second_steps(store)
    cut_off(steps[0], PROBES, store)
    x, y = expected(steps[1:], PROBES)
    own, _ = expected(steps[:1], PROBES)
    without(store, steps[0])
    one = seen(store)
    z = ((x - x.mean()) / x.std(ddof=0)).to_numpy()
    weights = np.linalg.solve(z.T @ z + np.eye(7), z.T @ (y - y.mean()))
    for row in one.classes:
        value = y.mean() + ((own.loc[row.risk.label] - x.mean()) / x.std(ddof=0)).to_numpy() @ weights
        assert row.forecast == pytest.approx(min(value, 1))
        assert row.forecast_low < row.forecast < row.forecast_high
    assert one.forecasts_by == "Forecasts are fitted on 9 experiments like this one in this store (90 past classes)."
    assert len(one.at_risk) == 5
    assert one.classes[:5] == one.at_risk


def test_with_fewer_experiments_the_model_that_ships_is_asked_and_said(store: Store) -> None:
    steps = second_steps(store)
    cut_off(steps[0], PROBES, store)
    without(store, *steps[5:], steps[0])
    one = seen(store)
    assert one.forecasts_by.startswith("Forecasts are by the model that ships with forgetscope, fitted on ")
    assert "this store has 4 finished experiments (40 past classes) like this one" in one.forecasts_by
    assert all(-0.5 < row.forecast_low < row.forecast <= row.forecast_high <= 1 for row in one.classes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rehearsal": {"retention": 0.05}}, "for a retention of 0.08 to 0.4 in step 2, and here it is 0.05"),
        ({"training": {"epochs": 40}}, "for epochs = 20, and here it is 40"),
        ({"classes": [1, 2, 3]}, "for so many new classes: 10 to 50 in step 2, and here it is 3"),
        ({"rehearsal": {"probe_images": 100}}, "for probe_images = None, and here it is 100"),
    ],
)
def test_outside_of_its_domain_the_model_that_ships_says_nothing_and_why(
    store: Store, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    step, other = second_steps(store)[0], Store(tmp_path / "other")
    spec = {name: {**value, **change.get(name, {})} if isinstance(value, dict) else change.get(name, value)
            for name, value in step.info["spec"].items()}  # fmt: skip
    cut_off(step, PROBES, other, spec=spec)
    one = seen(other)
    assert all(np.isnan([row.forecast, row.forecast_low, row.forecast_high]).all() for row in one.classes)
    assert one.forecasts_by.startswith("No forecast: this store has no finished step like this one")
    assert said in one.forecasts_by


def test_another_network_has_no_forecast(store: Store, tmp_path: Path) -> None:
    cut_off(second_steps(store)[0], PROBES, Store(tmp_path / "other"), network="resnet18")
    assert "is for network = resnet8, and here it is resnet18" in seen(Store(tmp_path / "other")).forecasts_by


@pytest.mark.parametrize("made", [{}, {"spec": 3}, {"spec": {"training": []}, "data": {}, "network": "x"}])
def test_what_cannot_be_read_of_how_a_step_is_trained_is_said(store: Store, made: dict[str, Any]) -> None:
    said_otherwise(cut_off(second_steps(store)[0], PROBES, store), {"made": made})
    assert seen(store).forecasts_by == "No forecast: what the step says of how it is trained cannot be read."


def test_a_step_that_does_not_say_how_it_is_trained_has_none(store: Store) -> None:
    said_otherwise(cut_off(second_steps(store)[0], PROBES, store), {"made": None})
    assert seen(store).forecasts_by == "No forecast: the step does not say how it is trained."


def test_steps_that_join_the_store_are_fitted_on_and_nothing_is_read_twice(
    store: Store, replicated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, read = second_steps(store), list[str]()
    table = StoredTables.table

    def counted(self: StoredTables, name: Any, columns: Any = None) -> Any:
        read.append(f"{self.folder.name}/{name}")
        return table(self, name, columns)

    cut_off(steps[0], PROBES, store)
    without(store, steps[0], *steps[7:])
    lookout = Lookout(store)
    monkeypatch.setattr(StoredTables, "table", counted)
    assert "on 6 experiments" in lookout.look()[0].forecasts_by
    before = len(read)
    assert before == len(set(read)) > 0
    assert lookout.look()[0] is not None
    assert len(read) == before
    shutil.copytree(replicated / "steps" / steps[7].id, store.path / "steps" / steps[7].id)
    assert "on 7 experiments" in lookout.look()[0].forecasts_by
    assert {path.split("/")[0] for path in read[before:]} == {steps[7].id}
    without(store, *steps[1:7])
    assert "the model that ships" in lookout.look()[0].forecasts_by


def test_a_damaged_step_is_not_fitted_on(store: Store) -> None:
    steps = second_steps(store)
    cut_off(steps[0], PROBES, store)
    without(store, steps[0], *steps[7:])
    path = steps[1].folder / "probes.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert "on 5 experiments" in seen(store).forecasts_by


def test_steps_of_which_less_is_known_are_predicted_by_what_is(store: Store) -> None:
    """Steps that predict forgetting so far, among finished ones that do not: as without."""
    steps = second_steps(store)
    folder = cut_off(steps[0], PROBES, store)
    without(store, steps[0])
    plain = seen(store)
    table = pd.read_parquet(folder / "probes.parquet")
    for name in ("forecast", "forecast_low", "forecast_high", "sic_estimate", "cic_estimate", "nic_estimate"):
        table[name] = 0.25
    table.to_parquet(folder / "probes.parquet", index=False)
    one = seen(store)
    assert [row.so_far for row in one.classes] == [0.25] * len(one.classes)
    assert [row.forecast for row in one.classes] == [row.forecast for row in plain.classes]


def test_monitors_of_equal_settings_are_fitted_on_and_others_are_not(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    for i in range(13):
        commit_observed(store, observed_record(3, f"birds-{i}"))
    running = observed_record(3, "birds-next", status="running")
    begun(store, running, epochs=running.epochs)
    one = seen(store)
    assert "on 13 experiments like this one in this store (52 past classes)" in one.forecasts_by
    assert all(np.isfinite(row.forecast) for row in one.classes)
    shutil.rmtree(store.path / "working")
    begun(store, observed_record(3, "birds-next", status="running", settings={"lr": 0.2}), epochs=running.epochs)
    assert "no finished step like this one" in seen(store).forecasts_by
    assert seen(store).forecasts_by.endswith("the model that ships with forgetscope is of its own training.")
    shutil.rmtree(store.path / "working")
    begun(store, running, epochs=None)
    assert seen(store).forecasts_by == "No forecast: how long the step is was not told (`monitor.step(..., epochs=20)`)."


def begun(store: Store, record: Any, epochs: int | None) -> None:
    step = write_running(store, record)
    ids, names = (record.tables["classes"][name].to_pylist() for name in ("class_id", "class_name"))
    Beacon(step.folder, Facts(f"{record.name}/3", 3, 4, ids, names, epochs)).epoch_ended(1)


def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "foresight.py"
    spec = importlib.util.spec_from_file_location("foresight_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_model_that_ships_is_the_fit_on_the_packaged_results(tmp_path: Path) -> None:
    from importlib import resources

    from forgetscope.housekeeping.replication import unpack_replication

    unpack_replication(tmp_path / "all")
    script = benchmark()
    found = script.cases(Store(tmp_path / "all"))
    model = script.pooled(found, 0.5)
    shipped = json.loads((resources.files("forgetscope.underway") / "shipped.json").read_bytes())
    assert shipped["probes"][10]["weights"] == pytest.approx(model.fit.line.weights, rel=1e-4)
    assert shipped["probes"][10]["error"] == pytest.approx(model.error, rel=1e-4)
    assert len(shipped["probes"]) == 21
    assert shipped["domain"]["2"] == {"retention": [0.08, 0.4], "classes": [10, 50]}
