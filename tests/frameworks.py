"""What the tests of integrations share: the frameworks where they are installed, and a problem that trains in a second."""

from __future__ import annotations

import importlib
import random
import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

# What a framework warns of is its own business; what forgetscope says fails a test that does not expect it.
FRAMEWORK = [pytest.mark.slow, pytest.mark.filterwarnings("ignore", "error:forgetscope")]
PER_CLASS, STORED = 24, 6
_KEPT_ALIVE: list[object] = []


def needed(name: str) -> ModuleType:
    """A framework, or the tests that need it are skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import_torchvision()
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            pytest.skip(f"{error}. `make frameworks` installs it and runs these tests.", allow_module_level=True)


def import_torchvision() -> None:
    """All of them import it. Beside a torch of another build its own operators are missing, which nothing here uses."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT_ALIVE.append(library)
        importlib.import_module("torchvision")


def documented(framework: str) -> str:
    """The lines that docs/monitor.md tells users of a framework to add."""
    text = (Path(__file__).parents[1] / "docs" / "monitor.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"```python\n(from forgetscope\.integrations\.{framework} import .*?)```", text, re.DOTALL)
    return str(found)


def images(classes: Iterable[int], per_class: int = PER_CLASS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images [n, 1, 4, 4] of some classes, each around a centre of its own."""
    found = []
    for label in classes:
        generator = torch.Generator().manual_seed(1000 * seed + label)
        centre = torch.randn(16, generator=torch.Generator().manual_seed(label))
        found.append(centre + torch.randn(per_class, 16, generator=generator))
    labels = torch.tensor([label for label in classes for _ in range(per_class)])
    return torch.cat(found).reshape(-1, 1, 4, 4), labels


def dataset(classes: Iterable[int], per_class: int = PER_CLASS, seed: int = 0) -> TensorDataset:
    return TensorDataset(*images(classes, per_class, seed))


def loader(classes: Iterable[int], **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset(classes), batch_size=16, **options)


def small_network(head: nn.Module) -> nn.Sequential:
    """With what leaves traces: BatchNorm's statistics and Dropout's random numbers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), head)


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def traces(network: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Any]:
    """Everything that measuring could have disturbed."""
    found: dict[str, Any] = {f"weights {name}": value.clone() for name, value in network.state_dict().items()}
    found |= {f"gradient {name}": None if p.grad is None else p.grad.clone() for name, p in network.named_parameters()}
    found |= {f"mode {name}": module.training for name, module in network.named_modules()}
    found |= {f"hooks {name}": (len(m._forward_hooks), len(m._forward_pre_hooks)) for name, m in network.named_modules()}
    found |= {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": str(np.random.get_state())}
    if optimizer is not None:
        states = optimizer.state_dict()["state"]
        found |= {f"optimiser {i} {name}": value for i, state in states.items() for name, value in state.items()}
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what is not bit for bit the same."""
    return [name for name in one.keys() | other.keys() if not _same(one.get(name), other.get(name))]


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) and isinstance(other, Tensor) else bool(one == other)
