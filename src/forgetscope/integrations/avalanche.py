"""Avalanche 0.6: a plugin, one line among a strategy's.

Hooks are found by name and nothing of Avalanche is imported, so that this works with strategies of one's own too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset

from forgetscope.integrations.following import Follower, Following, HeadOf, epochs_of
from forgetscope.integrations.losses import Loss, asymmetric_loss, own_loss, weighed_alike


class Forgetscope(Following):
    """Observes every experience that a strategy trains on: `plugins=[Forgetscope("results"), ...]`.

    store: a folder. name: of this training in the store, by default the time; the same name continues. test: a stream, a list
    of experiences or a data set, where the benchmark's test stream cannot be reached from its experiences. alpha: counted from
    the batches, unless it is given. head: a function of the model, where its last layer is not found. The rest is as for
    `fs.Monitor`.

    The past training images come from the earlier experiences of the benchmark's stream; where it does not hand them out, SIC
    and CIC are unknown. All data are passed over as for evaluation, without augmentation.

    >>> plugin = Forgetscope("results", "cifar", settings={"strategy": "replay"})
    >>> plugin.monitor.name
    'cifar'
    """

    supports_distributed = False

    def __init__(
        self,
        store: str | Path,
        name: str | None = None,
        *,
        test: Any = None,
        alpha: float | None = None,
        head: HeadOf | None = None,
        **options: Any,
    ) -> None:
        super().__init__(Follower("avalanche", store, name, **options))
        self._tests, self._alpha, self._head = test, alpha, head
        self._trained: set[int] = set()  # classes so far, where the benchmark does not tell
        self._misses_test = False  # and has said so

    def before_training_exp(self, strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        with self._follower.unharmed():
            new = strategy.experience.dataset
            current = _classes(new)
            before = self._classes_before(strategy.experience) - current
            buffer = _buffer(strategy)
            memory = _only(buffer, before)
            self._follower.begin(
                strategy.model,
                past=_joined(_earlier(strategy.experience), before),
                memory=memory,
                new=new.eval(),
                alpha=self._alpha,
                loss=_loss(strategy, buffer, memory, before, current),
                past_classes=before,
                head_of=self._head,
                epochs=epochs_of(getattr(strategy, "train_epochs", None)),
            )

    def before_backward(self, strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        with self._follower.unharmed():
            self._follower.batch(_labels(strategy))

    after_training_epoch = Following._epoch_ended

    def after_training_exp(self, strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        with self._follower.unharmed():
            seen = self._classes_before(strategy.experience) | _classes(strategy.experience.dataset)
            self._trained |= seen
            self._test = _joined(self._test_data(strategy), seen)
            if self._test is None and not self._misses_test:
                self._misses_test = True
                self._follower.say(
                    "There are no test images of the classes seen so far, so accuracies and forgetting are missing. Pass "
                    "test=benchmark.test_stream, or strategy.train(experience, eval_streams=[benchmark.test_stream])."
                )
        self._ended()

    def _classes_before(self, experience: Any) -> set[int]:
        told = getattr(experience, "previous_classes", None)
        return {int(label) for label in self._trained if told is None} | {int(label) for label in told or ()}

    def _test_data(self, strategy: Any) -> list[Any] | None:
        """Of `test`, of the benchmark, or of the streams that `strategy.train` was told to evaluate on."""
        given = self._tests
        if given is None:
            stream = strategy.experience.origin_stream
            benchmark = getattr(stream, "benchmark", None)
            given = getattr(benchmark, "test_stream", None)
            evaluated = [e for group in strategy._eval_streams or [] for e in group if e.origin_stream.name != stream.name]
            given = given or evaluated or None
        if given is None:
            return None
        experiences = [given] if hasattr(given, "dataset") or hasattr(given, "targets") else list(given)
        return [getattr(experience, "dataset", experience) for experience in experiences]


def _earlier(experience: Any) -> list[Any] | None:
    """The training data of the experiences before this one; None where its stream does not hand them out."""
    stream = getattr(experience, "_origin_stream", None)
    stream = getattr(getattr(stream, "benchmark", None), f"{stream.name}_stream", stream) if stream is not None else None
    if stream is None or not hasattr(stream, "__getitem__"):
        return None
    return [stream[i].dataset for i in range(experience.current_experience)]


def _buffer(strategy: Any) -> Any:
    """What is replayed: the strategy's own storage, or that of its first plugin that has one; None without."""
    holders = [strategy, *strategy.plugins]
    policies = [holder.storage_policy for holder in holders if getattr(holder, "storage_policy", None) is not None]
    return policies[0].buffer if policies else None


def _classes(dataset: Any) -> set[int]:
    return {int(label) for label in dataset.targets.uniques}


def _only(dataset: Any, classes: Iterable[int]) -> Any:
    """Its images of these classes as for evaluation; None where there are none."""
    if dataset is None or not len(dataset):
        return None
    kept = sorted(int(i) for label in classes for i in dataset.targets.val_to_idx.get(label, ()))
    return dataset.subset(kept).eval() if kept else None


def _joined(datasets: list[Any] | None, classes: Iterable[int]) -> Dataset[Any] | None:
    parts = [_only(dataset, classes) for dataset in datasets or []]
    found = [part for part in parts if part is not None]
    return ConcatDataset(found) if found else None


def _labels(strategy: Any) -> Tensor:
    """Of the batch, in proportion to their part in the loss: ER-ACE and ER-AML take the mean of two means."""
    labels: Tensor = strategy.mb_y
    if getattr(strategy, "replay_loader", None) is None or not hasattr(strategy, "mb_buffer_y"):
        return labels
    return weighed_alike(labels, strategy.mb_buffer_y)


def _loss(strategy: Any, buffer: Any, memory: Any, past: set[int], new: set[int]) -> Loss | None:
    if not hasattr(strategy, "ace_criterion") or memory is None:
        return own_loss(strategy._criterion)
    replayed = 1 - len(memory) / len(buffer)  # of what is replayed, the share of new classes
    return asymmetric_loss(past, new, replayed=lambda: replayed)
