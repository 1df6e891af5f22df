"""Forecasts in runs: the same training, resumable, carried from step to step, and no test image in any of them."""

from __future__ import annotations

import dataclasses
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from rich.console import Console

from conftest import TINY, run_experiment
from forgetscope.analysis.experiments import open_experiment
from forgetscope.benchmark.plans import Job
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.data.library import load_data
from forgetscope.engines.dispatch import Watcher
from forgetscope.errors import DamagedStep
from forgetscope.experiment.course import FORECASTS
from forgetscope.experiment.forecast import StepForecast
from forgetscope.experiment.preparation import prepare
from forgetscope.experiment.settings import choose_settings
from forgetscope.experiment.step import run_step
from forgetscope.files import replace_durably
from forgetscope.forecasting.accuracy import leave_one_out
from forgetscope.forecasting.forecaster import FEWEST, UNTRAINED
from forgetscope.housekeeping.exporting import export_steps
from forgetscope.housekeeping.importing import import_steps
from forgetscope.housekeeping.sql import query, rows
from forgetscope.housekeeping.verification import verify_store
from forgetscope.learning.snapshots import load_snapshot, save_snapshot
from forgetscope.measuring.keepsakes import Keepsake
from forgetscope.measuring.quantities import ESTIMATES, FORECAST
from forgetscope.report.pages.experiment import render_page
from forgetscope.report.terminal.experiments import experiment_view
from forgetscope.spec import RunSpec, StepSpec, step_id
from forgetscope.store import STATE, TABLES, Store, StoredStep, parquet_bytes
from strangers import put

FORECASTING = {**TINY, "forecast": True}
SAME = [STATE, *(f"{name}.parquet" for name in (*TABLES, "predictions") if name not in ("classes", "probes"))]
ALL = [*(f"{name}.parquet" for name in ("classes", "probes", "keepsakes", "carried")), *SAME]


def run(store: Store, spec: dict[str, Any], **options: Any) -> list[StoredStep]:
    return list(run_experiment(RunSpec(**spec), store, device="cpu", threads=1, **options).steps)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three steps that make forecasts; do not write to it."""
    store = Store(tmp_path_factory.mktemp("forecast") / "store")
    run(store, FORECASTING)
    return store.path


@pytest.fixture
def steps(made: Path) -> list[StoredStep]:
    (chain,) = Store(made).experiments()
    return chain


def test_nothing_else_of_a_run_changes(tiny_store: Path, steps: list[StoredStep]) -> None:
    (plain,) = Store(tiny_store).experiments()
    assert plain[0].id == steps[0].id
    for ours, theirs in zip(steps, plain, strict=True):
        for name in SAME:
            assert (ours.folder / name).read_bytes() == (theirs.folder / name).read_bytes(), name
        for table in ("classes", "probes"):
            known, found = theirs.table(table), ours.table(table)
            same = [name for name in known.column_names if name != "missing"]
            assert found.select(same).equals(known.select(same))
        why, before = (of.table("classes")["missing"].to_pylist() for of in (ours, theirs))
        assert [_of_coefficients(text) for text in why] == before
    assert not {*FORECAST} & {*plain[1].table("classes").column_names}
    assert {*FORECAST} <= {*steps[1].table("classes").column_names} & {*steps[2].table("probes").column_names}


def _of_coefficients(missing: str | None) -> str | None:
    """Without why there is no forecast."""
    return "; ".join(part for part in (missing or "").split("; ") if not part.startswith("no forecast: ")) or None


def test_classes_have_the_last_forecast_and_the_sums_of_estimates(steps: list[StoredStep]) -> None:
    for step in steps[1:]:
        probes = step.table("probes").to_pandas()
        past = step.table("classes").to_pandas().iloc[: -len(step.spec.classes)].set_index("class_id")
        new = step.table("classes").to_pandas().iloc[-len(step.spec.classes) :]
        assert new[list(FORECAST)].isna().all(axis=None)
        last = probes[probes["probe"] == probes["probe"].max()].set_index("class_id")
        for name in ("forecast", "forecast_low", "forecast_high"):
            np.testing.assert_array_equal(past[name], last[name])
        for name in ESTIMATES:
            np.testing.assert_allclose(past[name], probes.groupby("class_id")[name].sum(min_count=3)[past.index])
        known = past.dropna(subset="forecast")
        assert len(known)
        assert (known["forecast_low"] <= known["forecast"]).all()
        assert (known["forecast_high"] <= 1).all()
        assert step.info["timings"]["forecast_seconds"] > 0


def test_few_coefficients_are_weighted_like_those_they_estimate(tmp_path: Path) -> None:
    spec = {**FORECASTING, "sequence": TINY["sequence"][:2], "probes": 2, "probe_images": 20}
    step = run(Store(tmp_path / "store"), spec)[1]
    probes, past = step.table("probes").to_pandas(), step.past_classes("class_id", *ESTIMATES)
    assert sorted(probes["probe"].unique()) == [0, 1]
    for name in ESTIMATES:
        np.testing.assert_allclose(past[name], 1.5 * probes.groupby("class_id")[name].sum()[past["class_id"]])
    assert verify_store(Store(tmp_path / "store")).damage == []


def test_what_is_known_of_a_class_is_handed_on(steps: list[StoredStep]) -> None:
    _, second, third = steps
    assert third.table("keepsakes").slice(0, 2).equals(second.table("keepsakes"))  # bit for bit
    assert set(second.carried()) == {0, 1}
    assert set(third.carried()) == {0, 1, 2, 3}
    for one in (*second.carried().values(), *third.carried().values()):
        assert one is not None
        assert one.mean.shape == one.spread.shape == (64,)
    kept = third.keepsakes()
    assert all(one is not None and one.accuracy is not None and one.probability is not None for one in kept.values())


def test_accuracy_is_that_without_each_image_s_own_pull(steps: list[StoredStep]) -> None:
    first, second = steps[:2]
    data, settings = load_data("glyphs", 8), choose_settings("cpu", 1)
    step = prepare(first, second.spec, data, settings)
    features, nodes = [], []
    for node, label in enumerate((0, 1)):
        images = torch.from_numpy(data.train.images[data.train.labels == label])
        with torch.no_grad():
            features.append(step.network.eval().features(step.normalise(images)).double().numpy())  # type: ignore[operator]
        nodes += [node] * len(images)
    weight, bias = (first.state()[f"head.{part}"].astype(np.float64) for part in ("weight", "bias"))
    right = leave_one_out(np.concatenate(features), np.array(nodes), weight, bias)
    for node, label in enumerate((0, 1)):
        kept = second.keepsakes()[label]
        assert kept is not None
        assert kept.accuracy == pytest.approx(right[np.array(nodes) == node].mean(), abs=0.011)  # an image or two by rounding


def is_predictable(kept: Keepsake | None) -> bool:
    if kept is None or kept.accuracy is None:
        return False
    return kept.accuracy * kept.images > FEWEST - 0.5 and kept.accuracy >= kept.training_accuracy / 2


def second_forecast(steps: list[StoredStep]) -> StepForecast:
    return StepForecast(prepare(steps[0], steps[1].spec, load_data("glyphs", 8), choose_settings("cpu", 1)))


def test_before_training_there_are_estimates_and_no_forecast(steps: list[StoredStep]) -> None:
    """What new nodes take before they were trained says nothing of forgetting."""
    forecast = second_forecast(steps)
    measured = forecast.measure()
    first = steps[1].table("probes").to_pandas().query("probe == 0")
    np.testing.assert_array_equal(measured.numpy(), first[list(FORECAST)].to_numpy().T)
    assert first[["forecast", "forecast_low", "forecast_high"]].isna().all(axis=None)
    assert np.isfinite(first[list(ESTIMATES)]).all(axis=None)
    assert np.isfinite(steps[1].table("probes").to_pandas().query("probe > 0")["forecast"]).any()
    why = forecast.missing([measured])
    assert why[0] == f"no forecast: {UNTRAINED}"
    assert (why[1] or "").startswith("no forecast: how well it was learned is not known: the network recognised 26%")


def test_steps_of_an_earlier_version_predicted_before_training_and_are_read(made: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(made, tmp_path / "store"))
    second = store.experiments()[0][1]
    table = second.table("probes")
    for name in FORECAST[:3]:
        values = table[name].to_numpy().copy()
        values[table["probe"].to_numpy() == 0] = 0.25
        table = table.set_column(table.column_names.index(name), name, pa.array(values, from_pandas=True))
    put(second, "probes.parquet", parquet_bytes(table))
    assert verify_store(store).damage == []


def test_test_images_and_test_accuracies_enter_no_forecast(steps: list[StoredStep], made: Path, tmp_path: Path) -> None:
    """Other test images, and other accuracies in the parent's table: not a bit changes."""
    store = Store(shutil.copytree(made, tmp_path / "store"))
    before, second, third = store.experiments()[0]
    data, settings = load_data("glyphs", 8), choose_settings("cpu", 1)
    other = dataclasses.replace(data, test=dataclasses.replace(data.test, images=255 - np.array(data.test.images)))
    parents = {2: before, 3: second}
    for parent in parents.values():
        table = parent.table("classes")
        values = pa.array(np.linspace(0.3, 0.6, len(table)))
        for name in ("accuracy", "accuracy_when_learned"):
            table = table.set_column(table.column_names.index(name), name, values)
        put(parent, "classes.parquet", parquet_bytes(table))
    again = Store(tmp_path / "again")
    again.prepare()
    for number, parent in parents.items():
        spec, parent = (second, third)[number - 2].spec, store.step(parent.id)
        found = run_step(step_id(parent.id, spec, data.digest), parent, spec, other, again, settings, lambda end: None)
        expected = steps[number - 1]
        for name in ("probes", "keepsakes", "carried"):
            assert (found.folder / f"{name}.parquet").read_bytes() == (expected.folder / f"{name}.parquet").read_bytes()
        columns = ["class_id", *FORECAST]
        assert found.table("classes").select(columns).equals(expected.table("classes").select(columns))
        assert not found.table("confusion").equals(expected.table("confusion"))


def test_a_run_that_was_interrupted_ends_in_the_same_bytes(tmp_path: Path, steps: list[StoredStep]) -> None:
    class StopsOnce(Watcher):
        def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
            if job.spec.step == 3 and epoch == 1:
                raise KeyboardInterrupt

    store = Store(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        run(store, FORECASTING, progress=StopsOnce())
    again = run(store, FORECASTING)
    for ours, theirs in zip(again[1:], steps[1:], strict=True):
        for name in ALL:
            assert (ours.folder / name).read_bytes() == (theirs.folder / name).read_bytes(), name


def test_a_snapshot_without_its_forecasts_is_none_of_this_step(tmp_path: Path, steps: list[StoredStep]) -> None:
    """A checksum that fits does not prove that: the step begins anew, and says so."""

    class StopsOnce(Watcher):
        def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
            if job.spec.step == 2:
                raise KeyboardInterrupt

    store, spec = Store(tmp_path / "store"), {**FORECASTING, "sequence": TINY["sequence"][:2]}
    with pytest.raises(KeyboardInterrupt):
        run(store, spec, progress=StopsOnce())
    working = store.working(steps[1].id)
    snapshot = load_snapshot(working, lambda path: None)
    assert snapshot is not None
    assert snapshot.measured[FORECASTS].shape == (2, len(FORECAST), 2)
    for i in (2, 3):
        harmed = {FORECASTS: snapshot.measured[FORECASTS][:1]} if i == 2 else {}
        rest = {name: tensor for name, tensor in snapshot.measured.items() if name != FORECASTS}
        save_snapshot(working, dataclasses.replace(snapshot, serial=i, measured=rest | harmed), replace_durably)
    step = run(store, spec)[1]
    assert len(list((store.path / "quarantine").iterdir())) == 2
    assert (step.folder / "probes.parquet").read_bytes() == (steps[1].folder / "probes.parquet").read_bytes()


def test_what_was_predicted_is_shown_beside_what_was_forgotten(made: Path, tiny_store: Path) -> None:
    for path, shown in ((made, True), (tiny_store, False)):
        experiment = open_experiment(path)
        console = Console(width=200, file=io.StringIO())
        console.print(experiment_view(experiment))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("predicted" in text) == shown
        assert (">Predicted</th>" in render_page(experiment, {})) == shown
    row = open_experiment(made).past_classes(2).iloc[0]
    console.print(experiment_view(open_experiment(made), 2))
    expected = f"{row['forecast']:.2f} ({row['forecast_low']:.2f}, {row['forecast_high']:.2f})".replace("-", "−")
    assert expected in console.file.getvalue()  # type: ignore[attr-defined]


def test_it_can_be_asked_in_sql(made: Path) -> None:
    found = rows(query(Store(made), "SELECT step, count(forecast) AS n FROM classes WHERE forecast <= 1 GROUP BY step"))
    assert {row["step"] for row in found} == {2, 3}
    found = rows(query(Store(made), "SELECT step, count(*) AS n, max(len(mean)) AS d FROM carried GROUP BY step ORDER BY step"))
    assert found == [{"step": 2, "n": 2, "d": 64}, {"step": 3, "n": 4, "d": 64}]


@pytest.mark.parametrize(
    "options",
    [
        {"keepsake": "covariance"},
        {"policy": "herding", "validation": 0.25},
        {"memory": 12},
        {"retention": 1.0},
        {"network": "resnet8-projected"},  # whose features can be negative
    ],
    ids=lambda options: next(iter(options)),
)
def test_third_steps_of_every_kind_have_forecasts(tmp_path: Path, options: dict[str, object]) -> None:
    spec = {name: value for name, value in FORECASTING.items() if name != "retention" or "memory" not in options}
    store = Store(tmp_path / "store")
    third = run(store, {**spec, **options})[2]
    past = third.past_classes(*FORECAST)
    kept = third.keepsakes()
    learned = np.array([is_predictable(one) for one in kept.values()])
    assert (np.isfinite(past["forecast"]) == learned).all()
    assert np.isfinite(past["sic_estimate"]).all()
    assert verify_store(store).damage == []
    if options.get("retention") == 1.0:  # the memory is all: estimates are what is measured, on fifty images of each
        assert (past["forecast"][learned] <= 1).all()
    if options.get("keepsake") == "covariance":
        assert third.carried()[0].spread.shape == (2080,)  # type: ignore[union-attr]


def third_step(store: Store, parent: StoredStep, spec: StepSpec, notes: list[str]) -> StoredStep:
    store.prepare()
    data, settings = load_data("glyphs", 8), choose_settings("cpu", 1)
    return run_step(step_id(parent.id, spec, data.digest), parent, spec, data, store, settings, lambda end: None, notes.append)


@pytest.mark.parametrize("keepsake", ["none", "variance"])
def test_what_a_parent_did_not_forecast_is_missing_and_that_is_said(
    keepsake: str, tiny_store: Path, tmp_path: Path, steps: list[StoredStep]
) -> None:
    store = Store(shutil.copytree(tiny_store, tmp_path / "store"))
    parent = run(store, {**TINY, "sequence": TINY["sequence"][:2], "keepsake": keepsake})[1]
    notes: list[str] = []
    found = third_step(store, parent, steps[2].spec, notes)
    what = "keepsake" if keepsake == "none" else "forecast"
    said = f"There is no {what} of digit 0, digit 1: the parent of step 3 was made without them. They stay missing."
    assert notes == [said]
    past = found.past_classes("forecast", "cic_estimate")
    learned = [is_predictable(one) for one in found.keepsakes().values()]
    assert np.isfinite(past["forecast"]).tolist() == [False, False, *learned[2:]]
    why = found.table("classes")["missing"].to_pylist()[:4]
    assert ["no forecast: " in (text or "") for text in why] == [True, True, *(not known for known in learned[2:])]
    assert np.isnan(past["cic_estimate"]).all()  # what unknown classes do to the others is unknown
    assert [one is None for one in found.carried().values()] == [True, True, False, False]
    assert verify_store(store).damage == []


def test_a_step_that_diverged_has_the_forecasts_of_its_probes(tmp_path: Path, made: Path, steps: list[StoredStep]) -> None:
    store, spec = Store(shutil.copytree(made, tmp_path / "store")), steps[1].spec
    wild = spec.model_copy(update={"training": spec.training.model_copy(update={"learning_rate": 1e30})})
    step = third_step(store, steps[0], wild, [])
    assert step.divergence is not None
    assert np.isnan(step.past_classes("forecast")["forecast"]).all()
    assert all(one is None for one in step.carried().values())
    assert len(step.table("probes", list(FORECAST))) == 2 * 1
    assert verify_store(store).damage == []


def test_what_is_carried_goes_with_the_keepsakes(made: Path, tmp_path: Path) -> None:
    source = Store(made)
    export_steps(source.steps(), tmp_path / "some.tar", keepsakes=2)
    copy = Store(tmp_path / "copy")
    import_steps(tmp_path / "some.tar", copy)
    second, third = copy.experiments()[0][1:]
    assert second.has("carried")
    assert third.left_out("carried.parquet")
    assert third.left_out("keepsakes.parquet")
    assert third.state_freed
    assert verify_store(copy).damage == []


def column(table: pa.Table, name: str, values: object) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, pa.array(values, table.schema.field(name).type))


def first(table: pa.Table, name: str, value: object) -> pa.Table:
    return column(table, name, [value, *table[name].to_pylist()[1:]])


HARMS: dict[str, tuple[str, str, Callable[[pa.Table], pa.Table]]] = {
    "other forecast": ("classes", "forecast of class 0 is 0.123, and by probes.parquet", lambda t: first(t, "forecast", 0.123)),
    "other sum": ("classes", "sic_estimate of class 0 is 7", lambda t: first(t, "sic_estimate", 7.0)),
    "no column": ("classes", "no forecast in a step with forecast", lambda t: t.drop_columns([*FORECAST])),
    "interval": ("probes", "forecast is .* of class 0, between 2.0 and", lambda t: first(t, "forecast_low", 2.0)),
    "accuracy": ("keepsakes", "no keepsake of class 0: accuracy is 1.5", lambda t: first(t, "accuracy", 1.5)),
    "probability": ("keepsakes", "no keepsake of class 0: accuracy is None", lambda t: first(t, "accuracy", None)),
    "without": ("keepsakes", "probability in a step with forecast", lambda t: t.drop_columns(["accuracy"])),
    "error": ("carried", "error of class 0 is -1.0", lambda t: first(t, "error", -1.0)),
    "order": ("carried", "not mean and variance of the classes that were past", lambda t: t.take([1, 0])),
}


@pytest.mark.parametrize("harm", HARMS)
def test_tables_that_cannot_be_those_of_the_step_are_named(made: Path, tmp_path: Path, harm: str) -> None:
    store, (name, reason, harmed) = Store(shutil.copytree(made, tmp_path / "store")), HARMS[harm]
    step = store.experiments()[0][1]
    put(step, f"{name}.parquet", parquet_bytes(harmed(step.table(name))))  # type: ignore[arg-type]
    (found,) = verify_store(store).damage
    assert found.path.name == f"{name}.parquet"
    with pytest.raises(DamagedStep, match=reason):
        raise step.damaged(found.path.name, found.reason)


def test_a_forecast_that_nobody_asked_for_is_damage(tiny_store: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(tiny_store, tmp_path / "store"))
    step = store.experiments()[0][1]
    table = step.table("probes")
    put(step, "probes.parquet", parquet_bytes(table.append_column("forecast", pa.array([0.5] * len(table)))))
    (found,) = verify_store(store).damage
    assert (found.path.name, found.reason) == ("probes.parquet", "forecast in a step without forecast")


def test_simulated_steps_have_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    shape = {"experiments": 1, "increments": [0.1], "retentions": [0.08], "epochs": 2, "forecast": True}
    simulate(BenchmarkSpec.load("glyphs", shape), store, seed=1, reruns=0)
    assert verify_store(store).damage == []
    for step in store.steps():
        assert not step.forecasts
        assert step.carried() == {}
        assert not {*FORECAST} & {*step.table("classes").column_names}


def test_a_parent_without_what_it_promises_to_carry_is_named(made: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(made, tmp_path / "store"))
    _, second, third = store.experiments()[0]
    shutil.rmtree(third.folder)
    put(second, "carried.parquet", parquet_bytes(column(second.table("carried"), "mean", [[0.0] * 63] * 2)))
    with pytest.raises(DamagedStep, match=r"carried\.parquet: variance is not of as many features as mean"):
        run(store, FORECASTING)
