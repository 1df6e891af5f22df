"""Hugging Face's Trainer: a callback. One `train` is one step; what is past and what is stored is given.

In a loop with accelerate `fs.Monitor` is used as in any loop, with `log=accelerator`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from forgetscope.files import replacing
from forgetscope.integrations.following import Follower, Following, epochs_of

STATE = "forgetscope.pt"  # beside the rest of a checkpoint


class ForgetscopeTrainerCallback(Following, TrainerCallback):  # type: ignore[misc]
    """Observes every `train` as a step: `Trainer(callbacks=[ForgetscopeTrainerCallback("results", "birds", data)])`.

    data: {"new": ..., "past": ..., "memory": ..., "test": ...}, each as `Monitor.step` takes it; items with "pixel_values" and
    "labels" are understood. alpha is counted from the labels that the model is given, unless it is among the data. Where the
    Trainer computes the loss and the model is given no labels, it is needed, and so is `loss` but for label smoothing.
    """

    def __init__(self, store: str | Path, name: str, data: Mapping[str, Any], **options: Any) -> None:
        super().__init__(Follower("huggingface", store, name, **options))
        self._data = dict(data)
        self._test = self._data.pop("test", None)
        self._listening: Any = None

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A Trainer has no hook for a training that fails, and does not say to its callbacks who it is."""
        trainer = _trainer_of(self)
        if trainer is None:
            return
        train = trainer.train

        @wraps(train)
        def watched(*given: Any, **named: Any) -> Any:
            try:
                return train(*given, **named)
            except BaseException as error:
                self._stop_listening()
                with self._follower.unharmed():
                    self._follower.end(error)
                raise

        trainer.train = watched

    def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        with self._follower.unharmed():
            saved = _checkpoint(args, state) / STATE
            if state.global_step and saved.exists():
                self.monitor.load_state_dict(torch.load(saved, weights_only=True))
            given = {"epochs": epochs_of(state.num_train_epochs), **self._data}
            if args.label_smoothing_factor:
                given.setdefault("loss", nn.CrossEntropyLoss(label_smoothing=args.label_smoothing_factor))
            self._follower.begin(model, **given)

    def on_step_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **kwargs: Any) -> None:
        """For one forward: the hook is gone before anything in the model can fail."""
        self._stop_listening()
        if self.step is not None:
            self._listening = model.register_forward_pre_hook(self._forward, with_kwargs=True)

    on_substep_end = on_step_begin

    def _forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._stop_listening()
        labels = kwargs.get("labels")
        if isinstance(labels, Tensor):
            with self._follower.unharmed():
                self._follower.batch(labels)

    on_epoch_end = Following._epoch_ended

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.step is not None:
            with self._follower.unharmed(), replacing(_checkpoint(args, state) / STATE) as file:
                torch.save(self.monitor.state_dict(), file)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._stop_listening()
        self._ended()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.remove()
            self._listening = None


def _trainer_of(callback: TrainerCallback) -> Any:
    """Whose constructor is calling this callback; None where nobody's is."""
    frame = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if callback in getattr(getattr(caller, "callback_handler", None), "callbacks", ()):
            return caller
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
