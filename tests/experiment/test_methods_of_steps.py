"""Methods in runs: what they are given, that they can be continued, and that without them everything is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_stopping import StopsAtLook, assert_same_bytes

import forgetscope as fs
from conftest import TINY, run_experiment
from forgetscope.choices import METHODS
from forgetscope.errors import DamagedStep, Interrupted, OwnCodeFailed, SpecError
from forgetscope.experiment.preparation import Prepared, prepare
from forgetscope.experiment.settings import choose_settings
from forgetscope.spec import RunSpec
from forgetscope.store import STATE, Store, StoredStep
from strangers import put

SETTINGS = choose_settings("cpu", 1)
OTHER = [name for name in METHODS if name != "replay"]


def run(store: Store, method: str, **options: Any) -> list[StoredStep]:
    return list(run_experiment(RunSpec(**{**TINY, "method": method, **options}), store, device="cpu", threads=1).steps)


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[StoredStep]]:
    """Three steps by each method, from one first step; do not write to their store."""
    store = Store(tmp_path_factory.mktemp("methods") / "store")
    return {name: run(store, name) for name in (*METHODS, "distillation(weight=0)")}


def prepared(steps: list[StoredStep], number: int) -> Prepared:
    return prepare(steps[number - 2], steps[number - 1].spec, fs.load_data("glyphs", 8), SETTINGS)


def test_methods_share_their_first_step_and_are_other_steps_after_it(chains: dict[str, list[StoredStep]]) -> None:
    assert len({steps[0].id for steps in chains.values()}) == 1
    assert len({steps[1].id for steps in chains.values()}) == len(chains)
    assert chains["replay"][1].spec.rehearsal is not None
    assert chains["replay"][1].spec.rehearsal.method is None


def test_distillation_without_weight_is_replay_bit_for_bit(chains: dict[str, list[StoredStep]]) -> None:
    for one, other in zip(chains["replay"][1:], chains["distillation(weight=0)"][1:], strict=True):
        for file in (STATE, "classes.parquet", "probes.parquet", "predictions.parquet", "rehearsal.parquet"):
            assert one.verified(file) == other.verified(file), file


def test_every_other_method_learns_otherwise(chains: dict[str, list[StoredStep]]) -> None:
    for name in OTHER:
        assert chains[name][1].verified(STATE) != chains["replay"][1].verified(STATE), name


@pytest.mark.parametrize("method", OTHER)
def test_a_step_goes_on_bit_for_bit_wherever_it_was_stopped(
    method: str, chains: dict[str, list[StoredStep]], tmp_path: Path
) -> None:
    store, spec, stops = Store(tmp_path / "store"), RunSpec(**{**TINY, "method": method}), 0
    while not store.path.exists() or len(store.ids()) < 3:
        try:
            run_experiment(spec, store, device="cpu", threads=1, stop=StopsAtLook(23))
        except Interrupted:
            stops += 1
    assert stops > 3
    assert_same_bytes(store, chains[method])


def test_the_memory_stream_is_what_a_method_needs(chains: dict[str, list[StoredStep]]) -> None:
    step = prepared(chains["replay"], 3)
    kept = sum(map(len, step.rehearsal.values()))
    memories = {name: prepared(chains[name], 3).objective.memory for name in METHODS}
    assert memories["fine-tune"] is None
    everything = step.full_past()
    for name in ("replay", "distillation", "dark-logits", "logit-adjusted"):
        memory = memories[name]
        assert memory is not None
        assert len(memory.nodes) == kept
        assert memory.nodes.max() < 4
    joint, ace = memories["joint"], memories["ace"]
    assert joint is not None
    assert torch.equal(joint.images, everything.images)
    assert torch.equal(joint.nodes, everything.nodes)
    assert ace is not None
    assert torch.bincount(ace.nodes).tolist() == [kept // 4] * 6  # of each new class as many as of a past one
    new = {tuple(image.flatten().tolist()) for image in step.new_set.images}
    assert {tuple(image.flatten().tolist()) for image in ace.images[kept:]} <= new


def test_the_parent_is_asked_once_without_augmentation(chains: dict[str, list[StoredStep]]) -> None:
    step = prepared(chains["distillation"], 3)
    assert step.objective.memory is not None
    assert step.objective.of_new is not None
    assert step.objective.of_memory is not None
    with torch.no_grad():
        step.network.eval()  # its head has grown, and is otherwise as the parent left it
        for images, found in ((step.new_set, step.objective.of_new), (step.objective.memory, step.objective.of_memory)):
            torch.testing.assert_close(step.network(step.normalise(images.images))[:, :4], found, rtol=1e-4, atol=1e-4)


def test_stored_logits_are_those_of_the_step_that_chose_the_image(chains: dict[str, list[StoredStep]]) -> None:
    second, third = (prepared(chains["dark-logits"], number).objective.stored for number in (2, 3))
    kept = 32  # 8 % of 200 images of each class, of two classes in each step
    assert second is not None
    assert third is not None
    np.testing.assert_array_equal(chains["dark-logits"][1].state()["stored_logits"], second.numpy())
    assert second.shape == (kept, 2)
    assert torch.equal(third[:kept, :2], second)
    assert third[:kept, 2:].isnan().all()
    assert not third[kept:].isnan().any()
    np.testing.assert_array_equal(chains["dark-logits"][2].state()["stored_logits"], third.numpy())
    step = prepared(chains["dark-logits"], 3)
    assert step.objective.memory is not None
    with torch.no_grad():
        expected = step.network.eval()(step.normalise(step.objective.memory.images))[kept:, :4]
    torch.testing.assert_close(third[kept:], expected, rtol=1e-4, atol=1e-4)


def test_what_is_kept_of_the_past_is_recorded_in_bytes(chains: dict[str, list[StoredStep]]) -> None:
    image, kept = 3 * 8 * 8, 64
    expected = {name: {"images": kept * image, "logits": 0, "keepsakes": 0} for name in METHODS}
    expected["dark-logits"]["logits"] = 4 * (32 * 2 + 32 * 4)
    expected["fine-tune"]["images"], expected["joint"]["images"] = 0, 4 * 200 * image
    assert {name: chains[name][2].kept_bytes for name in METHODS} == expected
    assert chains["replay"][0].kept_bytes is None
    for name in METHODS:
        assert ("method_seconds" in chains[name][2].info["timings"]) is (name != "replay")


def test_stored_logits_that_are_not_those_of_the_step_are_told(chains: dict[str, list[StoredStep]], tmp_path: Path) -> None:
    import safetensors.numpy

    store = Store(tmp_path / "store")
    run(store, "dark-logits", sequence=TINY["sequence"][:2])
    step = store.step(chains["dark-logits"][1].id)
    state = step.state()
    put(step, STATE, safetensors.numpy.save({**state, "stored_logits": state["stored_logits"][:3]}))
    with pytest.raises(DamagedStep, match=r"stored_logits of float32 \(3, 2\), and 32 images of 2 classes are kept"):
        run(store, "dark-logits")


OWN = """
import torch
import forgetscope as fs

class Gentle(fs.Method):
    needs = frozenset({"memory", "parent"})

    def __init__(self, weight=1.0):
        self.weight = weight

    def loss(self, batch):
        plain = torch.nn.functional.cross_entropy(batch.logits, batch.nodes)
        return plain + self.weight * (batch.logits[:, : batch.past] - batch.parent_logits).square().mean()

    def predict(self, logits, past):
        return torch.cat([logits[:, :past] - 1000, logits[:, past:]], dim=1)

class Wants(fs.Method):
    needs = frozenset({"memory", "keepsakes"})

    def loss(self, batch):
        means = [float(one.mean.mean()) for one in batch.keepsakes.values()]
        return sum(means) / len(means) * batch.logits.square().mean()

class Fails(fs.Method):
    def loss(self, batch):
        raise ValueError("no such image")
"""


def test_a_method_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gentle_methods.py").write_text(OWN)
    store, two = Store(tmp_path / "store"), {"sequence": TINY["sequence"][:2]}
    step = run(store, "gentle_methods:Gentle(weight=0.5)", **two)[1]
    assert step.spec.rehearsal is not None
    assert step.spec.rehearsal.method == "gentle_methods:Gentle(weight=0.5)"
    assert len(str(step.spec.rehearsal.method_source)) == 64
    assert min(step.table("predictions")["predicted"].to_pylist()) >= 2  # it acts when it predicts: never a past class
    with pytest.raises(SpecError, match=r"needs keepsakes, and keepsake = 'none' makes none\. Set keepsake = 'variance'"):
        run(store, "gentle_methods:Wants", **two)
    assert run(store, "gentle_methods:Wants", keepsake="variance", **two)[1].kept_bytes == {
        **{"images": 32 * 3 * 8 * 8, "logits": 0, "keepsakes": 2 * 2 * 64 * 4}
    }
    with pytest.raises(OwnCodeFailed, match=r"gentle_methods.py:\d+: ValueError: no such image"):
        run(store, "gentle_methods:Fails", **two)
    with pytest.raises(OwnCodeFailed, match="unexpected keyword argument 'wieght'"):
        run(store, "gentle_methods:Gentle(wieght=1)", **two)


def test_methods_are_told_wherever_steps_are(chains: dict[str, list[StoredStep]]) -> None:
    """In listings and SQL; samples of different methods are never one."""
    from rich.console import Console

    from forgetscope.analysis.index import glance
    from forgetscope.housekeeping.sql import query
    from forgetscope.report.terminal.experiments import store_view

    store = Store(chains["replay"][0].folder.parents[1])
    console = Console(width=200, record=True)
    console.print(store_view(glance(store)))
    shown = console.export_text()
    rows = query(store, "select distinct method from steps where method is not null").to_pylist()
    assert {row["method"] for row in rows} == {*METHODS} | {"distillation(weight=0.0)"}
    analysis = fs.analyse(store.path, resamples=100, cached=False)
    benchmarks = [sample.benchmark for sample in analysis.collection.samples]
    for name in (*METHODS, "distillation(weight=0.0)"):
        assert name in shown
        assert f"glyphs method={name}" in benchmarks
    assert len(set(benchmarks)) == len(chains)
