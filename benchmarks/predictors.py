"""Every predictor of forgetting on the same steps, from what their kept networks see: a part of `forecast.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import forgetscope as fs
from forgetscope.analysis.inputs.cache import Cache
from forgetscope.analysis.inputs.measured_steps import MeasuredStep, read_steps
from forgetscope.analysis.inputs.recognised import seen_by as recognised_by
from forgetscope.analysis.inputs.samples import collect
from forgetscope.analysis.inputs.training_shares import SHARES, probes_within
from forgetscope.analysis.paper.joint_model import JointModels
from forgetscope.analysis.statistics.noise import Recognised, sampling_variances
from forgetscope.forecasting.accuracy import leave_one_out
from forgetscope.forecasting.forecaster import QUANTILE, Forecaster, KnownClass
from forgetscope.measuring.forgetting import forgetting
from forgetscope.measuring.keepsakes import Carried, Spread, keepsake
from forgetscope.outputs import unheard
from forgetscope.randomness import Streams
from forgetscope.store import StoredStep
from judging import Judged
from seen import Seen, fitted_on, seen_by, training_accuracy

Values = NDArray[np.float64]
HELD_OUT = 16  # images of a class that are kept and never rehearsed
KINDS: tuple[Spread, ...] = ("variance", "covariance")
FORECAST, TRANSLATED = {kind: f"forecast ({kind})" for kind in KINDS}, "translated features alone"


@dataclass(frozen=True)
class Forecast:
    """Of one step and kind of keepsake, after each share of training [shares, P]; and what the next step starts from."""

    forgetting: Values
    error: Values
    translated: Values  # without the memory
    known: Mapping[int, KnownClass]
    missing: Mapping[int, str]  # why there is no forecast, by node


def judged_steps(store: fs.Store) -> Iterator[Judged]:
    """Of all steps with past classes. Third steps after the second ones that they build on."""
    collection, joint = collect(store, read_steps(store, Cache(None), unheard)), JointModels(Cache(None), unheard)
    joint.add_to_values(collection.samples)
    forecasts: dict[tuple[str, Spread], Forecast] = {}
    for sample in collection.samples:
        for i in np.argsort(sample.number, kind="stable").tolist():
            step, found = store.step(sample.steps[i].facts.id), sample.steps[i]
            seen = seen_by(store, step)
            for kind in KINDS:
                before = forecasts.get((str(step.parent), kind))
                forecasts[step.id, kind] = forecast_of(step, seen, kind, {} if before is None else before.known)
            yield _judged(
                partition=(sample.dataset, sample.policy, sample.cells[i].retention, step.number),
                experiment=sample.root[i],
                found=found,
                seen=seen,
                scores={
                    **{FORECAST[kind]: forecasts[step.id, kind].forgetting for kind in KINDS},
                    TRANSLATED: forecasts[step.id, KINDS[0]].translated,
                    **without_past_images(store, step, seen, found, forecasts[step.id, KINDS[0]].known),
                    **with_past_images(seen, found, joint.predictions(sample, i), forecasts[step.id, KINDS[0]].known),
                },
                halves={FORECAST[kind]: QUANTILE * forecasts[step.id, kind].error for kind in KINDS},
                learned=recognised_when_learned(store, step),
            )


def forecast_of(step: StoredStep, seen: Seen, kind: Spread, handed_on: Mapping[int, KnownClass]) -> Forecast:
    """handed_on: what is known of older classes under the network that the parent left."""
    known = {**handed_on, **learned_last(step, seen, kind)}
    forecaster, features_after, _ = forecaster_of(step, seen, known)
    features = {epoch: features_after(epoch) for epoch in seen.epochs}
    made = {epoch: forecaster.forecast(now, seen.heads[epoch]) for epoch, now in features.items()}
    last = seen.epochs[-1]
    carried = forecaster.carried(features[last], seen.heads[last])
    return Forecast(
        np.stack([one.forgetting for one in made.values()]),
        np.stack([one.error for one in made.values()]),
        np.stack([_translated_alone(forecaster, now, seen, epoch) for epoch, now in features.items()]),
        {node: _handed_on(known[node], then, carried[node]) for node, then in forecaster.handed_on.items()},
        forecaster.missing,
    )


def forecaster_of(
    step: StoredStep, seen: Seen, known: Mapping[int, KnownClass]
) -> tuple[Forecaster, Callable[[int], Values], NDArray[np.int64]]:
    """As a run with `forecast = true` has it: of the same images, with the same draws. Also the features of these images after
    an epoch, and where those of the memory are among the images of past classes."""
    past, new, streams = seen.groups["past"], seen.groups["new"], Streams(step.spec.seed, step.number)
    labels, kept = step.past_classes("class_id")["class_id"].tolist(), step.table("rehearsal")
    of, images = kept["class_id"].to_numpy(), kept["image"].to_numpy()
    chosen = np.concatenate([fitted_on(step, label, images[of == label]) for label in labels])
    place = {image: i for i, image in enumerate(past.images.tolist())}
    memory = np.array([place[image] for image in chosen.tolist()])

    def features(epoch: int) -> Values:
        return np.concatenate([past.features[epoch][memory], new.features[epoch]])

    forecaster = Forecaster(
        {node: known.get(node) for node in range(len(labels))},
        features(0),
        np.concatenate([past.nodes[memory], new.nodes]),
        np.repeat([False, True], [len(memory), len(new.nodes)]),
        {node: int((of == label).sum()) for node, label in enumerate(labels)},
        seen.heads[0],
        lambda node: streams("forecast", labels[node]),
    )
    return forecaster, features, memory


def learned_last(step: StoredStep, seen: Seen, kind: Spread) -> dict[int, KnownClass]:
    """Of the classes that the parent learned, from all their training images and its network."""
    past, right = seen.groups["past"], recognised_left_out(step, seen)
    found = {}
    for node in np.unique(past.nodes[right >= 0]).tolist():
        own = past.nodes == node
        kept = keepsake(past.features[0][own], seen.right("past", 0)[own], kind, step.number - 1)
        assert kept.mean is not None
        assert kept.spread is not None
        facts = kept.mean, kept.spread, kind, kept.images, float(right[own].mean())
        found[node] = KnownClass(*facts, training_accuracy=kept.training_accuracy)
    return found


def recognised_left_out(step: StoredStep, seen: Seen) -> NDArray[np.int64]:
    """Of the training images of the past classes: 1 where the parent's head would recognise them without having been trained on
    them, 0 where it would not; -1 of classes that the parent did not learn."""
    past, introduced = seen.groups["past"], step.past_classes("introduced_step")["introduced_step"]
    last = introduced[past.nodes] == step.number - 1
    found = np.full(len(last), -1, np.int64)
    found[last] = leave_one_out(past.features[0][last], past.nodes[last], *seen.heads[0])
    return found


def without_past_images(
    store: fs.Store, step: StoredStep, seen: Seen, found: MeasuredStep, known: Mapping[int, KnownClass]
) -> dict[str, Values]:
    """But for forecasts."""
    held_out, shares, accuracy = _held_out(step, seen), len(seen.epochs), _accuracies(known, len(found.class_ids))
    return {
        "memory, own probability": _lost(seen, seen.rehearsed, "own_probability", accuracy),
        "memory loss": _memory_loss(step, found),
        f"{HELD_OUT} held-out images, accuracy": _lost(seen, held_out, "right", accuracy),
        f"{HELD_OUT} held-out images, probability": _lost(seen, held_out, "own_probability", accuracy),
        "learning speed": np.tile(1 - _learning_speed(store, step), (shares, 1)),
        "LOG-SIM": np.tile(found.measures[4], (shares, 1)),
    }


def with_past_images(seen: Seen, found: MeasuredStep, joint: Values, known: Mapping[int, KnownClass]) -> dict[str, Values]:
    shape = len(seen.epochs), len(found.class_ids)
    accuracy = _accuracies(known, shape[1])

    def placed(values: Values) -> Values:
        """Of complete classes [shares, C] as of all."""
        every = np.full(shape, np.nan)
        if len(values):
            every[:, found.complete] = values
        return every

    coefficients = {name: placed(found.early[:, i]) for i, name in enumerate(("SIC", "CIC", "NIC"))}
    unrehearsed = _lost(seen, ~seen.rehearsed, "right", accuracy)
    return {**coefficients, "joint model": placed(joint), "past images, accuracy": unrehearsed}


def _accuracies(known: Mapping[int, KnownClass], past: int) -> Values:
    """[P]: when learned; NaN of a class that the step before could not hand on."""
    return np.array([known[node].accuracy if node in known else np.nan for node in range(past)])


def recognised_when_learned(store: fs.Store, step: StoredStep) -> dict[int, bool]:
    """By test image of the past classes, whether the step that learned its class recognised it."""
    found: dict[int, bool] = {}
    ancestor = step
    while ancestor.parent is not None:
        ancestor = store.step(ancestor.parent)
        tested = recognised_by(ancestor)
        assert tested is not None
        own = np.isin(tested.true, ancestor.spec.classes)
        found |= dict(zip(tested.image[own].tolist(), tested.right[own].tolist(), strict=True))
    return found


def _judged(
    partition: tuple[str, str, str, int],
    experiment: str,
    found: MeasuredStep,
    seen: Seen,
    scores: Mapping[str, Values],
    halves: Mapping[str, Values],
    learned: Mapping[int, bool],
) -> Judged:
    test = seen.groups["test"]
    was = np.array([learned[image] for image in test.images.tolist()])

    def at(epoch: int) -> Recognised:
        now, counts = seen.right("test", epoch), np.bincount(test.nodes).astype(np.float64)
        shares = (np.bincount(test.nodes, weights=right) / counts for right in (was, now, was & now))
        return Recognised(counts, *shares)

    moments = [at(epoch) for epoch in seen.epochs]
    so_far = np.stack([forgetting(one.learned, one.now) for one in moments])
    # The step's own evaluation saw the same images in other batches: an image in a thousand may be another's by the last bit.
    assert np.nanmax(np.abs(so_far[-1] - found.forgetting) * moments[-1].learned * moments[-1].images) < 1.5
    return Judged(
        partition=partition,
        experiment=experiment,
        forgetting=found.forgetting,
        variances=found.variances,
        true_variance=float(found.noise[2]),
        so_far=so_far,
        so_far_variances=np.stack([sampling_variances(one) for one in moments]),
        scores=scores,
        halves=halves,
    )


def _translated_alone(forecaster: Forecaster, now: NDArray[np.floating], seen: Seen, epoch: int) -> Values:
    """1 - p_now / p_then."""
    weight, bias = seen.heads[epoch]
    found = np.full(len(seen.heads[0][1]), np.nan)
    for node, draws in forecaster.draws(now).items():
        logits = draws @ weight.T + bias
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        found[node] = 1 - (shifted[:, node] / shifted.sum(axis=1)).mean() / forecaster.probabilities[node]
    return found


def _handed_on(known: KnownClass, probability: float, carried: Carried) -> KnownClass:
    there = {"mean": carried.mean, "spread": carried.spread, "error": carried.error}
    return replace(known, **there, probability=probability)


def _held_out(step: StoredStep, seen: Seen) -> NDArray[np.bool_]:
    """Which images of past classes are kept beside the memory. The same in every step: what is not rehearsed once never is."""
    past, streams = seen.groups["past"], Streams(step.spec.seed, 0)
    found = np.zeros(len(past.nodes), bool)
    for node, label in enumerate(step.past_classes("class_id")["class_id"].tolist()):
        own = np.flatnonzero((past.nodes == node) & ~seen.rehearsed)
        found[streams("experiment", f"held out {label}").permutation(own)[:HELD_OUT]] = True
    return found


def _lost(seen: Seen, chosen: NDArray[np.bool_], what: str, accuracy: Values) -> Values:
    """[shares, P]: 1 - mean of what is asked for over the chosen images of each past class / accuracy."""
    nodes = seen.groups["past"].nodes[chosen]
    means = []
    for epoch in seen.epochs:
        values = seen.right("past", epoch) if what == "right" else seen.own_probability("past", epoch)
        means.append(np.bincount(nodes, weights=values[chosen]) / np.bincount(nodes))
    return 1 - np.stack(means) / np.where(accuracy > 0, accuracy, np.nan)


def _memory_loss(step: StoredStep, found: MeasuredStep) -> Values:
    """[shares, P]: at the last probe of each share."""
    table = step.table("probes", ["probe", "class_id", "loss_rehearsal"]).to_pandas()
    by_probe = table.pivot(index="probe", columns="class_id", values="loss_rehearsal")[found.class_ids.tolist()].to_numpy()
    return np.stack([by_probe[probes_within(share, len(by_probe)) - 1] for share in SHARES])


def _learning_speed(store: fs.Store, step: StoredStep) -> Values:
    """[P]: mean accuracy over the epochs of the step that learned a class, on its training images."""
    found: list[float] = []
    while step.parent is not None:
        step = store.step(step.parent)
        found = [*training_accuracy(store, step).mean(axis=0).tolist(), *found]
    return np.array(found)


def accuracies_when_learned(store: fs.Store) -> Iterator[dict[str, object]]:
    """Of each class that a parent of a step learned: on its training images, with each left out, and on images that the network
    has not seen: those that validation set aside, or test images where it set none."""
    parents = set[str]()
    for step in sorted(store.steps(), key=lambda step: step.id):
        if step.parent is None or step.parent in parents:
            continue
        parents.add(step.parent)
        seen, root = seen_by(store, step), store.chain(step.id)[0]
        past, right = seen.groups["past"], recognised_left_out(step, seen)
        unseen = "held" if len(seen.groups["held"].nodes) else "test"
        for node in np.unique(past.nodes[right >= 0]).tolist():
            own = past.nodes == node
            others = seen.right(unseen, 0)[seen.groups[unseen].nodes == node]
            share = float(others.mean())
            yield {
                **{"data": step.info["data"]["name"], "step": step.number - 1, "experiment": root.id, "network": step.parent},
                **{"against": "validation images" if unseen == "held" else "test images", "held out": share},
                **{"training accuracy": float(seen.right("past", 0)[own].mean()), "leave-one-out": float(right[own].mean())},
                "noise": share * (1 - share) / (len(others) - 1),
            }
