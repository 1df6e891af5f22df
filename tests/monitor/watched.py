"""Data and networks of the measuring tests, given to a monitor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import forgetscope as fs
from forgetscope.monitor.step import MonitoredStep
from measuring.test_heads import ALPHA, KEPT, NEW, PAST, images_of

Pair = tuple[Tensor, Tensor]


def pairs() -> dict[str, Pair]:
    past, new = images_of(PAST, 1), images_of(NEW, 2)
    return {"past": past, "memory": (past[0][KEPT], past[1][KEPT]), "new": new}


def loaders(batch: int = 4, *, shuffle: bool = True) -> dict[str, DataLoader[Any]]:
    return {name: DataLoader(TensorDataset(*pair), batch, shuffle=shuffle) for name, pair in pairs().items()}


class Pictures(Dataset[Any]):
    """Items as somebody's own data set gives them."""

    def __init__(self, pair: Pair, form: type = tuple) -> None:
        self.pair, self.form = pair, form

    def __len__(self) -> int:
        return len(self.pair[1])

    def __getitem__(self, at: int) -> Any:
        image, label = self.pair[0][at], int(self.pair[1][at])
        return {"pixel_values": image, "labels": label} if self.form is dict else (image, label, 0)


def observed(folder: Path, network: nn.Module, **named: Any) -> MonitoredStep:
    """One probe."""
    monitor = fs.Monitor(folder, "test", strict=True)
    with monitor.step(network, **{**loaders(), "alpha": ALPHA, **named}) as step:
        pass
    return step


def terms(step: MonitoredStep) -> Tensor:
    found = step.coefficients
    return torch.stack([found.sic, found.cic, found.nic, found.all_nic])
