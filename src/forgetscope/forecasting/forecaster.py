"""What a step has done to each past class so far, without its images.

A class that was learned with accuracy a, and of which the share r of its images is in memory, is expected to be recognised with

    A = (1 - r) a p_now / p_then + r p_memory,

where p_then and p_now are the head's mean probabilities of the class on features drawn from its keepsake, as they lay when it
was learned and translated to where they would lie now, and p_memory is that on its images in memory. Predicted forgetting is
1 - A / a, with A at most 1: no class is recognised more often than always.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forgetscope.characters import counted
from forgetscope.forecasting.translation import Fitted, deletions, drawn, spread_of
from forgetscope.measuring.keepsakes import FITTED_IMAGES, Carried, Spread

DRAWS = 400  # of a class's features
IMAGES = FITTED_IMAGES
QUANTILE = 1.96
FEWEST = 5  # images that a class was recognised on: of fewer, a is known to no better than a half of itself
LEAST_OF_TRAINING = 0.5  # a, as a share of training accuracy: of a head that has hardly learned, leave-one-out says far less
LEAST_OF_ACCURACY = 0.5  # p_then, and the share of draws that are recognised, of a: a head that knew the class gives more
ROUNDING = 1e-4  # of the features' root mean square: networks that did not move are this close, on any device
UNTRAINED = "nothing has been trained yet: features and the head's rows of past classes are what they were as the step began"

Head = tuple[NDArray[np.floating], NDArray[np.floating]]  # weight [k, d], bias [k]


@dataclass(frozen=True)
class KnownClass:
    """What is known of a past class as a step begins.

    mean and spread are under the network as it is then; probability is p_then, None of a class that this network learned."""

    mean: NDArray[np.floating]
    spread: NDArray[np.floating]
    kind: Spread
    images: int  # that it was learned from
    accuracy: float  # when it was learned, by `leave_one_out`
    probability: float | None = None
    error: float = 0.0  # standard error of its predicted forgetting in steps before
    training_accuracy: float | None = None  # when it was learned; None: not known

    @property
    def unpredictable(self) -> str | None:
        """Why nothing can be said of it: everything is measured in units of a."""
        right, trained = self.accuracy * self.images, self.training_accuracy
        if right <= FEWEST - 0.5:
            return (
                f"it was hardly learned: the network recognised {right:.0f} of its {self.images:,} training images, each "
                f"judged as if left out of training, and a forecast needs {FEWEST}"
            )
        if trained is not None and self.accuracy < LEAST_OF_TRAINING * trained:
            return (
                f"how well it was learned is not known: the network recognised {trained:.0%} of its training images, and "
                f"{self.accuracy:.0%} when each was judged as if left out of training, less than half as many"
            )
        return None


@dataclass(frozen=True)
class Forecasts:
    """Of P past classes [P]; NaN of a class of which nothing is known."""

    nodes: tuple[int, ...]
    forgetting: NDArray[np.float64]
    error: NDArray[np.float64]  # standard error of it; NaN where there are too few classes to tell
    accuracy: NDArray[np.float64]  # expected now
    least: NDArray[np.float64]  # forgetting of a class that is always recognised

    @property
    def low(self) -> NDArray[np.float64]:
        return np.maximum(self.forgetting - QUANTILE * self.error, self.least)

    @property
    def high(self) -> NDArray[np.float64]:
        """Nothing can be forgotten more than wholly."""
        return np.minimum(self.forgetting + QUANTILE * self.error, 1.0)


@dataclass(frozen=True)
class Outlook:
    """What a head says of a step's past classes: its logits on features that stand for them, and on images."""

    known: Mapping[int, KnownClass]  # classes of which something can be told
    then: Mapping[int, float]  # p_then
    shares: Mapping[int, float]  # of the class's images that are in memory
    drawn: Mapping[int, Tensor]  # logits [N, k] of translated draws
    memory: Mapping[int, Tensor]  # logits of images in memory; not of a class without any
    images: Tensor  # logits of new images
    new_nodes: Tensor

    @property
    def size(self) -> int:
        """Logits of an image."""
        return self.images.shape[1]

    @property
    def learned(self) -> dict[int, float]:
        """Accuracy of each known class when it was learned."""
        return {node: one.accuracy for node, one in self.known.items()}

    def accuracy(self, offsets: Mapping[int, float] | None = None) -> dict[int, float]:
        """A of each known class, as the formula has it, above 1 too. offsets: on logits, by node."""
        factors, found = self._vector(offsets).exp() if offsets else None, dict[int, float]()
        for node, one in self.known.items():
            now = self._probability("drawn", node, factors)
            memory = self._probability("memory", node, factors) if node in self.memory else 0.0
            share = self.shares[node] if node in self.memory else 0.0
            found[node] = (1 - share) * one.accuracy * now / self.then[node] + share * memory
        return found

    def forgetting(self, offsets: Mapping[int, float] | None = None) -> dict[int, float]:
        return {node: 1 - value / self.known[node].accuracy for node, value in self.accuracy(offsets).items()}

    def new(self, offsets: Mapping[int, float] | None = None) -> float:
        """Mean probability of the new classes together on new images."""
        odds = torch.softmax(self.images + self._vector(offsets), dim=1)[:, self.new_nodes].sum(dim=1)
        return float(odds.mean())

    def _probability(self, of: Literal["drawn", "memory"], node: int, factors: Tensor | None) -> float:
        """Mean own probability; factors [k]: of the odds. As these are asked for again and again, exponentials are kept."""
        if factors is None:
            return _own_probability((self.drawn if of == "drawn" else self.memory)[node], node)
        odds = self._odds[of][node]
        return float((odds[:, node] * factors[node] / (odds @ factors)).mean())

    @cached_property
    def _odds(self) -> dict[str, dict[int, Tensor]]:
        """Up to a factor of each row."""
        parts = {"drawn": self.drawn, "memory": self.memory}
        return {
            name: {node: (logits - logits.amax(dim=1, keepdim=True)).exp() for node, logits in of.items()}
            for name, of in parts.items()
        }

    def _vector(self, offsets: Mapping[int, float] | None) -> Tensor:
        found = torch.zeros(self.size, dtype=torch.float64)
        for node, offset in (offsets or {}).items():
            found[node] = offset
        return found


class Forecaster:
    """Of one step, made as it begins; asked whenever the network has moved.

    known: by head node, None where nothing is. before [n, d]: features of some images as the step begins; nodes [n] of their
    classes, is_new [n]: whether these are new; retained: images in memory, by node. head: as the step begins. stream: of random
    numbers, by node.

    >>> import numpy as np
    >>> draws = np.random.default_rng(0)
    >>> features, nodes = draws.random((40, 3)), np.arange(40) % 4  # classes 0 and 1 are past, 2 and 3 new
    >>> known = {node: KnownClass(np.eye(3)[node], np.full(3, 0.1), "variance", 100, 0.8) for node in (0, 1)}
    >>> head = np.array([[4.0, 0, 0], [0, 4, 0], [0, 0, 4], [2, 2, 0]]), np.zeros(4)
    >>> forecaster = Forecaster(known, features, nodes, nodes > 1, {0: 10, 1: 10}, head, np.random.default_rng)
    >>> found = forecaster.forecast(features + 1e-3, head)  # hardly anything has moved
    >>> bool((abs(found.forgetting) < 0.1).all()), found.nodes
    (True, (0, 1))
    >>> forecaster.forecast(features, head).forgetting  # and here nothing has been trained
    array([nan, nan])
    """

    def __init__(
        self,
        known: Mapping[int, KnownClass | None],
        before: NDArray[np.floating],
        nodes: NDArray[np.int64],
        is_new: NDArray[np.bool_],
        retained: Mapping[int, int],
        head: Head,
        stream: Callable[[int], np.random.Generator],
    ) -> None:
        self._known = {node: one for node, one in known.items() if one is not None}
        self._nodes, self._retained = tuple(known), retained
        self._fitted = Fitted(
            _double(before), torch.from_numpy(np.asarray(nodes, np.int64)), torch.from_numpy(np.asarray(is_new))
        )
        self._weight, self._bias = map(_double, head)
        self._stream = stream

    @cached_property
    def _draws(self) -> dict[int, Tensor]:
        """Of each known class, as the step begins."""
        found = {}
        for node, one in self._known.items():
            normals = _double(self._stream(node).standard_normal((DRAWS, len(one.mean))))
            features = drawn(one.mean, one.spread, one.kind, self._fitted.root, normals)
            found[node] = features.clamp(min=0) if self._fitted.is_clamped else features
        return found

    @cached_property
    def probabilities(self) -> dict[int, float]:
        """p_then of each known class."""
        found = {node: one.probability for node, one in self._known.items()}
        head = self._weight, self._bias
        return {
            node: _own_probability(_logits(self._draws[node], head), node) if given is None else given
            for node, given in found.items()
        }

    @cached_property
    def missing(self) -> dict[int, str]:
        """Why there is no forecast at any time, of known classes of which there is none."""
        found = {node: why for node, one in self._known.items() if (why := one.unpredictable) is not None}
        return {**self._unrecognised, **self._outnumbered, **found}

    @property
    def _outnumbered(self) -> dict[int, str]:
        """Classes of which the memory has more images than they were learned from: which share it is, nothing tells."""
        return {
            node: f"the memory has {self._retained[node]:,} different images of it, and its keepsake is of {one.images:,}. "
            "Make keepsakes of all images that a class was learned from"
            for node, one in self._known.items()
            if self._retained.get(node, 0) > one.images
        }

    @property
    def handed_on(self) -> dict[int, float]:
        """p_then of the classes that later steps can start from: not what a head gave that does not recognise them."""
        asked = {node for node in self._unrecognised if self._known[node].probability is None}
        return {node: found for node, found in self.probabilities.items() if found > 0 and node not in asked}

    @cached_property
    def _unrecognised(self) -> dict[int, str]:
        """Classes that this head cannot have learned, and why; of all, where that is half of those that can be told.

        Both their probability on draws and how often it is the largest must be far below a: a head that is unsure passes. Of
        older classes nothing tells: by now the head may really have lost them."""
        checked = [node for node, one in self._known.items() if one.probability is None and one.unpredictable is None]
        found = dict[int, str]()
        for node in checked:
            learned, head = self._known[node].accuracy, (self._weight, self._bias)
            right = float((_logits(self._draws[node], head).argmax(dim=1) == node).double().mean())
            if max(right, self.probabilities[node]) < LEAST_OF_ACCURACY * learned:
                found[node] = (
                    f"the head does not recognise it: as the step begins it takes {right:.0%} of what its keepsake stands for "
                    f"as this class, and {learned:.0%} of its images were recognised when it was learned. Another head, or "
                    "rows in another order?"
                )
        if not found or 2 * len(found) < len(checked):
            return found
        of = f"{len(found)} of {counted(len(checked), 'class')}"
        why = f"the head does not recognise {of} that the step before learned. Another head, or rows in another order?"
        return {**dict.fromkeys(self._known, why), **found}

    def is_untrained(self, now: NDArray[np.floating], head: Head) -> bool:
        """Whether nothing tells yet what the step's training does: what the new nodes take before they were trained says
        nothing of it. Features may differ by rounding, a head's rows by nothing."""
        before, rows = self._fitted.before, len(self._bias)
        close = ROUNDING * float(before.square().mean().sqrt())
        same_head = torch.equal(_double(head[0])[:rows], self._weight) and torch.equal(_double(head[1])[:rows], self._bias)
        return same_head and bool(((_double(now) - before).abs() <= close).all())

    def outlook(self, now: NDArray[np.floating], head: Head) -> Outlook:
        """now [n, d]: the features of the same images, in the same order; head: as it is now."""
        features = _double(now)
        found = self._outlook(features, self._fitted.translation(features), (_double(head[0]), _double(head[1])))
        return replace(found, known={}) if self.is_untrained(now, head) else found

    def forecast(self, now: NDArray[np.floating], head: Head) -> Forecasts:
        """now [n, d]: the features of the same images, in the same order; head: as it is now."""
        outlook = self.outlook(now, head)
        forgetting = outlook.forgetting()
        errors = self._errors(_double(now), outlook, head, forgetting)
        least = {node: 1 - 1 / self._known[node].accuracy for node in forgetting}
        bounded = {node: max(value, least[node]) for node, value in forgetting.items()}
        parts = bounded, errors, {node: min(value, 1.0) for node, value in outlook.accuracy().items()}, least
        return Forecasts(self._nodes, *(np.array([part.get(node, np.nan) for node in self._nodes]) for part in parts))

    def draws(self, now: NDArray[np.floating]) -> dict[int, NDArray[np.float64]]:
        """Features [N, d] that stand for each known class's images outside the memory, where they would lie now."""
        translation = self._fitted.translation(_double(now))
        return {node: self._fitted.translated(draws, translation).numpy() for node, draws in self._draws.items()}

    def carried(self, now: NDArray[np.floating], head: Head) -> dict[int, Carried]:
        """What the next step starts from, of each known class. now and head: as of `forecast`, when the step ends."""
        features, weights = _double(now), (_double(head[0]), _double(head[1]))
        outlook = self._outlook(features, self._fitted.translation(features), weights)
        errors, found = self._errors(features, outlook, head, outlook.forgetting()), {}
        for node, draws in self.draws(now).items():
            mean, spread = draws.mean(axis=0), spread_of(_double(draws), self._known[node].kind)
            found[node] = Carried(mean.astype(np.float32), spread.astype(np.float32), errors.get(node, np.nan))
        return found

    def _outlook(self, now: Tensor, translation: Tensor, head: tuple[Tensor, Tensor]) -> Outlook:
        fitted = self._fitted
        in_memory = {node: (fitted.nodes == node) & ~fitted.is_new for node in self._known}
        return Outlook(
            known={node: one for node, one in self._known.items() if node not in self.missing},
            then=self.probabilities,
            shares={node: self._retained.get(node, 0) / one.images for node, one in self._known.items()},
            drawn={node: _logits(fitted.translated(draws, translation), head) for node, draws in self._draws.items()},
            memory={node: _logits(now[images], head) for node, images in in_memory.items() if images.any()},
            images=_logits(now[fitted.is_new], head),
            new_nodes=torch.unique(fitted.nodes[fitted.is_new]),
        )

    def _errors(self, now: Tensor, outlook: Outlook, head: Head, forgetting: Mapping[int, float]) -> dict[int, float]:
        """By a jackknife over the classes that the translation is fitted on: it is used for images of classes that it has seen
        few of. A class's own images are never left out, because in truth they never are."""
        if not forgetting:
            return {}
        parts, weights = deletions(self._fitted), (_double(head[0]), _double(head[1]))
        squares = {node: self._known[node].error ** 2 + self._error_of_accuracy(outlook, node) ** 2 for node in forgetting}
        for part in parts:
            translation = self._fitted.translation(now, part.images)
            asked = {node: one for node, one in outlook.known.items() if node not in part.nodes}
            drawn = {n: _logits(self._fitted.translated(self._draws[n], translation), weights) for n in asked}
            without = replace(outlook, known=asked, drawn=drawn).forgetting()
            for node, value in without.items():
                squares[node] += (1 - 1 / part.parts) * (value - forgetting[node]) ** 2
        return {node: square**0.5 if parts else np.nan for node, square in squares.items()}

    def _error_of_accuracy(self, outlook: Outlook, node: int) -> float:
        """What counting a class's own images leaves unknown of a, and so of the memory's part r p_memory / a. Later steps are
        handed this on."""
        one = self._known[node]
        if one.probability is not None or node not in outlook.memory:
            return 0.0
        part = outlook.shares[node] * _own_probability(outlook.memory[node], node) / one.accuracy
        return float(part * ((1 - one.accuracy) / (one.accuracy * one.images)) ** 0.5)


def _logits(features: Tensor, head: tuple[Tensor, Tensor]) -> Tensor:
    return features @ head[0].T + head[1]


def _own_probability(logits: Tensor, node: int) -> float:
    """Of this node, mean over images."""
    return float(torch.softmax(logits, dim=1)[:, node].mean())


def _double(array: NDArray[np.floating]) -> Tensor:
    """A copy of its own: how numpy places arrays in memory would change the last bits of products."""
    return torch.tensor(np.asarray(array, np.float64))
