"""The lemma against training: one-step changes of past classes' losses over many draws, at several iterates of a real step.

Data, class sequence, rehearsal policy, training and draws are the package's own; the network is a small smooth one. The step is
the second of a two-step run under plain R-SGD, trained in float32 as always; everything is measured in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from forgetscope.data.images import DataSet
from forgetscope.data.library import load_data
from forgetscope.data.preprocessing import Normalisation
from forgetscope.errors import Diverged, SpecError
from forgetscope.experiment.preparation import Inherited, assemble, training_set
from forgetscope.experiment.settings import choose_settings
from forgetscope.learning import rsgd
from forgetscope.learning.networks import SmoothNetwork
from forgetscope.learning.plugins import load_all, source_digests
from forgetscope.learning.sampling import iterations_per_epoch
from forgetscope.lemma.smoothness import certified_smoothness, largest_curvature
from forgetscope.lemma.terms import Changes, Gradients, Images, exact_gradients, lemma_terms, one_step_changes
from forgetscope.outputs import Note, Progress, unheard
from forgetscope.randomness import Streams
from forgetscope.scenario import sequence_of
from forgetscope.spec import RunSpec, StepSpec, step_specs

DEFAULTS = {"image_size": 16, "retention": 0.2, "epochs": 100, "learning_rate": 0.5}
PLAIN = {  # what the lemma is about; with anything else the update would be another one
    **{"steps": 2, "sampling": "iid", "crop": 0, "flip": False, "precision": "float32", "method": "replay"},
    **dict.fromkeys(("momentum", "weight_decay", "brightness", "validation"), 0.0),
}
ALONG = (0.0, 0.5, 1.0)  # of the expected update: where the curvature is estimated


@dataclass(frozen=True)
class LemmaCheck:
    """A two-step run, its network's tanh units (0: a linear softmax model), training images per class, draws per iterate."""

    run: RunSpec
    hidden: int = 32
    images: int = 100
    draws: int = 200

    @classmethod
    def of(cls, options: Mapping[str, object], **sizes: int) -> LemmaCheck:
        """From options of a run; those that are the lemma's own conditions cannot be changed."""
        for name in PLAIN.keys() & options.keys():
            if options[name] != PLAIN[name]:
                raise SpecError(f"{name} = {options[name]!r}: the lemma needs {name} = {PLAIN[name]!r}. Leave it out.")
        if "network" in options:
            raise SpecError(f"network = {options['network']!r}: the lemma needs a smooth one. Set its size with --hidden.")
        drawn = "sequence" not in options
        run = RunSpec(**{**DEFAULTS, **{name: value for name, value in PLAIN.items() if name != "steps" or drawn}, **options})
        if run.sequence is not None and len(run.sequence) != 2:
            raise SpecError(f"The lemma is checked in the second of two steps; sequence has {len(run.sequence)}.")
        return cls(run, **sizes)


def check_lemma(
    check: LemmaCheck, *, threads: int | None = None, note: Note = unheard, progress: Progress = unheard
) -> pd.DataFrame:
    """One row per iterate and past class. `docs/lemma.md` describes the columns."""
    with choose_settings("cpu", threads).applied():
        data, epochs = load_data(check.run.dataset, check.run.image_size, note), check.run.epochs
        step = _SecondStep(check, data, lambda epoch: progress("epochs of the first step", epoch, epochs))
        iterates = sorted({0, 1, epochs // 4, epochs // 2, epochs * 3 // 4} - {epochs})  # at the end the learning rate is 0
        total, done, rows, draws = len(iterates) * check.draws, count(1), [], step.draws()
        progress("draws", 0, total)
        for epoch in step.training():
            if epoch in iterates:
                rows += step.measure(epoch, islice(draws, check.draws), lambda: progress("draws", next(done), total))
    return pd.DataFrame(rows)


class _SecondStep:
    """First step learned, rehearsal chosen, head grown: ready to be trained."""

    def __init__(self, check: LemmaCheck, data: DataSet, on_epoch: Callable[[int], None]) -> None:
        run, data = check.run, replace(data, train=data.train.first(check.images, range(len(data.classes))))
        sources = source_digests((run.policy,))
        first, second = step_specs(run, sequence_of(run, len(data.classes)), data.augmentation, sources)
        load_all(sources)
        normalise = Normalisation.of(data, channels_last=False, by=first.training.normalisation)
        streams = Streams(run.seed, 1)
        images_of = {label: np.flatnonzero(data.train.labels == label) for label in (*first.classes, *second.classes)}
        past = {label: images_of[label] for label in first.classes}
        network = SmoothNetwork(data.shape, check.hidden, len(past), streams("network"))
        learned = training_set(data.train, past, 0, torch.device("cpu"))
        for epoch in _train(network, first, learned, None, normalise, streams):
            on_epoch(epoch)
        self._step = assemble(second, "smooth", network, data, normalise, Inherited.of_first_step(past), images_of)
        assert self._step.objective.memory is not None  # a second step has one
        self._network, self._new, self._full, self._rehearsal = (
            network,
            self._step.new_set,
            learned,
            self._step.objective.memory,
        )

    def training(self) -> Iterator[int]:
        """Train, yielding the number of epochs done, from 0 on."""
        yield 0
        step = self._step
        yield from _train(self._network, step.spec, step.new_set, step.objective.memory, step.normalise, step.streams)

    def draws(self) -> Iterator[Images]:
        """Endless batches as training draws them, from epochs after its last: it never sees these."""
        parts, training = (self._new, self._rehearsal), self._step.spec.training
        inputs = [self._inputs(part) for part in parts]
        for epoch in count(training.epochs):
            for drawn in rsgd.epoch_batches(*parts, training, self._alpha, self._step.streams, epoch):
                yield tuple(  # type: ignore[misc]
                    torch.cat([part[which][positions] for part, positions in zip(inputs, drawn, strict=True)])
                    for which in (0, 1)
                )

    def measure(self, epoch: int, draws: Iterator[Images], on_draw: Callable[[], None]) -> list[dict[str, object]]:
        """A row per past class at the iterate that training has reached."""
        training, data = self._step.spec.training, self._step.data
        rate, network = rsgd.learning_rate_at(epoch, training), copy.deepcopy(self._network).double().eval()
        full, rehearsed = (self._by_class(part) for part in (self._full, self._rehearsal))
        kept = round(self._alpha * training.batch)
        exact = exact_gradients(network, full, rehearsed, self._inputs(self._new), (kept, training.batch - kept))
        changes = one_step_changes(network, full, draws, rate, on_draw)
        smoothness = {
            "every": _certified(network, full, rate * exact.longest),
            "made": _certified(network, full, rate * float(changes.squares.max().sqrt())),
            "estimated": _estimated(network, full, rate * exact.expected),
        }
        columns = _columns(exact, changes, rate, smoothness)
        iteration = epoch * iterations_per_epoch(len(self._new.nodes), training.batch - kept)
        return [
            {"epoch": epoch, "iteration": iteration, "learning_rate": rate}
            | {"class_id": label, "class_name": data.classes[label], "draws": len(changes.squares)}
            | {name: float(values[node]) for name, values in columns.items()}
            for node, label in enumerate(self._step.past)
        ]

    @property
    def _alpha(self) -> float:
        assert self._step.spec.rehearsal is not None  # a second step has one
        return self._step.spec.rehearsal.alpha

    def _inputs(self, part: rsgd.TrainingSet) -> Images:
        return self._step.normalise(part.images).double(), part.nodes

    def _by_class(self, part: rsgd.TrainingSet) -> list[Images]:
        sizes: list[int] = part.class_sizes.tolist()
        inputs, nodes = self._inputs(part)
        return list(zip(torch.split(inputs, sizes), torch.split(nodes, sizes), strict=True))


def _train(
    network: nn.Module,
    spec: StepSpec,
    new: rsgd.TrainingSet,
    rehearsal: rsgd.TrainingSet | None,
    normalise: Normalisation,
    streams: Streams,
) -> Iterator[int]:
    alpha, optimiser = spec.rehearsal.alpha if spec.rehearsal else 0.0, rsgd.make_optimiser(network, spec.training)
    for end in rsgd.train_step(network, optimiser, new, rehearsal, normalise, spec.training, alpha, streams):
        if isinstance(end, rsgd.Divergence):
            raise Diverged(f"Step {spec.step} diverged at iteration {end.iteration}. Use a smaller learning_rate.")
        yield end.epoch


def _certified(network: SmoothNetwork, full: Sequence[Images], radius: float) -> Tensor:
    hidden = None if network.hidden is None else _matrix(network.hidden)
    inputs = ((network.unit_inputs(images), int(nodes[0])) for images, nodes in full)
    found = [certified_smoothness(images, node, hidden, _matrix(network.head), radius) for images, node in inputs]
    return torch.tensor(found, dtype=torch.float64)


def _matrix(layer: nn.Linear) -> Tensor:
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()


def _estimated(network: nn.Module, full: Sequence[Images], update: Tensor) -> Tensor:
    """The largest curvature found on the way of the expected update [P]."""
    start, found = parameters_to_vector(network.parameters()).detach(), []
    for share in ALONG:
        vector_to_parameters(start - share * update, network.parameters())
        found.append(torch.tensor([largest_curvature(network, *part) for part in full], dtype=torch.float64))
    vector_to_parameters(start, network.parameters())
    return torch.stack(found).amax(dim=0)


def _columns(exact: Gradients, changes: Changes, rate: float, smoothness: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each [P]. What a draw does beyond first order varies little, and the expectation of the first order is known exactly; so
    their sum has a far smaller error than the plain mean."""
    bounds = {name: lemma_terms(exact, rate, values) for name, values in smoothness.items()}
    terms, root = bounds["every"], len(changes.squares) ** 0.5
    beyond = changes.change - changes.first_order  # [draws, P]
    off = changes.first_order.mean(dim=0) - terms.first_order
    allowed = rate**2 / 2 * smoothness["made"] * changes.squares[:, None]
    return {
        "gradient_norm": exact.full.norm(dim=1),
        "change": terms.first_order + beyond.mean(dim=0),
        "change_error": beyond.std(dim=0) / root,
        "plain_change": changes.change.mean(dim=0),
        "plain_change_error": changes.change.std(dim=0) / root,
        "first_order_deviation": off / (changes.first_order.std(dim=0) / root),
        **{name: getattr(terms, name) for name in ("descent", "sic", "cic", "nic", "fourth", "first_order")},
        "squared_gradient": torch.full_like(terms.sic, exact.squared),
        "noise_share": torch.full_like(terms.sic, exact.noise / exact.squared),
        **{f"smoothness_{name}": values for name, values in smoothness.items()},
        "smoothness_needed": beyond.mean(dim=0) * 2 / (rate**2 * exact.squared),
        **{f"curvature_{name}": bound.curvature for name, bound in bounds.items()},
        **{f"bound_{name}": bound.bound for name, bound in bounds.items()},
        "draws_above": (beyond > allowed).sum(dim=0),
    }
