"""The callback in Lightning itself: one fit per step, batches of several loaders, checkpoints, and no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, DataLoader

import forgetscope as fs
from frameworks import (
    FRAMEWORK,
    PER_CLASS,
    STORED,
    dataset,
    differences,
    documented,
    images,
    loader,
    needed,
    seed_all,
    small_network,
    traces,
)

pl = needed("lightning.pytorch")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.utilities import CombinedLoader  # noqa: E402

from forgetscope.integrations.lightning import ForgetscopeCallback  # noqa: E402

pytestmark = FRAMEWORK
STEPS = ([0, 1], [2, 3], [4, 5])
EPOCHS = 3


class Classifier(pl.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.net = small_network(nn.Linear(12, 6))
        self._stop_at = stop_at

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net(inputs)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.current_epoch == self._stop_at:
            raise RuntimeError("the power is gone")
        parts = list(batch.values()) if isinstance(batch, dict) else [batch]
        inputs, labels = (torch.cat([part[i] for part in parts]) for i in (0, 1))
        return F.cross_entropy(self(inputs), labels)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def memory_of(classes: list[int]) -> Any:
    """The first few images of each class."""
    inputs, labels = images(classes)
    first = torch.arange(len(labels)) % PER_CLASS < STORED
    return inputs[first], labels[first]


def given(number: int) -> dict[str, Any]:
    past = [label for step in STEPS[:number] for label in step]
    data = {"new": loader(STEPS[number]), "test": dataset([*past, *STEPS[number]], seed=1)}
    return data if not past else {**data, "past": loader(past), "memory": memory_of(past)}


def mixed(number: int) -> Any:
    """New and stored images in one shuffled loader."""
    memory = memory_of([label for step in STEPS[:number] for label in step])
    return DataLoader(ConcatDataset([dataset(STEPS[number]), torch.utils.data.TensorDataset(*memory)]), 16, shuffle=True)


def trainer(tmp_path: Path, callbacks: list[Any], **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    options = {"max_epochs": EPOCHS, "enable_checkpointing": False, **options}
    return pl.Trainer(default_root_dir=tmp_path, callbacks=callbacks, **quiet, **options)


def test_each_fit_is_a_step(tmp_path: Path) -> None:
    seed_all(0)
    module = Classifier()
    for number in range(3):
        callback = ForgetscopeCallback(tmp_path / "results", "birds", given(number), strict=True)
        train = loader(STEPS[0], shuffle=True) if number == 0 else mixed(number)
        trainer(tmp_path, [callback]).fit(module, train)
    steps = fs.Monitor(tmp_path / "results", "birds").steps
    assert [(step.number, step.info["epochs"], step.info["status"]) for step in steps] == [
        (n, EPOCHS, "done") for n in (1, 2, 3)
    ]
    stored, new = 4 * STORED, 2 * PER_CLASS
    assert steps[2].info["alpha"] == pytest.approx(stored / (stored + new))  # counted: every image of an epoch once
    classes = steps[2].table("classes").to_pandas()
    assert classes.loc[classes["introduced_step"] < 3, ["sic", "cic", "nic", "forgetting"]].notna().all(axis=None)


def test_one_callback_with_a_provider_and_loaders_side_by_side(tmp_path: Path) -> None:
    """The provider is asked when a fit begins; labels are found in the batches of both loaders."""
    seed_all(0)
    module, number = Classifier(), 0
    callback = ForgetscopeCallback(
        tmp_path / "results", "birds", lambda trainer, module: given(number), network=lambda module: module.net, strict=True
    )
    for number in range(2):
        memory = DataLoader(torch.utils.data.TensorDataset(*memory_of(STEPS[0])), batch_size=4)
        sides = {"new": loader(STEPS[1]), "memory": memory}
        train = CombinedLoader(sides, "max_size_cycle") if number else loader(STEPS[0])
        trainer(tmp_path, [callback]).fit(module, train)
    second = callback.monitor.steps[1]
    assert second.info["alpha"] == pytest.approx(4 / 20)
    assert second.info["network"] == "Sequential"


def test_it_leaves_no_trace(tmp_path: Path) -> None:
    found = []
    for observed in (False, True):
        seed_all(1)
        module = Classifier()
        callbacks = [ForgetscopeCallback(tmp_path / "results", "birds", given(1), strict=True)] if observed else []
        fit = trainer(tmp_path, callbacks)
        fit.fit(module, mixed(1), loader(STEPS[1]))
        found.append(traces(module, fit.optimizers[0]))
    assert differences(*found) == []


@pytest.mark.parametrize("validated", [False, True], ids=["saved when the epoch ends", "saved after validation"])
def test_killed_and_resumed_from_a_checkpoint_gives_the_same_numbers(validated: bool, tmp_path: Path) -> None:
    def fit(name: str, stop_at: int | None = None, resume: Path | None = None) -> None:
        seed_all(2)
        saving = ModelCheckpoint(tmp_path / name, "last", every_n_epochs=1, save_on_train_epoch_end=not validated)
        callback = ForgetscopeCallback(tmp_path / "results", name, given(1), strict=True)
        fitting = trainer(tmp_path, [callback, saving], enable_checkpointing=True)
        train = DataLoader(mixed(1).dataset, 16)
        module = Classifier(stop_at)
        module.net[4].p = 0.0  # Lightning's checkpoints do not hold the random stream that Dropout draws from
        fitting.fit(module, train, loader(STEPS[1]) if validated else None, ckpt_path=resume)

    fit("whole")
    monitor = fs.Monitor(tmp_path / "results", "killed")
    with pytest.raises(RuntimeError, match="the power is gone"):
        fit("killed", stop_at=2)
    (lost,) = monitor.steps
    assert "the power is gone" in lost.info["reason"]
    (tmp_path / "results" / "observed" / "killed" / "2").rename(tmp_path / "aside")  # as if the process had been killed
    fit("killed", resume=tmp_path / "killed" / "last.ckpt")
    (whole,), (resumed,) = fs.Monitor(tmp_path / "results", "whole").steps, monitor.steps
    assert resumed.info["epochs"] == whole.info["epochs"] == EPOCHS
    one, other = (step.table("probes").to_pandas().drop(columns="timing", errors="ignore") for step in (whole, resumed))
    pd.testing.assert_frame_equal(one, other, rtol=1e-6)


def test_the_documented_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = {f"{name}_data": value for name, value in given(1).items() if name != "memory"}
    names: dict[str, Any] = {"Trainer": pl.Trainer, "epochs": 1, "memory": memory_of(STEPS[0]), **data}
    exec(documented("lightning"), names)
    names["trainer"].fit(Classifier(), mixed(1))
    assert [step.info["status"] for step in fs.Monitor("results", "birds").steps] == ["done"]
