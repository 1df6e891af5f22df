from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from forgetscope.learning.networks import build_network
from forgetscope.learning.snapshots import Snapshot, load_snapshot, momentum_of, restore, save_snapshot


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def snapshot(epoch: int) -> Snapshot:
    tensor = torch.full((2, 2), float(epoch))
    return Snapshot(
        epoch,
        {"threads": 3, "compile": False},
        [{"epoch": 1, "loss": 0.25}],
        {"w": tensor},
        [tensor + 0, tensor + 1],
        {"pairs": tensor.clone()},
        torch.tensor([epoch, 7], dtype=torch.int16),
    )


def test_the_latest_of_two_files_counts(tmp_path: Path) -> None:
    assert load_snapshot(tmp_path) is None
    for epoch in (1, 2, 3):
        save_snapshot(tmp_path, snapshot(epoch), write)
    assert len(list(tmp_path.iterdir())) == 2
    loaded = load_snapshot(tmp_path)
    assert loaded is not None
    assert (loaded.epoch, loaded.settings) == (3, {"threads": 3, "compile": False})
    assert loaded.history == [{"epoch": 1, "loss": 0.25}]
    assert torch.equal(loaded.momentum[1], torch.full((2, 2), 4.0))
    assert torch.equal(loaded.measured["pairs"], loaded.network["w"])
    assert loaded.images.tolist() == [3, 7]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_a_damaged_snapshot_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    for epoch in (1, 2):
        save_snapshot(tmp_path, snapshot(epoch), write)
    path = tmp_path / "snapshot-0"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes({"flip": bytes(content), "truncate": bytes(content[:-9]), "empty": b""}[damage])
    loaded = load_snapshot(tmp_path)
    assert loaded is not None
    assert loaded.epoch == 1


def test_training_goes_on_bit_for_bit(tmp_path: Path) -> None:
    images, labels = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3

    def fresh() -> tuple[torch.nn.Module, torch.optim.SGD]:
        network = build_network("resnet8", 3, np.random.default_rng(0))
        return network, torch.optim.SGD(network.parameters(), 0.1, 0.9, weight_decay=1e-3, fused=True)

    def train(network: torch.nn.Module, optimiser: torch.optim.SGD, iterations: int) -> None:
        for _ in range(iterations):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(images), labels).backward()
            optimiser.step()

    network, optimiser = fresh()
    train(network, optimiser, 3)
    save_snapshot(tmp_path, Snapshot(1, 1, [], network.state_dict(), momentum_of(optimiser), {}, torch.zeros(1)), write)
    train(network, optimiser, 3)
    resumed, resumed_optimiser = fresh()
    loaded = load_snapshot(tmp_path)
    assert loaded is not None
    restore(loaded, resumed, resumed_optimiser)
    train(resumed, resumed_optimiser, 3)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
