"""PyCIL and PILOT: `observe(learner, "results")` after the learner was made. Nothing of these repositories is imported.

There is no hook for an epoch, so the learner is handed a loader that notices when it has been passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from forgetscope.integrations.following import Follower, HeadOf

BATCH = 64  # images that are measured at a time


def observe(
    learner: Any,
    store: str | Path,
    name: str | None = None,
    *,
    alpha: float | None = None,
    head: HeadOf | None = None,
    **options: Any,
) -> Any:
    """Observes every task that the learner trains on, and gives the monitor. Two methods are wrapped, on this object alone.

    Past, stored and new images come from its data manager, as for its tests. alpha is counted from its batches, in which it
    mixes memory and new data, unless it is given. head: a function of the network, where its last layer is not found.
    """
    follower = Follower("pycil", store, name, **options)
    train_task, train = learner.incremental_train, learner._train

    def incremental_train(data_manager: Any, *args: Any, **kwargs: Any) -> Any:
        begun = False

        def observed_train(*given: Any, **named: Any) -> Any:
            nonlocal begun
            with follower.unharmed():
                if not begun:  # some learners train twice within a task
                    begun = True
                    _begin(follower, learner, data_manager, alpha=alpha, head_of=head)
            loader = getattr(learner, "train_loader", None)
            noticed = [_NoticedLoader(one, learner, follower) if one is loader else one for one in given]
            return train(*noticed, **named)

        learner._train = observed_train
        try:
            result = train_task(data_manager, *args, **kwargs)
        except BaseException as error:
            with follower.unharmed():
                follower.end(error)
            raise
        finally:
            learner._train = train
        with follower.unharmed():
            follower.evaluate(_images(data_manager, learner._total_classes, 0, source="test"))
            follower.end()
        return result

    learner.incremental_train = incremental_train
    return follower.monitor


def _begin(follower: Follower, learner: Any, data_manager: Any, **told: Any) -> None:
    known, total, memory = learner._known_classes, learner._total_classes, learner._get_memory()
    learner._network.to(learner._device)  # as its training does first
    follower.begin(
        learner._network,
        past=_images(data_manager, known, 0) if known else None,
        memory=_images(data_manager, 0, 0, memory=memory) if known and memory is not None else None,
        new=_images(data_manager, total, known),
        past_classes=range(known),
        **told,
    )


def _images(
    data_manager: Any, end: int, start: int, *, source: str = "train", memory: Any = None
) -> Callable[[], Iterator[tuple[Tensor, Tensor]]]:
    """Those of classes start to end without augmentation, or those of a memory: their batches begin with an image's number."""

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        dataset = data_manager.get_dataset(np.arange(start, end), source=source, mode="test", appendent=memory)
        for _, inputs, labels in DataLoader(dataset, batch_size=BATCH):
            yield inputs, labels

    return batches


class _NoticedLoader:
    """A loader that tells its batches and the end of each pass in which the network is trained."""

    def __init__(self, loader: Any, learner: Any, follower: Follower) -> None:
        self._loader, self._learner, self._follower = loader, learner, follower

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            if self._learner._network.training:
                with self._follower.unharmed():
                    self._follower.batch(batch[2])
            yield batch
        if self._learner._network.training:
            with self._follower.unharmed():
                self._follower.epoch_ended()

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
