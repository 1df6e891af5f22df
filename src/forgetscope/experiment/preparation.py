"""What a step starts from: its parent's network and rehearsal set, and the images that it may use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from forgetscope.data.images import DataSet, ImageSet
from forgetscope.data.preprocessing import Normalisation
from forgetscope.errors import DamagedStep, SpecError, StoreError
from forgetscope.experiment.objective import first_objective, make_objective, predicting_objective
from forgetscope.experiment.settings import Settings
from forgetscope.forecasting.accuracy import class_accuracies
from forgetscope.learning.budgets import Prices, neyman, quotas
from forgetscope.learning.candidates import Candidates
from forgetscope.learning.methods import Objective, make_method
from forgetscope.learning.networks import build_network, check_features, grow_head, head_of
from forgetscope.learning.policies import choose
from forgetscope.learning.rsgd import TrainingSet
from forgetscope.measuring.keepsakes import Carried, Keepsake, keepsake, spread_length
from forgetscope.randomness import Streams
from forgetscope.spec import Kept, RehearsalSpec, StepSpec, step_id
from forgetscope.store import StoredStep
from forgetscope.store.stepfiles import CARRIED, KEEPSAKES, STATE
from forgetscope.store.tablefiles import LIST_BYTES
from forgetscope.store.tables import Indices

# In the state, beside the network: what `least-forgotten` needs; logits of memory images from when each was chosen, float32
# [images, past classes], NaN where there was no such node, if the step's method needs them.
IMAGE_HISTORY, STORED_LOGITS = "image_history", "stored_logits"


@dataclass(frozen=True)
class Inherited:
    """What a step takes over from its parent; a first step takes over nothing."""

    state: Mapping[str, NDArray[np.generic]]
    classes: tuple[int, ...]  # in the order of the head's nodes
    introduced: tuple[int, ...]
    when_learned: NDArray[np.float64]
    learned_last: tuple[int, ...]  # the classes that the parent itself learned
    history: NDArray[np.int64]  # of their images, class after class
    kept: Mapping[int, Indices]  # the parent's rehearsal set
    keepsakes: Mapping[int, Keepsake | None]  # of its past classes, as far as it has them; empty where the step asks for none
    carried: Mapping[int, Carried | None]  # likewise, for a forecast
    stored: Mapping[int, NDArray[np.float32]]  # logits of what it kept, NaN where it has none

    @classmethod
    def of_first_step(cls, images_of: Mapping[int, Indices]) -> Inherited:
        """Of one that was trained here, is in no store, and kept no history of its images."""
        classes, images = tuple(images_of), sum(len(images) for images in images_of.values())
        learned = np.full(len(classes), np.nan)
        return cls({}, classes, (1,) * len(classes), learned, classes, np.zeros(images, np.int64), {}, {}, {}, {})

    @classmethod
    def from_record(cls, parent: StoredStep, data: DataSet, wanted: RehearsalSpec | None = None) -> Inherited:
        """wanted: by the step, which says what keepsakes it asks for.

        Checksums that fit do not prove that tables and state are what this step left: all that can be told is checked."""
        if parent.simulated is not None:
            raise StoreError(
                f"Step {parent.id[:8]} in {parent.folder.parents[1]} is simulated: there is no network to go on from. "
                "Choose another folder with --store."
            )
        table = parent.table("classes").to_pydict()
        when_learned = np.array(table["accuracy_when_learned"], np.float64)
        _check_classes(parent, table, data)
        if ((when_learned < 0) | (when_learned > 1)).any():
            raise _not_its_own(parent, "classes.parquet", "an accuracy that is not between 0 and 1")
        state, older = parent.state(), table["class_id"][: -len(parent.spec.classes)]
        history, introduced = state.pop(IMAGE_HISTORY, None), table["introduced_step"]
        if history is None or history.ndim != 1 or history.dtype.kind not in "iu":
            raise _not_its_own(parent, STATE, f"no {IMAGE_HISTORY}, or one of another form")
        kept = _kept(parent, dict(zip(older, introduced, strict=False)), data, state)
        return cls(
            state=state,
            classes=tuple(table["class_id"]),
            introduced=tuple(introduced),
            when_learned=when_learned,
            learned_last=parent.spec.classes,
            history=history.astype(np.int64),
            kept=kept,
            keepsakes=_keepsakes(parent, older, wanted) if wanted and wanted.keepsake else {},
            carried=_carried(parent, older, wanted) if wanted and wanted.forecast else {},
            stored=_stored(parent, kept, state.pop(STORED_LOGITS, None)),
        )


def _check_classes(parent: StoredStep, table: Mapping[str, list[int]], data: DataSet) -> None:
    """The classes that the step and its ancestors learned, in this order; of ancestors that are not here nothing is known."""
    known, above = [(label, parent.number) for label in parent.spec.classes], parent.parent
    with suppress(StoreError):
        while above is not None:
            step = StoredStep(parent.folder.with_name(above))
            known, above = [*((label, step.number) for label in step.spec.classes), *known], step.parent
    found = list(zip(table["class_id"], table["introduced_step"], strict=True))
    in_order = table["head_node"] == list(range(len(found))) and max(table["class_id"], default=0) < len(data.classes)
    if not in_order or found[-len(known) :] != known or (above is None and len(found) > len(known)):
        reason = "not the classes that this step and those before it learned, in this order"
        raise _not_its_own(parent, "classes.parquet", reason)


def _kept(
    parent: StoredStep, older: Mapping[int, int], data: DataSet, state: Mapping[str, NDArray[np.generic]]
) -> dict[int, Indices]:
    """The parent's rehearsal set: of each class as many of its images as its budget says, none twice, in order of selection.

    older: its past classes and their steps. What spread their images had is not known here: of quotas that depend on it, how
    many the classes of one step have together."""
    table = parent.table("rehearsal")
    labels, images, positions = (table[name].to_numpy() for name in ("class_id", "image", "position"))
    kept = {label: images[labels == label] for label in older}
    usable = {label: _images_to_use(parent.spec, data, label) for label in older}
    quota, spec, prices = dict[int, int](), parent.spec.rehearsal, None
    if spec is not None and spec.memory_bytes is not None:
        features, stores_logits = _width(parent, state), STORED_LOGITS in state
        prices = Prices.of(spec, data.shape, older, features=features, stores_logits=stores_logits)
        if prices.least > spec.memory_bytes:
            raise _not_its_own(parent, STATE, f"a head of {features} features, for which this step had no room")
    if spec is not None:
        quota = _quotas(spec, usable, data, prices)
    if spec is not None and spec.quota is not None:
        quota = _as_found(parent, quota, older, {label: len(chosen) for label, chosen in kept.items()})
    for label, chosen in kept.items():
        in_order = np.array_equal(positions[labels == label], np.arange(quota[label]))
        if not in_order or len(np.intersect1d(chosen, usable[label])) != quota[label]:
            reason = f"not the {quota[label]} images of class {label} that this step rehearsed"
            raise _not_its_own(parent, "rehearsal.parquet", reason)
    if len(labels) != sum(quota.values()):
        raise _not_its_own(parent, "rehearsal.parquet", "images of classes that were not past in this step")
    return kept


def _as_found(
    parent: StoredStep, balanced: Mapping[int, int], steps: Mapping[int, int], found: Mapping[int, int]
) -> dict[int, int]:
    """Quotas by what there is, if that can be: each class has an image, and those of one step together what they must."""
    for step in set(steps.values()):
        mine = [label for label in steps if steps[label] == step]
        wanted, there = sum(balanced[label] for label in mine), sum(found[label] for label in mine)
        if wanted != there or min(found[label] for label in mine) < 1:
            reason = f"{there} images of the classes of step {step}, where this step rehearsed {wanted}, and some of each"
            raise _not_its_own(parent, "rehearsal.parquet", reason)
    return dict(found)


def _width(parent: StoredStep, state: Mapping[str, NDArray[np.generic]]) -> int:
    """How many features the head of the parent's network takes."""
    weight = state.get("head.weight")
    if weight is None or weight.ndim != 2:
        raise _not_its_own(parent, STATE, "no head.weight, or one of another form")
    return int(weight.shape[1])


def _stored(
    parent: StoredStep, kept: Mapping[int, Indices], logits: NDArray[np.generic] | None
) -> dict[int, NDArray[np.float32]]:
    """The parent's stored logits by class, in the order of what it kept; NaN if it has none."""
    sizes = [len(images) for images in kept.values()]
    if logits is None:
        logits = np.full((sum(sizes), len(kept)), np.nan, np.float32)
    if logits.dtype != np.float32 or logits.shape != (sum(sizes), len(kept)) or np.isinf(logits).any():
        reason = f"{STORED_LOGITS} of {logits.dtype} {logits.shape}, and {sum(sizes)} images of {len(kept)} classes are kept"
        raise _not_its_own(parent, STATE, reason)
    ends = np.cumsum(sizes)
    return {label: logits[end - size : end].astype(np.float32) for label, size, end in zip(kept, sizes, ends, strict=True)}


def _keepsakes(parent: StoredStep, older: Sequence[int], wanted: RehearsalSpec) -> Mapping[int, Keepsake | None]:
    """Of the parent's past classes; None where it kept nothing, or something else, of them."""
    return parent.keepsakes() if _kept_kind(parent) == wanted.keepsake else dict.fromkeys(older)


def _carried(parent: StoredStep, older: Sequence[int], wanted: RehearsalSpec) -> Mapping[int, Carried | None]:
    """The same of where its forecast found them as it ended."""
    return parent.carried() if _kept_kind(parent) == wanted.keepsake and parent.forecasts else dict.fromkeys(older)


def _kept_kind(step: StoredStep) -> Kept | None:
    return step.spec.rehearsal.keepsake if step.spec.rehearsal else None


@dataclass(frozen=True)
class Prepared:
    """A step that is ready to be trained: rehearsal chosen, head grown, images on the device."""

    spec: StepSpec
    network_name: str
    data: DataSet
    inherited: Inherited | None
    streams: Streams
    network: nn.Module
    normalise: Normalisation
    past: tuple[int, ...]  # classes, in the order of the head's nodes
    images_of: Mapping[int, Indices]  # training images of every class seen so far
    rehearsal: Mapping[int, Indices]  # per past class in order of selection
    keepsakes: Mapping[int, Keepsake | None]  # per past class, None where there is none; empty where the step asks for none
    new_set: TrainingSet
    objective: Objective

    @property
    def classes(self) -> tuple[int, ...]:
        """All classes seen so far, in the order of the head's nodes."""
        return (*self.past, *self.spec.classes)

    def full_past(self) -> TrainingSet:
        """All training images of the past classes, for the probe alone."""
        return training_set(
            self.data.train, {label: self.images_of[label] for label in self.past}, 0, self.normalise.mean.device
        )


def prepare(
    parent: StoredStep | None,
    spec: StepSpec,
    data: DataSet,
    settings: Settings,
    first: StepSpec | None = None,
    trained: StoredStep | None = None,
) -> Prepared:
    """first: of its chain, as planned; names the network. Without it the record does, which can name none but our own.
    trained: the step itself, where it is only to predict. What it chose and kept is read then, not made again."""
    device = settings.device
    inherited = None if parent is None else Inherited.from_record(parent, data, spec.rehearsal)
    past = () if inherited is None else inherited.classes
    images_of = {label: _images_to_use(spec, data, label) for label in (*past, *spec.classes)}
    normalise = Normalisation.of(data, device, settings.channels_last, spec.training.normalisation)
    origin = first or (spec if parent is None else spec.model_copy(update={"network": parent.info["network"]}))
    name, source = str(origin.network), origin.network_source
    fan_out = spec.training.initialisation == "fan-out"
    if parent is None or inherited is None:
        network = build_network(name, len(spec.classes), _first_weights(spec, data), source, fan_out=fan_out)
        images = torch.from_numpy(np.array(data.train.images[:2])).to(device)
        check_features(name, network.to(device), normalise(images))
    else:
        network = build_network(name, len(inherited.classes), None, source)
        _take_over(network, parent, inherited, data)
        _check_keepsakes(network, parent, inherited, spec.rehearsal.keepsake if spec.rehearsal else None)
    network.to(device)
    if not settings.channels_last:
        network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    made = None if trained is None or trained.left_out(KEEPSAKES) else Inherited.from_record(trained, data, spec.rehearsal)
    return assemble(spec, name, network, data, normalise, inherited, images_of, made)


def assemble(
    spec: StepSpec,
    network_name: str,
    network: nn.Module,
    data: DataSet,
    normalise: Normalisation,
    inherited: Inherited | None,
    images_of: Mapping[int, Indices],
    made: Inherited | None = None,
) -> Prepared:
    """From the network that the parent left, on its device: rehearsal is chosen, the head grows, images move beside it.
    made: what the step left, if it has been trained and is only to predict."""
    past, device = () if inherited is None else inherited.classes, normalise.mean.device
    streams = Streams(spec.seed, spec.step, (spec.rehearsal and spec.rehearsal.draws) or 0)
    rehearsal, keepsakes = dict[int, Indices](), dict[int, Keepsake | None]()
    if made is not None:
        rehearsal, keepsakes = dict(made.kept), dict(made.keepsakes)
    elif inherited is not None:
        rehearsal, keepsakes = _look_back(spec, inherited, images_of, network, normalise, data, streams)
    new_set = training_set(data.train, {label: images_of[label] for label in spec.classes}, len(past), device)
    objective = first_objective(new_set)
    if made is not None and spec.rehearsal is not None:
        objective = predicting_objective(spec.rehearsal, new_set, len(past))
    elif inherited is not None and spec.rehearsal is not None:

        def on_device(images: Mapping[int, Indices]) -> TrainingSet:
            return training_set(data.train, images, 0, device)

        objective = make_objective(
            spec.rehearsal, network, normalise, new_set, rehearsal, images_of, inherited.stored, keepsakes, streams, on_device
        )
    if inherited is not None and spec.rehearsal is not None:
        grow_head(network, len(spec.classes), Streams(spec.seed, spec.step)("head"))  # the same with other draws
    return Prepared(
        spec=spec,
        network_name=network_name,
        data=data,
        inherited=inherited,
        streams=streams,
        network=network,
        normalise=normalise,
        past=past,
        images_of=images_of,
        rehearsal=rehearsal,
        keepsakes=keepsakes,
        new_set=new_set,
        objective=objective,
    )


def kept_bytes(step: Prepared) -> dict[str, int] | None:
    """What the step has of past classes, in bytes: images as they are, stored logits, keepsakes. None in a first step."""
    if step.spec.rehearsal is None:
        return None
    memory, stored = step.objective.memory, step.objective.stored
    images = 0 if memory is None else int((memory.nodes < len(step.past)).sum()) * memory.images[0].nbytes
    carried = {} if step.inherited is None else step.inherited.carried
    found = (*step.keepsakes.values(), *carried.values())
    numbers = [part for one in found if one is not None for part in (one.mean, one.spread)]
    return {
        "images": images,
        "logits": 0 if stored is None else int((~stored.isnan()).sum()) * stored.element_size(),
        "keepsakes": sum(part.nbytes for part in numbers if part is not None),
    }


def weights_digest(network: nn.Module) -> str:
    """SHA-256 over name, type, shape and bytes of every tensor of a network's state, in the order of their names.

    It proves that two steps started from the same weights; the memory layout does not count."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _first_weights(spec: StepSpec, data: DataSet) -> np.random.Generator:
    """The stream from which a first step's network is drawn. Unseeded: one for each first step, known by its id."""
    if spec.training.initial_weights is None:
        return Streams(spec.seed, spec.step)("network")
    return Streams(0, spec.step)("network", step_id(None, spec, data.digest))


def _images_to_use(spec: StepSpec, data: DataSet, label: int) -> Indices:
    """A class's training images, in order, without those that are set aside for validation."""
    images = np.flatnonzero(data.train.labels == label)
    return images[~np.isin(images, held_out_images(spec, data, label))]


def held_out_images(spec: StepSpec, data: DataSet, label: int) -> Indices:
    """Those that are set aside, in order."""
    images = np.flatnonzero(data.train.labels == label)
    aside = round((spec.training.validation or 0.0) * len(images))
    return np.sort(images[Streams(spec.seed, 0)("validation", label).permutation(len(images))[:aside]])


def _quotas(spec: RehearsalSpec, usable: Mapping[int, Indices], data: DataSet, prices: Prices | None = None) -> dict[int, int]:
    """Balanced ones. usable: the images of each past class; prices: where there is a budget in bytes."""
    sizes, whole = {label: len(images) for label, images in usable.items()}, np.bincount(data.train.labels)
    return quotas(spec, sizes, {label: int(whole[label]) for label in usable}, prices)


def _quotas_now(
    spec: RehearsalSpec,
    inherited: Inherited,
    images_of: Mapping[int, Indices],
    network: nn.Module,
    data: DataSet,
    candidates: Mapping[int, Candidates],
) -> dict[int, int]:
    """Of a step that begins. candidates: of the classes that the parent learned, where quotas depend on their images."""
    introduced, prices = dict(zip(inherited.classes, inherited.introduced, strict=True)), None
    if spec.memory_bytes is not None:
        stores_logits = "stored logits" in make_method(spec.method, spec.method_source).needs
        features = head_of(network)[0].shape[1]
        prices = Prices.of(spec, data.shape, introduced, features=features, stores_logits=stores_logits)
    found = _quotas(spec, {label: images_of[label] for label in inherited.classes}, data, prices)
    if spec.quota is None:
        return found
    kept = {label: len(images) for label, images in inherited.kept.items()}
    sizes = {label: len(one) for label, one in candidates.items()}
    weights = {label: len(one) * one.gradient_spread for label, one in candidates.items()}
    return neyman(found, introduced, {**kept, **weights}, {**kept, **sizes})


def _take_over(network: nn.Module, parent: StoredStep, inherited: Inherited, data: DataSet) -> None:
    """The parent's weights as it left them. Checksums that fit do not prove that a state is one of its network."""
    learned = sum(len(_images_to_use(parent.spec, data, label)) for label in inherited.learned_last)
    if len(inherited.history) != learned:
        raise _not_its_own(parent, STATE, f"{IMAGE_HISTORY} of {len(inherited.history)} images, and the step learned {learned}")
    _load(network, inherited.state, parent)


def load_trained(network: nn.Module, step: StoredStep) -> None:
    """The weights that a step left, into its network as it is when the step begins."""
    beside = (IMAGE_HISTORY, STORED_LOGITS)
    _load(network, {name: array for name, array in step.state().items() if name not in beside}, step)


def _load(network: nn.Module, arrays: Mapping[str, NDArray[np.generic]], owner: StoredStep) -> None:
    try:
        state = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for name, tensor in network.state_dict().items():
            if name in state and state[name].dtype != tensor.dtype:  # else it would be converted without a word
                raise TypeError(f"{name} is {state[name].dtype}, not {tensor.dtype}")
        network.load_state_dict(state)
    except (RuntimeError, TypeError) as error:
        raise _not_its_own(owner, STATE, " ".join(str(error).split())[:300]) from None


def _check_keepsakes(network: nn.Module, parent: StoredStep, inherited: Inherited, kind: Kept | None) -> None:
    """Those of the parent are of this network's features, and there will be room for all of this step."""
    if kind is None:
        return
    head = network.head
    assert isinstance(head, nn.Linear)  # as check_network saw
    numbers = head.in_features + spread_length(kind, head.in_features)
    for file, label, one in [
        *((KEEPSAKES, *entry) for entry in inherited.keepsakes.items()),
        *((CARRIED, *entry) for entry in inherited.carried.items()),
    ]:
        if one is not None and one.mean is not None and len(one.mean) != head.in_features:
            reason = f"{len(one.mean)} features of class {label}, and the network has {head.in_features}"
            raise _not_its_own(parent, file, reason)
    if (size := 4 * numbers * len(inherited.classes)) > LIST_BYTES:
        advice = 'Use "variance", or a network with fewer' if kind == "covariance" else "Use a network with fewer"
        raise SpecError(
            f"keepsake = {kind!r} of {head.in_features} features and {len(inherited.classes)} past classes is {size:,} bytes; "
            f"a table holds {LIST_BYTES:,}. {advice}."
        )


def _not_its_own(parent: StoredStep, file: str, reason: str) -> DamagedStep:
    return DamagedStep(
        f"Step {parent.id[:8]} is damaged: {parent.folder / file}: {reason}. Its checksum fits, so `forgetscope store verify` "
        f"does not find it. Delete {parent.folder} or move it away, then run the same command again: it computes the step.",
        file,
        reason,
    )


def _look_back(
    spec: StepSpec,
    inherited: Inherited,
    images_of: Mapping[int, Indices],
    network: nn.Module,
    normalise: Normalisation,
    data: DataSet,
    streams: Streams,
) -> tuple[dict[int, Indices], dict[int, Keepsake | None]]:
    """The policy is the first act of the step that uses it, and so are keepsakes. Of older classes they see only what the
    parent kept.

    Rehearsal per class in order of selection, and keepsakes if the step asks for them; classes in the order of their head
    nodes."""
    if spec.rehearsal is None:
        return {}, {}
    sizes = [len(images_of[label]) for label in inherited.learned_last]
    history = dict(zip(inherited.learned_last, np.split(inherited.history, np.cumsum(sizes)[:-1]), strict=True))

    def candidates_of(label: int) -> Candidates:
        images = torch.from_numpy(data.train.images[images_of[label]]).to(normalise.mean.device)
        node, augmentation = inherited.classes.index(label), spec.training.augmentation
        return Candidates(images, node, history[label], network, normalise, augmentation, streams)

    # Where quotas depend on all of them, they are looked at once.
    looked_at = {label: candidates_of(label) for label in inherited.learned_last if spec.rehearsal.quota is not None}
    quota = _quotas_now(spec.rehearsal, inherited, images_of, network, data, looked_at)
    chosen, keepsakes, kind = dict[int, Indices](), dict(inherited.keepsakes), spec.rehearsal.keepsake
    made = dict[int, tuple[Keepsake, NDArray[np.float64]]]()  # with features, by head node
    for node, label in enumerate(inherited.classes):
        if label in inherited.kept:
            chosen[label] = inherited.kept[label][: quota[label]]
            continue
        candidates = looked_at.pop(label) if label in looked_at else candidates_of(label)
        # A stream per class: which images of a class are kept does not depend on which other classes there are.
        stream, source = streams("policy", label), spec.rehearsal.policy_source
        try:
            positions = choose(spec.rehearsal.policy, candidates, quota[label], stream, source)
        except SpecError as error:
            raise SpecError(f"Class {data.classes[label]!r}: {error}") from None
        chosen[label] = images_of[label][positions]
        if kind is not None:
            right = candidates.logits.argmax(axis=1) == node
            made[node] = keepsake(candidates.features, right, kind, spec.step - 1), candidates.features
    accuracies = (
        class_accuracies({node: features for node, (_, features) in made.items()}, *head_of(network))
        if spec.rehearsal.forecast
        else {}
    )
    for node, (one, _) in made.items():
        keepsakes[inherited.classes[node]] = replace(one, accuracy=accuracies.get(node))
    return chosen, keepsakes


def training_set(train: ImageSet, images_of: Mapping[int, Indices], first_node: int, device: torch.device) -> TrainingSet:
    """Copy the images of these classes to the device; nodes count from `first_node` in the given order."""
    sizes = np.array([len(images) for images in images_of.values()], np.int64)
    nodes = np.repeat(np.arange(first_node, first_node + len(sizes)), sizes)
    images = train.images[np.concatenate(list(images_of.values()))]
    return TrainingSet(torch.from_numpy(images).to(device), torch.from_numpy(nodes).to(device), sizes)
