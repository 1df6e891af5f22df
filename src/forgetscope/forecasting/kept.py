"""What is kept of classes when they were learned, in place of their images: `fs.keepsakes`, and the value that it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.forecasting.accuracy import class_accuracies
from forgetscope.forecasting.choice import ROOM, Chosen, marks
from forgetscope.forecasting.features import featured
from forgetscope.forecasting.forecaster import KnownClass
from forgetscope.forecasting.recognition import MARK, Mark, mark_of
from forgetscope.measuring.keepsakes import Keepsake, Spread, keepsake, spread_length, variances
from forgetscope.measuring.measurement import frame_of
from forgetscope.measuring.probe_data import CHECKED, Given, Prepare, batch_for, prepared, whole

if TYPE_CHECKING:
    import pandas as pd

FEATURES_ROOM = ROOM // 4  # bytes of features that are held to make keepsakes of
Values = NDArray[np.float64]
LARGEST = 1e38  # of single precision, in which they are kept
TRAINING = "training_accuracy"  # in a state; not in those of earlier versions
LOAD = "Load what Keepsakes.state_dict() gave."


class Keepsakes(Mapping[int, KnownClass]):
    """What is kept of classes in place of their images, by head node: where their features lie, and how well they were known.

    `a | b` has the classes of both. Some hundred bytes per class; `state_dict` is plain tensors, for any checkpoint:

    >>> import torch, forgetscope as fs
    >>> images, labels = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    >>> network = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    >>> kept = fs.keepsakes(network, images, labels)
    >>> saved = kept.state_dict()  # torch.save(saved, "keepsakes.pt")
    >>> fs.Keepsakes.from_state_dict(saved)
    Keepsakes(2 classes: mean and variance of 6 features)
    >>> list(kept.to_frame().columns)
    ['images', 'accuracy']
    """

    def __init__(self, classes: Mapping[int, KnownClass], mark: Mark | None = None) -> None:
        """mark: of the network under which the features are; None: not known."""
        self._classes, self.mark = dict(sorted(classes.items())), mark
        kinds = {one.kind for one in self._classes.values()}
        widths = sorted({len(one.mean) for one in self._classes.values()})
        if len(kinds) > 1 or len(widths) > 1:
            raise InputError(f"Keepsakes of {', '.join(sorted(kinds))} and of {widths} features do not go together.")

    def __getitem__(self, node: int) -> KnownClass:
        return self._classes[node]

    def __iter__(self) -> Iterator[int]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __or__(self, other: Mapping[int, KnownClass]) -> Keepsakes:
        marks = [one for one in (self.mark, getattr(other, "mark", None)) if one is not None]
        if len(marks) == 2 and not marks[0].agrees(marks[1]):
            raise InputError(
                "These keepsakes are of different networks, or of one before and after more training. What older classes are "
                "under a network that learned others gives forecast.keepsakes(network) of that step."
            )
        return Keepsakes({**self, **other}, marks[-1] if marks else None)

    def to_frame(self) -> pd.DataFrame:
        """A row per class, named by its head node: how many images it was learned from, and the accuracy that it is taken to
        have had on others then."""
        columns = {name: [getattr(one, name) for one in self.values()] for name in ("images", "accuracy")}
        return frame_of(tuple(self), {}, columns)

    def state_dict(self) -> dict[str, Tensor]:
        if not self:
            return {}
        numbers = {name: [getattr(one, name) for one in self.values()] for name in ("accuracy", "probability", "error")}
        vectors = {name: np.stack([getattr(one, name) for one in self.values()]) for name in ("mean", "spread")}
        kind = next(iter(self.values())).kind
        return {
            **{"nodes": torch.tensor(list(self)), "images": torch.tensor([one.images for one in self.values()])},
            **{name: torch.tensor(np.array(values, np.float64)) for name, values in numbers.items()},
            **{"mean": torch.from_numpy(vectors["mean"]), kind: torch.from_numpy(vectors["spread"])},
            **self._of_training(),
            **({} if self.mark is None else self.mark.state_dict()),
        }

    def _of_training(self) -> dict[str, Tensor]:
        """NaN where it is not known."""
        found = [one.training_accuracy for one in self.values()]
        known = any(one is not None for one in found)
        return {TRAINING: torch.tensor(np.array(found, np.float64))} if known else {}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> Keepsakes:
        """Those whose `state_dict` this is; anything else is refused."""
        if isinstance(state, Mapping) and not state:
            return cls({})
        kind = _kind_of(state)
        parts = {name: tensor.cpu().numpy() for name, tensor in state.items()}
        found = {}
        for i, node in enumerate(parts["nodes"].tolist()):
            images = int(parts["images"][i])
            accuracy, probability, error = (float(parts[name][i]) for name in ("accuracy", "probability", "error"))
            trained = float(parts[TRAINING][i]) if TRAINING in parts else np.nan
            is_share = accuracy == 0 or 0.999 / max(images, 1) <= accuracy <= 1  # of images, of which it is one at least
            if images < 1 or not is_share or not (np.isnan(probability) or 0 < probability <= 1):
                said = f"of {images} images, accuracy {accuracy}, probability {probability}"
                raise InputError(f"No keepsake of class {node}: {said}. {LOAD}")
            if error < 0 or np.isinf(error):
                raise InputError(f"No keepsake of class {node}: its error is {error}. {LOAD}")
            largest = max(float(np.abs(parts[name][i]).max(initial=0)) for name in ("mean", kind))
            if largest > LARGEST:
                raise InputError(f"No keepsake of class {node}: features of {largest} have no finite variance. {LOAD}")
            if (least := float(variances(parts[kind][i], kind, parts["mean"].shape[1]).min())) < 0:
                raise InputError(f"No keepsake of class {node}: its variance is {least}. {LOAD}")
            if not (np.isnan(trained) or 0 <= trained <= 1):
                raise InputError(f"No keepsake of class {node}: its training accuracy is {trained}. {LOAD}")
            shares = (None if np.isnan(share) else share for share in (probability, trained))
            then, trained_to = shares
            found[node] = KnownClass(parts["mean"][i], parts[kind][i], kind, images, accuracy, then, error, trained_to)
        return cls(found, Mark.from_state_dict(state))

    def __repr__(self) -> str:
        one = next(iter(self.values()), None)
        what = "" if one is None else f": mean and {one.kind} of {counted(len(one.mean), 'feature')}"
        return f"Keepsakes({counted(len(self), 'class')}{what})"


def _kind_of(state: Mapping[str, Tensor]) -> Spread:
    """Of a state whose names and shapes are such; raises InputError."""
    needed = {"nodes", "images", "accuracy", "probability", "error", "mean"}
    names = set(state) if isinstance(state, Mapping) else {type(state).__name__}
    kinds: list[Spread] = [kind for kind in get_args(Spread) if kind in names]
    if (
        len(kinds) != 1
        or names - MARK - {TRAINING} != {*needed, *kinds}
        or (names & MARK not in (MARK, set()))
        or not all(isinstance(part, Tensor) for part in state.values())
    ):
        raise InputError(f"{sorted(map(str, names))} are not the names of a state_dict of Keepsakes. {LOAD}")
    shapes = {name: tuple(part.shape) for name, part in state.items()}
    classes, width = shapes["nodes"], shapes["mean"][-1] if shapes["mean"] else 0
    expected = dict.fromkeys([*needed, *names & {TRAINING}], classes) | {
        "mean": (*classes, width),
        kinds[0]: (*classes, spread_length(kinds[0], width)),
    }
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise InputError(f"{name} has the shape {shapes[name]}, expected {shape}. {LOAD}")
        _check_numbers(name, state[name], state["nodes"])
    nodes = state["nodes"].tolist()
    if again := [node for node in nodes if node < 0 or nodes.count(node) > 1]:
        raise InputError(f"nodes are {str(nodes)[:100]}: {again[0]} is no head node, or there twice. {LOAD}")
    return kinds[0]


def _check_numbers(name: str, part: Tensor, nodes: Tensor) -> None:
    """Finite but for what may be unknown, and whole where they count."""
    counts = name in ("nodes", "images")
    is_whole = not (part.is_floating_point() or part.is_complex() or part.dtype == torch.bool)
    if not (is_whole if counts else part.is_floating_point()):
        raise InputError(f"{name} are of {part.dtype}, expected {'whole' if counts else 'real'} numbers. {LOAD}")
    if name not in ("probability", "error", TRAINING) and not bool(part.isfinite().all()):
        row = int((~part.isfinite()).nonzero()[0, 0])
        raise InputError(f"{name} of class {int(nodes[row])} is not finite. {LOAD}")


def keepsakes(
    network: nn.Module,
    images: Given,
    labels: Given,
    *,
    kind: Spread = "variance",
    prepare: Prepare | None = None,
    head: nn.Module | None = None,
) -> Keepsakes:
    """Of the classes that a network has just learned, from all of their training images, before these are let go.

    labels = head nodes. kind: "variance", or "covariance", which takes d / 2 times as much. prepare and head: as of `fs.Probe`.
    The accuracy is that on the training images with each image's own pull on the last layer taken out. Features of at most
    64 MB are held: of more images than that a fixed choice is taken, the same number of each class.

    >>> import torch, forgetscope as fs
    >>> images, labels = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    >>> network = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    >>> fs.keepsakes(network, images, labels)
    Keepsakes(2 classes: mean and variance of 6 features)
    """
    if kind not in get_args(Spread):
        raise InputError(f"kind = {kind!r} is none of {', '.join(map(repr, get_args(Spread)))}.")
    pixels, nodes = whole("new", images, labels, ("images", "labels"))
    few = next(prepared(pixels[:CHECKED], prepare, CHECKED))
    with featured(network, few, head, "fs.keepsakes(network, images, labels") as net:
        if (highest := int(nodes.max())) >= net.last.nodes:
            raise InputError(f"Label {highest} needs a head with {highest + 1} nodes; it has {net.last.nodes}.")
        chosen, size = Chosen(None, FEATURES_ROOM), batch_for(pixels)
        for part, of in zip(torch.split(pixels, size), torch.split(nodes, size), strict=True):
            features = torch.cat([net.features(inputs.to(net.device)) for inputs in prepared(part, prepare, size)])
            chosen.add_each([(True, node) for node in of.tolist()], marks(part), features)
        found = made(chosen, net.head(range(net.last.nodes)), {node: node for _, node in chosen.held}, kind, 1)
        mark = mark_of(net)
    missing = [node for node, one in found.items() if one.mean is None]
    if missing:
        raise InputError(f"Features of class {missing[0]} are not finite. Look whether the loss of the training became NaN.")
    return Keepsakes(
        {
            node: KnownClass(one.mean, one.spread, kind, one.images, one.accuracy, training_accuracy=one.training_accuracy)
            for node, one in found.items()
            if one.mean is not None and one.spread is not None and one.accuracy is not None
        },
        mark,
    )


def made(
    features: Chosen, head: tuple[Values, Values], rows: Mapping[int, int], kind: Spread, step: int
) -> dict[int, Keepsake]:
    """By head node, of new classes; rows: those of the head, which is that of the classes seen so far. step: that learned them.

    Accuracies are missing where something is not finite."""
    held = {node: of[1].double().numpy() for (_, node), of in sorted(features.held.items())}
    weight, bias = head
    finite = bool(np.isfinite(weight).all() and np.isfinite(bias).all())
    alone = class_accuracies({rows[node]: of for node, of in held.items()}, weight, bias) if finite else {}
    found = {}
    for node, of in held.items():
        right = (of @ weight.T + bias).argmax(axis=1) == rows[node]
        facts = keepsake(of, right, kind, step)
        found[node] = replace(facts, images=features.counts[True, node], accuracy=alone.get(rows[node]))
    return found
