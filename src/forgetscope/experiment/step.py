"""One incremental step: from its parent's record to its own, resumable after every epoch."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from forgetscope.data.images import DataSet, ImageSet
from forgetscope.experiment.tables import (
    ClassFacts,
    Indices,
    Measured,
    class_table,
    confusion_table,
    pairs_table,
    probes_table,
    rehearsal_table,
)
from forgetscope.files import replace_durably
from forgetscope.learning.budgets import quotas
from forgetscope.learning.candidates import Candidates
from forgetscope.learning.networks import build_network, check_features, grow_head
from forgetscope.learning.policies import choose
from forgetscope.learning.rsgd import EpochEnd, Normalisation, TrainingSet, make_optimiser, train_step
from forgetscope.learning.snapshots import Snapshot, load_snapshot, momentum_of, restore, save_snapshot
from forgetscope.measuring.probe import Probe
from forgetscope.randomness import Streams
from forgetscope.spec import StepSpec
from forgetscope.store import StepRecord, Store, StoredStep, parquet_bytes

EVALUATION_BATCH = 500
IMAGE_HISTORY = "image_history"  # in the state, beside the network: what `least-forgotten` needs


@dataclass(frozen=True)
class Settings:
    """Where to compute. Not part of a step's identity, but recorded: equal bits are promised for equal settings only."""

    device: torch.device
    threads: int


@dataclass(frozen=True)
class Inherited:
    """What a step takes over from its parent; a first step takes over nothing."""

    network: str
    state: Mapping[str, NDArray[np.generic]]
    classes: tuple[int, ...]  # in the order of the head's nodes
    introduced: tuple[int, ...]
    when_learned: NDArray[np.float64]
    learned_last: tuple[int, ...]  # the classes that the parent itself learned
    history: NDArray[np.int64]  # of their images, class after class
    kept: Mapping[int, Indices]  # the parent's rehearsal set

    @classmethod
    def from_record(cls, parent: StoredStep) -> Inherited:
        table = parent.table("classes").to_pydict()
        rehearsal = parent.table("rehearsal")
        labels, images = rehearsal["class_id"].to_numpy(), rehearsal["image"].to_numpy()
        older = [label for label in table["class_id"] if label not in parent.spec.classes]
        state = parent.state()
        history = state.pop(IMAGE_HISTORY)
        return cls(
            network=parent.info["network"],
            state=state,
            classes=tuple(table["class_id"]),
            introduced=tuple(table["introduced_step"]),
            when_learned=np.array(table["accuracy_when_learned"], np.float64),
            learned_last=parent.spec.classes,
            history=history.astype(np.int64),
            kept={label: images[labels == label] for label in older},
        )


def run_step(
    id: str,
    parent: StoredStep | None,
    spec: StepSpec,
    data: DataSet,
    store: Store,
    settings: Settings,
    on_epoch: Callable[[EpochEnd], None],
) -> StoredStep:
    """Train, measure and commit one step; goes on from its snapshot if there is one."""
    started = time.monotonic()
    streams = Streams(spec.seed, spec.step)
    inherited = None if parent is None else Inherited.from_record(parent)
    past = () if inherited is None else inherited.classes
    classes = (*past, *spec.classes)
    images_of = {label: _images_to_use(spec, data, label) for label in classes}
    normalise = _normalisation(data, settings.device)
    network = _start_network(spec, inherited, streams, data, normalise).to(settings.device)
    rehearsal = _choose_rehearsal(spec, inherited, images_of, network, normalise, data, streams)
    if inherited is not None:
        grow_head(network, len(spec.classes), streams("head"))
    new_set = _training_set(data.train, {label: images_of[label] for label in spec.classes}, len(past), settings.device)
    rehearsed_set = _training_set(data.train, rehearsal, 0, settings.device) if rehearsal else None

    image_history = torch.zeros(len(new_set.nodes), dtype=torch.int16, device=settings.device)
    optimiser = make_optimiser(network, spec.training)
    working = store.working(id)
    working.mkdir(exist_ok=True)
    snapshot = load_snapshot(working)
    measured, epochs_done = Measured(), 0
    history: list[dict[str, float]] = []
    if snapshot is not None:
        restore(snapshot, network, optimiser)
        measured, epochs_done = Measured.from_tensors(snapshot.measured), snapshot.epoch
        history = snapshot.history
        image_history.copy_(snapshot.images)
        torch.set_num_threads(snapshot.threads)  # other threads would add up in another order
    threads = torch.get_num_threads()

    probe_seconds = 0.0
    alpha = spec.rehearsal.alpha if spec.rehearsal else 0.0
    probe = _make_probe(spec, data, images_of, past, rehearsal, new_set, normalise)

    def measure(iteration: int) -> None:
        nonlocal probe_seconds
        if probe is None:
            return
        begin = time.monotonic()
        measured.add(iteration, probe.measure(network))
        replace_durably(working / "probes.parquet", parquet_bytes(probes_table(measured, past)))
        probe_seconds += time.monotonic() - begin

    if epochs_done == 0:
        measure(0)
    for end in train_step(
        network, optimiser, new_set, rehearsed_set, normalise, spec.training, alpha, streams, image_history, epochs_done
    ):
        if _is_probed(spec, end.epoch):
            measure(end.iteration)
        history.append({"epoch": end.epoch, "loss": end.loss, "accuracy": end.accuracy})
        state = network.state_dict(), momentum_of(optimiser), measured.tensors(), image_history
        save_snapshot(working, Snapshot(end.epoch, threads, history, *state), replace_durably)
        on_epoch(end)

    confusion = _confusion(network, data.test, classes, normalise, settings.device)
    accuracy = _class_accuracy(confusion)
    facts = ClassFacts(
        ids=classes,
        names=[data.classes[label] for label in classes],
        introduced=(*(inherited.introduced if inherited else ()), *[spec.step] * len(spec.classes)),
        train_images=[len(images_of[label]) for label in classes],
        when_learned=np.concatenate([inherited.when_learned if inherited else [], accuracy[len(past) :]]),
        accuracy=accuracy,
    )
    record = StepRecord(
        id=id,
        parent=None if parent is None else parent.id,
        spec=spec,
        data={"name": data.name, "image_size": data.image_size, "shape": data.shape, "digest": data.digest},
        environment=environment(Settings(settings.device, threads)),
        timings={"seconds": round(time.monotonic() - started, 3), "probe_seconds": round(probe_seconds, 3)},
        history=history,
        tables={
            "classes": class_table(facts, rehearsal, measured),
            "probes": probes_table(measured, past),
            "pairs": pairs_table(measured, classes, len(past)),
            "rehearsal": rehearsal_table(rehearsal),
            "confusion": confusion_table(confusion, classes),
        },
        network=inherited.network if inherited else str(spec.network),
        state=_arrays({**network.state_dict(), IMAGE_HISTORY: image_history}),
    )
    return store.commit(record, datetime.now(UTC).isoformat(timespec="seconds"))


def environment(settings: Settings) -> dict[str, object]:
    """What equal bits depend on."""
    return {
        "device": settings.device.type,
        "threads": settings.threads,
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        **{package: version(package) for package in ("forgetscope", "torch", "numpy")},
    }


def _choose_rehearsal(
    spec: StepSpec,
    inherited: Inherited | None,
    images_of: Mapping[int, Indices],
    network: nn.Module,
    normalise: Normalisation,
    data: DataSet,
    streams: Streams,
) -> dict[int, Indices]:
    """The policy is the first act of the step that uses it. Of older classes it sees only what the parent kept.

    Per class in order of selection, classes in the order of their head nodes."""
    if spec.rehearsal is None or inherited is None:
        return {}
    quota = quotas(spec.rehearsal, {label: len(images_of[label]) for label in inherited.classes})
    sizes = [len(images_of[label]) for label in inherited.learned_last]
    history = dict(zip(inherited.learned_last, np.split(inherited.history, np.cumsum(sizes)[:-1]), strict=True))
    chosen: dict[int, Indices] = {}
    for node, label in enumerate(inherited.classes):
        if label in inherited.kept:
            chosen[label] = inherited.kept[label][: quota[label]]
            continue
        images = torch.from_numpy(data.train.images[images_of[label]]).to(normalise.mean.device)
        candidates = Candidates(images, node, history[label], network, normalise, spec.training.augmentation, streams)
        # A stream per class: which images of a class are kept does not depend on which other classes there are.
        positions = choose(spec.rehearsal.policy, candidates, quota[label], streams("policy", label))
        chosen[label] = images_of[label][positions]
    return chosen


def _images_to_use(spec: StepSpec, data: DataSet, label: int) -> Indices:
    """A class's training images, in order, without those that are set aside for validation."""
    images = np.flatnonzero(data.train.labels == label)
    aside = round((spec.training.validation or 0.0) * len(images))
    held = Streams(spec.seed, 0)("validation", label).permutation(len(images))[:aside]
    return np.delete(images, held)


def _arrays(state: Mapping[str, torch.Tensor]) -> dict[str, NDArray[np.generic]]:
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in state.items()}


def _start_network(
    spec: StepSpec, inherited: Inherited | None, streams: Streams, data: DataSet, normalise: Normalisation
) -> nn.Module:
    """A new network, or the parent's as it left it."""
    if inherited is None:
        network = build_network(str(spec.network), len(spec.classes), streams("network"))
        images = torch.from_numpy(np.array(data.train.images[:2])).to(normalise.mean.device)
        check_features(str(spec.network), network.to(normalise.mean.device), normalise(images.float() / 255))
        return network
    network = build_network(inherited.network, len(inherited.classes), None)
    network.load_state_dict({name: torch.from_numpy(array) for name, array in inherited.state.items()})
    return network


def _normalisation(data: DataSet, device: torch.device) -> Normalisation:
    return Normalisation(torch.tensor(data.mean, device=device), torch.tensor(data.std, device=device))


def _training_set(train: ImageSet, images_of: Mapping[int, Indices], first_node: int, device: torch.device) -> TrainingSet:
    """Copy the images of these classes to the device; nodes count from `first_node` in the given order."""
    sizes = np.array([len(images) for images in images_of.values()], np.int64)
    nodes = np.repeat(np.arange(first_node, first_node + len(sizes)), sizes)
    images = train.images[np.concatenate(list(images_of.values()))]
    return TrainingSet(torch.from_numpy(images).to(device), torch.from_numpy(nodes).to(device), sizes)


def _make_probe(
    spec: StepSpec,
    data: DataSet,
    images_of: Mapping[int, Indices],
    past: tuple[int, ...],
    rehearsal: Mapping[int, Indices],
    new: TrainingSet,
    normalise: Normalisation,
) -> Probe | None:
    if spec.rehearsal is None or spec.rehearsal.probe_every == 0:
        return None
    full = _training_set(data.train, {label: images_of[label] for label in past}, 0, new.images.device)
    rehearsed = np.concatenate([np.isin(images_of[label], rehearsal[label]) for label in past])
    return Probe(
        full.images,
        full.nodes,
        torch.from_numpy(rehearsed),
        new.images,
        new.nodes,
        spec.rehearsal.alpha,
        prepare=lambda images: normalise(images.float() / 255),
        batch=EVALUATION_BATCH,
    )


def _is_probed(spec: StepSpec, epoch: int) -> bool:
    """Every so many epochs, and always the last."""
    every = spec.rehearsal.probe_every if spec.rehearsal else 0
    return every > 0 and (epoch % every == 0 or epoch == spec.training.epochs)


@torch.no_grad()
def _confusion(
    network: nn.Module, test: ImageSet, classes: tuple[int, ...], normalise: Normalisation, device: torch.device
) -> NDArray[np.int64]:
    """Counts [true node, predicted node] on the test images of all classes seen so far."""
    network.eval()
    counts = np.zeros((len(classes), len(classes)), np.int64)
    for node, label in enumerate(classes):
        indices = np.flatnonzero(test.labels == label)
        for part in np.array_split(indices, max(1, -(-len(indices) // EVALUATION_BATCH))):
            images = torch.from_numpy(test.images[part]).to(device)
            predicted = network(normalise(images.float() / 255)).argmax(dim=1).cpu().numpy()
            counts[node] += np.bincount(predicted, minlength=len(classes))
    return counts


def _class_accuracy(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """NaN for a class without test images."""
    images = confusion.sum(axis=1)
    return np.diag(confusion) / np.where(images > 0, images, np.nan)
