"""Forgetting predicted during a step without past images: from keepsakes, memory and new images alone.

The training cannot tell, and no test image is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forgetscope.calibrating.evening import Evening, Level, evening_from_keepsakes
from forgetscope.experiment.preparation import Prepared, training_set
from forgetscope.forecasting.forecaster import IMAGES, UNTRAINED, Forecaster, KnownClass
from forgetscope.forecasting.stand_ins import SeenImages, estimated_terms
from forgetscope.learning.networks import head_of
from forgetscope.measuring.heads import feeding, plain_last_layer
from forgetscope.measuring.keepsakes import Carried, Keepsake
from forgetscope.measuring.probe_data import batch_for
from forgetscope.measuring.quantities import ESTIMATES, FORECAST
from forgetscope.measuring.watching import undisturbed

UNKNOWN = "the step before has no keepsake of it"


class StepForecast:
    """Of one step: made before it trains, asked at its probes and when it ends.

    known: what is known of each past class as the step begins, by head node; None where nothing is."""

    def __init__(self, step: Prepared) -> None:
        self.seconds, self._step = 0.0, step
        with self._timed():
            self.known = _known(step)
            self._images, nodes = _looked_at(step)
            self._nodes, past = torch.from_numpy(nodes), len(step.past)
            before, (weight, bias) = self._features(), head_of(step.network)
            if not np.isfinite(before).all():
                self.known = dict.fromkeys(self.known)
            self._kept = {node: len(images) for node, images in enumerate(step.rehearsal.values())}
            self._forecaster = Forecaster(
                self.known,
                before,
                nodes,
                nodes >= past,
                self._kept,
                (weight[:past], bias[:past]),  # as the parent left it
                lambda node: step.streams("forecast", step.past[node]),
            )
            self._is_possible = any(one is not None for one in self.known.values())
            self._handed_on = self._forecaster.handed_on if self._is_possible else {}

    @property
    def keepsakes(self) -> dict[int, Keepsake | None]:
        """Those of the step, with what later steps need for a forecast."""
        found = {self._step.past[node]: probability for node, probability in self._handed_on.items()}
        return {
            label: None if one is None else replace(one, probability=found.get(label, one.probability))
            for label, one in self._step.keepsakes.items()
        }

    def missing(self, probes: Sequence[Tensor]) -> list[str | None]:
        """Why there is no forecast at the last of these probes, of each past class."""
        always = self._forecaster.missing if self._is_possible else {}
        untrained = UNTRAINED if probes and not probes[-1][0].isfinite().any() else None
        why = [UNKNOWN if one is None else always.get(node, untrained) for node, one in self.known.items()]
        return [None if reason is None else f"no forecast: {reason}" for reason in why]

    def measure(self) -> Tensor:
        """[forecast, P], now."""
        with self._timed():
            now, values = self._features(), np.full((len(FORECAST), len(self.known)), np.nan)
            if self._is_possible and np.isfinite(now).all():
                found = self._forecaster.forecast(now, head_of(self._step.network))
                values = np.stack([found.forgetting, found.low, found.high, *self._estimates(now)])
            return torch.from_numpy(np.where(np.isfinite(values), values, np.nan))

    def evening(self, strength: float, shrinkage: float | None, level: Level) -> Evening:
        """Offsets on past classes, now."""
        with self._timed():
            return evening_from_keepsakes(
                self._forecaster,
                self._features(),
                head_of(self._step.network),
                strength=strength,
                shrinkage=shrinkage,
                level=level,
            )

    def carried(self) -> dict[int, Carried | None]:
        """What the next step starts from, by past class; None where nothing is known."""
        found: dict[int, Carried | None] = dict.fromkeys(self._step.past)
        with self._timed():
            now = self._features()
            if self._is_possible and np.isfinite(now).all():
                for node, one in self._forecaster.carried(now, head_of(self._step.network)).items():
                    if np.isfinite(one.mean).all() and np.isfinite(one.spread).all():
                        found[self._step.past[node]] = one
        return found

    def _estimates(self, now: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The coefficients' terms with draws in place of a class's images outside the memory."""
        step = self._step
        images = {node: len(step.images_of[label]) for node, label in enumerate(step.classes)}
        new = {node: count for node, count in images.items() if node not in self._kept}
        rest = {node: images[node] - count for node, count in self._kept.items()}
        draws = {node: torch.from_numpy(features) for node, features in self._forecaster.draws(now).items()}
        weight, bias = map(torch.from_numpy, head_of(step.network))
        assert step.spec.rehearsal is not None
        seen = SeenImages(torch.from_numpy(now), self._nodes, self._kept, new, rest)
        terms = estimated_terms(seen, draws, weight, bias, step.spec.rehearsal.alpha)
        return [getattr(terms, name.removesuffix("_estimate")).numpy() for name in ESTIMATES]

    def _features(self) -> NDArray[np.float64]:
        """[n, d] of the images that it looks at, in evaluation mode; the network is left as it was."""
        network, normalise = self._step.network, self._step.normalise
        with undisturbed(network), feeding(plain_last_layer(network), normalise(self._images[:8])) as features:
            parts = [features(normalise(part))[0].cpu() for part in torch.split(self._images, batch_for(self._images))]
        return torch.cat(parts).double().numpy()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self.seconds += time.monotonic() - begin


def _looked_at(step: Prepared) -> tuple[Tensor, NDArray[np.int64]]:
    """At most so many images of each class as a translation is fitted on, of the memory and of new classes; and their nodes.

    The choice is a stream's of its own: nothing else that a step does depends on it, or it on anything else."""
    of = {**step.rehearsal, **{label: step.images_of[label] for label in step.spec.classes}}
    some = {
        label: np.sort(images[step.streams("forecast-images", label).permutation(len(images))[:IMAGES]])
        for label, images in of.items()
    }
    found = training_set(step.data.train, some, 0, step.normalise.mean.device)
    return found.images, found.nodes.cpu().numpy()


def _known(step: Prepared) -> Mapping[int, KnownClass | None]:
    """By head node. Of what the parent learned its features are known; of older classes where they were carried to."""
    assert step.inherited is not None
    assert step.spec.rehearsal is not None
    assert step.spec.rehearsal.keepsake is not None
    found: dict[int, KnownClass | None] = dict.fromkeys(range(len(step.past)))
    for node, label in enumerate(step.past):
        kept, kind = step.keepsakes[label], step.spec.rehearsal.keepsake
        if kept is None or kept.accuracy is None or kept.mean is None or kept.spread is None:
            continue
        if label in step.inherited.learned_last:
            facts = kept.mean, kept.spread, kind, kept.images, kept.accuracy
            found[node] = KnownClass(*facts, training_accuracy=kept.training_accuracy)
        elif (there := step.inherited.carried[label]) is not None and kept.probability is not None:
            then = kept.probability, there.error, kept.training_accuracy
            found[node] = KnownClass(there.mean, there.spread, kind, kept.images, kept.accuracy, *then)
    return found
