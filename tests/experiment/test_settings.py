from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TINY, run_experiment
from forgetscope.benchmark.plans import Job
from forgetscope.engines.dispatch import Watcher
from forgetscope.errors import SpecError
from forgetscope.experiment import settings as module
from forgetscope.experiment.settings import check_precision, choose_settings
from forgetscope.scenario import explicit_sequence
from forgetscope.spec import AugmentationSpec, RunSpec, step_specs
from forgetscope.store import Store

ONE_STEP = {**TINY, "sequence": TINY["sequence"][:1]}


class StopsOnce(Watcher):
    def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
        if epoch == 1:
            raise KeyboardInterrupt


def test_a_step_is_continued_with_the_settings_that_it_was_begun_with(tmp_path: Path) -> None:
    broken, whole = Store(tmp_path / "broken"), Store(tmp_path / "whole")
    spec, begun = RunSpec(**ONE_STEP), {"threads": 2, "channels_last": False}
    with pytest.raises(KeyboardInterrupt):
        run_experiment(spec, broken, device="cpu", **begun, progress=StopsOnce())
    plan = run_experiment(spec, broken, device="cpu", threads=1)
    run_experiment(spec, whole, device="cpu", **begun)
    recorded = broken.step(plan.id).info["environment"]
    assert (recorded["threads"], recorded["channels_last"], recorded["compile"]) == (2, False, False)
    for name in ("state.safetensors", "classes.parquet"):
        assert (broken.step(plan.id).folder / name).read_bytes() == (whole.step(plan.id).folder / name).read_bytes()


def test_what_cannot_change_more_than_rounding_is_no_part_of_the_id_and_precision_is(tmp_path: Path) -> None:
    def first_id(spec: dict[str, Any], **options: Any) -> str:
        return run_experiment(RunSpec(**{**ONE_STEP, "epochs": 1, **spec}), Store(tmp_path), device="cpu", **options).id

    plain = first_id({}, threads=1)
    assert first_id({"precision": "float32"}, threads=2, channels_last=False) == plain
    assert first_id({"precision": "bfloat16"}, threads=1) != plain
    assert Store(tmp_path).step(first_id({"precision": "bfloat16"})).spec.training.precision == "bfloat16"


def test_a_device_that_cannot_do_the_precision_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunSpec(**ONE_STEP, precision="bfloat16")
    (spec,) = step_specs(run, explicit_sequence(run.sequence or (), 100), AugmentationSpec())
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda device: False)
    with pytest.raises(SpecError, match="precision = 'bfloat16': device mps cannot"):
        check_precision(torch.device("mps"), spec)


def test_compiling_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    with pytest.raises(SpecError, match=r"--compile: torch\.compile needs a C"):
        choose_settings("cpu", compile=True)
    assert choose_settings("cpu", compile=False).compile is False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_a_compiled_step_learns_the_same_up_to_rounding(tmp_path: Path, tiny_store: Path) -> None:
    if not module.shutil.which("c++"):
        pytest.skip("torch.compile needs a C++ compiler")
    spec = RunSpec(**{**ONE_STEP, "network": "resnet8"})
    store = Store(tmp_path / "store")
    plan = run_experiment(spec, store, device="cpu", threads=1, compile=True)
    compiled, eager = store.step(plan.id).info, Store(tiny_store).step(plan.id).info
    assert compiled["environment"]["compile"] is True
    assert [e["loss"] for e in compiled["history"]] == pytest.approx([e["loss"] for e in eager["history"]], rel=1e-2)
