"""Snapshots: the state of a step between two iterations, from which it can go on bit for bit.

Two files take turns, each led by its own SHA-256: whatever instant a process dies at, one whole snapshot is left.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import safetensors
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from forgetscope.data.limits import SNAPSHOT_BYTES
from forgetscope.files import read_regular, with_checksum, without_checksum
from forgetscope.foreign import Count, Text, strict_json

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

    def tensors(self) -> dict[str, Tensor]:
        """All of them, by the names that they have in the file."""
        tensors = {"images": self.images, **{f"momentum.{i}": buffer for i, buffer in enumerate(self.momentum)}}
        for prefix in ("network", "measured", "begun"):
            tensors |= {f"{prefix}.{name}": tensor for name, tensor in getattr(self, prefix).items()}
        return tensors


class _Settings(BaseModel):
    """Another version's settings cannot be gone on with."""

    model_config = ConfigDict(strict=True, extra="forbid")
    device: Text = ""
    threads: Annotated[int, Field(ge=1, le=4096)] = 1
    channels_last: bool = True
    compile: bool = False


class _Epoch(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    epoch: Count
    loss: float
    accuracy: float


class _Values(BaseModel):
    """What of a snapshot is no tensor."""

    model_config = ConfigDict(strict=True)
    serial: Count
    epoch: Count
    iterations: Count
    settings: _Settings
    history: list[_Epoch]


def momentum_of(optimiser: torch.optim.SGD) -> list[Tensor]:
    """Of every parameter, or of none. One that has no gradient has no buffer either, and zeros do the same."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    buffers = [optimiser.state[p].get("momentum_buffer") for p in parameters]
    if all(buffer is None for buffer in buffers):
        return []
    return [torch.zeros_like(p) if buffer is None else buffer for p, buffer in zip(parameters, buffers, strict=True)]


def restore(snapshot: Snapshot, network: nn.Module, optimiser: torch.optim.SGD) -> None:
    """Put network and optimiser back to where the snapshot was taken."""
    network.load_state_dict(snapshot.network)
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for parameter, buffer in zip(parameters, snapshot.momentum, strict=True) if snapshot.momentum else ():
        # Same layout as the parameter: a buffer in another layout would add up in another order.
        optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)


def save_snapshot(folder: Path, snapshot: Snapshot, write: Writer) -> None:
    """Replace the older of the two files; `write` must be atomic."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in snapshot.tensors().items()}
    values = {name: getattr(snapshot, name) for name in _Values.model_fields}
    body = safetensors.torch.save(tensors, {"values": json.dumps(values)})
    write(snapshot_file(folder, snapshot), with_checksum(body))


def snapshot_file(folder: Path, snapshot: Snapshot) -> Path:
    return folder / f"snapshot-{snapshot.serial % 2}"


def load_snapshot(folder: Path, damaged: Callable[[Path], None]) -> Snapshot | None:
    """The latest whole snapshot in a working folder, or None; `damaged` is told of each file that is not whole."""
    found = []
    for path in (folder / "snapshot-0", folder / "snapshot-1"):
        try:
            snapshot = _load(read_regular(path, SNAPSHOT_BYTES))
            if snapshot_file(folder, snapshot) != path:
                raise ValueError("it was not its turn")
            found.append(snapshot)
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
    values = strict_json(json.loads(body[8 : 8 + length])["__metadata__"]["values"].encode())
    _Values.model_validate(values)

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    momentum = part("momentum.")
    return Snapshot(
        **{name: values[name] for name in _Values.model_fields},
        network=part("network."),
        momentum=[momentum[str(i)] for i in range(len(momentum))],
        measured=part("measured."),
        begun=part("begun."),
        images=tensors["images"],
    )
