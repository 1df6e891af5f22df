"""Keepsakes in runs: made by the step that uses them, handed on unchanged, and without a trace in anything else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from conftest import TINY, run_experiment
from forgetscope.benchmark.plans import Job
from forgetscope.data.library import load_data
from forgetscope.data.preprocessing import Normalisation
from forgetscope.engines.dispatch import Watcher
from forgetscope.errors import DamagedStep, SpecError
from forgetscope.experiment import preparation
from forgetscope.experiment.settings import choose_settings
from forgetscope.experiment.step import run_step
from forgetscope.learning.networks import build_network
from forgetscope.spec import RunSpec, StepSpec, step_id
from forgetscope.store import STATE, TABLES, Store, StoredStep, parquet_bytes
from strangers import put

OTHER_FILES = [STATE, *(f"{name}.parquet" for name in (*TABLES, "predictions"))]
COVARIANCE = {**TINY, "keepsake": "covariance"}
Kept = dict[int, tuple[np.ndarray, np.ndarray, float]]


def run(store: Store, spec: dict[str, Any], **options: Any) -> list[StoredStep]:
    return list(run_experiment(RunSpec(**spec), store, device="cpu", threads=1, **options).steps)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three steps that keep covariances; do not write to it."""
    store = Store(tmp_path_factory.mktemp("kept") / "store")
    run(store, COVARIANCE)
    return store.path


@pytest.fixture
def steps(kept: Path) -> list[StoredStep]:
    (chain,) = Store(kept).experiments()
    return chain


def by_hand(parent: StoredStep, classes: list[int], learned: list[int], images_of: dict[int, np.ndarray]) -> Kept:
    """Mean, whole covariance matrix and training accuracy of what a parent learned: features are caught on their way into the
    head, one class at a time."""
    data = load_data("glyphs", 8)
    network = build_network("resnet8", len(classes), None)
    network.load_state_dict({name: torch.from_numpy(a) for name, a in parent.state().items() if name != "image_history"})
    network.eval()
    normalise, caught = Normalisation.of(data, torch.device("cpu"), True), []
    network.head.register_forward_pre_hook(lambda module, inputs: caught.append(inputs[0].double().numpy()))
    found = {}
    for label in learned:
        with torch.no_grad():
            logits = network(normalise(torch.from_numpy(data.train.images[images_of[label]])))
        features = caught.pop()
        right = [classes[int(row.argmax())] == label for row in logits]
        found[label] = features.mean(axis=0), np.cov(features, rowvar=False, ddof=0), sum(right) / len(right)
    return found


def all_images(learned: list[int]) -> dict[int, np.ndarray]:
    labels = load_data("glyphs", 8).train.labels
    return {label: np.flatnonzero(labels == label) for label in learned}


def assert_row(row: dict[str, Any], expected: tuple[np.ndarray, np.ndarray, float], step: int, images: int) -> None:
    mean, covariance, accuracy = expected
    assert (row["features_step"], row["images"], row["training_accuracy"]) == (step, images, accuracy)
    np.testing.assert_allclose(row["mean"], mean, rtol=1e-5, atol=1e-6)
    if "covariance" in row:
        np.testing.assert_allclose(row["covariance"], covariance[np.triu_indices(64)], rtol=2**-8, atol=1e-6)
    else:
        np.testing.assert_allclose(row["variance"], np.diag(covariance), rtol=1e-4, atol=1e-6)


def test_they_are_those_of_the_network_that_learned_the_class(steps: list[StoredStep]) -> None:
    first, second, third = steps
    assert not first.has("keepsakes")
    found = second.table("keepsakes").to_pylist()
    expected = by_hand(first, [0, 1], [0, 1], all_images([0, 1]))
    assert [row["class_id"] for row in found] == [0, 1]
    for row in found:
        assert_row(row, expected[row["class_id"]], 1, 200)
    found = third.table("keepsakes").to_pylist()
    expected = by_hand(second, [0, 1, 2, 3], [2, 3], all_images([2, 3]))
    assert [(row["class_id"], row["features_step"]) for row in found] == [(0, 1), (1, 1), (2, 2), (3, 2)]
    for row in found[2:]:
        assert_row(row, expected[row["class_id"]], 2, 200)
    assert third.table("keepsakes").slice(0, 2).equals(second.table("keepsakes"))  # bit for bit


def test_images_that_are_set_aside_are_in_none(tmp_path: Path) -> None:
    spec = {**TINY, "sequence": TINY["sequence"][:2], "validation": 0.25, "keepsake": "variance", "policy": "herding"}
    first, second = run(Store(tmp_path / "store"), spec)
    data = load_data("glyphs", 8)
    used = {label: preparation._images_to_use(second.spec, data, label) for label in (0, 1)}
    expected = by_hand(first, [0, 1], [0, 1], used)
    table = second.table("keepsakes")
    assert "covariance" not in table.column_names
    for row in table.to_pylist():
        assert_row(row, expected[row["class_id"]], 1, 150)


def test_nothing_else_of_a_run_changes(tiny_store: Path, steps: list[StoredStep]) -> None:
    (plain,) = Store(tiny_store).experiments()
    assert plain[0].id == steps[0].id
    assert [step.has("keepsakes") for step in plain] == [False] * 3
    for ours, theirs in zip(steps, plain, strict=True):
        assert (ours.id == theirs.id) == (ours.number == 1)
        for name in OTHER_FILES:
            assert (ours.folder / name).read_bytes() == (theirs.folder / name).read_bytes(), name


def test_a_run_that_was_interrupted_ends_in_the_same_bytes(tmp_path: Path, steps: list[StoredStep]) -> None:
    class StopsOnce(Watcher):
        def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
            if job.spec.step == 3 and epoch == 1:
                raise KeyboardInterrupt

    store = Store(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        run(store, COVARIANCE, progress=StopsOnce())
    again = run(store, COVARIANCE)
    assert [step.id for step in again] == [step.id for step in steps]
    for ours, theirs in zip(again, steps, strict=True):
        for name in OTHER_FILES + ["keepsakes.parquet"] * (ours.number > 1):
            assert (ours.folder / name).read_bytes() == (theirs.folder / name).read_bytes(), name


def test_the_first_step_of_an_earlier_version_can_be_built_on(tmp_path: Path) -> None:
    old = Path(__file__).parents[1] / "golden" / "schema-1"
    store = Store(shutil.copytree(old, tmp_path / "store"))
    first, second = run(store, {**COVARIANCE, "sequence": TINY["sequence"][:2]})
    assert (first.info["schema"], first.has("predictions"), second.has("predictions")) == (1, False, True)
    expected = by_hand(first, [0, 1], [0, 1], all_images([0, 1]))
    for row in second.table("keepsakes").to_pylist():
        assert_row(row, expected[row["class_id"]], 1, 200)


def third_step(store: Store, parent: StoredStep, spec: StepSpec, notes: list[str]) -> StoredStep:
    store.prepare()
    data, settings = load_data("glyphs", 8), choose_settings("cpu", 1)
    id = step_id(parent.id, spec, data.digest)
    return run_step(id, parent, spec, data, store, settings, lambda end: None, notes.append)


@pytest.mark.parametrize("kind", ["none", "variance"])
def test_what_a_parent_did_not_keep_is_missing_and_that_is_said(
    kind: str, tiny_store: Path, tmp_path: Path, steps: list[StoredStep]
) -> None:
    store = Store(shutil.copytree(tiny_store, tmp_path / "store"))
    parent = run(store, {**TINY, "sequence": TINY["sequence"][:2], "keepsake": kind})[1]
    notes: list[str] = []
    found = third_step(store, parent, steps[2].spec, notes).table("keepsakes")
    assert notes == ["There is no keepsake of digit 0, digit 1: the parent of step 3 was made without them. They stay missing."]
    expected = steps[2].table("keepsakes")
    assert found.slice(2).equals(expected.slice(2))
    assert found["class_id"].equals(expected["class_id"])
    assert {value for row in found.to_pylist()[:2] for name, value in row.items() if name != "class_id"} == {None}


def column(table: pa.Table, name: str, values: object) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, name, pa.array(values, table.schema.field(name).type))


def shorter(table: pa.Table) -> pa.Table:
    """Of 63 features."""
    table = column(table, "mean", [row[:63] for row in table["mean"].to_pylist()])
    return column(table, "covariance", [[0.0] * (63 * 32)] * len(table))


def variances(table: pa.Table) -> pa.Table:
    table = table.rename_columns([*table.column_names[:-1], "variance"])
    return column(table, "variance", table["mean"].to_pylist())


def mean(table: pa.Table, value: float | None) -> pa.Table:
    """With this value somewhere."""
    rows = table["mean"].to_pylist()
    rows[1][5] = value
    return column(table, "mean", rows)


NOT_FINITE, OTHERS = (
    "mean holds a number that is not finite",
    "not mean and covariance of the classes that were past in this step",
)
HARMS: dict[str, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    "features": ("63 features of class 0, and the network has 64", shorter),
    "nan": (NOT_FINITE, lambda table: mean(table, float("nan"))),
    "infinite": (NOT_FINITE, lambda table: mean(table, float("inf"))),
    "missing": (NOT_FINITE, lambda table: mean(table, None)),
    "lengths": ("mean holds lists of 63 and 64 numbers", lambda t: column(t, "mean", [t["mean"][0].as_py(), [0.0] * 63])),
    "spread": ("covariance is not of as many features as mean", lambda t: column(t, "mean", [[0.0] * 63] * 2)),
    "half": ("covariance is not of as many features as mean", lambda t: column(t, "mean", [[0.0] * 64, None])),
    "foreign": (OTHERS, lambda table: column(table, "class_id", [0, 7])),
    "order": (OTHERS, lambda table: table.take([1, 0])),
    "fewer": (OTHERS, lambda table: table.slice(1)),
    "kind": (OTHERS, variances),
    "step": ("no keepsake of class 1, which step 1 learned", lambda table: column(table, "features_step", [1, 2])),
    "images": ("no keepsake of class 0, which step 1 learned", lambda table: column(table, "images", [0, 200])),
    "uncounted": ("no keepsake of class 1, which step 1 learned", lambda table: column(table, "images", [200, None])),
    "accuracy": ("no keepsake of class 0, which step 1 learned", lambda table: column(table, "training_accuracy", [1.5, 1.0])),
    "no accuracy": ("no keepsake of class 1", lambda table: column(table, "training_accuracy", [0.5, float("nan")])),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_run_names_the_parent_whose_keepsakes_cannot_be_its_own(kept: Path, tmp_path: Path, harm: str) -> None:
    store, (reason, harmed) = Store(shutil.copytree(kept, tmp_path / "store")), HARMS[harm]
    first, second, third = store.experiments()[0]
    shutil.rmtree(third.folder)
    put(second, "keepsakes.parquet", parquet_bytes(harmed(second.table("keepsakes"))))
    with pytest.raises(DamagedStep) as error:
        run(store, COVARIANCE)
    said = f"Step {second.id[:8]} is damaged: {second.folder / 'keepsakes.parquet'}: {reason}"
    assert str(error.value).startswith(said)
    assert store.ids() == {first.id, second.id}


def test_a_parent_without_the_file_that_it_promises_is_named(kept: Path, tmp_path: Path) -> None:
    store = Store(shutil.copytree(kept, tmp_path / "store"))
    _, second, third = store.experiments()[0]
    shutil.rmtree(third.folder)
    (second.folder / "keepsakes.parquet").unlink()
    manifest = {name: entry for name, entry in second.manifest.items() if name != "keepsakes.parquet"}
    (second.folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedStep, match=r"keepsakes\.parquet: not there, and its specification asks for it"):
        run(store, COVARIANCE)


def test_more_than_a_table_holds_is_refused_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch, tiny_store: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(preparation, "LIST_BYTES", 17_000)
    store = Store(shutil.copytree(tiny_store, tmp_path / "store"))
    with pytest.raises(SpecError, match=r"'covariance' of 64 features and 2 past classes is 17,152 bytes; .*Use \"variance\""):
        run(store, COVARIANCE)
    assert len(run(store, {**TINY, "keepsake": "variance"})) == 3


def test_the_option_is_part_of_later_steps_alone() -> None:
    assert RunSpec().keepsake == "none"
    with pytest.raises(SpecError, match="keepsake = 'mean'"):
        RunSpec(keepsake="mean")
