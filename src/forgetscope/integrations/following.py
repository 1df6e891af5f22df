"""A monitor that a framework's hooks drive.

Whatever fails here, in a hook or in what it asks of the framework, is told once and ends the step as incomplete, never the
training; `strict` raises it.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from forgetscope.errors import InputError
from forgetscope.monitor.monitor import Monitor

Settings = Mapping[str, str | int | float | bool]
HeadOf = Callable[
    [nn.Module], nn.Module
]  # where the last layer of a network is not found: it grows, and is another one each step


class Follower:
    """One monitor and its running step. Every method may be called in any state: without a step it does nothing."""

    def __init__(
        self,
        framework: str,
        store: str | Path,
        name: str | None,
        *,
        settings: Settings | None = None,
        names: Mapping[int, str] | None = None,
        keepsake: Literal["variance", "covariance", "none"] = "variance",
        probe_images: int | Literal["auto"] | None = "auto",
        probes: int | None = None,
        strict: bool = False,
        log: Any = None,
        tell: Any = None,
    ) -> None:
        name = name or f"{framework}-{datetime.now():%Y%m%d-%H%M%S}"
        said = {"framework": framework, **(settings or {})}
        measured: dict[str, Any] = {"keepsake": keepsake, "probe_images": probe_images, "probes": probes}
        self.monitor = Monitor(store, name, settings=said, names=names or {}, **measured, strict=strict, log=log, tell=tell)
        self._strict, self._framework = strict, framework
        self.step: Any = None
        self._unseen: Counter[int] | None = None  # labels of batches, until the first one of a past class
        self._past: frozenset[int] = frozenset()

    def begin(
        self, network: nn.Module, *, past_classes: Iterable[int] = (), head_of: HeadOf | None = None, **data: Any
    ) -> None:
        """Opens a step: the probe before training. past_classes: of which `memory` holds images."""
        self.end(InputError("The next step began before this one had ended."))
        if head_of is not None:
            data["head"] = head_of(network)
        self.step = self.monitor.step(network, **data)
        self.step.open()
        self._past = frozenset(past_classes) if data.get("memory") is not None else frozenset()
        self._unseen = Counter() if self._past and data.get("alpha") is None else None

    def batch(self, labels: Tensor) -> None:
        """Tells a batch that is trained on.

        As long as none held an image of a past class nothing is told: a memory that no batch shows is replayed where nobody
        sees it, and then alpha is unknown, not 0.
        """
        if self.step is None:
            return
        if self._unseen is not None:
            self._unseen.update(labels.tolist())
            if self._past.isdisjoint(self._unseen):
                return
            labels, self._unseen = torch.tensor(list(self._unseen.elements())), None
        self.step.batch(labels)

    def epoch_ended(self) -> None:
        if self.step is not None:
            self.step.epoch_ended()

    def evaluate(self, test: Any) -> None:
        if self.step is not None:
            self.step.evaluate(test)

    def end(self, error: BaseException | None = None) -> None:
        """Closes the step, if there is one."""
        step, self.step = self.step, None
        if step is None:
            return
        if error is None and self._unseen:
            self.say(
                "No batch held an image of a past class, although there is a memory: alpha is unknown, and SIC, CIC and NIC "
                "are missing. Pass alpha=, the share of rehearsal images in a batch."
            )
        step.close(error)

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """What fails within is told and ends the step, not the training."""
        try:
            yield
        except Exception as error:
            if self._strict:
                raise
            told = " ".join(str(error).split())[:500].removesuffix(".")
            self.say(
                f"This step is not observed any further ({type(error).__name__}: {told}). The training goes on; strict=True "
                "raises it instead."
            )
            self.end(error)

    def say(self, sentence: str) -> None:
        message = f"forgetscope, in {self._framework}: {sentence}"
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        except Warning:  # where warnings are errors; that is not to end the training either
            print(message, file=sys.stderr)


def epochs_of(told: object) -> int | None:
    """A framework's number of epochs, where it says one.

    >>> epochs_of(20), epochs_of(-1), epochs_of(None)
    (20, None, None)
    """
    return told if isinstance(told, int) and told > 0 else None


class Following:
    """What the hooks of every framework share; whatever else they are told is theirs."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._test: Any = None  # to evaluate on when the step ends

    @property
    def monitor(self) -> Monitor:
        return self._follower.monitor

    @property
    def step(self) -> Any:
        """The one that runs, with `at_risk()`, or None."""
        return self._follower.step

    def _epoch_ended(self, *_args: Any, **_kwargs: Any) -> None:
        with self._follower.unharmed():
            self._follower.epoch_ended()

    def _ended(self, *_args: Any, **_kwargs: Any) -> None:
        with self._follower.unharmed():
            if self._test is not None:
                self._follower.evaluate(self._test)
            self._follower.end()
