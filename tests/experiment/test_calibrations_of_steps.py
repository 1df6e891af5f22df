"""Calibrations in runs: they act on predictions alone, are found without test images, and share the steps that were trained."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console, RenderableType
from scipy import optimize, special

import forgetscope as fs
from conftest import TINY
from forgetscope.choices import CALIBRATIONS, canonical_calibration
from forgetscope.errors import SpecError, StoreError
from forgetscope.experiment import preparation
from forgetscope.experiment.calibration import calibrate_locked
from forgetscope.experiment.preparation import Prepared, held_out_images, load_trained, prepare
from forgetscope.experiment.settings import choose_settings
from forgetscope.report.document import experiment_document
from forgetscope.report.pages.experiment import render_page
from forgetscope.report.terminal.experiments import experiment_view
from forgetscope.report.terminal.plans import plan_document, plan_view
from forgetscope.report.words.calibrated import one_column
from forgetscope.store import Store, StoredCalibration, StoredStep, calibrations_of, commit_calibration
from forgetscope.store.tables import parquet_bytes
from strangers import put

RUN = {**TINY, "validation": 0.1, "epochs": 3, "device": "cpu"}
NAMES = [name for name in CALIBRATIONS if name != "none"] + ["evening(source=held-out)", "evening(strength=1.0)"]
SETTINGS = choose_settings("cpu", 1)
CANONICAL = [str(canonical_calibration(name)) for name in NAMES]
Values = NDArray[np.float64]


def text_of(view: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(view)
    return console.file.getvalue()  # type: ignore[attr-defined]


def run(store: Path, **options: Any) -> fs.Experiment:
    spec = {name: value for name, value in {**RUN, **options}.items() if name != "device"}
    return fs.run(fs.RunSpec(**spec), store, threads=1, device="cpu", progress=False)


@pytest.fixture(scope="module", autouse=True)
def _trusting() -> Iterator[None]:
    """Networks of three epochs have hardly learned: without the rule that there is no forecast of such."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forgetscope.forecasting.forecaster.LEAST_OF_TRAINING", 0.0)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps that make forecasts, and all calibrations of them; do not write to it."""
    path = tmp_path_factory.mktemp("calibrated") / "store"
    for name in NAMES:
        run(path, forecast=True, calibration=name)
    return path


def the(made: Path, name: str, number: int = 3) -> StoredCalibration:
    store = Store(made)
    (chain,) = store.experiments()
    (found,) = (one for one in calibrations_of(store, chain[number - 1]) if one.calibration == name)
    return found


def trained(made: Path, number: int = 3) -> tuple[StoredStep, Prepared]:
    """A step and its network as training left it, prepared anew."""
    (chain,) = Store(made).experiments()
    step = prepare(chain[number - 2], chain[number - 1].spec, fs.load_data("glyphs", 8), SETTINGS)
    load_trained(step.network, chain[number - 1])
    step.network.eval()
    return chain[number - 1], step


def logits_of(step: Prepared, images: NDArray[np.uint8]) -> Values:
    with torch.no_grad():
        found: Values = step.network(step.normalise(torch.from_numpy(np.array(images)))).double().numpy()
    return found


def test_arms_that_differ_in_calibration_alone_are_one_training(made: Path, tmp_path: Path) -> None:
    store = Store(made)
    assert len(store.ids()) == 3
    (chain,) = store.experiments()
    assert [len(calibrations_of(store, step)) for step in chain] == [0, len(NAMES), len(NAMES)]
    plain = fs.plan(fs.RunSpec(**TINY))
    assert fs.plan(fs.RunSpec(**TINY, calibration="offset")).jobs.keys() == plain.jobs.keys()
    evening = fs.plan(fs.RunSpec(**TINY, calibration="evening"))
    assert evening.jobs.keys() == fs.plan(fs.RunSpec(**TINY, forecast=True)).jobs.keys()
    spec = fs.RunSpec(**TINY, calibration="evening", keepsake="covariance")
    assert (spec.forecast, spec.keepsake) == (True, "covariance")
    (tmp_path / "all.toml").write_text(fs.RunSpec(**TINY).to_toml())  # says forecast = false and keepsake = "none"
    spelt_out = fs.RunSpec.from_toml(tmp_path / "all.toml", {"calibration": "evening"})
    assert (spelt_out.forecast, spelt_out.keepsake) == (True, "variance")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [2, 3])
def test_its_accuracies_are_those_of_the_network_with_adjusted_logits(made: Path, name: str, number: int) -> None:
    step, prepared = trained(made, number)
    found, test = the(made, name, number), prepared.data.test
    own = found.table("calibration").to_pydict()
    assert own["class_id"] == list(prepared.classes)
    then = dict(zip(own["class_id"], step.table("classes")["accuracy_when_learned"].to_pylist(), strict=True))
    for node, label in enumerate(prepared.classes):
        logits = logits_of(prepared, test.images[test.labels == label])
        right = (logits * own["scale"] + own["offset"]).argmax(axis=1) == node
        assert own["calibrated_accuracy"][node] == pytest.approx(right.mean(), abs=0.011)  # batches differ in last bits
        if node < len(prepared.past) and then[label] > 0:
            lost = 1 - own["calibrated_accuracy"][node] / then[label]
            assert own["calibrated_forgetting"][node] == pytest.approx(lost)
        else:
            assert own["calibrated_forgetting"][node] is None
    classes = found.table("classes").to_pydict()
    assert classes["accuracy"] == own["calibrated_accuracy"]
    assert classes["forgetting"] == own["calibrated_forgetting"]
    assert classes["accuracy_when_learned"] == step.table("classes")["accuracy_when_learned"].to_pylist()


def test_published_ones_against_their_definitions(made: Path) -> None:
    _, step = trained(made)
    past, nodes = len(step.past), len(step.classes)
    offset, aligned, corrected = (
        the(made, name).table("calibration") for name in ("offset", "weight-aligning", "bias-correction")
    )
    assert offset["offset"].to_pylist() == [0.5] * past + [0.0] * (nodes - past)
    head = step.network.head
    assert isinstance(head, torch.nn.Linear)
    test = step.data.test.images[:50]
    plain = logits_of(step, test)
    norms = head.weight.detach().norm(dim=1)
    kept = head.weight.data.clone()
    head.weight.data[past:] *= norms[:past].mean() / norms[past:].mean()
    expected = logits_of(step, test)
    head.weight.data.copy_(kept)
    np.testing.assert_allclose(plain * aligned["scale"].to_numpy() + aligned["offset"].to_numpy(), expected, atol=1e-4)
    images = {label: held_out_images(step.spec, step.data, label) for label in step.classes}
    assert {len(held) for held in images.values()} == {20}
    assert not any(np.isin(images[label], step.images_of[label]).any() for label in step.classes)
    logits = np.concatenate([logits_of(step, step.data.train.images[held]) for held in images.values()])
    labels = np.repeat(np.arange(nodes), 20)

    def loss(at: Values) -> float:
        values = logits.copy()
        values[:, past:] = at[0] * values[:, past:] + at[1]
        own = values[np.arange(len(labels)), labels] - special.logsumexp(values, axis=1)
        return float(-own.mean()) + 0.5e-4 * ((at[0] - 1) ** 2 + at[1] ** 2)

    best = optimize.minimize(loss, [1.0, 0.0], bounds=[(0.01, None), (None, None)])
    found = [corrected["scale"].to_pylist()[-1], corrected["offset"].to_pylist()[-1]]
    assert loss(np.array(found)) == pytest.approx(best.fun, abs=1e-6)
    assert the(made, "bias-correction").held_out_bytes == past * 20 * 8 * 8 * 3
    assert the(made, "evening").held_out_bytes == 0


def test_evening_knows_what_it_expects_before_test_images_are_looked_at(made: Path) -> None:
    for name in ("evening", "evening(strength=1.0)", "evening(source=held-out)"):
        own = the(made, name, 2).table("calibration").to_pandas()
        past = own.iloc[:2]
        assert past["expected_as_trained"].notna().all()
        assert np.ptp(past["expected"]) <= np.ptp(past["expected_as_trained"]) + 1e-9
        assert own["expected"].iloc[2:].isna().all()
        assert "spreads by" in the(made, name, 2).info["said"]


def test_other_test_images_and_test_accuracies_change_no_calibration(made: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    shutil.copytree(made / "steps", store.path / "steps")
    data = fs.load_data("glyphs", 8)
    other = dataclasses.replace(data, test=dataclasses.replace(data.test, images=255 - np.array(data.test.images)))
    store.prepare()
    (chain,) = store.experiments()
    for step in chain[1:]:
        table = step.table("classes")
        for column in ("accuracy", "accuracy_when_learned"):
            values = pa.array(np.linspace(0.3, 0.6, len(table)))
            table = table.set_column(table.column_names.index(column), column, values)
        put(step, "classes.parquet", parquet_bytes(table))
    (chain,) = store.experiments()
    for name in NAMES:
        found = calibrate_locked(chain[2], chain[1], name, other, store, SETTINGS)
        expected = the(made, name)
        columns = [c for c in found.table("calibration").column_names if not c.startswith("calibrated_")]
        assert found.table("calibration").select(columns).equals(expected.table("calibration").select(columns)), name
        assert found.info["said"] == expected.info["said"]
        assert not found.table("confusion").equals(expected.table("confusion"))


@pytest.mark.parametrize("left_out", [False, True])
def test_what_a_step_chose_and_kept_is_read_and_made_again_only_where_it_was_left_out(
    left_out: bool, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking back at all past images took most of the time of a calibration; either way it is the same bits."""
    looks: list[str] = []
    for name in ("choose", "keepsake", "class_accuracies", "make_objective"):
        real = getattr(preparation, name)
        monkeypatch.setattr(
            preparation, name, lambda *given, real=real, name=name, **more: looks.append(name) or real(*given, **more)
        )
    monkeypatch.setattr(StoredStep, "left_out", lambda step, file: left_out and file == "keepsakes.parquet")
    store, data = Store(tmp_path / "store"), fs.load_data("glyphs", 8)
    shutil.copytree(made / "steps", store.path / "steps")
    store.prepare()
    (chain,) = store.experiments()
    for number in (2,) if left_out else (2, 3):  # a third step starts from what its parent kept
        for name in ("evening", "bias-correction"):
            found, expected = (
                calibrate_locked(chain[number - 1], chain[number - 2], name, data, store, SETTINGS),
                the(made, name, number),
            )
            for file in ("calibration.parquet", "predictions.parquet"):
                assert found.verified(file) == expected.verified(file), (name, number, file)
            assert found.info["said"] == expected.info["said"]
    assert bool(looks) is left_out


def test_the_same_command_makes_what_is_missing_or_damaged_and_nothing_else(made: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(made, tmp_path / "store"))
    before = {file: file.stat().st_mtime_ns for file in (path / "steps").rglob("*") if file.is_file()}
    gone, harmed = the(path, "offset"), the(path, "offset", 2)
    shutil.rmtree(gone.folder)
    content = bytearray((harmed.folder / "predictions.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (harmed.folder / "predictions.parquet").write_bytes(content)
    notes: list[str] = []

    class Told(fs.Watcher):
        def note(self, text: str) -> None:
            notes.append(text)

    spec = fs.RunSpec(**{name: value for name, value in RUN.items() if name != "device"}, forecast=True, calibration="offset")
    fs.run(spec, path, threads=1, device="cpu", watch=Told())
    for number in (2, 3):
        one, expected = the(path, "offset", number), the(made, "offset", number)
        for file in one.manifest:
            if file != "calibration.json":  # which has times
                assert one.verified(file) == expected.verified(file)
    assert any("is damaged: " in note and "making it again" in note for note in notes)
    assert {file: file.stat().st_mtime_ns for file in (path / "steps").rglob("*") if file.is_file()} == before
    assert [one.name.split("-")[1] for one in (path / "quarantine").iterdir()] == [harmed.id]


def test_a_comparison_makes_a_damaged_one_again_and_others_are_shown_without_it(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from forgetscope.cli.app import app

    path, arms = (
        tmp_path / "store",
        {"plain": {}, "moved": {"calibration": "offset"}, "aligned": {"calibration": "weight-aligning"}},
    )
    run = fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1)
    compare = fs.Comparison(run, arms=arms, pairs=1, again=False)
    rows = fs.compare(compare, path, on=fs.Here(threads=1), progress=False)
    harmed = the(path, "offset", 2)
    (harmed.folder / "calibration.json").write_text("{}")
    for command in ("show", "methods"):
        result = CliRunner().invoke(app, [command, str(path)])
        assert result.exit_code == 0, result.output
        assert f"Left out: Calibration {harmed.id[:8]} of step" in result.stderr
        assert "weight-aligning" in result.stdout
        assert "offset" not in result.stdout
    with pytest.raises(StoreError, match="is damaged"):
        fs.leaderboards(path)
    again = fs.compare(compare, path, on=fs.Here(threads=1), progress=False)
    measured = [(row.arm, row.measure, row.value) for row in rows if row.measure != "seconds"]
    assert [(row.arm, row.measure, row.value) for row in again if row.measure != "seconds"] == measured
    assert [one.name.split("-")[1] for one in (path / "quarantine").iterdir()] == [harmed.id]
    assert "Left out" not in CliRunner().invoke(app, ["show", str(path)]).stderr


def test_what_was_there_first_stays(made: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(made, tmp_path / "store"))
    found = the(path, "offset")
    before = (found.folder / "calibration.json").read_bytes()
    from forgetscope.store import CalibrationRecord
    from forgetscope.store.tables import Predictions

    table = found.predictions()
    assert table is not None
    nodes = {label: node for node, label in enumerate(found.table("classes")["class_id"].to_pylist())}
    columns = [
        np.array([nodes[label] for label in table[name].to_pylist()]) for name in ("true", "predicted", "best_past", "best_new")
    ]
    seen = Predictions(4, table["image"].to_numpy(), *columns, table["margin"].to_numpy())
    record = CalibrationRecord(found.step, "offset", np.ones(6), np.zeros(6), seen, "", {}, 0, 0.0, {})
    commit_calibration(Store(path), record, "2026-01-01T00:00:00+00:00")
    assert (found.folder / "calibration.json").read_bytes() == before


def test_forged_ones_are_refused(made: Path, tmp_path: Path) -> None:
    from forgetscope.errors import DamagedStep
    from forgetscope.store import parquet_bytes
    from strangers import put

    path = Path(shutil.copytree(made, tmp_path / "store"))
    found = the(path, "offset")
    table = found.table("calibration")
    better = table.set_column(3, "calibrated_accuracy", [[1.0] * 6])
    put(found, "calibration.parquet", parquet_bytes(better, "calibration"))
    with pytest.raises(DamagedStep, match="calibrated_accuracy is not what its predictions give"):
        the(path, "offset").table("classes")
    other = the(path, "weight-aligning")
    (other.folder / "calibration.json").write_bytes((found.folder / "calibration.json").read_bytes())
    with pytest.raises(DamagedStep):
        _ = StoredCalibration(other.folder, other.step).info


def test_what_cannot_be_had_is_said_before_anything_is_trained() -> None:
    for text in ("bias-correction", "evening(source=held-out)"):
        with pytest.raises(SpecError, match="validation = 0 holds out none"):
            fs.RunSpec(calibration=text)
    with pytest.raises(SpecError, match="Did you mean 'evening'"):
        fs.RunSpec(calibration="evning")
    with pytest.raises(SpecError, match=r"there is no option 'strenght' of evening. Did you mean 'strength'"):
        fs.RunSpec(calibration="evening(strenght=1)")
    with pytest.raises(SpecError, match=r"level=2 is not valid: it should be forgetting or balance or a number up to 1\.$"):
        canonical_calibration("evening(level=2)")
    with pytest.raises(SpecError, match=r"strength=2 is not valid: it should be a number from 0 to 1"):
        fs.RunSpec(calibration="evening(strength=2)")
    with pytest.raises(SpecError, match="level=high is not valid: it should be forgetting or balance or a number"):
        fs.RunSpec(calibration="evening(level=high)")


def test_a_step_that_diverged_has_none_and_is_not_tried_again(tmp_path: Path) -> None:
    from forgetscope.errors import Diverged

    options = {"learning_rate": 100.0, "momentum": 0.99, "calibration": "offset", "validation": 0.0}
    for _ in range(2):
        with pytest.raises(Diverged):
            run(tmp_path / "store", **options)


def test_arms_with_calibrations_start_from_the_same_steps_and_say_what_they_cost(tmp_path: Path) -> None:
    spec = fs.RunSpec(**{name: value for name, value in RUN.items() if name != "device"})
    arms: dict[str, dict[str, object]] = {
        "plain": {},
        "evened": {"calibration": "evening"},
        "corrected": {"calibration": "bias-correction"},
        "distilled": {"method": "distillation"},
    }
    comparison = fs.Comparison(spec, arms=arms, pairs=2, again=False)
    plan = fs.plan(comparison)
    assert len(plan.jobs) == 2 * (1 + 2 + 2)
    rows = fs.compare(comparison, tmp_path / "store", on=fs.Here(threads=1), progress=False)
    value = {(row.arm, row.step, row.measure): row.value for row in rows}
    image, keepsake = 8 * 8 * 3, 2 * 64 * 4
    kept, held_out = 2 * 14, 2 * 20  # of 200 images 20 are held out, and 8 % of the others kept
    assert value["plain", 2, "bytes"] == kept * image  # its keepsakes are there for the other arm
    assert value["evened", 2, "bytes"] == kept * image + 2 * keepsake
    assert value["corrected", 2, "bytes"] == (kept + held_out) * image
    assert value["evened", 2, "seconds"] > value["plain", 2, "seconds"]
    store = Store(tmp_path / "store")
    accuracies = []
    for chain in plan.chains:
        if chain.variant == "evened":
            found = {one.calibration: one for one in calibrations_of(store, store.step(chain.steps[1]))}
            accuracies.append(found["evening"].table("classes")["accuracy"].to_numpy().mean())
    assert value["evened", 2, "accuracy"] == pytest.approx(np.mean(accuracies))


def test_simulated_steps_have_no_network_to_act_on(tmp_path: Path) -> None:
    shape = {"image_size": 8, "increments": [0.02], "retentions": [0.2], "experiments": 1, "epochs": 1}
    with pytest.raises(SpecError, match="calibration = 'offset': a simulated step has no network whose predictions it could"):
        fs.simulate(fs.BenchmarkSpec.load("glyphs", {**shape, "calibration": "offset"}), tmp_path / "store", reruns=0)
    assert not (tmp_path / "store").exists()
    fs.simulate(fs.BenchmarkSpec.load("glyphs", shape), tmp_path / "store", reruns=0)
    store = Store(tmp_path / "store")
    chain = store.experiments()[0]
    with pytest.raises(StoreError, match="is simulated: there is no network to go on from"):
        calibrate_locked(chain[1], chain[0], "offset", fs.load_data("glyphs", 8), store, SETTINGS)
    assert not (store.path / "calibrated").exists()


def test_a_step_that_lacks_its_calibration_is_to_do_and_said_to_be_trained(made: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(made, tmp_path / "store"))
    options = {name: value for name, value in RUN.items() if name != "device"}
    planned = fs.plan(fs.RunSpec(**options, forecast=True, calibration="offset"))
    assert (len(planned.done(store)), planned.uncalibrated(store)) == (3, set())
    lacking = the(store.path, "offset")
    shutil.rmtree(lacking.folder)
    assert (len(planned.done(store)), planned.uncalibrated(store)) == (2, {lacking.step.id})
    facts = (planned, 2, None, "none", 0, 1)
    assert "1 further step is trained, and not calibrated yet" in text_of(plan_view(*facts))
    assert plan_document(*facts)["steps_uncalibrated"] == 1


def test_documents_and_views_have_each_calibration_beside_what_was_trained(made: Path, tmp_path: Path) -> None:
    (chain,) = Store(made).experiments()
    several = fs.Experiment(chain)
    document = experiment_document(several)
    assert [one["calibration"] for one in document["calibrations"]] == sorted([*CANONICAL, *CANONICAL])
    assert {one["summary"]["step"] for one in document["calibrations"]} == {2, 3}
    assert len(document["calibrated"]) == len(NAMES) * (4 + 6)
    assert "calibrated_forgetting" not in document["classes"][0]
    shown = text_of(experiment_view(several))
    assert "Step 3 as trained, and with what acts on its predictions alone" in shown
    assert re.search(r"^weight-aligning +\d", shown, re.MULTILINE)
    assert one_column(several) is None
    one = fs.Experiment(chain, calibration="offset")
    assert "calibrated: forgetting with offset, which acts on predictions alone" in text_of(experiment_view(one))
    assert experiment_document(one)["classes"][-1]["calibrated_accuracy"] is not None


def test_a_page_has_each_calibration_beside_what_was_trained(made: Path) -> None:
    (chain,) = Store(made).experiments()
    page = render_page(fs.Experiment(chain, calibration="offset"), {})
    assert '<section id="beside"' in page
    assert 'title="forgetting with offset, which acts on predictions alone">Calibrated</th>' in page
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    report = json.loads(found[1])
    assert report["calibrated"] == "offset"
    last = report["steps"][-1]
    assert list(last["beside"]["rows"]) == ["as trained", *sorted(CANONICAL)]
    assert all("calibrated_forgetting" in row for row in last["past"])
    plain = fs.Experiment([chain[0]])
    assert '<section id="beside"' not in render_page(plain, {})
