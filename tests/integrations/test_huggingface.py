"""The callback in Hugging Face's Trainer, and accelerate as what is logged to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import forgetscope as fs
from frameworks import FRAMEWORK, PER_CLASS, STORED, differences, documented, images, needed, seed_all, small_network, traces

transformers = needed("transformers")
accelerate = needed("accelerate")

from forgetscope.integrations.huggingface import ForgetscopeTrainerCallback  # noqa: E402

pytestmark = FRAMEWORK
EPOCHS = 3


class Items(Dataset[Any]):
    """As image processors make them: mappings."""

    def __init__(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": self.inputs[index], "labels": int(self.labels[index])}


class Model(nn.Module):
    """Takes what models for image classification take, and gives what they give."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.net = small_network(nn.Linear(12, 4))
        self.net[4].p = dropout

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        logits = self.net(pixel_values)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return transformers.modeling_outputs.ImageClassifierOutput(loss=loss, logits=logits)


def memory() -> Items:
    inputs, labels = images([0, 1])
    first = torch.arange(len(labels)) % PER_CLASS < STORED
    return Items(inputs[first], labels[first])


def given() -> dict[str, Any]:
    return {
        "past": Items(*images([0, 1])),
        "memory": memory(),
        "new": Items(*images([2, 3])),
        "test": Items(*images(range(4), seed=1)),
    }


def trainer(folder: Path, model: nn.Module, callbacks: list[Any], **options: Any) -> Any:
    options = {"num_train_epochs": EPOCHS, "save_strategy": "no", **options}
    args = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=16,
        learning_rate=0.01,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    mixed = torch.utils.data.ConcatDataset([Items(*images([2, 3])), memory()])
    return transformers.Trainer(model, args, train_dataset=mixed, callbacks=callbacks)


def test_a_training_is_a_step(tmp_path: Path) -> None:
    seed_all(0)
    callback = ForgetscopeTrainerCallback(tmp_path / "results", "birds", given(), strict=True)
    trainer(tmp_path / "out", Model(), [callback]).train()
    (step,) = callback.monitor.steps
    assert (step.info["status"], step.info["epochs"], step.info["alpha_from"]) == ("done", EPOCHS, "batches")
    assert step.info["alpha"] == pytest.approx(2 * STORED / (2 * STORED + 2 * PER_CLASS))
    classes = step.table("classes").to_pandas().set_index("class_id")
    assert classes.loc[[0, 1], ["sic", "cic", "nic"]].notna().all(axis=None)
    assert classes["accuracy"].notna().all()


def vision_transformer() -> Any:
    seed_all(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(image_size=4, patch_size=2, num_channels=1, num_labels=4, **sizes)
    return transformers.ViTForImageClassification(config)


def test_a_real_vision_transformer(tmp_path: Path) -> None:
    callback = ForgetscopeTrainerCallback(tmp_path / "results", "vit", given(), strict=True)
    trainer(tmp_path / "out", vision_transformer(), [callback], num_train_epochs=1).train()
    (step,) = callback.monitor.steps
    assert (step.info["status"], step.info["network"], step.info["head_nodes"]) == ("done", "ViTForImageClassification", 4)


def test_it_leaves_no_trace(tmp_path: Path) -> None:
    found = []
    for observed in (False, True):
        seed_all(1)
        model = Model()
        callbacks = [ForgetscopeTrainerCallback(tmp_path / "results", "birds", given(), strict=True)] if observed else []
        training = trainer(tmp_path / "out", model, callbacks)
        training.train()
        found.append(traces(model, training.optimizer))
    assert differences(*found) == []


class Failing(Items):
    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 7:
            raise RuntimeError("no image 7")
        return super().__getitem__(index)


class FailingModel(Model):
    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        if self.training:
            raise KeyboardInterrupt
        return super().forward(pixel_values, labels)


@pytest.mark.parametrize("where", ["data", "model"])
def test_a_training_that_fails_leaves_no_trace_and_an_incomplete_step(tmp_path: Path, where: str) -> None:
    callback = ForgetscopeTrainerCallback(tmp_path / "results", "birds", given(), strict=True)
    model = FailingModel() if where == "model" else Model()
    training = trainer(tmp_path / "out", model, [callback], gradient_accumulation_steps=2)
    if where == "data":
        training.train_dataset = Failing(*images([2, 3]))
    with pytest.raises((RuntimeError, KeyboardInterrupt), match="no image 7" if where == "data" else None):
        training.train()
    assert [name for name, module in model.named_modules() if module._forward_pre_hooks or module._forward_hooks] == []
    (step,) = callback.monitor.steps
    reason = {"data": "RuntimeError: no image 7", "model": "KeyboardInterrupt"}[where]
    assert (step.info["status"], step.info["reason"]) == ("incomplete", f"The training ended early: {reason}")
    assert list((tmp_path / "results" / "working").iterdir()) == []
    assert callback.step is None


def test_added_to_a_trainer_later_it_leaves_no_hook_either(tmp_path: Path) -> None:
    callback = ForgetscopeTrainerCallback(tmp_path / "results", "birds", given(), strict=True)
    training = trainer(tmp_path / "out", FailingModel(), [])
    training.add_callback(callback)
    with pytest.raises(KeyboardInterrupt):
        training.train()
    assert not training.model._forward_pre_hooks
    callback.step.close()


def test_every_batch_of_several_that_make_a_step_is_counted(tmp_path: Path) -> None:
    callback = ForgetscopeTrainerCallback(tmp_path / "results", "birds", given(), strict=True)
    trainer(tmp_path / "out", Model(), [callback], gradient_accumulation_steps=2).train()
    assert callback.monitor.steps[0].info["alpha"] == pytest.approx(2 * STORED / (2 * STORED + 2 * PER_CLASS))


def test_label_smoothing_is_measured_and_asks_for_alpha(tmp_path: Path) -> None:
    """The Trainer takes the labels away from the model then."""
    callback = ForgetscopeTrainerCallback(tmp_path / "results", "smooth", {**given(), "alpha": 0.25}, strict=True)
    trainer(tmp_path / "out", vision_transformer(), [callback], label_smoothing_factor=0.1, num_train_epochs=1).train()
    (step,) = callback.monitor.steps
    assert (step.info["alpha"], step.info["alpha_from"]) == (0.25, "given")
    assert "Measured: your loss" in step.info["said"][0]


def test_resumed_from_a_checkpoint_it_gives_the_same_numbers(tmp_path: Path) -> None:
    def train(name: str, resume: bool | str = False) -> Any:
        seed_all(2)
        callback = ForgetscopeTrainerCallback(tmp_path / "results", name, given(), strict=True)
        saving = {"save_strategy": "epoch", "max_grad_norm": 1.0}
        training = trainer(tmp_path / name, Model(dropout=0.0), [callback], **saving)
        training.train(resume_from_checkpoint=resume)
        return callback.monitor.steps[-1]

    whole = train("whole")
    _, before, *_ = sorted((tmp_path / "whole").glob("checkpoint-*"), key=lambda path: -int(path.name.split("-")[1]))
    shutil.copytree(before, tmp_path / "killed" / before.name)
    resumed = train("killed", resume=str(tmp_path / "killed" / before.name))
    assert resumed.info["epochs"] == whole.info["epochs"] == EPOCHS
    one, other = (step.table("probes").to_pandas() for step in (whole, resumed))
    pd.testing.assert_frame_equal(one, other, rtol=1e-6)


def test_an_accelerator_is_logged_to(tmp_path: Path) -> None:
    class Seen(accelerate.tracking.GeneralTracker):  # type: ignore[misc, name-defined]
        name, requires_logging_directory = "seen", False

        def __init__(self) -> None:
            super().__init__()
            self.values: list[Any] = []

        @property
        def tracker(self) -> list[Any]:
            return self.values

        def store_init_configuration(self, values: dict[str, Any]) -> None: ...

        def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
            self.values.append((step, values))

    seen = Seen()
    accelerator = accelerate.Accelerator(cpu=True, log_with=seen)
    accelerator.init_trackers("birds")
    model = accelerator.prepare(Model())
    data = given()
    test = data.pop("test")
    with fs.Monitor(tmp_path / "results", "loop", strict=True, log=accelerator).step(model, **data, alpha=0.2) as step:
        step.epoch_ended()
        step.evaluate(test)
    assert {number for number, _ in seen.values} == {0, 1}
    assert "forgetscope/mean_nic" in {name for _, values in seen.values for name in values}


def test_the_documented_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = {f"{name}_data": value for name, value in given().items() if name != "memory"}
    args = transformers.TrainingArguments(str(tmp_path / "out"), num_train_epochs=1, report_to=[], use_cpu=True)
    names: dict[str, Any] = {"Trainer": transformers.Trainer, "model": Model(), "args": args, "memory": memory(), **data}
    exec(documented("huggingface"), {**names, "train_data": names["new_data"]}, names)
    names["trainer"].train()
    (step,) = fs.Monitor("results", "birds").steps
    assert step.info["epochs"] == 1
