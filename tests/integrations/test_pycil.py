"""The adapter on stand-ins with the signatures of PyCIL and PILOT: learner, data manager, network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import forgetscope as fs
from forgetscope.integrations.pycil import observe
from frameworks import PER_CLASS, STORED, differences, documented, images, seed_all, traces

EPOCHS = 2


class Numbered(Dataset[Any]):
    """Items are (number, image, label); in training mode images are augmented."""

    def __init__(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], noisy: bool) -> None:
        self.inputs, self.labels, self.noisy = inputs, labels, noisy

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[int, torch.Tensor, int]:
        image = torch.from_numpy(self.inputs[i])
        return i, image + torch.randn(image.shape) * self.noisy, int(self.labels[i])


class DataManager:
    def get_task_size(self, task: int) -> int:
        return 2

    def get_dataset(
        self, indices: Any, source: str, mode: str, appendent: Any = None, ret_data: bool = False, m_rate: Any = None
    ) -> Dataset[Any]:
        parts = [images([int(i)], seed=int(source == "test")) for i in indices]
        found = [(inputs.numpy(), labels.numpy()) for inputs, labels in parts]
        if appendent is not None and len(appendent) != 0:
            found.append(appendent)
        inputs, labels = (np.concatenate(part) for part in zip(*found, strict=True))
        return Numbered(inputs, labels, noisy=mode == "train")


class SimpleLinear(nn.Module):
    def __init__(self, features: int, nodes: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(nodes, features) / 4), nn.Parameter(torch.zeros(nodes))

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": F.linear(inputs, self.weight, self.bias)}


class IncrementalNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convnet = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2))
        self.fc = SimpleLinear(12, 0)

    def update_fc(self, nodes: int) -> None:
        before, self.fc = self.fc, SimpleLinear(12, nodes)
        with torch.no_grad():
            self.fc.weight[: len(before.weight)] = before.weight
            self.fc.bias[: len(before.bias)] = before.bias

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.convnet(inputs)
        return {**self.fc(features), "features": features}


class Replay:
    def __init__(self, fails_in: int | None = None) -> None:
        self._cur_task, self._known_classes, self._total_classes = -1, 0, 0
        self._network: nn.Module = IncrementalNet()
        self._data_memory, self._targets_memory = np.array([]), np.array([])
        self._device, self._fails_in = torch.device("cpu"), fails_in

    def _get_memory(self) -> Any:
        return None if len(self._data_memory) == 0 else (self._data_memory, self._targets_memory)

    def after_task(self) -> None:
        self._known_classes = self._total_classes

    def incremental_train(self, data_manager: DataManager) -> None:
        self._cur_task += 1
        self._total_classes = self._known_classes + data_manager.get_task_size(self._cur_task)
        self._network.update_fc(self._total_classes)
        new = np.arange(self._known_classes, self._total_classes)
        train = data_manager.get_dataset(new, source="train", mode="train", appendent=self._get_memory())
        self.train_loader = DataLoader(train, batch_size=16, shuffle=True)
        test = data_manager.get_dataset(np.arange(0, self._total_classes), source="test", mode="test")
        self.test_loader = DataLoader(test, batch_size=16)
        self._train(self.train_loader, self.test_loader)
        stored = [images([label]) for label in range(self._total_classes)]
        self._data_memory = np.concatenate([inputs[:STORED].numpy() for inputs, _ in stored])
        self._targets_memory = np.concatenate([labels[:STORED].numpy() for _, labels in stored])

    def _train(self, train_loader: Any, test_loader: Any) -> None:
        self.optimizer = torch.optim.SGD(self._network.parameters(), lr=0.05, momentum=0.9)
        for _ in range(EPOCHS):
            self._network.train()
            for _, (_, inputs, targets) in enumerate(train_loader):
                if self._cur_task == self._fails_in:
                    raise RuntimeError("out of memory")
                loss = F.cross_entropy(self._network(inputs)["logits"], targets)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            self._network.eval()
            for _ in train_loader:  # as learners do that compute means of classes: no epoch
                pass
            assert len(train_loader) == len(self.train_loader)
            assert train_loader.dataset is self.train_loader.dataset


def train(learner: Replay, tasks: int = 3) -> Replay:
    for _ in range(tasks):
        learner.incremental_train(DataManager())
        learner.after_task()
    return learner


def test_every_task_is_a_step(tmp_path: Path) -> None:
    seed_all(0)
    learner = Replay()
    monitor = observe(learner, tmp_path / "results", "replay", strict=True)
    train(learner)
    steps = monitor.steps
    assert [(step.number, step.info["status"], step.info["epochs"]) for step in steps] == [
        (n, "done", EPOCHS) for n in (1, 2, 3)
    ]
    stored, new = 4 * STORED, 2 * PER_CLASS
    assert steps[2].info["alpha"] == pytest.approx(stored / (stored + new))  # memory and new data in one shuffled loader
    classes = steps[2].table("classes").to_pandas().set_index("class_id")
    assert classes.loc[:3, ["sic", "cic", "nic", "forgetting"]].notna().all(axis=None)
    assert classes["rehearsal_images"].dropna().tolist() == [STORED] * 4


def test_the_first_probe_is_that_of_held_images(tmp_path: Path) -> None:
    seed_all(0)
    learner = train(Replay(), tasks=1)
    monitor = observe(learner, tmp_path / "results", "replay", strict=True, alpha=0.3)
    held: list[fs.Probe] = []

    class Held(DataManager):
        def get_dataset(self, indices: Any, source: str, mode: str, **options: Any) -> Dataset[Any]:
            if mode == "train":  # the head has grown by now, and nothing was trained
                kept = torch.arange(2 * PER_CLASS) % PER_CLASS < STORED
                held.append(fs.Probe(*images([0, 1]), kept, *images([2, 3]), alpha=0.3))
                held[0].measure(learner._network)
            return super().get_dataset(indices, source, mode, **options)

    learner.incremental_train(Held())
    (step,) = monitor.steps
    probes = step.table("probes").to_pandas()
    first = probes[probes["iteration"] == probes["iteration"].min()].set_index("class_id")
    for name in ("sic", "cic", "nic"):
        np.testing.assert_allclose(first[name], getattr(held[0].coefficients, name), rtol=1e-4, err_msg=name)


def test_it_leaves_no_trace(tmp_path: Path) -> None:
    found = []
    for observed in (False, True):
        seed_all(1)
        learner = Replay()
        if observed:
            observe(learner, tmp_path / "results", strict=True)
        train(learner)
        found.append(traces(learner._network, learner.optimizer))
    assert differences(*found) == []


def test_a_training_that_fails_fails_as_before_and_its_step_is_incomplete(tmp_path: Path) -> None:
    seed_all(0)
    learner = Replay(fails_in=1)
    monitor = observe(learner, tmp_path / "results", "replay", strict=True)
    with pytest.raises(RuntimeError, match="out of memory"):
        train(learner)
    assert [step.info["status"] for step in monitor.steps] == ["done", "incomplete"]
    assert "out of memory" in monitor.steps[1].info["reason"]


def test_a_failure_of_the_adapter_does_not_end_the_training(tmp_path: Path) -> None:
    seed_all(0)
    learner = Replay()
    observe(learner, tmp_path / "results", "replay")
    del learner._device  # which only the adapter asks for
    with pytest.warns(RuntimeWarning, match="in pycil: This step is not observed any further .AttributeError: .*_device"):
        learner.incremental_train(DataManager())
    assert len(learner._data_memory) == 2 * STORED
    learner = Replay()
    observe(learner, tmp_path / "results", "strict", strict=True)
    del learner._device
    with pytest.raises(AttributeError, match="_device"):
        learner.incremental_train(DataManager())


def test_the_documented_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"model": Replay()}
    exec(documented("pycil"), names)
    train(names["model"], tasks=1)
    assert len(names["monitor"].steps) == 1


def test_a_head_that_is_not_found_can_be_named(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        """Two modules with parameters make the output, as of PODNet."""

        def __init__(self, nodes: int) -> None:
            super().__init__()
            self.inner, self.sigma = SimpleLinear(12, nodes), nn.Linear(nodes, nodes)

        def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            first = self.inner(inputs)["logits"]
            return {"logits": first + self.sigma(first)}

    class ScaledNet(IncrementalNet):
        def update_fc(self, nodes: int) -> None:
            self.fc = Scaled(nodes)  # type: ignore[assignment]

    for named, status in ((None, "incomplete"), (lambda network: network.fc, "done")):
        seed_all(0)
        learner = Replay()
        learner._network = ScaledNet()
        monitor = observe(learner, tmp_path / "results", f"head-{status}", head=named)
        if named is None:
            with pytest.warns(RuntimeWarning, match="forgetscope: ScaledNet has no last layer that could be told"):
                train(learner, tasks=2)
        else:
            train(learner, tasks=2)
        assert monitor.steps[1].info["status"] == status
