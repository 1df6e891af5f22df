"""Lightning 2.6: a callback. One `fit` is one step; what is past and what is stored is given, Lightning does not know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from forgetscope.integrations.following import Follower, Following, epochs_of

try:
    from lightning.pytorch import Callback
except ImportError:  # the same under its older name
    from pytorch_lightning import Callback

Given = Mapping[str, Any]  # new, and where there are any: past, memory, test; alpha, nodes, loss, head as of `Monitor.step`


class ForgetscopeCallback(Following, Callback):  # type: ignore[misc]
    """Observes every `fit` as a step: `Trainer(callbacks=[ForgetscopeCallback("results", "birds", data)])`.

    data: {"new": ..., "past": ..., "memory": ..., "test": ...}, each as `Monitor.step` takes it, or a function of trainer and
    module that gives this when the training begins. network: a function of the module, where it is not the module itself that
    gives logits. labels: a function of a batch, where they are not found in it; alpha is counted from them, unless it is among
    the data.
    """

    def __init__(
        self,
        store: str | Path,
        name: str,
        data: Given | Callable[[Any, Any], Given],
        *,
        network: Callable[[Any], nn.Module] | None = None,
        labels: Callable[[Any], Tensor] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(Follower("lightning", store, name, **options))
        self._data, self._network, self._labels = data, network, labels or labels_of
        self._resumed = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.is_global_zero:
            return
        with self._follower.unharmed():
            given = dict(self._data(trainer, pl_module) if callable(self._data) else self._data)
            self._test = given.pop("test", None)
            network = pl_module if self._network is None else self._network(pl_module)
            self._follower.begin(network, **{"epochs": epochs_of(trainer.max_epochs), **given})
            if self._resumed and self.step is not None and self.step.epoch < trainer.current_epoch:
                self._follower.epoch_ended()  # the checkpoint was written after an epoch, before this callback's turn
            self._resumed = False

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self.step is not None:
            with self._follower.unharmed():
                found = self._labels(batch)
                if found is not None:
                    self._follower.batch(found)

    on_train_epoch_end = Following._epoch_ended
    on_train_end = Following._ended

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        with self._follower.unharmed():
            self._follower.end(exception)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.step is None else dict(self.monitor.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            with self._follower.unharmed():
                self.monitor.load_state_dict(state_dict)
                self._resumed = True


def labels_of(batch: Any) -> Tensor | None:
    """The labels in a batch: (inputs, labels, ...), a mapping with "labels", or several of these, as `CombinedLoader` gives."""
    if isinstance(batch, Mapping):
        for key in ("labels", "label"):
            if isinstance(batch.get(key), Tensor):
                return batch[key]  # type: ignore[no-any-return]
        return _together(batch.values())
    if not isinstance(batch, tuple | list):
        return None
    if len(batch) > 1 and isinstance(batch[0], Tensor) and isinstance(batch[1], Tensor):
        return batch[1]
    return _together(batch)


def _together(parts: Any) -> Tensor | None:
    found = [labels for labels in map(labels_of, parts) if labels is not None]
    return torch.cat(found) if found else None
