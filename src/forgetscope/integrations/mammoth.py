"""Mammoth: `observe(model, "results")` after the model was made. It is a repository, and nothing of it is imported.

It has no callbacks, so the model's own methods for tasks, epochs and batches are wrapped, on this object alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from forgetscope.integrations.following import Follower, epochs_of
from forgetscope.integrations.losses import Loss, asymmetric_loss, own_loss, weighed_alike

BATCH = 64  # images that are measured at a time


def observe(
    model: Any,
    store: str | Path,
    name: str | None = None,
    *,
    alpha: float | None = None,
    keep_past: bool = True,
    **options: Any,
) -> Any:
    """Observes every task that a `ContinualModel` trains on, and gives the monitor.

    keep_past: the training data of earlier tasks, which Mammoth lets go, are kept in memory, to be measured on; else SIC and
    CIC are unknown. alpha is counted from the batches and what is drawn from the buffer for them, unless it is given.
    """
    observed = _ObservedModel(model, Follower("mammoth", store, name, **options), alpha, keep_past)
    return observed.follower.monitor


class _ObservedModel:
    def __init__(self, model: Any, follower: Follower, alpha: float | None, keep_past: bool) -> None:
        self.model, self.follower, self.alpha, self.keep_past = model, follower, alpha, keep_past
        self.earlier: list[Any] = []  # training data of earlier tasks
        self.drawn: list[Tensor] = []  # labels from the buffer for the batch that is trained on
        for name, then in {
            "meta_begin_task": self.begin,
            "meta_end_epoch": self.epoch_ended,
            "meta_end_task": self.end,
        }.items():
            setattr(model, name, self._followed(getattr(model, name), then))
        model.meta_observe = self._observed(model.meta_observe)

    def _followed(self, method: Callable[..., Any], then: Callable[..., None]) -> Callable[..., Any]:
        @wraps(method)
        def followed(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            with self.follower.unharmed():
                then(*args, **kwargs)
            return result

        return followed

    def _observed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def observed(inputs: Tensor, labels: Tensor, *args: Any, **kwargs: Any) -> Any:
            self.drawn.clear()
            result = method(inputs, labels, *args, **kwargs)
            with self.follower.unharmed():
                if self.drawn:
                    self.follower.batch(self._labels(labels[labels >= 0]))  # -1: unlabelled, not trained on
            return result

        return observed

    def _labels(self, labels: Tensor) -> Tensor:
        """In proportion to their part in the loss: ER-ACE adds two means."""
        replayed = torch.cat([drawn.to(labels.device) for drawn in self.drawn])
        return weighed_alike(labels, replayed) if _is_ace(self.model) else torch.cat([labels, replayed])

    def begin(self, dataset: Any) -> None:
        model, known = self.model, self.model.n_past_classes
        buffer = getattr(model, "buffer", None)
        if buffer is not None and not hasattr(buffer.get_data, "__wrapped__"):
            buffer.get_data = self._noting(buffer, buffer.get_data)
        normalise = dataset.get_normalization_transform() or (lambda images: images)
        stored = known and buffer is not None and not buffer.is_empty()
        self.follower.begin(
            model.net,
            past=partial(_unaugmented, list(self.earlier), normalise) if known and self.earlier else None,
            memory=_stored(buffer, known, normalise) if stored else None,
            new=partial(_unaugmented, [dataset.train_loader.dataset], normalise),
            alpha=self.alpha,
            loss=self._loss(known) if known else None,
            past_classes=range(known),
            epochs=epochs_of(getattr(getattr(model, "args", None), "n_epochs", None)),
        )

    def _loss(self, known: int) -> Loss | None:
        model = self.model
        if not _is_ace(model):
            return own_loss(model.loss)
        return asymmetric_loss(range(known), range(known, model.num_classes), partial(_share_of_new, model.buffer, known))

    def epoch_ended(self, *_args: Any, **_kwargs: Any) -> None:
        self.follower.epoch_ended()

    def end(self, dataset: Any) -> None:
        if self.keep_past:
            self.earlier.append(dataset.train_loader.dataset)
        self.follower.evaluate(partial(_tested, list(dataset.test_loaders)))
        self.follower.end()

    def _noting(self, buffer: Any, get_data: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(get_data)
        def noting(*args: Any, **kwargs: Any) -> Any:
            result = get_data(*args, **kwargs)
            with self.follower.unharmed():
                if hasattr(buffer, "labels"):
                    before = sum(bool(kwargs.get(option)) for option in ("return_index", "return_not_aug"))
                    self.drawn.append(result[before + 1].detach())
            return result

        return noting


def _share_of_new(buffer: Any, known: int) -> float:
    """Of what the buffer holds now."""
    return 0.0 if buffer.is_empty() else float((buffer.get_all_data()[1] >= known).double().mean())


def _is_ace(model: Any) -> bool:
    return getattr(model, "NAME", "") == "er_ace"


def _unaugmented(datasets: list[Any], normalise: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Training images as they are evaluated: the third of an item is the image without augmentation, not normalised."""
    for dataset in datasets:
        for _, labels, images, *_ in DataLoader(dataset, batch_size=BATCH):
            yield normalise(images), labels


def _stored(buffer: Any, known: int, normalise: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor] | None:
    """What the buffer holds of past classes now, when the task begins: a reservoir takes in current ones while it lasts."""
    images, labels, *_ = buffer.get_all_data()
    past = labels < known
    return (normalise(images[past]), labels[past]) if bool(past.any()) else None


def _tested(loaders: list[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    for loader in loaders:
        for inputs, labels, *_ in loader:
            yield inputs, labels
