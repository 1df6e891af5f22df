from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from forgetscope.files import with_checksum
from forgetscope.learning.networks import build_network
from forgetscope.learning.snapshots import Snapshot, load_snapshot, momentum_of, restore, save_snapshot
from strangers import no_plain_file


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def snapshot(serial: int) -> Snapshot:
    tensor = torch.full((2, 2), float(serial))
    return Snapshot(
        serial=serial,
        epoch=2,
        iterations=5,
        settings={"threads": 3, "compile": False},
        history=[{"epoch": 1, "loss": 0.25, "accuracy": 0.5}],
        network={"w": tensor},
        momentum=[tensor + 0, tensor + 1],
        measured={"pairs": tensor.clone()},
        begun={"losses": torch.ones(8), "correct": torch.tensor(3)},
        images=torch.tensor([serial, 7], dtype=torch.int16),
    )


def refuse(path: Path) -> None:
    raise AssertionError(f"{path} is whole")


def test_the_latest_of_two_files_counts(tmp_path: Path) -> None:
    assert load_snapshot(tmp_path, refuse) is None
    for serial in (1, 2, 3):
        save_snapshot(tmp_path, snapshot(serial), write)
    assert len(list(tmp_path.iterdir())) == 2
    loaded = load_snapshot(tmp_path, refuse)
    assert loaded is not None
    assert (loaded.serial, loaded.epoch, loaded.iterations, loaded.settings) == (3, 2, 5, {"threads": 3, "compile": False})
    assert (loaded.begun["losses"].tolist(), int(loaded.begun["correct"])) == ([1.0] * 8, 3)
    assert loaded.history == [{"epoch": 1, "loss": 0.25, "accuracy": 0.5}]
    assert torch.equal(loaded.momentum[1], torch.full((2, 2), 4.0))
    assert torch.equal(loaded.measured["pairs"], loaded.network["w"])
    assert loaded.images.tolist() == [3, 7]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "another form"])
def test_a_damaged_snapshot_is_named_and_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    for serial in (1, 2):
        save_snapshot(tmp_path, snapshot(serial), write)
    path = tmp_path / "snapshot-0"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    other = with_checksum(safetensors.torch.save({"w": torch.ones(1)}, {"values": "{}"}))  # whole, but from another version
    path.write_bytes({"flip": bytes(content), "truncate": bytes(content[:-9]), "empty": b"", "another form": other}[damage])
    named: list[Path] = []
    loaded = load_snapshot(tmp_path, named.append)
    assert loaded is not None
    assert loaded.serial == 1
    assert named == [path]


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
    state = {"network": network.state_dict(), "momentum": momentum_of(optimiser)}
    save_snapshot(tmp_path, dataclasses.replace(snapshot(1), **state), write)
    train(network, optimiser, 3)
    resumed, resumed_optimiser = fresh()
    loaded = load_snapshot(tmp_path, refuse)
    assert loaded is not None
    restore(loaded, resumed, resumed_optimiser)
    train(resumed, resumed_optimiser, 3)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_parameters_that_get_no_gradient_go_on_as_well(tmp_path: Path) -> None:
    def fresh() -> tuple[torch.nn.Module, torch.optim.SGD]:
        network = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(3, 2)])
        return network, torch.optim.SGD(network.parameters(), 0.1, 0.9)

    network, optimiser = fresh()
    network[1](torch.ones(1, 3)).sum().backward()  # type: ignore[index]
    optimiser.step()
    state = {"network": network.state_dict(), "momentum": momentum_of(optimiser)}
    save_snapshot(tmp_path, dataclasses.replace(snapshot(1), **state), write)
    loaded = load_snapshot(tmp_path, refuse)
    assert loaded is not None
    resumed, resumed_optimiser = fresh()
    restore(loaded, resumed, resumed_optimiser)
    for one, other in zip(momentum_of(optimiser), momentum_of(resumed_optimiser), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "large"])
def test_a_snapshot_that_is_no_plain_file_is_damaged_and_nobody_waits(tmp_path: Path, kind: str) -> None:
    save_snapshot(tmp_path, snapshot(1), write)
    path = tmp_path / "snapshot-0"
    no_plain_file(path, kind)
    named: list[Path] = []
    loaded = load_snapshot(tmp_path, named.append)
    assert loaded is not None
    assert loaded.serial == 1
    assert named == [path]


@pytest.mark.parametrize(
    "values",
    [
        {"serial": 3},  # the other file's turn
        {"epoch": -1},
        {"iterations": 0.5},
        {"settings": {"threads": 0}},
        {"settings": {"threads": 10**9}},
        {"settings": {"colour": 1}},
        {"settings": []},
        {"history": [{"epoch": 1}]},
        {"history": [{"epoch": 1, "loss": "low", "accuracy": 0.5}]},
    ],
)
def test_values_that_no_snapshot_has_are_damage(tmp_path: Path, values: dict[str, Any]) -> None:
    for serial in (1, 2):
        save_snapshot(tmp_path, snapshot(serial), write)
    forged = dataclasses.replace(snapshot(2), **values)
    save_snapshot(tmp_path, forged, lambda path, data: write(tmp_path / "snapshot-0", data))
    named: list[Path] = []
    loaded = load_snapshot(tmp_path, named.append)
    assert loaded is not None
    assert loaded.serial == 1
    assert named == [tmp_path / "snapshot-0"]
