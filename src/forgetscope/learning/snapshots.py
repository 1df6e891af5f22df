"""Snapshots: the state of a step between two iterations, from which it can go on bit for bit.

Two files take turns, each led by its own SHA-256: whatever instant a process dies at, one whole snapshot is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from forgetscope.data.limits import SNAPSHOT_BYTES
from forgetscope.files import read_regular, with_checksum, without_checksum

Writer = Callable[[Path, bytes], None]


@dataclass(frozen=True)
class Snapshot:
    """After `epoch` whole epochs and `iterations` of the next.

    `measured` are the probes so far, `history` the whole epochs' losses, `settings` what to go on with."""

    serial: int  # counts the snapshots of a step: the latest has the highest
    epoch: int
    iterations: int
    settings: dict[str, Any]
    history: list[dict[str, float]]
    network: dict[str, Tensor]
    momentum: list[Tensor]
    measured: dict[str, Tensor]
    begun: dict[str, Tensor]  # losses and correct predictions of the epoch that is under way
    images: Tensor  # int16, the history of each new image


VALUES = ("serial", "epoch", "iterations", "settings", "history")


def momentum_of(optimiser: torch.optim.SGD) -> list[Tensor]:
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    return [optimiser.state[p]["momentum_buffer"] for p in parameters if optimiser.state[p].get("momentum_buffer") is not None]


def restore(snapshot: Snapshot, network: nn.Module, optimiser: torch.optim.SGD) -> None:
    """Put network and optimiser back to where the snapshot was taken."""
    network.load_state_dict(snapshot.network)
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for parameter, buffer in zip(parameters, snapshot.momentum, strict=True) if snapshot.momentum else ():
        # Same layout as the parameter: a buffer in another layout would add up in another order.
        optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)


def save_snapshot(folder: Path, snapshot: Snapshot, write: Writer) -> None:
    """Replace the older of the two files; `write` must be atomic."""
    tensors = {"images": snapshot.images}
    tensors |= {f"momentum.{i}": buffer for i, buffer in enumerate(snapshot.momentum)}
    for prefix in ("network", "measured", "begun"):
        tensors |= {f"{prefix}.{name}": tensor for name, tensor in getattr(snapshot, prefix).items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    values = {name: getattr(snapshot, name) for name in VALUES}
    body = safetensors.torch.save(tensors, {"values": json.dumps(values)})
    write(folder / f"snapshot-{snapshot.serial % 2}", with_checksum(body))


def load_snapshot(folder: Path, damaged: Callable[[Path], None]) -> Snapshot | None:
    """The latest whole snapshot in a working folder, or None; `damaged` is told of each file that is not whole."""
    found = []
    for path in (folder / "snapshot-0", folder / "snapshot-1"):
        try:
            found.append(_load(read_regular(path, SNAPSHOT_BYTES)))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
            damaged(path)  # the other file, or the start of the step, takes over
    return max(found, key=lambda snapshot: snapshot.serial, default=None)


def _load(content: bytes) -> Snapshot:
    body = without_checksum(content)
    if body is None:
        raise ValueError("the checksum does not match")
    tensors = safetensors.torch.load(body)
    length = int.from_bytes(body[:8], "little")
    values = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["values"])

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    momentum = part("momentum.")
    return Snapshot(
        **{name: values[name] for name in VALUES},
        network=part("network."),
        momentum=[momentum[str(i)] for i in range(len(momentum))],
        measured=part("measured."),
        begun=part("begun."),
        images=tensors["images"],
    )
