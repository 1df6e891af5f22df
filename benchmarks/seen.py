"""What the kept networks of a step make of images, before, during and after its training: a part of `forecast.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import nn

import forgetscope as fs
from forgetscope.analysis.inputs.training_shares import SHARES
from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.data.preprocessing import Normalisation
from forgetscope.experiment.preparation import IMAGE_HISTORY
from forgetscope.forecasting.forecaster import IMAGES
from forgetscope.learning.networks import build_network
from forgetscope.randomness import Streams
from forgetscope.store import StoredStep

Values = NDArray[np.float64]
Indices = NDArray[np.int64]
BATCH = 500
LEARNED_FROM = 100  # images of a class, for the course of its learning
GROUPS = ("past", "new", "held", "test")


@dataclass(frozen=True)
class Group:
    """Images of one kind: all training images of the past classes, those of the new ones that a translation is fitted on, those
    of the past classes that validation set aside, or their test images."""

    images: Indices  # [n]: in the data set's training images, or test images
    nodes: Indices  # [n]
    features: Mapping[int, Values]  # by epoch, [n, d]


@dataclass(frozen=True)
class Seen:
    """Of one step, by the epochs that end the shares of its training; 0 is its parent's network."""

    groups: Mapping[str, Group]
    heads: Mapping[int, tuple[Values, Values]]  # by epoch: weight [k, d] and bias [k]
    rehearsed: NDArray[np.bool_]  # of the images of past classes, which are in the memory

    @property
    def epochs(self) -> list[int]:
        return [epoch for epoch in self.heads if epoch]

    def logits(self, group: str, epoch: int) -> Values:
        """[n, k]"""
        weight, bias = self.heads[epoch]
        found: Values = self.groups[group].features[epoch] @ weight.T + bias
        return found

    def right(self, group: str, epoch: int) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.logits(group, epoch).argmax(axis=1) == self.groups[group].nodes
        return found

    def own_probability(self, group: str, epoch: int) -> Values:
        """[n]: of each image's own class."""
        logits = self.logits(group, epoch)
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        found: Values = shifted[np.arange(len(logits)), self.groups[group].nodes] / shifted.sum(axis=1)
        return found


def folder_of(store: fs.Store, id: str) -> Path:
    """Where the networks of a step are kept, by epoch, and what they see."""
    return store.path.with_name(f"{store.path.name}-networks") / id


def seen_by(store: fs.Store, step: StoredStep) -> Seen:
    """Computed once, then read."""
    path = folder_of(store, step.id) / "seen.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez(part, **_look(store, step))
        part.rename(path)
    with np.load(path) as found:
        arrays = dict(found)
    epochs = sorted(int(name.split()[1]) for name in arrays if name.startswith("weight"))
    groups = {
        name: Group(
            arrays[f"{name} images"], arrays[f"{name} nodes"], {e: arrays[f"{name} {e}"].astype(np.float64) for e in epochs}
        )
        for name in GROUPS
    }
    heads = {e: (arrays[f"weight {e}"].astype(np.float64), arrays[f"bias {e}"].astype(np.float64)) for e in epochs}
    return Seen(groups, heads, arrays["rehearsed"])


def training_accuracy(store: fs.Store, step: StoredStep) -> Values:
    """[epochs, new classes]: on some training images of the classes that the step learns, not augmented, after each epoch."""
    path = folder_of(store, step.id) / "learning.npy"
    if not path.exists():
        data, normalise = opened_data(step)
        images, labels = images_of(step, data, step.spec.classes)
        some = np.concatenate([np.flatnonzero(labels == c)[:LEARNED_FROM] for c in range(len(step.spec.classes))])
        images, labels = images[some], labels[some]
        first = step.table("classes").num_rows - len(step.spec.classes)
        curve = []
        for epoch in range(1, step.spec.training.epochs + 1):
            network = kept_network(store, step, epoch)
            features, (weight, bias) = features_of(network, normalise, data.train.images[images]), head_of(network)
            right = (features @ weight.T + bias).argmax(axis=1) - first == labels
            curve.append([right[labels == c].mean() for c in range(len(step.spec.classes))])
        np.save(path, np.array(curve))
    found: Values = np.load(path)
    return found


def _look(store: fs.Store, step: StoredStep) -> dict[str, NDArray[np.generic]]:
    data, normalise = opened_data(step)
    past = step.past_classes("class_id")["class_id"].tolist()
    before, nodes = images_of(step, data, past)
    new = [fitted_on(step, label, images_of(step, data, [label])[0]) for label in step.spec.classes]
    test = np.concatenate([np.flatnonzero(data.test.labels == label) for label in past])
    held = np.setdiff1d(np.flatnonzero(np.isin(data.train.labels, past)), before)
    node_of = {label: node for node, label in enumerate(past)}
    found: dict[str, NDArray[np.generic]] = {
        **{"past images": before, "past nodes": nodes, "new images": np.concatenate(new)},
        "new nodes": len(past) + np.repeat(np.arange(len(new)), [len(images) for images in new]),
        **{"held images": held, "held nodes": np.array([node_of[c] for c in data.train.labels[held].tolist()], np.int64)},
        **{"test images": test, "test nodes": np.array([node_of[c] for c in data.test.labels[test].tolist()], np.int64)},
        "rehearsed": np.isin(before, step.table("rehearsal")["image"].to_numpy()),
    }
    epochs = [max(1, round(share * step.spec.training.epochs)) for share in SHARES]
    kept = any(folder_of(store, step.id).glob("*.safetensors"))  # else the step was not made by `run`
    for epoch in (0, *(epochs if kept else ())):
        network = kept_network(store, step, epoch) if epoch else kept_network(store, store.step(str(step.parent)), None)
        found[f"weight {epoch}"], found[f"bias {epoch}"] = (part.astype(np.float32) for part in head_of(network))
        for name in GROUPS:
            images = (data.test if name == "test" else data.train).images
            found[f"{name} {epoch}"] = features_of(network, normalise, images[found[f"{name} images"]]).astype(np.float32)
    return found


def images_of(step: StoredStep, data: DataSet, labels: Sequence[int]) -> tuple[Indices, Indices]:
    """Training images that a step of this kind uses of these classes, class after class, and the position of each's class."""
    from forgetscope.experiment.preparation import _images_to_use

    images = [_images_to_use(step.spec, data, label) for label in labels]
    return np.concatenate(images), np.repeat(np.arange(len(labels)), [len(one) for one in images])


def fitted_on(step: StoredStep, label: int, images: Indices) -> Indices:
    """Those of a class's images that a run with `forecast = true` fits its translation on."""
    order = Streams(step.spec.seed, step.number)("forecast-images", label).permutation(len(images))
    return np.sort(images[order[:IMAGES]])


@lru_cache(1)
def _opened(name: str, image_size: int | None) -> tuple[DataSet, Normalisation]:
    data = load_data(name, image_size)
    return data, Normalisation.of(data, torch.device("cpu"), True, None)


def opened_data(step: StoredStep) -> tuple[DataSet, Normalisation]:
    return _opened(step.info["data"]["name"], step.info["data"]["image_size"])


def kept_network(store: fs.Store, step: StoredStep, epoch: int | None) -> nn.Module:
    """The network of a step after an epoch; None: as the step left it."""
    if epoch is None:
        state = {name: torch.from_numpy(array) for name, array in step.state().items() if name != IMAGE_HISTORY}
    else:
        state = safetensors.torch.load_file(folder_of(store, step.id) / f"{epoch}.safetensors")
    network = build_network(step.info["network"], len(state["head.bias"]), None, None)
    network.load_state_dict(state)
    return network.eval()


def head_of(network: nn.Module) -> tuple[Values, Values]:
    head = network.head
    assert isinstance(head, nn.Linear)
    return head.weight.detach().double().numpy(), head.bias.detach().double().numpy()


@torch.no_grad()
def features_of(network: nn.Module, normalise: Normalisation, images: NDArray[np.uint8]) -> Values:
    parts = torch.split(torch.from_numpy(images), BATCH)
    found = [network.features(normalise(part)).double().numpy() for part in parts]  # type: ignore[operator]
    return np.concatenate([np.empty((0, network.head.in_features)), *found])  # type: ignore[union-attr]
