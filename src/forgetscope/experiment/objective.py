"""What a step's method needs, made ready before the head grows: its memory stream, and logits of the network until then."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from forgetscope.data.preprocessing import Normalisation
from forgetscope.learning.methods import Method, Objective, Replay, make_method
from forgetscope.learning.rsgd import TrainingSet
from forgetscope.measuring.keepsakes import Keepsake
from forgetscope.randomness import Streams
from forgetscope.spec import RehearsalSpec
from forgetscope.store.tables import Indices

BATCH = 500
OnDevice = Callable[[Mapping[int, Indices]], TrainingSet]  # images of these classes, whose nodes count from 0 in this order


def first_objective(new: TrainingSet) -> Objective:
    """Of a first step: there is nothing to rehearse."""
    return Objective("replay", Replay(), 0, None, _shares(new, None, 0.0, 0))


def predicting_objective(spec: RehearsalSpec, new: TrainingSet, past: int) -> Objective:
    """Of a step that has been trained: what it predicts by, and nothing to train with."""
    method = make_method(spec.method, spec.method_source)
    return replace(first_objective(new), name=spec.method or "replay", method=method, past=past)


def make_objective(
    spec: RehearsalSpec,
    network: nn.Module,
    normalise: Normalisation,
    new: TrainingSet,
    kept: Mapping[int, Indices],
    images_of: Mapping[int, Indices],
    stored: Mapping[int, NDArray[np.float32]],
    keepsakes: Mapping[int, Keepsake | None],
    streams: Streams,
    on_device: OnDevice,
) -> Objective:
    """network: as the parent left it. kept: per past class, in the order of nodes; images_of: of all classes, new ones last;
    stored: logits of what older classes' images were chosen by."""
    began, past = time.monotonic(), len(kept)
    method = make_method(spec.method, spec.method_source)
    stream = _stream(method, kept, images_of, streams)
    memory = on_device(stream) if stream else None
    shares = _shares(new, memory, spec.alpha, past)
    objective = Objective(spec.method or "replay", method, past, memory, shares, stream=stream)
    if method.needs & {"parent", "stored logits"} and memory is not None:
        of_memory = _logits(network, normalise, memory.images)
        if "stored logits" in method.needs:
            objective = replace(objective, stored=_with_stored(of_memory, kept, stored))
        if "parent" in method.needs:
            objective = replace(objective, of_memory=of_memory)
    if "parent" in method.needs:
        objective = replace(objective, of_new=_logits(network, normalise, new.images))
    if "keepsakes" in method.needs:
        objective = replace(objective, keepsakes=dict(enumerate(keepsakes.values())))
    return replace(objective, seconds=time.monotonic() - began)


def _stream(
    method: Method, kept: Mapping[int, Indices], images_of: Mapping[int, Indices], streams: Streams
) -> dict[int, Indices]:
    """The images of the memory stream, class after class in the order of nodes."""
    past = {label: images_of[label] if "past images" in method.needs else images for label, images in kept.items()}
    if not method.needs & {"memory", "past images"}:
        return {}
    if "current classes" not in method.needs:
        return past
    each = max(1, round(sum(map(len, past.values())) / len(past)))
    current = {label: images for label, images in images_of.items() if label not in kept}
    return past | {
        label: images[streams("current-images", label).permutation(len(images))[:each]] for label, images in current.items()
    }


def _shares(new: TrainingSet, memory: TrainingSet | None, alpha: float, past: int) -> Tensor:
    """Of each class in a batch [k], as expected: a batch without memory is of new images alone."""
    shares = np.zeros(past + len(new.class_sizes))
    shares[past:] = (1 if memory is None else 1 - alpha) * new.class_sizes / new.class_sizes.sum()
    if memory is not None:
        shares[: len(memory.class_sizes)] += alpha * memory.class_sizes / memory.class_sizes.sum()
    return torch.from_numpy(shares).to(new.images.device, torch.float32)


@torch.no_grad()
def _logits(network: nn.Module, normalise: Normalisation, images: Tensor) -> Tensor:
    """Of the images as they are, float32 [n, k] on their device."""
    network.eval()
    return torch.cat([network(normalise(part)).float() for part in torch.split(images, BATCH)])


def _with_stored(now: Tensor, kept: Mapping[int, Indices], stored: Mapping[int, NDArray[np.float32]]) -> Tensor:
    """Logits [images of the memory stream, past] from when each was chosen: now, or in an earlier step, when there were fewer
    nodes. Images of current classes, which come last, have none."""
    found, start = torch.full_like(now, torch.nan), 0
    for label, images in kept.items():
        rows = slice(start, start + len(images))
        if label in stored:
            before = torch.from_numpy(stored[label][: len(images)]).to(now.device)
            found[rows, : before.shape[1]] = before
        else:
            found[rows] = now[rows]
        start += len(images)
    return found
