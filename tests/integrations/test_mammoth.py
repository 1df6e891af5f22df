"""The adapter on stand-ins with the signatures of Mammoth: model, buffer with a reservoir, data set."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import forgetscope as fs
from forgetscope.forecasting.forecaster import FEWEST
from forgetscope.integrations.mammoth import observe
from frameworks import differences, documented, images, seed_all, small_network, traces

EPOCHS, CLASSES, DRAWN = 2, 6, 8


class Augmented(Dataset[Any]):
    """Items are (augmented and normalised image, label, image as it is)."""

    def __init__(self, classes: list[int]) -> None:
        self.data, self.targets = images(classes)
        self.extra_return_fields: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.data[i] / 2 + torch.randn(1, 4, 4) / 10, self.targets[i], self.data[i]


class ContinualDataset:
    def __init__(self) -> None:
        self.test_loaders: list[Any] = []
        self.train_loader: Any = None

    def get_data_loaders(self) -> tuple[Any, Any]:
        start = 2 * len(self.test_loaders)
        self.train_loader = DataLoader(Augmented([start, start + 1]), batch_size=16, shuffle=True)
        inputs, labels = images([start, start + 1], seed=1)
        self.test_loaders.append(DataLoader(torch.utils.data.TensorDataset(inputs / 2, labels), batch_size=16))
        return self.train_loader, self.test_loaders[-1]

    @staticmethod
    def get_normalization_transform() -> Any:
        return lambda pictures: pictures / 2


class Buffer:
    def __init__(self, size: int) -> None:
        self.buffer_size, self.num_seen_examples = size, 0

    def is_empty(self) -> bool:
        return self.num_seen_examples == 0

    def add_data(self, examples: Tensor, labels: Tensor) -> None:
        if self.is_empty():
            self.examples = torch.zeros(self.buffer_size, *examples.shape[1:])
            self.labels = torch.zeros(self.buffer_size, dtype=torch.long)
        for example, label in zip(examples, labels, strict=True):
            at = self.num_seen_examples
            self.num_seen_examples += 1
            at = at if at < self.buffer_size else np.random.randint(0, at + 1)
            if at < self.buffer_size:
                self.examples[at], self.labels[at] = example, label

    def get_data(
        self, size: int, transform: Any = None, return_index: bool = False, device: Any = None, return_not_aug: bool = False
    ) -> Any:
        held = min(self.num_seen_examples, self.buffer_size)
        choice = np.random.choice(held, size=min(size, held), replace=False)
        found = (self.examples[choice], (transform or (lambda x: x))(self.examples[choice]), self.labels[choice])
        found = found if return_not_aug else found[1:]
        return (torch.tensor(choice), *found) if return_index else found

    def get_all_data(self, transform: Any = None, device: Any = None) -> Any:
        held = min(self.num_seen_examples, self.buffer_size)
        return (transform or (lambda x: x))(self.examples[:held]), self.labels[:held]


class CosineLinear(nn.Module):
    """A head without bias, as er_ace's."""

    def __init__(self) -> None:
        super().__init__()
        self.L = nn.Linear(12, CLASSES, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return 10 * F.normalize(inputs, dim=1) @ F.normalize(self.L.weight, dim=1).T


class Er(nn.Module):
    NAME = "er"

    def __init__(self, head: nn.Module | None = None, **draw: bool) -> None:
        super().__init__()
        self.net = small_network(head or nn.Linear(12, CLASSES))
        self.loss, self.num_classes, self._current_task = F.cross_entropy, CLASSES, 0
        self.buffer, self._draw = Buffer(24), draw
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.args = SimpleNamespace(minibatch_size=DRAWN)

    @property
    def n_past_classes(self) -> int:
        return 2 * self._current_task

    def meta_begin_task(self, dataset: Any) -> None: ...

    def meta_end_epoch(self, epoch: int, dataset: Any) -> None: ...

    def meta_end_task(self, dataset: Any) -> None:
        self._current_task += 1

    def meta_observe(self, *args: Any, **kwargs: Any) -> float:
        return self.observe(*args, **kwargs)

    def drawn(self) -> tuple[Tensor, Tensor]:
        found = self.buffer.get_data(self.args.minibatch_size, transform=lambda x: x / 2, **self._draw)
        return found[-2], found[-1]

    def losses(self, inputs: Tensor, labels: Tensor) -> Tensor:
        if not self.buffer.is_empty():
            more, their = self.drawn()
            inputs, labels = torch.cat([inputs, more]), torch.cat([labels, their])
        return self.loss(self.net(inputs), labels)

    def observe(self, inputs: Tensor, labels: Tensor, not_aug_inputs: Tensor, epoch: int | None = None) -> float:
        self.opt.zero_grad()
        loss = self.losses(inputs, labels)
        loss.backward()
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels)
        return loss.item()


class ErAce(Er):
    NAME = "er_ace"

    def losses(self, inputs: Tensor, labels: Tensor) -> Tensor:
        logits = self.net(inputs)
        if not self._current_task:
            return self.loss(logits, labels)
        among = torch.zeros(CLASSES).index_fill(0, torch.arange(self.n_past_classes), -1e9)
        more, their = self.drawn()
        return self.loss(logits + among, labels) + self.loss(self.net(more), their)


def train(model: Er, tasks: int = 3) -> Er:
    """As Mammoth's own loop."""
    dataset = ContinualDataset()
    for _ in range(tasks):
        model.net.train()
        loader, _ = dataset.get_data_loaders()
        model.meta_begin_task(dataset)
        for epoch in range(EPOCHS):
            for inputs, labels, not_aug_inputs in loader:
                model.meta_observe(inputs, labels, not_aug_inputs, epoch=epoch)
            model.meta_end_epoch(epoch, dataset)
        model.meta_end_task(dataset)
    return model


@pytest.mark.parametrize(
    "draw", [{}, {"return_index": True}, {"return_not_aug": True}], ids=lambda draw: " ".join(draw) or "plain"
)
def test_every_task_is_a_step(draw: dict[str, bool], tmp_path: Path) -> None:
    seed_all(0)
    model = Er(**draw)
    names = set(model.state_dict())
    monitor = observe(model, tmp_path / "results", "er", strict=True)
    train(model)
    assert set(model.state_dict()) == names
    first, second, third = monitor.steps
    assert [step.info["status"] for step in (first, second, third)] == ["done"] * 3
    assert [step.info["epochs"] for step in (first, second, third)] == [EPOCHS] * 3
    assert 0 < second.info["alpha"] < DRAWN / (16 + DRAWN)  # what is drawn holds new classes too, ever more of them
    classes = second.table("classes").to_pandas().set_index("class_id")
    assert classes.loc[[0, 1], ["sic", "cic", "nic", "forgetting"]].notna().all(axis=None)


@pytest.mark.parametrize("kind", [Er, ErAce])
def test_the_first_probe_is_that_of_held_images(kind: type[Er], tmp_path: Path) -> None:
    """On images without augmentation, normalised as for evaluation; er_ace's cosine head on its own loss."""
    seed_all(0)
    model = kind(CosineLinear() if kind is ErAce else None)
    monitor = observe(model, tmp_path / "results", "er", strict=True, alpha=0.3)
    held: list[Any] = []

    class Holding(ContinualDataset):
        def get_data_loaders(self) -> tuple[Any, Any]:
            if self.test_loaders:
                stored, _ = model.buffer.get_all_data()
                past, labels = images([0, 1])
                kept = torch.tensor([any(torch.equal(one, other) for other in stored) for one in past])
                new, their = images([2, 3])

                def loss(logits: Tensor, nodes: Tensor) -> Tensor:
                    among = torch.zeros(CLASSES, dtype=logits.dtype).index_fill(0, torch.arange(2), -torch.inf)
                    return F.cross_entropy(torch.where(nodes[:, None] < 2, logits, logits + among), nodes)

                own = {"loss": loss} if kind is ErAce else {}
                probe = fs.Probe(past / 2, labels, kept, new / 2, their, alpha=0.3, **own)
                probe.measure(model.net)
                held.append(probe)
            return super().get_data_loaders()

    dataset = Holding()
    for _ in range(2):
        loader, _ = dataset.get_data_loaders()
        model.meta_begin_task(dataset)
        for batch in loader:
            model.meta_observe(*batch)
        model.meta_end_task(dataset)
    probes = monitor.steps[1].table("probes").to_pandas().set_index("class_id")
    assert len(probes) == 2  # no epoch ended
    for name in ("sic", "cic", "nic"):
        np.testing.assert_allclose(probes[name], getattr(held[0].coefficients, name), rtol=1e-4, atol=1e-9, err_msg=name)


def test_it_leaves_no_trace(tmp_path: Path) -> None:
    found = []
    for observed in (False, True):
        seed_all(1)
        model = Er()
        if observed:
            observe(model, tmp_path / "results", strict=True)
        train(model)
        found.append({**traces(model.net, model.opt), "buffer": model.buffer.examples.clone()})
    assert differences(*found) == []


def test_without_the_past_forgetting_is_predicted(tmp_path: Path) -> None:
    seed_all(0)
    model = Er()
    monitor = observe(model, tmp_path / "results", "er", strict=True, keep_past=False)
    train(model, tasks=2)
    second = monitor.steps[1]
    classes = second.table("classes").to_pandas().set_index("class_id").loc[[0, 1]]
    assert second.info["past"] == "memory"
    assert classes[["sic", "cic", "nic"]].isna().all(axis=None)
    assert classes["nic_estimate"].notna().all()
    kept = second.keepsakes()
    learned = [(one := kept[label]) is not None and (one.accuracy or 0) * one.images > FEWEST - 0.5 for label in (0, 1)]
    assert classes["forecast"].notna().tolist() == learned


def test_the_documented_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"model": Er()}
    exec(documented("mammoth"), names)
    train(names["model"], tasks=1)
    assert len(names["monitor"].steps) == 1
