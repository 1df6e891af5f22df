"""What an experiment promises: repeatable bits, no trace of probes, no leak of past images, and tables that add up."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from conftest import TINY, run_experiment
from forgetscope.analysis.experiments import Experiment
from forgetscope.benchmark.plans import Job, Plan
from forgetscope.data.images import DataSet, ImageSet
from forgetscope.data.library import load_data
from forgetscope.engines.dispatch import Prospect, Watcher
from forgetscope.errors import SpecError
from forgetscope.experiment.settings import Settings, choose_device
from forgetscope.experiment.step import run_step
from forgetscope.measuring.forgetting import forgetting
from forgetscope.spec import RunSpec
from forgetscope.store import TABLES, Store, StoredStep

FILES = ["state.safetensors", *(f"{name}.parquet" for name in (*TABLES, "predictions"))]


def run(path: Path, **changes: Any) -> tuple[Store, Experiment]:
    store = Store(path)
    return store, run_experiment(RunSpec(**{**TINY, **changes}), store, device="cpu", threads=1)


def frame(step: StoredStep, name: str) -> pd.DataFrame:
    return step.table(name).to_pandas()  # type: ignore[arg-type]


@pytest.fixture
def steps(tiny_store: Path) -> list[StoredStep]:
    (chain,) = Store(tiny_store).experiments()
    return chain


def test_two_runs_of_one_spec_are_bit_identical(tiny_store: Path, tmp_path: Path, steps: list[StoredStep]) -> None:
    torch.manual_seed(123)  # the global generator plays no part
    other, plan = run(tmp_path / "again")
    assert [step.id for step in plan.steps] == [step.id for step in steps]
    for step in steps:
        for name in FILES:
            assert (step.folder / name).read_bytes() == (other.step(step.id).folder / name).read_bytes(), name


def test_another_seed_differs(tmp_path: Path, steps: list[StoredStep]) -> None:
    other, plan = run(tmp_path / "seed", seed=1, sequence=TINY["sequence"][:1])
    theirs, mine = other.step(plan.id).state(), steps[0].state()
    assert plan.id != steps[0].id
    assert not np.array_equal(theirs["head.weight"], mine["head.weight"])


def test_probes_leave_the_weights_alone(tmp_path: Path, steps: list[StoredStep]) -> None:
    store, plan = run(tmp_path / "unprobed", probe_every=0)
    unprobed = store.step(plan.id)
    assert unprobed.id != steps[-1].id
    assert (unprobed.folder / "state.safetensors").read_bytes() == (steps[-1].folder / "state.safetensors").read_bytes()
    classes = frame(unprobed, "classes")
    assert classes["sic"].isna().all()
    assert set(classes["missing"].dropna()) == {"not measured: probe_every is 0"}
    assert len(frame(unprobed, "probes")) == len(frame(unprobed, "pairs")) == 0


def test_past_images_outside_the_rehearsal_set_cannot_influence_the_weights(tmp_path: Path, steps: list[StoredStep]) -> None:
    data = load_data("glyphs", 8)
    past, kept = TINY["sequence"][0], frame(steps[1], "rehearsal")["image"].to_numpy()
    swapped = np.array(data.train.images)
    outside = np.setdiff1d(np.flatnonzero(np.isin(data.train.labels, past)), kept)
    swapped[outside] = 255 - swapped[outside][::-1]
    inside = np.array(data.train.images)
    inside[kept[0]] = 255 - inside[kept[0]]

    def second_step(name: str, images: np.ndarray) -> StoredStep:
        store = Store(tmp_path / name)
        store.prepare()
        shutil.copytree(steps[0].folder, store.path / "steps" / steps[0].id)
        altered = dataclasses.replace(data, train=ImageSet(images, data.train.labels))
        settings = Settings(torch.device("cpu"), 1)
        return run_step(steps[1].id, store.step(steps[0].id), steps[1].spec, altered, store, settings, lambda end: None)

    same, other = second_step("outside", swapped), second_step("inside", inside)
    weights = (steps[1].folder / "state.safetensors").read_bytes()
    assert (same.folder / "state.safetensors").read_bytes() == weights
    assert (other.folder / "state.safetensors").read_bytes() != weights  # the test can tell
    assert not frame(same, "classes")["sic"].equals(frame(steps[1], "classes")["sic"])  # the probe did see them


def test_a_longer_experiment_reuses_the_steps_of_a_shorter_one(tmp_path: Path, steps: list[StoredStep]) -> None:
    store, short = run(tmp_path / "store", sequence=TINY["sequence"][:2])
    assert [step.id for step in short.steps] == [step.id for step in steps[:2]]
    before = [step.info["committed"] for step in short.steps]
    _, long = run(store.path)
    assert [step.info["committed"] for step in long.steps[:2]] == before
    assert (store.step(long.id).folder / "state.safetensors").read_bytes() == (
        steps[2].folder / "state.safetensors"
    ).read_bytes()


def test_an_interrupted_step_goes_on_from_its_snapshot_to_the_same_bytes(tmp_path: Path, steps: list[StoredStep]) -> None:
    class StopsOnce(Watcher):
        def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
            if job.spec.step == 2 and epoch == 1:
                raise KeyboardInterrupt

    store = Store(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(RunSpec(**TINY), store, device="cpu", threads=1, progress=StopsOnce())
    working = store.working(steps[1].id)
    assert sorted(p.name for p in working.iterdir()) == [
        "pairs.parquet",
        "parent",
        "probes.parquet",
        "progress.json",
        "snapshot-1",
    ]

    class Counts(Watcher):
        epochs: list[tuple[int, int]]

        def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
            self.epochs.append((job.spec.step, epoch))

    counts = Counts()
    counts.epochs = []
    run_experiment(RunSpec(**TINY), store, device="cpu", threads=1, progress=counts)
    assert counts.epochs == [(2, 2), (3, 1), (3, 2)]
    for step in steps:
        for name in FILES:
            assert (step.folder / name).read_bytes() == (store.step(step.id).folder / name).read_bytes(), name
    assert store.step(steps[1].id).info["history"] == steps[1].info["history"]


def test_a_damaged_step_is_quarantined_and_recomputed(tmp_path: Path, tiny_store: Path, steps: list[StoredStep]) -> None:
    store = Store(shutil.copytree(tiny_store, tmp_path / "store"))
    victim = store.step(steps[1].id).folder / "classes.parquet"
    content = bytearray(victim.read_bytes())
    content[100] ^= 4
    victim.write_bytes(content)
    notes: list[str] = []

    class Listens(Watcher):
        def note(self, text: str) -> None:
            notes.append(text)

        def planned(self, plan: Plan, ahead: Prospect) -> None:
            assert [id in ahead.done for id in plan.jobs] == [True, False, True]

    run_experiment(RunSpec(**TINY), store, device="cpu", threads=1, progress=Listens())
    assert victim.read_bytes() == (steps[1].folder / "classes.parquet").read_bytes()
    assert (store.path / "quarantine" / f"{steps[1].id}-1" / "classes.parquet").read_bytes() == bytes(content)
    assert "is damaged" in notes[0]
    assert "quarantine" in notes[0]


def test_building_on_steps_of_another_environment_is_said(tmp_path: Path) -> None:
    store, _ = run(tmp_path / "store", sequence=TINY["sequence"][:1])
    notes: list[str] = []

    class Listens(Watcher):
        def note(self, text: str) -> None:
            notes.append(text)

    run_experiment(RunSpec(**{**TINY, "sequence": TINY["sequence"][:2]}), store, device="cpu", threads=2, progress=Listens())
    assert any("threads 1 then, 2 now" in note for note in notes)


def test_the_caller_s_threads_are_left_as_they_were(tiny_store: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    run_experiment(
        RunSpec(**{**TINY, "sequence": TINY["sequence"][:1]}), Store(tmp_path / "s"), device="cpu", threads=before + 1
    )
    assert torch.get_num_threads() == before


def test_tables_add_up(steps: list[StoredStep]) -> None:
    last = steps[-1]
    classes, probes, pairs = (frame(last, name) for name in ("classes", "probes", "pairs"))
    past = classes[classes["introduced_step"] < 3].set_index("class_id")
    assert list(classes["head_node"]) == list(range(6))
    assert probes["probe"].nunique() == TINY["epochs"] + 1
    assert sorted(probes["iteration"].unique()) == [0, 13, 26]  # ceil(400 / 32) per epoch
    sums = probes.groupby("class_id")[["sic", "cic", "nic", "all_nic"]].sum()
    for name in sums:
        np.testing.assert_allclose(sums[name].sort_index(), past[name].sort_index(), rtol=1e-12)
    own = pairs[pairs["class_id"] == pairs["source_class_id"]].set_index("class_id")["term"]
    np.testing.assert_allclose(own.sort_index(), past["sic"].sort_index(), rtol=1e-12)
    for source_is_new, expected in ((False, past["sic"] + past["cic"]), (True, past["nic"])):
        total = pairs[pairs["source_is_new"] == source_is_new].groupby("class_id")["term"].sum()
        np.testing.assert_allclose(total.sort_index(), expected.sort_index(), rtol=1e-9)


def test_rehearsal_accuracy_and_forgetting_are_what_they_say(steps: list[StoredStep]) -> None:
    data = load_data("glyphs", 8)
    second, third = frame(steps[1], "rehearsal"), frame(steps[2], "rehearsal")
    assert (data.train.labels[third["image"]] == third["class_id"]).all()
    assert set(third.groupby("class_id").size()) == {16}
    older = third[third["class_id"].isin(TINY["sequence"][0])].reset_index(drop=True)
    pd.testing.assert_frame_equal(older, second)  # a constant quota keeps the parent's choice and order
    learned = {
        row.class_id: row.accuracy
        for step in steps
        for row in frame(step, "classes").itertuples()
        if row.introduced_step == step.spec.step
    }
    classes = frame(steps[2], "classes")
    assert classes["accuracy_when_learned"].tolist() == [learned[label] for label in classes["class_id"]]
    past = classes[classes["introduced_step"] < 3]
    np.testing.assert_allclose(past["forgetting"], forgetting(past["accuracy_when_learned"], past["accuracy"]))
    assert past["share"].tolist() == [0.25] * 4
    confusion = frame(steps[2], "confusion")
    assert confusion.groupby("true")["count"].sum().tolist() == [100] * 6
    hits = confusion[confusion["true"] == confusion["predicted"]].set_index("true")["count"] / 100
    assert hits.reindex(classes["class_id"]).fillna(0).tolist() == classes["accuracy"].tolist()


def test_a_first_step_is_not_probed_and_has_no_past(steps: list[StoredStep]) -> None:
    assert len(frame(steps[0], "probes")) == len(frame(steps[0], "pairs")) == len(frame(steps[0], "rehearsal")) == 0
    assert frame(steps[0], "classes")["forgetting"].isna().all()


def test_probing_less_often_still_takes_the_first_and_the_last(tmp_path: Path) -> None:
    store, plan = run(tmp_path / "store", sequence=TINY["sequence"][:2], probe_every=2, epochs=3)
    assert sorted(frame(store.step(plan.id), "probes")["iteration"].unique()) == [0, 26, 39]


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(SpecError, match="--device 'gpu' is not known"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(SpecError, match="--device cuda: this machine has none"):
            choose_device("cuda")


def test_data_sets_are_named_in_the_record(steps: list[StoredStep]) -> None:
    data: DataSet = load_data("glyphs", 8)
    assert steps[0].info["data"] == {"name": "glyphs", "image_size": 8, "shape": [8, 8], "digest": data.digest, "classes": 100}
    assert steps[0].info["environment"]["threads"] == 1
