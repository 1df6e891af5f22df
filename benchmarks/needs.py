"""What each predictor of forgetting needs, on one step: a part of `forecast.py`.

Bytes are counted; seconds are those of one core, without what else runs on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

import forgetscope as fs
from forgetscope.forecasting.forecaster import KnownClass
from forgetscope.measuring.keepsakes import spread_length
from forgetscope.measuring.measurement import ProbeData, measure
from forgetscope.store import StoredStep
from predictors import HELD_OUT, KINDS, forecaster_of, learned_last
from seen import Seen, features_of, images_of, kept_network, opened_data, seen_by

NUMBERS = 5  # of a class, besides mean and spread: images, accuracy, p_then, error, and when it was learned
REPEATS = 5


def needs(store: fs.Store, step: StoredStep) -> Iterator[tuple[str, str, str, str, str]]:
    """Predictor, past images, other data, bytes per class and seconds for one answer."""
    seen, (data, normalise) = seen_by(store, step), opened_data(step)
    network = kept_network(store, step, seen.epochs[-1])
    past, (new, new_nodes) = seen.groups["past"], images_of(step, data, step.spec.classes)
    image, width = data.train.images[0].nbytes, past.features[0].shape[1]
    kept = int(seen.rehearsed.sum()) // len(np.unique(past.nodes))

    def passing(images: np.ndarray) -> Callable[[], object]:
        return lambda: features_of(network, normalise, data.train.images[images])

    memory, held_out = past.images[seen.rehearsed], past.images[~seen.rehearsed][: HELD_OUT * len(np.unique(past.nodes))]
    for kind in KINDS:
        known = learned_last(step, seen, kind)
        forecast = _forecast(store, step, seen, known)
        bytes_ = 4 * (width + spread_length(kind, width) + NUMBERS)
        yield f"forecast ({kind})", "no", "memory, new images", f"{bytes_:,}", _seconds(forecast)
    yield "memory, own probability", "no", "memory", "4", _seconds(passing(memory))
    yield "memory loss", "no", "memory", "0", _seconds(passing(memory))
    yield f"{HELD_OUT} held-out images", "no", "", f"{HELD_OUT * image + 4:,}", _seconds(passing(held_out))
    yield "learning speed", "no", "", "4", f"{_seconds(passing(new))} after each epoch that learned it"
    yield "LOG-SIM", "no", "new images", "0", f"{_seconds(passing(new))} once, before training"
    images = [torch.from_numpy(data.train.images[chosen]) for chosen in (past.images, new)]
    nodes = [torch.from_numpy(chosen) for chosen in (past.nodes, new_nodes + past.nodes.max() + 1)]
    probe = ProbeData(images[0], nodes[0], torch.from_numpy(seen.rehearsed), images[1], nodes[1], 0.5, prepare=normalise)
    all_of_it = f"{image * len(past.nodes) // len(np.unique(past.nodes)):,}"
    each = _seconds(lambda: measure(network, probe, trusted=True))
    yield "SIC, CIC, NIC", "all", "memory, new images", all_of_it, f"{each} at each probe of the sum"
    yield "joint model", "all", "memory, new images, forgetting in other runs", all_of_it, f"{each} at each probe of the sum"
    yield (
        "past images, accuracy",
        "all",
        "",
        f"{int(all_of_it.replace(',', '')) + 4:,}",
        _seconds(passing(past.images[~seen.rehearsed])),
    )
    yield "", "", f"(the memory itself: {kept} images of a class)", f"({kept * image:,})", ""


def _forecast(store: fs.Store, step: StoredStep, seen: Seen, known: dict[int, KnownClass]) -> Callable[[], object]:
    """With the pass over the images that it looks at."""
    forecaster, _, memory = forecaster_of(step, seen, known)
    data, normalise = opened_data(step)
    network, epoch = kept_network(store, step, seen.epochs[-1]), seen.epochs[-1]
    images = np.concatenate([seen.groups["past"].images[memory], seen.groups["new"].images])

    def once() -> object:
        return forecaster.forecast(features_of(network, normalise, data.train.images[images]), seen.heads[epoch])

    return once


def _seconds(work: Callable[[], object]) -> str:
    """The least of a few: what else runs only adds."""
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return f"{min(times):.2f}"
